// The page in a browser: node page.mjs CHROMIUM URL THINK_URL OUT. Types, reads, stops and reloads; leaves
// screenshots in OUT. The model at THINK_URL thinks, and is made not to end.

import assert from "node:assert/strict";
import puppeteer from "puppeteer-core";

const [executablePath, url, thinkUrl, out] = process.argv.slice(2);
const browser = await puppeteer.launch({ executablePath, args: ["--no-sandbox"] });
const page = await browser.newPage();
const problems = [];
page.on("pageerror", (error) => problems.push(String(error)));
page.on("console", (message) => message.type() === "error" && problems.push(message.text()));
page.on("request", (request) => {
  if (![url, thinkUrl, "data:"].some((begin) => request.url().startsWith(begin))) problems.push(`asks ${request.url()}`);
  // Neither a stop token nor `</think>`, id 311.
  const endless = request.url().startsWith(`${thinkUrl}/v1/chat`) && { ignore_eos: true, logit_bias: { 311: -100 } };
  const postData = endless && JSON.stringify({ ...JSON.parse(request.postData()), ...endless });
  request.continue(endless ? { postData } : {});
});
await page.setRequestInterception(true);
const text = (selector) => page.$$eval(selector, (all) => all.map((one) => one.textContent));
const idle = () => page.waitForFunction(() => document.querySelector("#send").textContent === "Send");
const write = async (words) => {
  await page.type("#prompt", words);
  await page.keyboard.press("Enter");
};

await page.setViewport({ width: 390, height: 844, deviceScaleFactor: 2, isMobile: true, hasTouch: true });
await page.goto(url);
await page.waitForFunction(() => document.querySelector("#memory").textContent.includes("MB"));
assert.match((await text("#name"))[0], /context \d+/);

await write("Once upon a time");
await idle();
const [answer] = await text("article.assistant .text, article.assistant .thought");
assert(answer.length > 20, answer);
assert.match((await text("#state"))[0], /tokens\/s.*prompt of \d+/);
await page.screenshot({ path: `${out}/phone.png` });
const wide = await page.evaluate(() => document.documentElement.scrollWidth > innerWidth);
assert(!wide, "it is wider than a phone");

await page.goto(thinkUrl);
await write("Tell me of a fox");
await page.waitForSelector("article.assistant .thought");
await page.waitForFunction(() => document.querySelector("#state").textContent.includes("tokens/s"));
assert.deepEqual(await text("#send"), ["Stop"]);
await page.click("#send");
await idle();
assert.deepEqual(await text("article .note"), ["Stopped."]);
assert.deepEqual(await text("article.assistant .text"), [], "thought is no answer");
await page.screenshot({ path: `${out}/stopped.png` });
const before = await text("article");

await page.reload();
await page.waitForSelector("article");
assert.deepEqual(await text("article"), before, "the conversation is still there");

await page.goto(url);
await page.waitForFunction(() => document.querySelector("#memory").textContent.includes("MB"));
await write("Tell me of a fox");
await page.waitForFunction(() => document.querySelectorAll("article.assistant").length === 2);
await idle();
await page.setViewport({ width: 1000, height: 700 });
await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "dark" }]);
await page.screenshot({ path: `${out}/desk.png` });
await page.click("#new");
assert.deepEqual(await text("article"), []);
await page.reload();
await page.waitForFunction(() => document.querySelector("#memory").textContent.includes("MB"));
assert.deepEqual(await text("article"), []);
assert.deepEqual(problems, []);
await browser.close();
console.log("the page ok");
