/** The events of one run, live: what is in the log once, and the answer that is being written. */
import { feed } from "../api/feed.svelte";
import { follow, type StreamState } from "../api/sse";
import { ApiError } from "../api/client";

/** An event, as far as pages read it. Each has its type's own fields, too. */
export interface RunEvent {
  type: string;
  seq: number;
  at: number;
  run: { run_id: string; thread_id: string; agent_id: string; root_run_id: string; parent_call_id?: string; depth?: number };
  [field: string]: unknown;
}

/** Live events, which aren't in the log. */
const DELTAS = new Set([
  "text_delta", "reasoning_delta", "reasoning_encrypted", "tool_call_start", "tool_call_delta", "tool_call_cancel",
  "tool_output", "tool_progress", "partial_output", "server_tool", "artifact", "stream_reset", "activity_snapshot",
  "activity_delta", "state_snapshot", "messages_snapshot",
]);
/** Older events are dropped from memory. */
const MOST = 5000;
const LONGEST = 20_000;

export class RunEvents {
  /** The durable events, oldest first. */
  items = $state.raw<RunEvent[]>([]);
  /** The text of the answer in progress, from its end. */
  text = $state("");
  /** The progress of running calls, by their ids. */
  progress = $state.raw(new Map<string, string>());
  /** How many events were received. */
  received = $state(0);
  state = $state<StreamState>("connecting");
  error = $state.raw<unknown>(null);
  #pending: RunEvent[] = [];
  #frame = 0;
  #stop = new AbortController();
  #last = "0";
  #seq = 0;

  constructor(readonly run: string) {}

  /** Follow the run through its waits, until it is done or `end` is called. */
  async begin(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      let isDone = false;
      try {
        await follow("runs.events", { path: { run: this.run } }, {
          signal,
          after: this.#last,
          onState: (state) => (this.state = state),
          onEvent: ({ id, event, data }) => {
            this.#last = id ?? this.#last;
            if (event === "end") isDone = data.includes('"run_done"') || data.includes('"thread_deleted"');
            else this.#take(JSON.parse(data) as RunEvent);
          },
        });
      } catch (error) {
        if (!signal.aborted) this.error = error;
        if (error instanceof ApiError) return;
      }
      if (signal.aborted || isDone) return;
      await this.#hint(signal);
    }
  }

  end(): void {
    this.#stop.abort();
    cancelAnimationFrame(this.#frame);
  }

  /** Wait until the run changes, as its stream ends when it waits. */
  async #hint(signal: AbortSignal): Promise<void> {
    await new Promise<void>((done) => {
      const leave = feed.subscribe((hint) => (hint === null || hint.id === this.run) && finish());
      const finish = (): void => {
        leave();
        done();
      };
      signal.addEventListener("abort", finish, { once: true });
    });
  }

  /** Take an event; many that come at once are shown together. */
  #take(event: RunEvent): void {
    this.#pending.push(event);
    this.#frame ||= requestAnimationFrame(() => this.#show());
  }

  #show(): void {
    const taken = this.#pending;
    [this.#pending, this.#frame] = [[], 0];
    const kept: RunEvent[] = [];
    let text = this.text;
    let progress: Map<string, string> | null = null;
    for (const event of taken) {
      const isOwn = event.run.run_id === this.run;
      if (event.type === "text_delta" && isOwn) text = event["offset"] === 0 ? String(event["delta"]) : text + String(event["delta"]);
      else if (event.type === "stream_reset" && isOwn) text = "";
      else if (event.type === "tool_progress") (progress ??= new Map(this.progress)).set(String(event["call_id"]), progressOf(event));
      if (DELTAS.has(event.type)) continue;
      if (event.type === "inference_complete" && isOwn) text = "";
      // The log's events of the run's own thread come in order; one that was seen is not shown again.
      if (isOwn && event.seq <= this.#seq) continue;
      if (isOwn) this.#seq = event.seq;
      kept.push(event);
    }
    this.received += taken.length;
    this.text = text.slice(-LONGEST);
    if (progress) this.progress = progress;
    if (kept.length) this.items = [...this.items, ...kept].slice(-MOST);
  }
}

function progressOf(event: RunEvent): string {
  const { done, total, fraction, message } = event as unknown as { done?: number; total?: number; fraction?: number; message?: string };
  const share = fraction !== undefined ? `${Math.round(fraction * 100)} %` : done !== undefined ? `${done}${total === undefined ? "" : ` of ${total}`}` : "";
  return [share, message].filter(Boolean).join(" · ");
}
