// The `openai` package as a client: node openai_client.mjs CHAT_URL EMBED_URL KEY SEE_URL PICTURE. Ends with an error where one answer is wrong.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import OpenAI from "openai";

const [chatUrl, embedUrl, apiKey, seeUrl, picture] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${chatUrl}/v1`, apiKey, maxRetries: 0 });
const ask = { model: "demo", messages: [{ role: "user", content: "Once upon a time" }], max_tokens: 12 };
const create = (more) => client.chat.completions.create({ ...ask, ...more });

const refused = async (kind, param, asked) => {
  const error = await asked.then(() => assert.fail("it is answered"), (error) => error);
  assert(error instanceof kind, String(error));
  assert.equal(error.param, param);
  return error;
};

const tests = {
  async models() {
    assert.deepEqual((await client.models.list()).data.map((model) => model.id), ["demo"]);
    await refused(OpenAI.NotFoundError, "model", client.models.retrieve("other"));
  },

  async wholeAndStreamed() {
    const options = { seed: 7, temperature: 0.8, n: 2, logprobs: true, top_logprobs: 3 };
    const whole = await create(options);
    const texts = ["", ""];
    let usage;
    for await (const chunk of await create({ ...options, stream: true, stream_options: { include_usage: true } })) {
      for (const choice of chunk.choices) texts[choice.index] += choice.delta.content ?? "";
      usage = chunk.usage;
    }
    assert.deepEqual(texts, whole.choices.map((choice) => choice.message.content));
    assert.deepEqual([usage.completion_tokens, whole.usage.completion_tokens], [24, 24]);
  },

  async texts() {
    const options = { model: "demo", max_tokens: 5 };
    const answer = await client.completions.create({ ...options, prompt: ["Once upon a time", "The fox"], logprobs: 2 });
    assert.equal(answer.choices.length, 2);
    let text = "";
    for await (const part of await client.completions.create({ ...options, prompt: [1, 5, 9], stream: true })) {
      text += part.choices[0].text;
    }
    assert(text);
  },

  async schemas() {
    const age = { type: "integer", minimum: 0, maximum: 9 };
    const schema = { type: "object", properties: { age }, required: ["age"], additionalProperties: false };
    const response_format = { type: "json_schema", json_schema: { name: "fox", strict: true, schema } };
    const answer = await create({ response_format, max_tokens: 100 });
    assert(JSON.parse(answer.choices[0].message.content).age <= 9);
  },

  async tools() {
    const number = { type: "integer", minimum: 0, maximum: 9 };
    const parameters = { type: "object", properties: { a: number, b: number }, required: ["a", "b"] };
    const tools = [{ type: "function", function: { name: "add", parameters } }];
    const options = { tools, tool_choice: { type: "function", function: { name: "add" } }, max_tokens: 300, seed: 3 };
    const { message } = (await create(options)).choices[0];
    const stream = client.chat.completions.stream({ ...ask, ...options });
    const streamed = (await stream.finalMessage()).tool_calls;
    assert.deepEqual(streamed.map((call) => call.function), message.tool_calls.map((call) => call.function));
    const call = message.tool_calls[0];
    assert.equal(typeof JSON.parse(call.function.arguments).b, "number");
    const messages = [...ask.messages, message, { role: "tool", tool_call_id: call.id, content: "3" }];
    assert((await create({ messages, tools })).choices[0].message.content);
  },

  async responses() {
    const asked = { model: "demo", input: "Once upon a time", max_output_tokens: 12, temperature: 0 };
    const whole = await client.responses.create(asked);
    assert.equal(whole.output_text, (await create({ temperature: 0 })).choices[0].message.content);
    const stream = client.responses.stream({ ...asked, max_output_tokens: 100, stop: "was" });
    let text = "";
    stream.on("response.output_text.delta", (event) => (text += event.delta));
    const final = await stream.finalResponse();
    assert.deepEqual([final.status, final.output_text], ["completed", text]);
    const age = { type: "integer", minimum: 0, maximum: 9 };
    const schema = { type: "object", properties: { age }, required: ["age"], additionalProperties: false };
    const format = { type: "json_schema", name: "fox", strict: true, schema };
    assert((await client.responses.parse({ ...asked, max_output_tokens: 100, text: { format } })).output_parsed.age <= 9);
    const tools = [{ type: "function", name: "add", parameters: schema, strict: false }];
    const called = await client.responses.create({ ...asked, max_output_tokens: 300, tools, tool_choice: "required" });
    const output = called.output.filter((item) => item.type === "function_call");
    const results = output.map(({ call_id }) => ({ type: "function_call_output", call_id, output: "3" }));
    const more = await client.responses.create({ ...asked, input: results, previous_response_id: called.id, tools });
    assert.equal((await client.responses.retrieve(more.id)).previous_response_id, called.id);
    await client.responses.delete(more.id);
    await refused(OpenAI.NotFoundError, "response_id", client.responses.retrieve(more.id));
    await refused(OpenAI.BadRequestError, "previous_response_id", client.responses.create({ ...asked, previous_response_id: more.id }));
  },

  async embeddings() {
    const { embeddings } = new OpenAI({ baseURL: `${embedUrl}/v1`, apiKey });
    const asked = { model: "bert", input: ["The cat sat on the mat.", "Cats run."] };
    const asBytes = await embeddings.create(asked); // the package asks for base64 by itself
    const asNumbers = await embeddings.create({ ...asked, encoding_format: "float" });
    const rounded = (answer) => answer.data.map((one) => Array.from(Float32Array.from(one.embedding)));
    assert.deepEqual(rounded(asBytes), rounded(asNumbers));
  },

  async images() {
    const { chat } = new OpenAI({ baseURL: `${seeUrl}/v1`, apiKey, maxRetries: 0 });
    const look = (url) => chat.completions.create({ model: "bf16", max_tokens: 4, messages: [{ role: "user", content: [
      { type: "image_url", image_url: { url, detail: "auto" } }, { type: "text", text: "What is this?" }] }] });
    const { usage } = await look(`data:image/png;base64,${(await readFile(picture)).toString("base64")}`);
    assert.deepEqual([usage.prompt_tokens, usage.completion_tokens], [37, 4]);
    await refused(OpenAI.BadRequestError, "messages[0].content[0].image_url", look("https://localhost/cat.png"));
  },

  async errors() {
    for (const [param, more] of [
      ["temperature", { temperature: -1 }],
      ["n", { n: 1000 }],
      ["modalities", { modalities: ["audio"] }],
      ["response_format", { response_format: { type: "json_schema", json_schema: { name: "x", schema: { not: {} } } } }],
    ]) {
      await refused(OpenAI.BadRequestError, param, create(more));
    }
    await refused(OpenAI.NotFoundError, "model", create({ model: "gpt-4o" }));
    const long = create({ messages: [{ role: "user", content: "word ".repeat(2000) }] });
    assert.equal((await refused(OpenAI.APIError, "messages", long)).status, 400);
    const stranger = new OpenAI({ baseURL: `${chatUrl}/v1`, apiKey: "wrong" });
    await refused(OpenAI.AuthenticationError, null, stranger.models.list());
  },

  async disconnects() {
    const stream = await create({ stream: true, ignore_eos: true, max_tokens: 400 });
    for await (const _ of stream) break; // leaving the loop aborts
    const begun = Date.now();
    for (;;) {
      const metrics = await fetch(`${chatUrl}/metrics`, { headers: { authorization: `Bearer ${apiKey}` } });
      if (/^serve_running 0$/m.test(await metrics.text())) break;
      assert(Date.now() - begun < 30_000, "it goes on");
    }
  },
};

for (const [name, test] of Object.entries(tests)) {
  await test();
  console.log(`node, openai ${(await import("openai/version")).VERSION}: ${name} ok`);
}
