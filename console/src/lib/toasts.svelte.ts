/** Short messages about what was done, or failed. */
import { textOf } from "../api/client";

export interface Toast {
  id: number;
  text: string;
  kind: "good" | "bad";
}

const SHOWN_MS = 6000;

class Toasts {
  items = $state.raw<Toast[]>([]);
  #last = 0;

  say(text: string, kind: Toast["kind"] = "good"): void {
    const id = ++this.#last;
    this.items = [...this.items.slice(-3), { id, text, kind }];
    setTimeout(() => this.drop(id), kind === "bad" ? SHOWN_MS * 2 : SHOWN_MS);
  }

  drop(id: number): void {
    this.items = this.items.filter((each) => each.id !== id);
  }

  /** Run work, say `done` after it, or why it failed. Returns whether it went well. */
  async report(work: Promise<unknown>, done?: string): Promise<boolean> {
    try {
      await work;
      if (done) this.say(done);
      return true;
    } catch (error) {
      this.say(textOf(error), "bad");
      return false;
    }
  }
}

export const toasts = new Toasts();
