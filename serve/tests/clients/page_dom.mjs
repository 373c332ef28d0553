// The page in jsdom, without a browser: node page_dom.mjs URL THINK_URL. Asks, reads, copies, edits, asks again, and answers a tool call.

import assert from "node:assert/strict";
import { JSDOM, VirtualConsole } from "jsdom";

const [url, thinkUrl] = process.argv.slice(2);

/** The page of a server, in which `fetch` asks that server, and `change` may change what is asked. */
async function open(at, change = (body) => body, stored = {}) {
  const html = await (await fetch(at)).text();
  const [bodies, problems, console] = [[], [], new VirtualConsole()];
  console.on("jsdomError", (error) => problems.push(String(error.detail ?? error)));
  const dom = new JSDOM(html, {
    url: at, runScripts: "dangerously", pretendToBeVisual: true, virtualConsole: console,
    beforeParse(window) {
      for (const [name, value] of Object.entries(stored)) window.localStorage.setItem(name, value);
      Object.assign(window, { AbortController, TextDecoderStream });
      window.copied = [];
      Object.defineProperty(window.navigator, "clipboard", { value: { writeText: async (text) => window.copied.push(text) } });
      window.fetch = (path, options) => {
        if (options.body) bodies.push(JSON.parse(options.body));
        return fetch(new URL(path, at), { ...options, body: options.body && JSON.stringify(change(JSON.parse(options.body))) });
      };
    },
  });
  const { document } = dom.window;
  const find = (selector) => document.querySelector(selector);
  const texts = (selector) => [...document.querySelectorAll(selector)].map((one) => one.textContent);
  const until = async (done) => {
    for (let tries = 0; !done(); tries += 1) {
      assert(tries < 600, `it takes too long: ${texts("article").join("\n")}`);
      await new Promise((go) => setTimeout(go, 100));
    }
  };
  const click = (name, within = document) => {
    const button = [...within.querySelectorAll("button")].findLast((one) => one.textContent === name);
    assert(button, `no button ${name}`);
    button.click();
  };
  const idle = () => until(() => find("#send").textContent === "Send");
  const ask = async (text) => {
    find("#prompt").value = text;
    find("#form").requestSubmit();
    await idle();
  };
  await until(() => find("#memory").textContent.includes("MB"));
  return { window: dom.window, document, find, texts, click, until, idle, ask, bodies, problems };
}

// Where there are several models, one is chosen, and stays chosen.
async function chosen(page) {
  const choice = page.find('[data-option="model"]');
  const names = [...choice.options].map(({ value }) => value);
  assert.deepEqual([names.length > 1, choice.parentElement.hidden], [true, false]);
  choice.value = names.at(-1);
  choice.dispatchEvent(new page.window.Event("change"));
  await page.until(() => page.find("#name").textContent.startsWith(names.at(-1)));
  await page.ask("Hi");
  assert.equal(page.bodies.at(-1).model, names.at(-1));
  return names.at(-1);
}

const short = (body) => ({ ...body, max_tokens: 12, temperature: 0 });
const page = await open(url, short);
await page.ask("Once upon a time");
assert.deepEqual(page.texts("article h2"), ["You", "Model"]);
const [first] = page.texts("article.assistant .text");
assert(first.length > 5, first);
page.click("Copy");
await page.until(() => page.window.copied.length);
assert.equal(page.window.copied[0].trim(), JSON.parse(page.window.localStorage.getItem("messages"))[1].content.trim());

page.click("Ask again");
await page.idle();
assert.deepEqual(page.texts("article.assistant .text"), [first], "the same words are answered alike, and once");
assert.deepEqual(page.bodies[1].messages, page.bodies[0].messages);

