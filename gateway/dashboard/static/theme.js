// Before anything is painted: the theme chosen earlier, else the system's.
(() => {
  const stored = (() => { try { return localStorage.getItem("theme"); } catch { return null; } })();
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const apply = (theme) => { document.documentElement.dataset.theme = theme; };
  apply(stored ?? (dark.matches ? "dark" : "light"));
  dark.addEventListener("change", (e) => { if (!stored) apply(e.matches ? "dark" : "light"); });
  document.addEventListener("DOMContentLoaded", () => {
    document.getElementById("theme-toggle").addEventListener("click", () => {
      const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
      apply(next);
      try { localStorage.setItem("theme", next); } catch { /* private mode: for this page only */ }
      document.dispatchEvent(new Event("theme-changed"));
    });
  });
})();
