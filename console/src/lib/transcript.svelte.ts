/**
 * A thread's conversation: pages of messages around a place, and the answer in progress.
 *
 * A delta belongs at its offset, a reset discards what was streamed, and the message of an answer replaces it. So a
 * reader that was cut off shows the same text as one that never was.
 */
import { untrack } from "svelte";
import { call as request } from "../api/client";
import { follow, type StreamState } from "../api/sse";
import type { Call, Json, Message } from "../api/types";
import { isPassing } from "./live.svelte";

/** An answer that is being streamed. */
export interface Answer {
  id: string;
  runId: string;
  text: Streamed;
  reasoning: Streamed;
  /** The calls that it asks for, in order. */
  calls: Map<string, { name: string; arguments: Streamed }>;
  output?: Json;
}

/** A text that grows, and its length in characters, by which deltas are placed. */
interface Streamed {
  text: string;
  length: number;
}

/** What a running call has said. */
export interface Progress {
  output: string;
  message: string;
  fraction: number | null;
}

/** A failure of a model that is tried again. */
export interface Trouble {
  text: string;
  retryAt: number | null;
}

interface ThreadEvent {
  type: string;
  run: { run_id: string; thread_id: string };
  [field: string]: unknown;
}

const PAGE = 100;
/** Changes of this time are shown together. */
const GATHER_MS = 40;
const TELL_MS = 250;
const RETRY_MS = 5000;
const OUTPUT_KEPT = 20_000;

export class Transcript {
  /** The loaded part of the conversation, oldest first. */
  messages = $state.raw<Message[]>([]);
  /** Results by the ids of their calls. */
  replies = $state.raw<ReadonlyMap<string, Message>>(new Map());
  answers = $state.raw<Answer[]>([]);
  progress = $state.raw<ReadonlyMap<string, Progress>>(new Map());
  /** Rows of the ledger by the ids of their calls. */
  calls = $state.raw<ReadonlyMap<string, Call>>(new Map());
  trouble = $state.raw<Trouble | null>(null);
  /** When another worker took over a run whose worker was lost. */
  takenOver = $state<number | null>(null);
  hasOlder = $state(false);
  hasNewer = $state(false);
  loading = $state(true);
  error = $state.raw<unknown>(null);
  stream = $state<StreamState>("connecting");
  /** Counts events that change more than the conversation: tickets, pending input, state. */
  changes = $state(0);
  /** Counts how often the conversation began anew, at another place. */
  place = $state(0);

  #abort = new AbortController();
  #messages: Message[] = [];
  #replies = new Map<string, Message>();
  #answers = new Map<string, Answer>();
  #progress = new Map<string, Progress>();
  #calls = new Map<string, Call>();
  #asked = new Map<string, number>();
  #timer = 0;
  #told = 0;
  #again = 0;
  #busy = false;

  constructor(readonly thread: string) {}

  /** Load the end of the conversation, or the part from an entry on, and follow what happens. */
  async begin(at: number | null): Promise<void> {
    const { signal } = this.#abort;
    try {
      this.error = null;
      const thread = await request("threads.get", { path: { thread: this.thread }, signal });
      await this.jump(at);
      if (signal.aborted) return;
      await follow("threads.events", { path: { thread: this.thread } }, {
        after: String(thread.head ?? 0),
        signal,
        onState: (state) => (this.stream = state),
        onEvent: ({ event, data }) => event !== "end" && this.#apply(JSON.parse(data) as ThreadEvent),
      });
    } catch (error) {
      if (signal.aborted) return;
      [this.error, this.loading] = [error, false];
      if (isPassing(error)) this.#again = window.setTimeout(() => void this.begin(at), RETRY_MS);
    }
  }