await page.ask("And then?");
page.click("Edit", page.find("article.user"));
page.find(".edit textarea").value = "There was a fox";
page.click("Send", page.find(".edit"));
await page.idle();
assert.deepEqual(page.texts("article.user .text"), ["There was a fox"], "what came after it is forgotten");
assert.deepEqual(page.bodies.at(-1).messages, [{ role: "user", content: "There was a fox" }]);
assert.equal(page.texts("article").length, 2);
page.click("New chat");
assert.deepEqual(page.texts("article"), []);
assert.deepEqual(page.problems, []);

// What a model writes is never markup, whatever it is; and a call waits for its result.
const call = { id: "000000001", type: "function", function: { name: "add", arguments: '{"a":1}' } };
const evil = "# A <img src=x onerror=\"window.ran = 1\">\n<script>window.ran = 1</script> [x](javascript:window.ran=1) **b** [c](https://a.b)\n\n```js\nlet a;\n```\n\n| a | b |\n|--|:-:|\n| 1 | 2 |\n\n3. d";
const stored = [{ role: "user", content: "Hi <b>" }, { role: "assistant", content: evil, reasoning_content: "", tool_calls: [call] }];
const shown = await open(url, short, { messages: JSON.stringify(stored) });
const tags = [...new Set([...shown.document.querySelectorAll("#log *")].map((one) => one.localName))].sort();
assert.deepEqual(tags, ["a", "article", "button", "code", "details", "div", "h1", "h2", "label", "li", "ol", "p", "pre", "span", "strong", "summary", "table", "td", "textarea", "th", "tr"]);
assert.equal(shown.window.ran, undefined);
const links = [...shown.document.querySelectorAll("#log a")];
assert.deepEqual(links.map(({ href, rel, target }) => [href, rel, target]), [["https://a.b/", "noopener noreferrer nofollow", "_blank"]]);
assert.deepEqual(shown.texts(".call summary"), ["Calls the tool add"]);
assert.deepEqual(shown.texts("details.call code"), ['{\n  "a": 1\n}']);
assert.equal(shown.find("ol").start, 3);
shown.click("Copy", shown.find(".code"));
await shown.until(() => shown.window.copied.length);
assert.deepEqual(shown.window.copied, ["let a;"]);
shown.find(".results textarea").value = "7";
shown.click("Send result");
await shown.idle();
assert.equal(shown.find(".results"), null);
assert.deepEqual(shown.texts("article.tool h2"), ["Result of add"]);
assert.deepEqual(shown.bodies[0].messages.slice(1).map(({ role, tool_call_id }) => [role, tool_call_id]), [["assistant", undefined], ["tool", call.id]]);
assert.deepEqual(shown.problems, []);

// Tools go to the model, a budget ends its thought, and what is no JSON is said.
const thinks = await open(thinkUrl, (body) => ({ ...body, max_tokens: 30, temperature: 0, ignore_eos: true, logit_bias: { 311: -100 } }));
thinks.find('[data-option="thinking_budget_tokens"]').value = "5";
await thinks.ask("Hi");
assert.equal(thinks.bodies[0].thinking_budget_tokens, 5);
assert(thinks.texts("article.assistant .thought")[0].length > 0 && thinks.texts("article.assistant .text")[0].length > 0);
thinks.find('[data-option="tools"]').value = "[";
await thinks.ask("And?");
assert.match(thinks.texts("article .note.error").at(-1), /^Error: /);
thinks.find('[data-option="tools"]').value = '[{"type": "function", "function": {"name": "add", "parameters": {}}}]';
await thinks.ask("And now?");
assert.equal(thinks.bodies.at(-1).tools[0].function.name, "add");
assert.deepEqual(thinks.problems, []);
const last = await chosen(thinks);
const again = await open(thinkUrl, short, { model: last });
assert.equal(again.find('[data-option="model"]').value, last);
assert.equal(page.find('[data-option="model"]').parentElement.hidden, true);
assert.deepEqual([...thinks.problems, ...again.problems], []);
for (const { window } of [page, shown, thinks, again]) window.close();
console.log("the page in jsdom ok");
process.exit();
