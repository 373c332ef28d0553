"use strict";
// Markdown -> a tree of { tag, children } with texts as leaves. Only the page makes elements of it, so a text of the model is never
// read as HTML. Whatever a model writes takes time that grows with its length.

/** The deepest quotes and lists; what is deeper is text. */
const MOST_LEVELS = 8;

/** The marks of spans with their tags, the longest first. */
const MARKS = [["***", "strong", "em"], ["___", "strong", "em"], ["**", "strong"], ["__", "strong"], ["~~", "del"], ["*", "em"], ["_", "em"]];

/** A link that may be followed: of the web, or mail. */
const isLink = (url) => /^(https?:\/\/|mailto:)[^\s]+$/i.test(url);
const isLetter = (character) => character !== undefined && /[\p{L}\p{N}]/u.test(character);
const isBlank = (character) => character === undefined || /\s/.test(character);

/** The spans of a text: codes, links and emphasis. */
function spans(text, level = 0) {
  const children = [];
  const none = new Set(); // marks that close nowhere in the rest
  let [plain, at] = ["", 0];
  const push = (node) => { if (plain) children.push(plain); children.push(node); plain = ""; };
  const run = (from) => { let to = from; while (text[to] === text[from]) to += 1; return to - from; };
  /** Where the mark at `at` closes: another one of the same length, after what is no blank. */
  const closing = (mark) => {
    if (none.has(mark)) return -1;
    for (let to = text.indexOf(mark, at + mark.length); to >= 0; to = text.indexOf(mark, to)) {
      const length = run(to);
      const closes = length === mark.length && (mark[0] === "`" || (!isBlank(text[to - 1]) && (mark[0] !== "_" || !isLetter(text[to + length]))));
      if (closes && to > at + mark.length) return to;
      to += length;
    }
    none.add(mark);
    return -1;
  };
  while (at < text.length) {
    const character = text[at];
    if (character === "\\" && /[\\*_`~#>|+.!-]/.test(text[at + 1] ?? "")) {
      plain += text[at + 1];
      at += 2;
    } else if (character === "`") {
      const mark = text.slice(at, at + run(at));
      const end = closing(mark);
      if (end < 0) plain += mark;
      else {
        const code = text.slice(at + mark.length, end);
        const isPadded = code.startsWith(" ") && code.endsWith(" ") && code.trim();
        push({ tag: "code", children: [isPadded ? code.slice(1, -1) : code] });
      }
      at = end < 0 ? at + mark.length : end + mark.length;
    } else if (character === "[" || character === "!") {
      // An image is a link to it: nothing is fetched.
      const pattern = /!?\[([^[\]\n]{1,500})\]\(<?([^()\s<>]{1,2000}(?:\([^()\s<>]{0,500}\)[^()\s<>]{0,500})?)>?(?: "[^"\n]{0,500}")?\)/y;
      pattern.lastIndex = at;
      const found = pattern.exec(text);
      if (found && isLink(found[2])) {
        push({ tag: "a", href: found[2], children: [found[1]] });
        at += found[0].length;
      } else {
        plain += character;
        at += 1;
      }
    } else if ((character === "<" || character === "h") && !isLetter(text[at - 1])) {
      const pattern = /<(https?:\/\/[^\s<>]{1,2000}|mailto:[^\s<>]{1,500})>|https?:\/\/[^\s<>"`*\\]{1,2000}/iy;
      pattern.lastIndex = at;
      const found = pattern.exec(text);
      if (found) {
        const url = found[1] ?? found[0].replace(/[.,;:!?'\])]{1,9}$/, "");
        push({ tag: "a", href: url, children: [url] });
        at += found[1] ? found[0].length : url.length;
      } else {
        plain += character;
        at += 1;
      }
    } else if ("*_~".includes(character)) {
      const length = run(at);
      const known = MARKS.find(([mark]) => mark.length === length && mark[0] === character);
      const opens = known && level < MOST_LEVELS && !isBlank(text[at + length]) && (character !== "_" || !isLetter(text[at - 1]));
      const end = opens ? closing(known[0]) : -1;
      if (end < 0) {
        plain += text.slice(at, at + length);
        at += length;
      } else {
        const inner = spans(text.slice(at + length, end), level + 1);
        push(known.slice(1).reduceRight((children, tag) => [{ tag, children }], inner)[0]);
        at = end + length;
      }
    } else {
      // As far as nothing begins that has a meaning.
      const pattern = /[^\\`[!<h*_~]+|h/y;
      pattern.lastIndex = at;
      const [found] = pattern.exec(text) ?? [character];
      plain += found;
      at += found.length;
    }
  }
  if (plain) children.push(plain);
  return children;
}

const FENCE = /^ {0,3}(`{3,}|~{3,})/;
const HEADING = /^ {0,3}(#{1,6}) +/;
const RULE = /^ {0,3}([-*_]) *(?:\1 *){2,}$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])( +|$)/;
const COLUMNS = /^ *\|? *:?-+:? *(?:\| *:?-+:? *)*\|? *$/;

const indent = (line) => line.length - line.trimStart().length;

/** What begins a block of code, and the text after it: no backtick may follow backticks. */
function fence(line) {
  const found = FENCE.exec(line);
  const info = found && line.slice(found[0].length);
  return found && !(found[1][0] === "`" && info.includes("`")) ? { mark: found[1], language: info.trim().split(/\s/, 1)[0] } : null;
}

/** The cells of a row of a table. */
function cells(line) {
  const parts = line.trim().replace(/^\|/, "").split(/(?<!\\)\|/);
  if (parts.length > 1 && !parts.at(-1).trim()) parts.pop();
  return parts.map((cell) => cell.trim().replaceAll("\\|", "|"));
}

/** The blocks of a text, each with the lines that it is made of as `source`. */
function blocks(text, level = 0) {
  const lines = text.replaceAll("\r", "").split("\n").map((line) => line.replace(/^[ \t]+/, (blanks) => blanks.replaceAll("\t", "    ")));
  const found = [];
  const isTable = (at) => lines[at].includes("|") && lines[at + 1]?.length < 2000 && lines[at + 1].includes("-") &&
    COLUMNS.test(lines[at + 1]) && cells(lines[at]).length === cells(lines[at + 1]).length;
  const begins = (at) => {
    const item = ITEM.exec(lines[at]);
    return fence(lines[at]) || HEADING.test(lines[at]) || RULE.test(lines[at]) || QUOTE.test(lines[at]) ||
      (item && lines[at].length > item[0].length && (item[2].length === 1 || item[2] === "1." || item[2] === "1)")) || isTable(at);
  };
  for (let at = 0; at < lines.length;) {
    const [from, line] = [at, lines[at]];
    let [block, match] = [null, null];
    if (!line.trim()) {
      at += 1;
      continue;
    } else if ((match = fence(line))) {
      const [{ mark, language }, inner, blanks] = [match, [], indent(line)];
      const ends = new RegExp(`^ {0,3}${mark[0]}{${mark.length},} *$`);
      for (at += 1; at < lines.length && !ends.test(lines[at]); at += 1) inner.push(lines[at].slice(Math.min(blanks, indent(lines[at]))));
      at += 1;
      block = { tag: "pre", language, children: [inner.join("\n")] };
    } else if ((match = HEADING.exec(line))) {
      at += 1;
      block = { tag: `h${match[1].length}`, children: spans(line.slice(match[0].length).trim()) };
    } else if (RULE.test(line)) {
      at += 1;
      block = { tag: "hr", children: [] };
    } else if (QUOTE.test(line) && level < MOST_LEVELS) {
      const inner = [];
      for (; at < lines.length && QUOTE.test(lines[at]); at += 1) inner.push(lines[at].replace(QUOTE, ""));
      block = { tag: "blockquote", children: blocks(inner.join("\n"), level + 1) };
    } else if ((match = ITEM.exec(line)) && level < MOST_LEVELS) {
      const [own, ordered] = [match[1].length, match[2].length > 1];
      const kind = match[2].at(-1);
      block = { tag: ordered ? "ol" : "ul", children: [] };
      if (ordered && parseInt(match[2], 10) !== 1) block.start = parseInt(match[2], 10);
      while (at < lines.length) {
        const item = ITEM.exec(lines[at]);
        if (!item || item[1].length > own + 1 || item[1].length + 1 < own || item[2].at(-1) !== kind || RULE.test(lines[at])) break;
        const inner = [lines[at].slice(item[0].length)];
        const within = (next) => indent(lines[next]) >= own + 2;
        for (at += 1; at < lines.length; at += 1) {
          // What is indented belongs to it, also after a blank line; and what goes on with its paragraph.
          if (!lines[at].trim()) {
            if (at + 1 < lines.length && lines[at + 1].trim() && within(at + 1)) inner.push("");
            else break;
          } else if (within(at) || !begins(at) && !ITEM.test(lines[at])) {
            inner.push(lines[at].slice(Math.min(item[0].length, indent(lines[at]))));
          } else break;
        }
        const children = blocks(inner.join("\n"), level + 1);
        // A paragraph in front needs no space around it.
        if (children[0]?.tag === "p") children.splice(0, 1, ...children[0].children);
        block.children.push({ tag: "li", children });
        // The next item may follow a blank line.
        if (at + 1 < lines.length && !lines[at].trim() && ITEM.exec(lines[at + 1])?.[2].at(-1) === kind) at += 1;
      }
    } else if (isTable(at)) {
      const sides = cells(lines[at + 1]).map((cell) => (cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "end") : "start"));
      const row = (line, tag) => {
        const texts = cells(line);
        return { tag: "tr", children: sides.map((side, column) => ({ tag, side, children: spans(texts[column] ?? "") })) };
      };
      block = { tag: "table", children: [row(lines[at], "th")] };
      for (at += 2; at < lines.length && lines[at].includes("|"); at += 1) block.children.push(row(lines[at], "td"));
    } else {
      do at += 1; while (at < lines.length && lines[at].trim() && !begins(at));
      block = { tag: "p", children: spans(lines.slice(from, at).map((line) => line.trim()).join("\n")) };
    }
    block.source = lines.slice(from, at).join("\n");
    found.push(block);
  }
  return found;
}

/** Adds what a chunk says to a message. */
function take(message, { content = "", reasoning_content = "", tool_calls = [] }) {
  message.content += content ?? "";
  message.reasoning_content += reasoning_content ?? "";
  for (const { index, id, function: { name = "", arguments: more = "" } } of tool_calls) {
    message.tool_calls ??= [];
    const call = (message.tool_calls[index] ??= { id, type: "function", function: { name: "", arguments: "" } });
    call.function.name += name;
    call.function.arguments += more;
  }
}

/** The messages of a request: what the model, the user and tools said, and no answer that never came. */
function said(messages, system) {
  const each = messages.filter((one) => one.content || one.tool_calls || one.role !== "assistant").map((one) => {
    const { role, content, reasoning_content, images, tool_calls, tool_call_id } = one;
    const parts = images && [...images.map((url) => ({ type: "image_url", image_url: { url } })), { type: "text", text: content }];
    const message = { role, content: parts ?? (tool_calls && !content ? null : content) };
    if (reasoning_content) message.reasoning_content = reasoning_content;
    if (tool_calls) message.tool_calls = tool_calls;
    if (tool_call_id) message.tool_call_id = tool_call_id;
    return message;
  });
  return system ? [{ role: "system", content: system }, ...each] : each;
}

/** The calls at the end of a conversation that have no result yet. */
function unanswered(messages) {
  const at = messages.findLastIndex((one) => one.role !== "tool");
  const results = new Set(messages.slice(at + 1).map((one) => one.tool_call_id));
  return (messages[at]?.tool_calls ?? []).filter((call) => !results.has(call.id));
}

/** The arguments of a call, a line for each, where they are JSON. */
function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
