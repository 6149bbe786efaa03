// The AI SDK at its defaults finishes a job with a call of a tool, whole and streamed.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import test from "node:test";
import { pathToFileURL } from "node:url";

const { CONFORMANCE_TOOLS, CONFORMANCE_URL, CONFORMANCE_KEY, CONFORMANCE_MODEL } = process.env;
const require = createRequire(`${CONFORMANCE_TOOLS}/`);
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const { generateText, isStepCount, stepCountIs, streamText, tool } = await load("ai");
const { createOpenAI } = await load("@ai-sdk/openai");
const { z } = await load("zod");

const openai = createOpenAI({ baseURL: `${CONFORMANCE_URL}/v1`, apiKey: CONFORMANCE_KEY });

function job() {
  const cities = [];
  const getWeather = tool({
    description: "The weather in a city.",
    inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => {
      cities.push(city);
      return "fake:text=18_degrees";
    },
  });
  const asked = {
    model: openai(CONFORMANCE_MODEL),
    prompt: "What is the weather in Paris? fake:call=get_weather",
    tools: { get_weather: getWeather },
    stopWhen: (stepCountIs ?? isStepCount)(3),
  };
  return { asked, cities };
}

test("the AI SDK, whole", async () => {
  const { asked, cities } = job();
  const { text } = await generateText(asked);
  assert.equal(cities.length, 1);
  assert.equal(text, "18 degrees");
});

test("the AI SDK, streamed", async () => {
  const { asked, cities } = job();
  let text = "";
  for await (const piece of streamText(asked).textStream) text += piece;
  assert.equal(cities.length, 1);
  assert.ok(text.endsWith("18 degrees"), text);
});
