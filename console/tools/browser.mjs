// A browser for tests: reads commands as lines of JSON, and answers each with one.
//
// {"id": 1, "tab": "a", "code": "await page.title()", "args": {}}  runs code with playwright's page of a tab
// {"id": 2, "close": "a"}                                         closes a tab
//
// A tab has its own storage, as tabs of two people do; "a/2" is a second tab beside "a".
import { createInterface } from "node:readline";
import chromium from "@sparticuz/chromium";
import { chromium as playwright } from "playwright-core";

const browser = await playwright.launch({
  executablePath: await chromium.executablePath(),
  args: ["--no-sandbox", "--disable-gpu", "--headless=shell"],
});
const contexts = new Map();
const tabs = new Map();

async function tabOf(name, options) {
  if (tabs.has(name)) return tabs.get(name);
  const person = name.split("/")[0];
  if (!contexts.has(person)) contexts.set(person, await browser.newContext(options ?? {}));
  const page = await contexts.get(person).newPage();
  page.setDefaultTimeout(15_000);
  const problems = [];
  page.on("pageerror", (error) => problems.push(String(error)));
  page.on("console", (message) => message.type() === "error" && problems.push(message.text()));
  const tab = { page, problems };
  tabs.set(name, tab);
  return tab;
}

const AsyncFunction = (async () => {}).constructor;

async function answer(command) {
  if (command.close) {
    const tab = tabs.get(command.close);
    tabs.delete(command.close);
    await tab?.page.close();
    return null;
  }
  const { page, problems } = await tabOf(command.tab, command.options);
  const names = Object.keys(command.args ?? {});
  const run = new AsyncFunction("page", "problems", "context", ...names, command.code);
  return (await run(page, problems, page.context(), ...names.map((name) => command.args[name]))) ?? null;
}

process.stdout.write(`${JSON.stringify({ ready: browser.version() })}\n`);
for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  void answer(command).then(
    (value) => process.stdout.write(`${JSON.stringify({ id: command.id, value })}\n`),
    (error) => process.stdout.write(`${JSON.stringify({ id: command.id, error: String(error?.message ?? error) })}\n`),
  );
}
await browser.close();
