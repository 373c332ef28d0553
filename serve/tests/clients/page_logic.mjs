// What the page makes of texts and chunks, without a browser: node page_logic.mjs LOGIC_JS.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { runInNewContext } from "node:vm";

const source = readFileSync(process.argv[2], "utf8");
const { blocks, spans, take, said, unanswered, pretty } =
  runInNewContext(`${source}\n({ blocks, spans, take, said, unanswered, pretty })`);

/** The tree as a short text: tags with their children, and what else a node has. */
const short = (nodes) => nodes.map((node) => {
  if (typeof node === "string") return JSON.stringify(node);
  const { tag, children, source, ...rest } = node;
  const more = Object.entries(rest).filter(([, value]) => value !== "" && value !== "start").map(([name, value]) => `${name}=${value}`);
  return `${[tag, ...more].join(" ")}(${short(children)})`;
}).join(", ");

for (const [text, expected] of [
  ["a *b* **c** ***d*** ~~e~~ `f`", '"a ", em("b"), " ", strong("c"), " ", strong(em("d")), " ", del("e"), " ", code("f")'],
  ["a **b *c* d** e", '"a ", strong("b ", em("c"), " d"), " e"'],
  ["snake_case_name and _so_", '"snake_case_name and ", em("so")'],
  ["2 * 3 * 4 **", '"2 * 3 * 4 **"'],
  ["`` a`b `` and `c", 'code("a`b"), " and `c"'],
  ["`**a**` \\*b\\*", 'code("**a**"), " *b*"'],
  ["[a](https://a.b/c_(d)) <https://e.f> https://g.h/i.", 'a href=https://a.b/c_(d)("a"), " ", a href=https://e.f("https://e.f"), " ", a href=https://g.h/i("https://g.h/i"), "."'],
  // Nothing is fetched, and nothing runs.
  ["![a](https://a.b/c.png)", 'a href=https://a.b/c.png("a")'],
  ["[a](javascript:alert(1)) [b](data:text/html,x) [c](/etc)", '"[a](javascript:alert(1)) [b](data:text/html,x) [c](/etc)"'],
  ["<img src=x onerror=alert(1)><script>", '"<img src=x onerror=alert(1)><script>"'],
  ["\\(x_1\\) \\[y\\]", '"\\\\(x_1\\\\) \\\\[y\\\\]"'],
]) assert.equal(short(spans(text)), expected, text);

for (const [text, expected] of [
  ["# A *b*\ntext\nmore\n\nagain", 'h1("A ", em("b")), p("text\\nmore"), p("again")'],
  ["```rust\nfn a() {}\n\n# b\n```\nafter", 'pre language=rust("fn a() {}\\n\\n# b"), p("after")'],
  ["```\nstill comes", 'pre("still comes")'],
  ["~~~ c x\n```\n~~~", 'pre language=c("```")'],
  ["- a\n- b\n  - c\n  - d\n- e", 'ul(li("a"), li("b", ul(li("c"), li("d"))), li("e"))'],
  ["3. a\n\n4. b\n   ```\n   c\n   ```\n\ntext", 'ol start=3(li("a"), li("b", pre("c"))), p("text")'],
  ["1. a\n   b\n2. c\n- d", 'ol(li("a\\nb"), li("c")), ul(li("d"))'],
  ["text\n- a\n1986. A year", 'p("text"), ul(li("a")), ol start=1986(li("A year"))'],
  ["> a\n> > b\n\nc", 'blockquote(p("a"), blockquote(p("b"))), p("c")'],
  ["| a | b |\n|---|:-:|\n| `c` | d \\| e |\n\nf", 'table(tr(th("a"), th side=center("b")), tr(td(code("c")), td side=center("d | e"))), p("f")'],
  ["a | b\nc", 'p("a | b\\nc")'],
  ["a\n\n---\n***\nb", 'p("a"), hr(), hr(), p("b")'],
  ["<b>a</b>", 'p("<b>a</b>")'],
  ["", ""],
]) assert.equal(short(blocks(text)), expected, text);

// A text that comes piece by piece: what is complete stays the same block.
const whole = "# A\n\ntext *a*\n\n- b\n- c\n\n```\nd\n```\n\n| a |\n|---|\n| b |\n";
for (let length = 0; length <= whole.length; length += 1) {
  const [some, all] = [blocks(whole.slice(0, length)), blocks(whole)];
  for (const [at, block] of some.slice(0, -1).entries()) assert.equal(block.source, all[at].source, whole.slice(0, length));
}

// Texts that are made to take long: they take some hundred milliseconds of the processor at most, and one that took the square of its
// length would take minutes.
const size = 100_000;
for (const one of ["*", "*a ", "**a ", "_a ", "`", "` `` ", "[", "![", "[a](", "[a](b", "[a](https://a/(", "<http://", "<", "https://", "> ", "- ", "  ", "#", "|",
  "|-", "a|b\n", "~", "~~~ ", "``` ", "\\", "- - ", "***a", "*a**", "1. ", "\t", "\n", "> - ", "- a\n  ", "a\n-|", "\u{1f600}*"]) {
  for (const text of [one.repeat(size / one.length), `${one.repeat(size / one.length)}\`x`, ` ${one.repeat(size / one.length)} *`]) {
    const begun = process.cpuUsage();
    blocks(text);
    const { user } = process.cpuUsage(begun);
    assert(user < 10e6, `${JSON.stringify(one)}: ${user} us`);
  }
}
const deep = blocks(`${"> ".repeat(1000)}a\n${"  ".repeat(500)}- b`);
assert(short(deep).length < 5000);

const message = { content: "", reasoning_content: "" };
const call = (index, id, name, more) => ({ index, id, function: { name, arguments: more } });
for (const delta of [
  { role: "assistant", reasoning_content: "Hm." }, { content: "I " }, { content: "look." },
  { tool_calls: [call(0, "a1", "add", '{"a":')] }, { tool_calls: [call(0, undefined, undefined, "1}")] },
  { tool_calls: [call(1, "a2", "stop", "{}")] }, { content: null }, {},
]) take(message, delta);
assert.deepEqual(JSON.parse(JSON.stringify(message)), {
  content: "I look.", reasoning_content: "Hm.",
  tool_calls: [
    { id: "a1", type: "function", function: { name: "add", arguments: '{"a":1}' } },
    { id: "a2", type: "function", function: { name: "stop", arguments: "{}" } },
  ],
});
const conversation = [{ role: "user", content: "Hi", images: ["data:x"] }, { ...message, role: "assistant", note: "Cut off" }];
const ids = (messages) => unanswered(messages).map(({ id }) => id).join();
assert.equal(ids(conversation), "a1,a2");
const result = (id) => ({ role: "tool", tool_call_id: id, content: "1" });
assert.equal(ids([...conversation, result("a1")]), "a2");
assert.equal(ids([...conversation, result("a1"), result("a2")]), "");
assert.equal(ids([...conversation, { role: "user", content: "So?" }]), "");
assert.equal(ids([]), "");
const sent = JSON.parse(JSON.stringify(said([...conversation, result("a1"), { role: "assistant", content: "", reasoning_content: "x" }], "Be brief.")));
assert.deepEqual(sent.map(({ role }) => role), ["system", "user", "assistant", "tool"]);
assert.deepEqual(sent[1].content, [{ type: "image_url", image_url: { url: "data:x" } }, { type: "text", text: "Hi" }]);
assert.equal(sent[2].note, undefined);
assert.equal(pretty('{"a":1}'), '{\n  "a": 1\n}');
assert.equal(pretty('{"a"'), '{"a"');
console.log("the page's logic ok");
