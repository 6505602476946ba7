// Reads commands from stdin, one line of JSON each, and prints the value of each as a line.
// Streams that are fetched are recorded.
import { createInterface } from "node:readline";

export const streams = [];
const original = globalThis.fetch;

globalThis.fetch = async (...given) => {
  const response = await original(...given);
  const record = { status: response.status, text: "" };
  streams.push(record);
  if (!response.body || !(response.headers.get("content-type") ?? "").startsWith("text/event-stream")) return response;
  const decoder = new TextDecoder();
  const reader = response.body.getReader();
  const body = new ReadableStream({
    async pull(controller) {
      const { done, value } = await reader.read();
      if (done) return controller.close();
      record.text += decoder.decode(value, { stream: true });
      controller.enqueue(value);
    },
    cancel: (reason) => reader.cancel(reason),
  });
  return new Response(body, { status: response.status, headers: response.headers });
};

export async function serve(commands) {
  const print = (value) => process.stdout.write(JSON.stringify(value) + "\n");
  console.log = console.info = console.warn = console.error = (...what) =>
    process.stderr.write(process.env.SHOW_LOG ? what.join(" ") + "\n" : "");
  process.on("unhandledRejection", () => {});
  for await (const line of createInterface({ input: process.stdin })) {
    const { do: name, ...given } = JSON.parse(line);
    try {
      print({ value: (await commands[name](given)) ?? null });
    } catch (error) {
      print({ threw: String(error?.stack ?? error) });
    }
  }
}
