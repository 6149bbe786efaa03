// Ticks in the list of batches outlive the list's updates; the bar says how many there are.
document.addEventListener("DOMContentLoaded", () => {
  const bar = document.getElementById("bulk");
  if (!bar) return;
  const chosen = new Set();
  const boxes = () => [...document.querySelectorAll("#batches-list input[name=batch]")];

  function show() {
    const shown = boxes();
    for (const box of shown) box.checked = chosen.has(box.value);
    const all = document.getElementById("select-all");
    if (all) all.checked = shown.length > 0 && shown.every((box) => box.checked);
    const every = document.getElementById("bulk-all").checked;
    const words = every ? "All selected" : `${chosen.size} selected`;
    const count = document.getElementById("bulk-count");
    if (count.textContent !== words) count.textContent = words; // or the observer would see itself
    for (const button of bar.querySelectorAll("button")) button.disabled = chosen.size === 0 && !every;
    const asked = document.getElementById("bulk-cancel-count");
    const named = every ? "all live batches that match" : `${chosen.size} ${chosen.size === 1 ? "batch" : "batches"}`;
    if (asked.textContent !== named) asked.textContent = named;
  }

  document.addEventListener("change", (event) => {
    if (event.target.id === "bulk-all") return show();
    if (event.target.id !== "select-all" && event.target.name !== "batch") return;
    for (const box of event.target.id === "select-all" ? boxes() : [event.target]) {
      if (event.target.checked) chosen.add(box.value);
      else chosen.delete(box.value);
    }
    show();
  });
  new MutationObserver(show).observe(document.getElementById("main"), { childList: true, subtree: true, characterData: true });
  show();
});