  end(): void {
    this.#abort.abort();
    clearTimeout(this.#timer);
    clearTimeout(this.#told);
    clearTimeout(this.#again);
    for (const timer of this.#asked.values()) clearTimeout(timer);
  }

  /** Show the conversation from an entry on; its end without one. */
  async jump(at: number | null): Promise<void> {
    this.loading = true;
    const query = at === null ? { limit: PAGE } : { limit: PAGE, after: Math.max(0, at - 1) };
    const page = await request("threads.messages", { path: { thread: this.thread }, query, signal: this.#abort.signal });
    this.#messages = [];
    this.#merge(page.items);
    this.hasOlder = at === null ? !!page.next : at > 1;
    this.hasNewer = at !== null && !!page.next;
    this.loading = false;
    this.place++;
    this.#show();
  }

  async older(): Promise<void> {
    const first = this.#messages[0];
    if (!this.hasOlder || this.#busy || !first) return;
    await this.#page({ before: first.seq ?? 0 }, (more) => (this.hasOlder = more));
  }

  async newer(): Promise<void> {
    const last = this.#messages.at(-1);
    if (!this.hasNewer || this.#busy || !last) return;
    await this.#page({ after: last.seq ?? 0 }, (more) => (this.hasNewer = more));
  }

  async #page(query: { before: number } | { after: number }, mark: (more: boolean) => void): Promise<void> {
    this.#busy = true;
    try {
      let cursor: string | undefined;
      do {
        // A page may have nothing but internal messages, which aren't shown.
        const given = { path: { thread: this.thread }, query: { ...query, limit: 200, cursor }, signal: this.#abort.signal };
        const page = await request("threads.messages", given);
        this.#merge(page.items);
        cursor = page.items.length ? undefined : (page.next ?? undefined);
        mark(!!page.next);
      } while (cursor);
      this.#show();
    } catch (error) {
      if (!this.#abort.signal.aborted) this.error = error;
    }
    this.#busy = false;
  }

  /** Fetch the ledger of a run, once, and again after its calls changed. */
  need(runId: string, again = false): void {
    if (this.#asked.has(runId) && !again) return;
    clearTimeout(this.#asked.get(runId));
    this.#asked.set(runId, window.setTimeout(() => void this.#fetchCalls(runId), GATHER_MS * 3));
  }

  async #fetchCalls(runId: string): Promise<void> {
    try {
      const found = await request("runs.calls", { path: { run: runId }, signal: this.#abort.signal });
      for (const each of found) {
        this.#calls.set(each.id, each);
        if (each.state === "finished") this.#progress.delete(each.id);
      }
      this.#show();
    } catch {
      this.#asked.delete(runId);
    }
  }

  #merge(found: readonly Message[]): void {
    for (const each of found) this.#keepReply(each);
    const known = new Set(this.#messages.map((each) => each.id));
    const fresh = found.filter((each) => !known.has(each.id));
    if (!fresh.length) return;
    const last = this.#messages.at(-1)?.seq ?? 0;
    this.#messages = [...this.#messages, ...fresh];
    if ((fresh[0]!.seq ?? 0) < last) this.#messages.sort((a, b) => (a.seq ?? 0) - (b.seq ?? 0));
  }

  #keepReply(message: Message): void {
    const part = message.content[0];
    if (message.role === "tool" && part?.type === "tool_reply") this.#replies.set(part.call_id, message);
  }

  /** The answer in progress that an event is about. */
  #answer(event: ThreadEvent): Answer {
    const id = String(event["message_id"] ?? "");
    let found = this.#answers.get(id);
    if (!found) {
      const empty = () => ({ text: "", length: 0 });
      found = { id, runId: event.run.run_id, text: empty(), reasoning: empty(), calls: new Map() };
      this.#answers.set(id, found);
    }
    return found;
  }

  #apply(event: ThreadEvent): void {
    if (event.run.thread_id !== this.thread) return; // Of a run below.
    const callId = String(event["call_id"] ?? "");
    switch (event.type) {
      case "text_delta":
        place(this.#answer(event).text, event);
        this.trouble = null;
        break;
      case "reasoning_delta":
        place(this.#answer(event).reasoning, event);
        break;
      case "partial_output":
        this.#answer(event).output = event["output"] as Json;
        break;
      case "tool_call_start":
        this.#lastAnswer(event).calls.set(callId, { name: String(event["name"]), arguments: { text: "", length: 0 } });
        break;
      case "tool_call_delta": {
        const made = this.#lastAnswer(event).calls.get(callId);
        if (made) place(made.arguments, event);
        break;
      }
      case "tool_call_cancel":
        for (const answer of this.#answers.values()) answer.calls.delete(callId);
        break;
      case "stream_reset":
        this.#answers.delete(String(event["message_id"]));
        break;
      case "message": {
        const message = event["message"] as Message;
        this.#answers.delete(message.id);
        if (message.visibility !== "internal") {
          if (this.hasNewer) this.#keepReply(message);
          else this.#merge([message]);
        }
        this.#tell();
        break;
      }
      case "tool_progress":
      case "tool_output":
        this.#note(callId, event);
        break;
      case "error": {
        const retryAt = (event["retry_at"] as number | undefined) ?? null;
        this.trouble = { text: `${String(event["error"])}: ${String(event["message"])}`, retryAt };
        break;
      }
      case "run_start":
      case "run_finish":
        if (event.type === "run_start" || event["status"] === "done") this.#answers.clear();
        if (event.type === "run_start" || event["status"] === "waiting") this.trouble = null;
        if (event["trigger"] === "recover") this.takenOver = event["at"] as number;
        this.need(event.run.run_id, true);
        this.#tell();
        break;
      default:
        if (/^(tool_call|ticket|state|handoff|compacted)/.test(event.type)) {
          if (callId) this.need(event.run.run_id, true);
          this.#tell();
        }
    }
    if (!this.#timer) this.#timer = window.setTimeout(() => this.#show(), GATHER_MS);
  }

  /** A call belongs to the answer in progress; its first event doesn't say which. */
  #lastAnswer(event: ThreadEvent): Answer {
    return event["message_id"] === undefined ? ([...this.#answers.values()].at(-1) ?? this.#answer(event)) : this.#answer(event);
  }

  #note(callId: string, event: ThreadEvent): void {
    const before = this.#progress.get(callId) ?? { output: "", message: "", fraction: null };
    const done = event["done"] as number | undefined;
    const total = event["total"] as number | undefined;
    const fraction = (event["fraction"] as number | undefined) ?? (done !== undefined && total ? done / total : null);
    this.#progress.set(
      callId,
      event.type === "tool_output"
        ? { ...before, output: (before.output + String(event["delta"])).slice(-OUTPUT_KEPT) }
        : { ...before, message: String(event["message"] ?? ""), fraction },
    );
  }

  /** Say that more than the conversation changed, once for many events. */
  #tell(): void {
    this.#told ||= window.setTimeout(() => ((this.#told = 0), this.changes++), TELL_MS);
  }

  /** Show what changed. */
  #show(): void {
    clearTimeout(this.#timer);
    this.#timer = 0;
    this.messages = this.#messages;
    this.replies = new Map(this.#replies);
    this.calls = new Map(this.#calls);
    this.progress = new Map(this.#progress);
    this.answers = this.hasNewer ? [] : [...this.#answers.values()].map((each) => ({ ...each }));
  }
}

/** Put a delta at its offset, which counts characters, and not UTF-16 units. */
function place(into: Streamed, event: ThreadEvent): void {
  const [offset, delta] = [event["offset"] as number, event["delta"] as string];
  if (offset > into.length) return; // The message has what is missing.
  if (offset < into.length) into.text = [...into.text].slice(0, offset).join("");
  into.text += delta;
  into.length = offset + [...delta].length;
}

/** Begin a transcript for a thread that may change. Call it while a component is made. */
export function transcriptOf(thread: () => string | null, at: () => number | null = () => null): { current: Transcript | null } {
  const found = $state<{ current: Transcript | null }>({ current: null });
  $effect(() => {
    const id = thread();
    if (!id) {
      found.current = null;
      return;
    }
    const made = new Transcript(id);
    found.current = made;
    void made.begin(untrack(at));
    return () => made.end();
  });
  return found;
}

