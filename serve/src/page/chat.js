"use strict";
const find = (id) => document.getElementById(id);
const [log, prompt, send, state] = ["log", "prompt", "send", "state"].map(find);
const inputs = [...document.querySelectorAll("[data-option]")];
const option = (name) => inputs.find((input) => input.dataset.option === name).value.trim();
let messages = [];
let images = []; // data URLs, for the next message
let model = null;
let running = null; // what stops the answer that comes

// The conversation stays with the browser, the key with the tab.
const keep = () => {
  try {
    localStorage.setItem("messages", JSON.stringify(messages));
  } catch { // images may be more than a browser keeps
    try {
      localStorage.setItem("messages", JSON.stringify(messages.map(({ images, ...message }) => message)));
    } catch { // and the rest may be, too
      localStorage.removeItem("messages");
    }
  }
};
// Who this browser is to the server's cache: its conversations go on from what was computed, and nobody else learns of them.
const salt = localStorage.getItem("salt") ?? Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16)).join("-");
localStorage.setItem("salt", salt);
const store = (input) => (input.dataset.option === "key" ? sessionStorage : localStorage);
for (const input of inputs) {
  input.value = store(input).getItem(input.dataset.option) ?? "";
  input.addEventListener("change", () => { store(input).setItem(input.dataset.option, input.value); connect(); });
}

async function ask(path, body, signal) {
  const headers = option("key") ? { authorization: `Bearer ${option("key")}` } : {};
  if (body) headers["content-type"] = "application/json";
  const response = await fetch(path, { method: body ? "POST" : "GET", headers, signal, body: body && JSON.stringify(body) });
  if (response.ok) return response;
  const { error } = await response.json();
  if (response.status === 401) find("options").open = true;
  throw new Error(error.message);
}

/** Adds an element of this class to `parent`. */
function add(parent, tag, name, text = "") {
  const element = document.createElement(tag);
  element.className = name;
  element.textContent = text;
  parent.append(element);
  return element;
}

/** Adds a button that says and does this. */
function button(parent, name, click) {
  const element = add(parent, "button", "", name);
  element.type = "button";
  element.addEventListener("click", () => click(element));
  return element;
}

/** Puts a text on the clipboard, and says so. */
async function copy(text, from) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // there is none without TLS, except on this machine
    const area = add(document.body, "textarea", "", text);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  from.textContent = "Copied";
  setTimeout(() => { from.textContent = "Copy"; }, 1500);
}

/** A block of code, with its language and a button that copies it. */
function code(parent, text, language) {
  const box = add(parent, "div", "code");
  const head = add(box, "div", "");
  add(head, "span", "language", language);
  button(head, "Copy", (from) => copy(text, from));
  add(add(box, "pre", ""), "code", "", text);
  return box;
}

/** Makes elements of the tree that `blocks` and `spans` make: only of their tags, and of texts that are texts. */
function build(parent, nodes) {
  for (const node of nodes) {
    if (typeof node === "string") {
      parent.append(node);
    } else if (node.tag === "pre") {
      code(parent, node.children[0], node.language);
    } else {
      const element = add(node.tag === "table" ? add(parent, "div", "scroll") : parent, node.tag, "");
      if (node.tag === "a") [element.href, element.title, element.rel, element.target] = [node.href, node.href, "noopener noreferrer nofollow", "_blank"];
      if (node.start !== undefined) element.start = node.start;
      if (node.side) element.style.textAlign = node.side;
      build(element, node.children);
    }
  }
}

/** Shows Markdown in `parent`. Blocks that are there already stay: a text may be long, and what is selected stays so. */
function render(parent, text) {
  const [all, given] = [blocks(text), (parent.given ??= [])];
  let same = 0;
  while (same < all.length && given[same] === all[same].source) same += 1;
  while (parent.childNodes.length > same) parent.lastChild.remove();
  build(parent, all.slice(same));
  parent.given = all.map((block) => block.source);
}

const articles = new Map(); // of the messages

/** Forgets the messages from this one on. */
function cut(message) {
  for (const one of messages.splice(messages.indexOf(message))) {
    articles.get(one)?.remove();
    articles.delete(one);
  }
  log.querySelector(".results")?.remove();
}

/** Asks `content` as the user. */
function submit(content, pictures) {
  log.querySelector(".results")?.remove();
  messages.push(pictures.length ? { role: "user", content, images: pictures } : { role: "user", content });
  show(messages.at(-1)).update();
  keep();
  log.scrollTop = log.scrollHeight;
  answer();
}

