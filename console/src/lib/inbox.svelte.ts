/** How many open tickets the caller may answer, for the badge of the menu. */
import { call } from "../api/client";
import { feed } from "../api/feed.svelte";
import { session } from "./session.svelte";

const GATHER_MS = 500;

class Inbox {
  count = $state(0);
  more = $state(false);
  #timer = 0;

  /** The number for the badge; empty if there is none. */
  get text(): string {
    return this.count ? `${this.count}${this.more ? "+" : ""}` : "";
  }

  /** Follow the feed. Returns the way out. */
  follow(): () => void {
    if (!session.may("tickets.count")) return () => {};
    void this.#fetch();
    const leave = feed.subscribe((hint) => {
      if (hint !== null && hint.kind !== "ticket") return;
      clearTimeout(this.#timer);
      this.#timer = window.setTimeout(() => void this.#fetch(), GATHER_MS);
    });
    return () => {
      leave();
      clearTimeout(this.#timer);
    };
  }

  async #fetch(): Promise<void> {
    try {
      const found = await call("tickets.count", { query: { status: "open", assignee: "me" } });
      [this.count, this.more] = [found.count ?? 0, found.more ?? false];
    } catch {
      // The badge keeps its number until the next hint.
    }
  }
}

export const inbox = new Inbox();
