// Vercel's `ai` with `@ai-sdk/openai-compatible`: node vercel_client.mjs URL KEY, in a folder with both. Ends with an error where one answer is wrong.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { embedMany, generateText, Output, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const [url, apiKey] = process.argv.slice(2);
const server = createOpenAICompatible({ name: "ours", baseURL: `${url}/v1`, apiKey, includeUsage: true, supportsStructuredOutputs: true });
const model = server("demo");
const prompt = "Once upon a time";
const ask = { model, prompt, temperature: 0, maxOutputTokens: 12, maxRetries: 0 };
const long = { ...ask, maxOutputTokens: 300 };
const Fox = z.object({ age: z.number().int().min(0).max(9) });

/** What the server says to the body without any package. */
const raw = async (path, body) => {
  const headers = { authorization: `Bearer ${apiKey}`, "content-type": "application/json" };
  const answer = await fetch(`${url}/v1/${path}`, { method: "POST", headers, body: JSON.stringify(body) });
  assert.equal(answer.status, 200);
  return answer.json();
};
const messages = [{ role: "user", content: prompt }];
const said = (await raw("chat/completions", { model: "demo", messages, temperature: 0, max_tokens: 12 })).choices[0].message.content;
assert(said);

const whole = await generateText(ask);
assert.equal(whole.text, said);
assert.equal(whole.usage.outputTokens, 12);
const streamed = streamText(ask);
let text = "";
for await (const part of streamed.textStream) text += part;
assert.equal(text, said);
assert.equal((await streamed.usage).outputTokens, 12);
assert.equal(await streamed.finishReason, "length");

const { output } = await generateText({ ...long, output: Output.object({ schema: Fox }) });
assert(Fox.safeParse(output).success, JSON.stringify(output));

// The first step calls the tool, and the second sees what it said.
const ages = [];
const remember = tool({ description: "Remembers a fox.", inputSchema: Fox, execute: async ({ age }) => (ages.push(age), `a fox of ${age}`) });
const called = await generateText({
  ...long, tools: { remember }, stopWhen: stepCountIs(2),
  prepareStep: ({ stepNumber }) => ({ toolChoice: stepNumber ? "none" : { type: "tool", toolName: "remember" } }),
});
assert.deepEqual(called.steps[0].toolResults.map(({ output }) => output), ages.map((age) => `a fox of ${age}`));
assert(ages.length && called.steps.length === 2 && called.text, JSON.stringify(called.steps));

const values = ["The cat sat on the mat.", "Cats run."];
const { embeddings } = await embedMany({ model: server.embeddingModel("bert"), values, maxRetries: 0 });
assert.deepEqual(embeddings, (await raw("embeddings", { model: "bert", input: values })).data.map(({ embedding }) => embedding));

const { version } = JSON.parse(await readFile("node_modules/ai/package.json"));
console.log(`ai ${version}: passed`);
