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
const { generateText, isStepCount, Output, stepCountIs, streamText, tool } = await load("ai");
const { createOpenAI } = await load("@ai-sdk/openai");
const { createOpenAICompatible } = await load("@ai-sdk/openai-compatible");
const { z } = await load("zod");

const there = { baseURL: `${CONFORMANCE_URL}/v1`, apiKey: CONFORMANCE_KEY };
const PROVIDERS = {
  openai: createOpenAI(there),
  "openai-compatible": createOpenAICompatible({
    name: "coserve",
    supportsStructuredOutputs: true,
    includeUsage: true,
    ...there,
  }),
};
const OPTIONS = { openai: "openai", "openai-compatible": "coserve" };
const ONE_CALL = {
  openai: { parallelToolCalls: false },
  "openai-compatible": { parallel_tool_calls: false },
};
const DEGREES = z.object({ degrees: z.number() });

function job(provider, forced) {
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
    model: PROVIDERS[provider](CONFORMANCE_MODEL),
    prompt: `What is the weather in Paris?${real ? "" : " fake:call=get_weather"}`,
    tools: { get_weather: getWeather },
    stopWhen: (stepCountIs ?? isStepCount)(3),
  };
  if (real) asked.maxOutputTokens = 128;
  if (forced) {
    asked.providerOptions = { [OPTIONS[provider]]: ONE_CALL[provider] };
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

for (const provider of Object.keys(PROVIDERS)) {
  for (const forced of real ? [false, true] : [false]) {
    const how = `${provider}${forced ? ", forced" : ""}`;

    test(`the AI SDK, whole, ${how}`, async () => {
      const { asked, cities } = job(provider, forced);
      const { text } = await generateText(asked);
      check(cities, text, forced);
    });

    test(`the AI SDK, streamed, ${how}`, async () => {
      const { asked, cities } = job(provider, forced);
      let text = "";
      for await (const piece of streamText(asked).textStream) text += piece;
      check(cities, text, forced);
    });
  }

  // A small model does not choose between a call and a form.
  test(`the AI SDK, a call and then an object, ${provider}`, { skip: real }, async () => {
    const { asked } = job(provider, false);
    asked.tools.get_weather.execute = async () => 'fake:text={"degrees":18}';
    const { output } = await generateText({ ...asked, output: Output.object({ schema: DEGREES }) });
    assert.deepEqual(output, { degrees: 18 });
    const streamed = streamText({ ...asked, output: Output.object({ schema: DEGREES }) });
    for await (const _ of streamed.textStream);
    assert.deepEqual(await streamed.output, { degrees: 18 });
  });
}