/** Lets the user write a message anew; what came after it is then forgotten. */
function edit(article, message) {
  if (running || article.querySelector(".edit")) return;
  const [text, actions] = [article.querySelector(".text"), article.querySelector(".actions")];
  [text.hidden, actions.hidden] = [true, true];
  const box = add(article, "div", "edit");
  const area = add(box, "textarea", "");
  [area.value, area.ariaLabel] = [message.content, "Message"];
  const row = add(box, "div", "actions");
  button(row, "Send", () => {
    if (running || !area.value.trim()) return;
    cut(message);
    submit(area.value.trim(), message.images ?? []);
  });
  button(row, "Cancel", () => { box.remove(); [text.hidden, actions.hidden] = [false, false]; });
  area.focus();
}

/** Shows a tool call: the name, and the arguments as the model wrote them. */
function showCall(article, call) {
  const box = add(article, "details", "call");
  box.open = true;
  add(box, "summary", "", `Calls the tool ${call.function.name}`);
  add(add(box, "pre", ""), "code", "", pretty(call.function.arguments));
}

/** Asks the user for the results of calls that have none. */
function askResults() {
  const calls = unanswered(messages);
  if (!calls.length) return;
  const box = add(log, "div", "results");
  const areas = calls.map((call) => {
    const area = add(add(box, "label", "call", `Result of ${call.function.name}`), "textarea", "");
    area.rows = 2;
    return area;
  });
  button(add(box, "div", "actions"), calls.length > 1 ? "Send results" : "Send result", () => {
    if (running) return;
    box.remove();
    calls.forEach(({ id }, at) => {
      messages.push({ role: "tool", tool_call_id: id, content: areas[at].value });
      show(messages.at(-1)).update();
    });
    keep();
    answer();
  });
}

/** Shows a message; what it returns shows more of it. */
function show(message) {
  const article = add(log, "article", message.role);
  articles.set(message, article);
  const isModels = message.role === "assistant";
  const call = messages.flatMap((one) => one.tool_calls ?? []).find(({ id }) => id === message.tool_call_id);
  add(article, "h2", "", { user: "You", assistant: "Model", tool: `Result of ${call?.function.name ?? "a tool"}` }[message.role]);
  for (const url of message.images ?? []) add(article, "img", "").src = url;
  let [thought, text, note, given, calls] = [null, null, null, 0, 0];
  return {
    update(ended = true) {
      const below = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
      if (message.reasoning_content && !thought) {
        const details = add(article, "details", "thinking");
        details.open = !message.content;
        add(details, "summary", "", "Thought");
        thought = add(details, "p", "thought");
      }
      if ((message.content || !isModels) && !text) {
        if (thought) thought.parentElement.open = false;
        text = add(article, "div", "text");
      }
      // What is new is appended: the texts may be long.
      if (thought) {
        const told = message.reasoning_content.trimStart();
        thought.append(told.slice(given));
        given = told.length;
      }
      if (text && isModels) render(text, message.content);
      else if (text) text.textContent = message.content;
      for (const call of (message.tool_calls ?? []).slice(calls)) {
        showCall(article, call);
        calls += 1;
      }
      if (message.note && !note) note = add(article, "p", message.failed ? "note error" : "note", message.note);
      if (ended && !article.querySelector(".actions")) {
        const actions = add(article, "div", "actions");
        if (message.content) button(actions, "Copy", (from) => copy(message.content, from));
        if (message.role === "user") button(actions, "Edit", () => edit(article, message));
        if (isModels) button(actions, "Ask again", () => { if (!running) { cut(message); keep(); answer(); } });
      }
      if (below) log.scrollTop = log.scrollHeight;
    },
  };
}

/** The JSON of each event of a response. */
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    const lines = text.split("\n");
    text = lines.pop();
    for (const line of lines) {
      if (line.startsWith("data: ") && line !== "data: [DONE]") yield JSON.parse(line.slice(6));
    }
  }
}

