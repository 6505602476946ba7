/** The tab's one watch feed: hints of what changed, for lists and badges. */
import { follow, type StreamState } from "./sse";
import type { Hint } from "./types";

type Listener = (hint: Hint | null) => void;

class Feed {
  /** The state of the connection, which the header shows. */
  state = $state<StreamState>("connecting");
  #listeners = new Set<Listener>();
  #stop: AbortController | null = null;

  /** Connect, once for a tab. */
  start(): void {
    if (this.#stop) return;
    const stop = (this.#stop = new AbortController());
    const done = follow("watch.stream", {}, {
      signal: stop.signal,
      forever: true,
      onState: (state) => (this.state = state),
      onEvent: ({ event, data }) => {
        if (event === "hint") this.#tell(JSON.parse(data) as Hint);
        else if (event === "ready" || event === "reset") this.#tell(null);
      },
    });
    void done.catch(() => (this.state = "ended"));
  }

  /** Disconnect, as the credential is gone. */
  stop(): void {
    this.#stop?.abort();
    this.#stop = null;
    this.state = "connecting";
  }

  /** Call `listener` with each hint, and with null when everything has to be fetched again. Returns the way out. */
  subscribe(listener: Listener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #tell(hint: Hint | null): void {
    for (const listener of this.#listeners) listener(hint);
  }
}

export const feed = new Feed();
