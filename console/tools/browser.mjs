// A browser for tests: reads commands as lines of JSON, and answers each with one.
//
// {"id": 1, "tab": "a", "code": "return await page.title()", "args": {}}  runs code with playwright's page of a tab
// {"id": 2, "close": true}                                                 closes every tab
//
// A tab has its own storage, as tabs of two people do; "a/2" is a second tab beside "a". With the argument `--path`
// it prints the path of the browser, which is unpacked if it has to be.
import { createInterface } from "node:readline";
import chromium from "@sparticuz/chromium";
import { chromium as playwright } from "playwright-core";

const executablePath = await chromium.executablePath();
if (process.argv.includes("--path")) {
  console.log(executablePath);
  process.exit();
}
const browser = await playwright.launch({
  executablePath,
  args: ["--no-sandbox", "--disable-gpu", "--headless=shell", "--js-flags=--expose-gc"],
});
const contexts = new Map();
const tabs = new Map();

async function tabOf(name) {
  if (tabs.has(name)) return tabs.get(name);
  const person = name.split("/")[0];
  if (!contexts.has(person)) contexts.set(person, await browser.newContext({ reducedMotion: "reduce" }));
  const page = await contexts.get(person).newPage();
  page.setDefaultTimeout(15_000);
  const problems = [];
  page.on("pageerror", (error) => problems.push(String(error.stack ?? error)));
  page.on("console", (message) => message.type() === "error" && problems.push(message.text()));
  const tab = { page, problems };
  tabs.set(name, tab);
  return tab;
}

const AsyncFunction = (async () => {}).constructor;

async function answer(command) {
  if (command.close) {
    const open = [...contexts.values()];
    contexts.clear();
    tabs.clear();
    await Promise.all(open.map((context) => context.close()));
    return null;
  }
  const { page, problems } = await tabOf(command.tab);
  const names = Object.keys(command.args ?? {});
  const run = new AsyncFunction("page", "problems", ...names, command.code);
  return (await run(page, problems, ...names.map((name) => command.args[name]))) ?? null;
}

process.stdout.write(`${JSON.stringify({ id: 0, value: browser.version() })}\n`);
for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  const reply = await answer(command).then(
    (value) => ({ id: command.id, value }),
    (error) => ({ id: command.id, error: String(error?.message ?? error) }),
  );
  process.stdout.write(`${JSON.stringify(reply)}\n`);
}
await browser.close();
