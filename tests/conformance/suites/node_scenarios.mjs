// What a user does, with the official Node client (row Z-10).
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import test from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { pathToFileURL } from "node:url";

const { CONFORMANCE_TOOLS, CONFORMANCE_URL, CONFORMANCE_KEY, CONFORMANCE_MODEL, CONFORMANCE_EMBEDDER } =
  process.env;
const require = createRequire(`${CONFORMANCE_TOOLS}/`);
const { default: OpenAI, toFile } = await import(pathToFileURL(require.resolve("openai")).href);

const client = new OpenAI({ baseURL: `${CONFORMANCE_URL}/v1`, apiKey: CONFORMANCE_KEY, maxRetries: 0 });
const model = CONFORMANCE_MODEL;
const messages = [{ role: "user", content: "Say hello." }];
const asked = { model, messages, max_tokens: 6, temperature: 0 };
const CHAT = "/v1/chat/completions";

test("chat, whole and streamed, agree", async () => {
  const whole = await client.chat.completions.create(asked);
  assert.equal(whole.object, "chat.completion");
  assert.equal(whole.usage.total_tokens, whole.usage.prompt_tokens + whole.usage.completion_tokens);
  let text = "";
  let usage = null;
  const finishes = [];
  const stream = await client.chat.completions.create({
    ...asked, stream: true, stream_options: { include_usage: true },
  });
  for await (const chunk of stream) {
    usage = chunk.usage ?? usage;
    for (const choice of chunk.choices) {
      text += choice.delta.content ?? "";
      if (choice.finish_reason) finishes.push(choice.finish_reason);
    }
  }
  assert.equal(text, whole.choices[0].message.content);
  assert.deepEqual(finishes, [whole.choices[0].finish_reason]);
  assert.equal(usage.completion_tokens, whole.usage.completion_tokens);
});

test("the client's own stream helper", async () => {
  const runner = client.chat.completions.stream(asked);
  const final = await runner.finalChatCompletion();
  assert.ok(final.choices[0].message.content.length > 0);
});

test("a raw response has our headers", async () => {
  const { data, response } = await client.chat.completions.create(asked).withResponse();
  assert.match(response.headers.get("x-request-id"), /^req_/);
  assert.equal(data._request_id, response.headers.get("x-request-id"));
});

test("an aborted stream ends, and the client goes on", async () => {
  const stream = await client.chat.completions.create({ ...asked, max_tokens: 500, stream: true });
  let seen = 0;
  for await (const _ of stream) {
    seen += 1;
    if (seen === 2) stream.controller.abort();
  }
  assert.ok(seen >= 2);
  const controller = new AbortController();
  controller.abort();
  await assert.rejects(
    client.chat.completions.create(asked, { signal: controller.signal }), OpenAI.APIUserAbortError,
  );
  assert.equal((await client.models.retrieve(model)).id, model);
});

test("completions and models", async () => {
  const made = await client.completions.create({ model, prompt: ["One,", "A,"], max_tokens: 3 });
  assert.deepEqual(made.choices.map((choice) => choice.index), [0, 1]);
  const ids = [];
  for await (const one of client.models.list()) ids.push(one.id);
  assert.ok(ids.includes(model));
});

test("embeddings", { skip: CONFORMANCE_EMBEDDER ? false : "no engine here makes embeddings" }, async () => {
  const made = await client.embeddings.create({ model: CONFORMANCE_EMBEDDER, input: ["a", "b"] });
  const numbers = await client.embeddings.create({
    model: CONFORMANCE_EMBEDDER, input: "a", encoding_format: "float",
  });
  assert.equal(made.data.length, 2);
  made.data[0].embedding.forEach((part, i) =>
    assert.ok(Math.abs(part - numbers.data[0].embedding[i]) < 1e-6));
});

test("errors are the client's classes", async () => {
  const create = (more) => client.chat.completions.create({ ...asked, ...more });
  await assert.rejects(create({ model: "no-such-model" }), (error) => {
    assert.ok(error instanceof OpenAI.NotFoundError);
    assert.equal(error.code, "model_not_found");
    return true;
  });
  await assert.rejects(create({ temperature: 3 }), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.equal(error.param, "temperature");
    assert.ok(error.requestID);
    return true;
  });
  const stranger = new OpenAI({ baseURL: `${CONFORMANCE_URL}/v1`, apiKey: "sk-wrong", maxRetries: 0 });
  await assert.rejects(stranger.models.list(), OpenAI.AuthenticationError);
  await assert.rejects(client.files.retrieve("file-none"), OpenAI.NotFoundError);
});

test("files there and back", async () => {
  const data = '{"a": 1}\n'.repeat(1000);
  const file = await client.files.create({
    file: await toFile(Buffer.from(data), "in.jsonl"), purpose: "batch",
  });
  assert.equal(file.bytes, data.length);
  const ids = [];
  for await (const one of client.files.list({ limit: 2 })) ids.push(one.id);
  assert.ok(ids.includes(file.id));
  assert.equal(await (await client.files.content(file.id)).text(), data);
  assert.equal((await client.files.delete(file.id)).deleted, true);
});

