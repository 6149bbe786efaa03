// The little that markup cannot say: the live mark, the confirmation, copying.
(() => {
  const live = document.getElementById("live");
  const say = (state, words) => {
    if (!live) return;
    live.dataset.state = state;
    document.getElementById("live-label").textContent = words;
  };
  const toLogin = () => {
    const next = encodeURIComponent(location.pathname);
    location.assign(`${document.body.dataset.login}?next=${next}`);
  };

  document.addEventListener("htmx:sse:after:connection", () => say("live", "Live"));
  document.addEventListener("htmx:sse:error", (event) => {
    if (event.detail.status === 401) toLogin();
    else say("lost", "Reconnecting");
  });
  document.addEventListener("htmx:sse:close", () => say("lost", "Not live"));
  document.addEventListener("htmx:response:error", (event) => {
    if (event.detail.ctx?.response?.status === 401) toLogin();
    else say("lost", "Not live");
  });
  document.addEventListener("session-over", toLogin);

  // Instants are written in UTC; here they are said in the reader's time, and in UTC on hover.
  const two = (n) => String(n).padStart(2, "0");
  function localize() {
    for (const one of document.querySelectorAll("time.instant")) {
      const at = new Date(one.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
      const words = `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
      if (one.textContent === words) continue;
      one.title ||= one.textContent;
      one.textContent = words;
    }
  }
  document.addEventListener("DOMContentLoaded", localize);
  document.addEventListener("htmx:after:swap", localize);

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.dataset.dialog) {
      event.preventDefault();
      // What came after the page was loaded has its dialog in a newer one.
      const dialog = document.getElementById(button.dataset.dialog);
      if (dialog) dialog.showModal();
      else location.reload();
    } else if ("close" in button.dataset) {
      button.closest("dialog").close();
    } else if (button.dataset.copy) {
      const text = document.getElementById(button.dataset.copy).textContent;
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = "Copied";
      } catch {
        // No clipboard without https or permission: select it, so that the keyboard can copy it.
        getSelection().selectAllChildren(document.getElementById(button.dataset.copy));
        button.textContent = "Selected";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    }
  });
})();
