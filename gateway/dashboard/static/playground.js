// One chat: its answer as it streams, its latencies as this browser sees them, and its batch line.
document.addEventListener("DOMContentLoaded", () => {
  const form = document.getElementById("playground");
  if (!form) return;
  const field = (id) => document.getElementById(id);
  const milliseconds = (value) => `${Math.round(value)} ms`;
  let stopping = null;

  function request() {
    const messages = [{ role: "user", content: field("prompt").value }];
    if (field("system").value) messages.unshift({ role: "system", content: field("system").value });
    const body = { model: field("model").value, messages };
    if (field("temperature").value) body.temperature = Number(field("temperature").value);
    if (field("max-tokens").value) body.max_completion_tokens = Number(field("max-tokens").value);
    return body;
  }

  function showLine() {
    const line = { custom_id: "line-1", method: "POST", url: "/v1/chat/completions", body: request() };
    field("batch-line").firstElementChild.textContent = JSON.stringify(line);
    const url = field("elsewhere").dataset.url;
    const quoted = JSON.stringify(line.body, null, 2).replaceAll("'", "'\\''");
    field("as-curl").firstElementChild.textContent = `curl ${url}/chat/completions \\\n  -H "Authorization: Bearer $KEY" \\\n  -H 'Content-Type: application/json' -d '${quoted}'`;
    const values = Object.entries(line.body).map(([name, value]) => `    ${name}=${JSON.stringify(value)},\n`).join("");
    field("as-python").firstElementChild.textContent = `from openai import OpenAI\n\nclient = OpenAI(base_url="${url}", api_key="sk-coserve-...")\nanswer = client.chat.completions.create(\n${values})\nprint(answer.choices[0].message.content)`;
  }

  function fail(words) {
    field("playground-error").textContent = words;
    field("playground-error").hidden = false;
  }

  async function* events(reply) {
    const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
    let kept = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (kept + value).split("\n");
      kept = lines.pop();
      for (const line of lines) {
        if (line.startsWith("data: ") && line !== "data: [DONE]") yield JSON.parse(line.slice(6));
      }
    }
  }

  async function ask() {
    const began = performance.now();
    const came = [];
    let usage = null;
    let finish = "";
    const reply = await fetch(form.action, {
      method: "POST",
      headers: { "content-type": "application/json", "x-csrf-token": form.dataset.token },
      body: JSON.stringify({ ...request(), stream: true, stream_options: { include_usage: true } }),
      signal: stopping.signal,
    });
    if (reply.status === 401) return location.assign(document.body.dataset.login);
    if (!reply.ok) {
      const told = await reply.json().catch(() => null);
      return fail(told?.error?.message ?? `The answer was ${reply.status}.`);
    }
    for await (const chunk of events(reply)) {
      if (chunk.error) return fail(chunk.error.message);
      usage = chunk.usage ?? usage;
      for (const choice of chunk.choices ?? []) {
        finish = choice.finish_reason ?? finish;
        if (!choice.delta?.content) continue;
        came.push(performance.now());
        field("answer").append(choice.delta.content);
      }
      show(began, came, usage);
    }
    field("ended").textContent = `Ended by ${finish || "the service"}; request ${reply.headers.get("x-request-id")}.`;
  }

  function show(began, came, usage) {
    field("figures").hidden = false;
    if (came.length) field("ttft").textContent = milliseconds(came[0] - began);
    const gaps = came.slice(1).map((at, place) => at - came[place]).sort((a, b) => a - b);
    if (gaps.length) {
      field("tbt").textContent = milliseconds(gaps[Math.floor(gaps.length / 2)]);
      field("tbt-max").textContent = milliseconds(gaps[gaps.length - 1]);
    }
    if (usage) field("tokens").textContent = `${usage.prompt_tokens}, ${usage.completion_tokens}`;
  }

  form.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    if (!field("ask").disabled) form.requestSubmit(field("ask"));
  });
  form.addEventListener("input", showLine);
  showLine();
  field("stop").addEventListener("click", () => stopping?.abort());
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (stopping) return;
    stopping = new AbortController();
    field("answer").textContent = "";
    field("ended").textContent = "";
    field("playground-error").hidden = true;
    field("figures").hidden = true;
    for (const id of ["ttft", "tbt", "tbt-max", "tokens"]) field(id).textContent = "–";
    field("ask").disabled = true;
    field("stop").hidden = false;
    field("answer").setAttribute("aria-busy", "true");
    try {
      await ask();
    } catch (error) {
      if (error.name === "AbortError") field("ended").textContent = "Stopped; its tokens so far are counted.";
      else fail("The connection was lost.");
    } finally {
      stopping = null;
      field("ask").disabled = false;
      field("stop").hidden = true;
      field("answer").setAttribute("aria-busy", "false");
    }
  });
});