async function answer() {
  const message = { role: "assistant", content: "", reasoning_content: "" };
  const shown = show(message);
  running = new AbortController();
  [send.textContent, state.textContent] = ["Stop", "Reading the conversation…"];
  const [begun, system] = [performance.now(), option("system")];
  let [first, count, frame] = [null, 0, null];
  // Tokens may come faster than a screen shows them.
  const draw = () => {
    frame = null;
    const seconds = (performance.now() - first) / 1000;
    if (count > 1) state.textContent = `${((count - 1) / seconds).toFixed(1)} tokens/s`;
    shown.update(false);
  };
  const body = { model, stream: true, stream_options: { include_usage: true }, cache_salt: salt, messages: said(messages, system) };
  messages.push(message);
  try {
    for (const name of ["temperature", "max_tokens", "thinking_budget_tokens"]) if (option(name)) body[name] = Number(option(name));
    if (option("tools")) body.tools = JSON.parse(option("tools"));
    for await (const event of events(await ask("v1/chat/completions", body, running.signal))) {
      if (event.error) throw new Error(event.error.message);
      const [choice] = event.choices;
      if (choice) {
        const { content, reasoning_content, tool_calls } = choice.delta;
        if (content || reasoning_content || tool_calls) { first ??= performance.now(); count += 1; }
        take(message, choice.delta);
        if (choice.finish_reason === "length") message.note = "Cut off: the limit of tokens, or the end of the context.";
        frame ??= requestAnimationFrame(draw);
      } else if (event.usage) {
        frame = cancelAnimationFrame(frame) ?? null;
        const { prompt_tokens, completion_tokens, prompt_tokens_details: { cached_tokens } } = event.usage;
        const speed = event.timings.predicted_per_second.toFixed(1);
        state.textContent = `${speed} tokens/s, ${completion_tokens} tokens; first after ${((first - begun) / 1000).toFixed(2)} s, ` +
          `prompt of ${prompt_tokens} (${cached_tokens} held)`;
      }
    }
  } catch (error) {
    message.failed = error.name !== "AbortError";
    message.note = message.failed ? `Error: ${error.message}` : "Stopped.";
    delete message.tool_calls; // they are not whole
    if (state.textContent.endsWith("…")) state.textContent = "\u00a0";
  }
  cancelAnimationFrame(frame);
  shown.update();
  running = null;
  send.textContent = "Send";
  keep();
  askResults();
  memory().catch(() => {}); // the answer has said what is wrong
}

async function memory() {
  const text = await (await ask("metrics")).text();
  const megabytes = (name) => (new RegExp(`^serve_${name} (.*)$`, "m").exec(text)[1] / 1e6).toFixed(0);
  find("memory").textContent = `${megabytes("resident_bytes")} MB resident, ${megabytes("kv_cache_bytes")} MB of it cache`;
}

async function connect() {
  try {
    const { data } = await (await ask("v1/models")).json();
    const choice = inputs.find((input) => input.dataset.option === "model");
    choice.replaceChildren(...data.map(({ id }) => new Option(id)));
    choice.value = data.some(({ id }) => id === localStorage.getItem("model")) ? localStorage.getItem("model") : data[0].id;
    choice.parentElement.hidden = data.length < 2;
    const { id, context_length } = data[choice.selectedIndex];
    model = id;
    find("name").textContent = `${id}, context ${context_length}`;
    document.title = id;
    state.textContent = "\u00a0";
    await memory();
  } catch (error) {
    state.textContent = `Error: ${error.message}`;
  }
}

find("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const content = prompt.value.trim();
  if (running) return running.abort();
  if (!content) return;
  prompt.value = "";
  const pictures = images;
  images = [];
  attached();
  submit(content, pictures);
});
prompt.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  if (!running) find("form").requestSubmit();
});
/** Shows the images of the next message; a click removes one. */
function attached() {
  find("attached").replaceChildren();
  images.forEach((url, at) => {
    const image = add(find("attached"), "img", "");
    [image.src, image.alt, image.title] = [url, `Image ${at + 1}`, "Remove"];
    image.addEventListener("click", () => { images.splice(at, 1); attached(); });
  });
}

async function attach(files) {
  for (const file of [...files].filter((file) => file.type.startsWith("image/"))) {
    const reader = new FileReader();
    await new Promise((done) => { reader.onload = done; reader.readAsDataURL(file); });
    images.push(reader.result);
  }
  attached();
}
find("attach").addEventListener("click", () => find("file").click());
find("file").addEventListener("change", () => { attach(find("file").files); find("file").value = ""; });
document.addEventListener("dragover", (event) => event.preventDefault());
document.addEventListener("drop", (event) => { event.preventDefault(); attach(event.dataTransfer.files); });
document.addEventListener("paste", (event) => attach(event.clipboardData.files));
find("new").addEventListener("click", () => {
  running?.abort();
  messages = [];
  articles.clear();
  log.replaceChildren();
  keep();
  prompt.focus();
});

messages = JSON.parse(localStorage.getItem("messages") ?? "[]");
messages.forEach((message) => show(message).update());
askResults();
log.scrollTop = log.scrollHeight;
connect();
