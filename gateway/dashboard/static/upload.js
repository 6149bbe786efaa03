// The upload form: drop a file, a first look at it, and a bar. Without this it is a plain form.
document.addEventListener("DOMContentLoaded", () => {
  const form = document.getElementById("upload-form");
  if (!form) return;
  const input = document.getElementById("file");
  const drop = document.getElementById("drop");
  const chosen = document.getElementById("file-chosen");
  const endpoint = document.getElementById("endpoint");
  const error = document.getElementById("upload-error");
  const bar = document.getElementById("upload-progress");
  const button = document.getElementById("upload-button");
  const maxBytes = Number(form.dataset.maxBytes);
  const LOOK_BYTES = 256 * 1024;
  const service = JSON.parse(form.dataset.service);
  const found = document.getElementById("file-report");
  const errors = document.getElementById("file-errors");
  let round = 0; // the newest choice: an older check ends when it sees another

  const megabytes = (bytes) => (bytes < 1e6 ? `${(bytes / 1e3).toFixed(1)} kB` : `${(bytes / 1e6).toFixed(1)} MB`);
  const fail = (words) => { error.textContent = words; error.hidden = false; error.scrollIntoView({ block: "nearest" }); };

  async function look() {
    error.hidden = errors.hidden = true;
    chosen.textContent = found.textContent = "";
    round += 1;
    button.disabled = false;
    button.textContent = "Upload and start";
    const file = input.files[0];
    if (!file) return;
    chosen.textContent = `${file.name}, ${megabytes(file.size)}`;
    if (file.size === 0) return fail("This file is empty.");
    if (file.size > maxBytes) return fail(`This file has ${megabytes(file.size)}; the limit is ${maxBytes / 1048576} MiB.`);
    const head = await file.slice(0, LOOK_BYTES).text();
    const line = head.split("\n", 1)[0];
    if (line.length === head.length && file.size > LOOK_BYTES) return; // one very long line: the server will judge
    try {
      const request = JSON.parse(line.replace(/^\uFEFF/, ""));
      if ([...endpoint.options].some((option) => option.value === request.url)) endpoint.value = request.url;
      chosen.textContent += `, model ${request.body?.model ?? "not named"}`;
    } catch {
      // The service names this line among the others.
    }
    await whole(file);
  }

  const number = (value) => Math.round(value).toLocaleString("en");
  const about = (seconds) => (seconds < 90 ? `${Math.ceil(seconds / 10) * 10} s` : seconds < 5400 ? `${Math.ceil(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`);

  // What the service finds, as it would after the upload; none where it does not say.
  async function judged(file) {
    try {
      const reply = await fetch(`${form.action}/check?endpoint=${encodeURIComponent(endpoint.value)}`, {
        method: "POST",
        headers: { "content-type": "application/octet-stream", "x-csrf-token": form.elements.csrf_token.value },
        body: file,
      });
      if (reply.ok) return await reply.json();
    } catch { /* the upload will say so */ }
    return null;
  }

  function amounts(report, quote) {
    if (!quote) return [`About ${number(report.promptTokens)} tokens to read and at most about ${number(report.answerTokens)} to write.`];
    const said = [];
    if (quote.distinct_rows < quote.rows) said.push(`${number(quote.distinct_rows)} are distinct: the others repeat one of them and cost nothing.`);
    const shared = quote.shared_prompt_tokens ? `, ${number(quote.shared_prompt_tokens)} of them shared` : "";
    const answers = quote.answer_tokens === null ? `at most about ${number(report.answerTokens)}` : `about ${number(quote.answer_tokens)}`;
    said.push(`About ${number(quote.prompt_tokens)} tokens to read${shared}, ${answers} to write${quote.price ? `, worth ${quote.price}` : ""}.`);
    if (quote.finish_range) {
      const [earliest, latest] = quote.finish_range.map((at) => about(Math.max(0, at - Date.now() / 1000)));
      said.push(earliest === latest ? `It would end in about ${latest}.` : `It would end in ${earliest} to ${latest}.`);
    }
    return said;
  }

  async function whole(file) {
    const mine = round;
    const report = await coserveCheck(file, endpoint.value, () => mine === round, (lines, share) => { found.textContent = `Checking: ${number(lines)} lines, ${Math.round(100 * share)} %`; });
    if (report === null) return;
    found.textContent = "Checking every line …";
    const checked = await judged(file);
    if (mine !== round) return;
    const said = [`${number(report.numLines)} lines, ${!checked ? "not checked" : checked.faults.length ? `${number(checked.faults.length)} ${checked.faults.length === 1 ? "error" : "errors"}` : "no errors"}.`];
    said.push(...amounts(report, checked?.quote));
    if (service.models.length && report.model && !service.models.includes(report.model)) said.push(`No engine serves the model ${report.model} now.`);
    const used = service.enqueued[report.model] ?? 0;
    if (service.limit !== null) {
      const over = used + report.promptTokens > service.limit;
      said.push(`Quota: ${number(used)} of ${number(service.limit)} tokens wait already${over ? "; this file is too much for now" : ""}.`);
    }
    found.textContent = said.join(" ");
    const faults = checked?.faults ?? [];
    const wrongLines = new Set(faults.map((one) => one.line)).size;
    button.disabled = faults.length > 0;
    button.textContent = faults.length ? `Fix ${number(wrongLines)} ${wrongLines === 1 ? "line" : "lines"} first` : "Upload and start";
    const rows = faults.map(({ line, message: words }) => {
      const row = document.createElement("tr");
      for (const text of [line ?? "–", words]) row.append(Object.assign(document.createElement("td"), { textContent: text }));
      return row;
    });
    errors.querySelector("tbody").replaceChildren(...rows);
    errors.hidden = rows.length === 0;
  }
  endpoint.addEventListener("change", () => {
    if (!input.files[0]) return;
    round += 1;
    whole(input.files[0]);
  });

  input.addEventListener("change", look);
  for (const kind of ["dragenter", "dragover"]) {
    drop.addEventListener(kind, (event) => { event.preventDefault(); drop.classList.add("over"); });
  }
  for (const kind of ["dragleave", "drop"]) {
    drop.addEventListener(kind, () => drop.classList.remove("over"));
  }
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    if (event.dataTransfer.files.length) { input.files = event.dataTransfer.files; look(); }
  });

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const file = input.files[0];
    if (file && file.size > maxBytes) return look();
    const fields = new FormData();
    for (const name of ["csrf_token", "purpose", "endpoint", "completion_window", "priority", "metadata", "webhook"]) if (form.elements[name]) fields.append(name, form.elements[name].value);
    if (form.elements.paused.checked) fields.append("paused", "1");
    fields.append("file", file); // last: the server reads it only if what comes before is good
    const send = new XMLHttpRequest();
    const idle = () => { bar.hidden = true; button.disabled = false; button.removeAttribute("aria-busy"); };
    send.upload.addEventListener("progress", (e) => { if (e.lengthComputable) bar.value = (100 * e.loaded) / e.total; });
    send.addEventListener("error", () => { idle(); fail("The connection was lost. The file was not stored; try again."); });
    send.addEventListener("load", () => {
      const next = send.getResponseHeader("hx-redirect");
      if (next) return location.assign(next);
      idle();
      const page = new DOMParser().parseFromString(send.responseText, "text/html");
      fail((page.getElementById("upload-error") ?? page.querySelector("[role=alert]"))?.textContent.trim() || "The upload was refused.");
    });
    error.hidden = true;
    bar.hidden = false;
    bar.value = 0;
    button.disabled = true;
    button.setAttribute("aria-busy", "true");
    send.open("POST", form.action);
    send.setRequestHeader("hx-request", "true");
    send.send(fields);
  });
});
