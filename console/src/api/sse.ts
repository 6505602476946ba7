/** Server-sent events over `fetch`, which can send a credential, and resume by the last id. */
import { ApiError, pause, request, type Given, type OperationName } from "./client";

export interface ServerEvent {
  id: string | null;
  event: string;
  data: string;
}

/** A stream without a byte for this long is taken for cut: the server sends a comment every 15 seconds. */
const SILENCE_MS = 40_000;
const MAX_DELAY_MS = 10_000;

/** Read the events of one response until it ends. Throws if it is silent for too long. */
export async function* eventsOf(response: Response, signal: AbortSignal): AsyncGenerator<ServerEvent> {
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  let id: string | null = null;
  try {
    for (;;) {
      let timer = 0;
      const silence = new Promise<never>((_, fail) => {
        timer = window.setTimeout(() => fail(new Error("the stream is silent")), SILENCE_MS);
      });
      const { done, value } = await Promise.race([reader.read(), silence]).finally(() => clearTimeout(timer));
      if (done || signal.aborted) return;
      buffer += value;
      let end = buffer.indexOf("\n\n");
      while (end >= 0) {
        const found = parse(buffer.slice(0, end));
        buffer = buffer.slice(end + 2);
        if (found) {
          id = found.id ?? id;
          yield { ...found, id };
        }
        end = buffer.indexOf("\n\n");
      }
    }
  } finally {
    void reader.cancel().catch(() => {});
  }
}

function parse(block: string): ServerEvent | null {
  let id: string | null = null;
  let event = "message";
  const data: string[] = [];
  for (const line of block.split("\n")) {
    const [name, value] = [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 1).replace(/^ /, "")];
    if (name === "id") id = value;
    else if (name === "event") event = value;
    else if (name === "data") data.push(value);
  }
  return data.length ? { id, event, data: data.join("\n") } : null;
}

export type StreamState = "connecting" | "live" | "cut" | "ended";

export interface Follower {
  onEvent: (event: ServerEvent) => void;
  onState?: (state: StreamState) => void;
  /** The cursor to begin after. */
  after?: string;
  signal: AbortSignal;
  /** Connect again also after an `end`, as lists do. */
  forever?: boolean;
}

/**
 * Follow a stream through cuts until it ends, is refused, or `signal` aborts. Each connection resumes after the last
 * id, so that no event is missing and none comes twice.
 */
export async function follow<O extends OperationName>(name: O, given: Given<O>, to: Follower): Promise<void> {
  let last = to.after ?? null;
  let failures = 0;
  const { signal } = to;
  while (!signal.aborted) {
    const connection = new AbortController();
    const abort = () => connection.abort();
    signal.addEventListener("abort", abort);
    window.addEventListener("offline", abort);
    try {
      to.onState?.(failures ? "cut" : "connecting");
      const extra: Record<string, string> = { Accept: "text/event-stream" };
      if (last !== null) extra["Last-Event-ID"] = last;
      const response = await request(name, { ...given, signal: connection.signal }, extra);
      if (response.status === 204) return to.onState?.("ended");
      to.onState?.("live");
      for await (const event of eventsOf(response, connection.signal)) {
        failures = 0;
        last = event.id ?? last;
        to.onEvent(event);
        if (event.event === "end" && !to.forever && !isInterrupted(event.data)) return to.onState?.("ended");
      }
      failures += 1;
    } catch (error) {
      if (signal.aborted) return;
      const isRefused = error instanceof ApiError && error.status >= 400 && error.status < 500 && error.status !== 429;
      if (isRefused) throw error;
      failures += 1;
    } finally {
      connection.abort();
      signal.removeEventListener("abort", abort);
      window.removeEventListener("offline", abort);
    }
    if (signal.aborted) return;
    to.onState?.("cut");
    await delay(failures, signal);
  }
}

/** Whether a stream ended for the server's sake, and goes on elsewhere. */
function isInterrupted(data: string): boolean {
  return /"(draining|too_slow)"/.test(data);
}

/** Wait before the next attempt; the return of the network or of the tab ends the wait. */
async function delay(failures: number, signal: AbortSignal): Promise<void> {
  const longest = Math.min(MAX_DELAY_MS, 250 * 2 ** Math.min(failures, 6));
  const woken = new AbortController();
  const wake = () => woken.abort();
  const seen = () => document.visibilityState === "visible" && wake();
  window.addEventListener("online", wake);
  document.addEventListener("visibilitychange", seen);
  signal.addEventListener("abort", wake);
  const news = new Promise<void>((done) => woken.signal.addEventListener("abort", () => done()));
  await Promise.race([pause(longest * (0.5 + Math.random() / 2)), news]);
  window.removeEventListener("online", wake);
  document.removeEventListener("visibilitychange", seen);
  signal.removeEventListener("abort", wake);
}