test("a batch from file to results", async () => {
  const body = { model, messages, max_tokens: 3 };
  const lines = ["a", "b", "c"].map((custom_id) =>
    JSON.stringify({ custom_id, method: "POST", url: CHAT, body }));
  const file = await client.files.create({
    file: await toFile(Buffer.from(lines.join("\n")), "in.jsonl"), purpose: "batch",
  });
  let batch = await client.batches.create({
    input_file_id: file.id, endpoint: CHAT, completion_window: "24h",
  });
  const until = Date.now() + 90_000;
  while (batch.status !== "completed" && Date.now() < until) {
    await sleep(200);
    batch = await client.batches.retrieve(batch.id);
  }
  assert.equal(batch.status, "completed");
  const output = await (await client.files.content(batch.output_file_id)).text();
  const answered = output.trimEnd().split("\n").map((one) => JSON.parse(one));
  assert.deepEqual(answered.map((one) => one.custom_id).sort(), ["a", "b", "c"]);
  assert.ok(answered.every((one) => one.response.body.object === "chat.completion"));
  await assert.rejects(client.batches.cancel(batch.id), OpenAI.ConflictError);
});

const weather = {
  type: "function", name: "get_weather", strict: false,
  parameters: { type: "object", properties: { city: { type: "string" } } },
};
const streams = {
  text: { input: "Say hello.", max_output_tokens: 64 },
  cut: { input: "Count to a hundred.", max_output_tokens: 3 },
  call: { input: "Paris?", tools: [weather], tool_choice: "required", parallel_tool_calls: false },
  "chosen call": { input: "fake:call=get_weather", tools: [weather], max_output_tokens: 64 },
  failed: { input: "fake:token_ms=20 fake:fail_after=2", max_output_tokens: 64 },
  background: { input: "Say hello.", max_output_tokens: 8, background: true },
};

for (const [kind, body] of Object.entries(streams)) {
  test(`events of a response come in the documented order: ${kind}`, async () => {
    const order = JSON.parse(await readFile(process.env.CONFORMANCE_ORDER, "utf8"));
    let state = "start";
    let number = 0;
    for await (const event of await client.responses.create({ model, stream: true, ...body })) {
      assert.equal(event.sequence_number, number);
      number += 1;
      if (event.type === "response.failed") {
        assert.ok(!["start", "over"].includes(state));
        state = "over";
        continue;
      }
      assert.ok(event.type in order[state], `${event.type} in state ${state}`);
      state = order[state][event.type];
      if (event.type === "response.output_item.added") state = event.item.type;
    }
    assert.equal(state, "over");
  });
}

test("a response is stored, read, told again, gone on from and deleted", async () => {
  const first = await client.responses.create({ model, input: "fake:text=Paris" });
  assert.equal(first.status, "completed");
  assert.deepEqual((await client.responses.retrieve(first.id)).output, first.output);
  const items = await Array.fromAsync(client.responses.inputItems.list(first.id));
  assert.deepEqual(items.map((one) => one.role), ["user"]);
  let told;
  for await (const event of await client.responses.retrieve(first.id, { stream: true })) {
    if (event.type === "response.completed") told = event.response;
  }
  assert.equal(told.id, first.id);
  const body = { model, input: "Go on.", previous_response_id: first.id };
  const second = await client.responses.create(body);
  assert.equal(second.previous_response_id, first.id);
  await client.responses.delete(first.id);
  await assert.rejects(client.responses.retrieve(first.id), OpenAI.NotFoundError);
  await assert.rejects(client.responses.create(body), OpenAI.NotFoundError);
});

test("a response answers with what a tool said, in a conversation", async () => {
  const talk = await client.conversations.create();
  const asked = await client.responses.create({
    model, input: "Paris?", tools: [weather], tool_choice: "required", conversation: talk.id,
  });
  const call = asked.output.find((one) => one.type === "function_call");
  assert.equal(call.name, "get_weather");
  JSON.parse(call.arguments);
  const input = [{ type: "function_call_output", call_id: call.call_id, output: "18 degrees" }];
  const answer = await client.responses.create({
    model, input, tools: [weather], tool_choice: "none", conversation: talk.id, max_output_tokens: 16,
  });
  assert.notEqual(answer.output_text, "");
  const items = await Array.fromAsync(client.conversations.items.list(talk.id, { order: "asc" }));
  assert.deepEqual(
    items.map((one) => one.type),
    ["message", "function_call", "function_call_output", "message"],
  );
  await client.conversations.delete(talk.id);
  await assert.rejects(client.conversations.retrieve(talk.id), OpenAI.NotFoundError);
});

test("a response in the background is polled, and another is cancelled", async () => {
  const input = "Say hello.";
  let made = await client.responses.create({ model, input, background: true, max_output_tokens: 8 });
  const until = Date.now() + 60_000;
  while (["queued", "in_progress"].includes(made.status) && Date.now() < until) {
    await sleep(200);
    made = await client.responses.retrieve(made.id);
  }
  assert.ok(["completed", "incomplete"].includes(made.status), made.status);
  await assert.rejects(client.responses.cancel(made.id), OpenAI.BadRequestError);
  const long = await client.responses.create({
    model, input: "fake:token_ms=1000 Count to a thousand.", background: true, max_output_tokens: 512,
  });
  assert.equal((await client.responses.cancel(long.id)).status, "cancelled");
  assert.equal((await client.responses.retrieve(long.id)).status, "cancelled");
});
