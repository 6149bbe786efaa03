// The AI SDK at its defaults finishes a job with a call of a tool, whole and streamed. A real small
// model does not call by itself: it has the job twice, and the second time the first call is forced.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import test from "node:test";
import { pathToFileURL } from "node:url";

const { CONFORMANCE_TOOLS, CONFORMANCE_URL, CONFORMANCE_KEY, CONFORMANCE_MODEL } = process.env;
const real = Boolean(process.env.CONFORMANCE_REAL);
const require = createRequire(`${CONFORMANCE_TOOLS}/`);
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const { generateText, isStepCount, stepCountIs, streamText, tool } = await load("ai");
const { createOpenAI } = await load("@ai-sdk/openai");
const { z } = await load("zod");

const openai = createOpenAI({ baseURL: `${CONFORMANCE_URL}/v1`, apiKey: CONFORMANCE_KEY });

function job(forced) {
  const cities = [];
  const getWeather = tool({
    description: "The weather in a city.",
    inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => {
      cities.push(city);
      return real ? "18 degrees" : "fake:text=18_degrees";
    },
  });
  const asked = {
    model: openai(CONFORMANCE_MODEL),
    prompt: `What is the weather in Paris?${real ? "" : " fake:call=get_weather"}`,
    tools: { get_weather: getWeather },
    stopWhen: (stepCountIs ?? isStepCount)(3),
  };
  if (real) asked.maxOutputTokens = 128;
  if (forced) {
    asked.providerOptions = { openai: { parallelToolCalls: false } };
    asked.prepareStep = ({ stepNumber }) => ({ toolChoice: stepNumber ? "auto" : "required" });
  }
  return { asked, cities };
}

function check(cities, text, forced) {
  if (real) {
    assert.ok(text.trim());
    assert.ok(cities.length || !forced);
  } else {
    assert.equal(cities.length, 1);
    assert.ok(text.endsWith("18 degrees"), text);
  }
}

for (const forced of real ? [false, true] : [false]) {
  const how = forced ? ", forced" : "";

  test(`the AI SDK, whole${how}`, async () => {
    const { asked, cities } = job(forced);
    const { text } = await generateText(asked);
    check(cities, text, forced);
  });

  test(`the AI SDK, streamed${how}`, async () => {
    const { asked, cities } = job(forced);
    let text = "";
    for await (const piece of streamText(asked).textStream) text += piece;
    check(cities, text, forced);
  });
}
