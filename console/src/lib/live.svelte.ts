/** Data that follows the watch feed: what was fetched stays on the screen while it is fetched again. */
import { ApiError } from "../api/client";
import { feed } from "../api/feed.svelte";
import type { Hint, Page } from "../api/types";

/** Hints that come within this time are answered by one request. */
const GATHER_MS = 150;
/** More changed items than this are fetched as a list. */
const FEW = 20;
/** Lists are fetched again up to this many items; later ones stay until a hint is about them. */
const MOST = 500;
/** Again after an error, as no hint may come. */
const RETRY_MS = 5000;

/** A value of the API. */
export class Live<T> {
  data = $state.raw<T | undefined>(undefined);
  error = $state.raw<unknown>(null);
  loading = $state(true);
  #load: ((signal: AbortSignal) => Promise<T>) | null = null;
  #abort: AbortController | null = null;
  #timer = 0;
  #gather = 0;

  begin(load: (signal: AbortSignal) => Promise<T>, keep = false): void {
    this.end();
    this.#load = load;
    if (!keep) this.data = undefined;
    void this.reload();
  }

  /** Fetch it again. */
  async reload(): Promise<void> {
    const load = this.#load;
    if (!load) return;
    this.#abort?.abort();
    clearTimeout(this.#timer);
    const abort = (this.#abort = new AbortController());
    this.loading = true;
    try {
      const found = await load(abort.signal);
      if (abort.signal.aborted) return;
      this.data = found;
      this.error = null;
    } catch (error) {
      if (abort.signal.aborted) return;
      this.error = error;
      if (isPassing(error)) this.#timer = window.setTimeout(() => void this.reload(), RETRY_MS);
    }
    this.loading = false;
  }

  /** Fetch it again soon, once for many hints. */
  soon(): void {
    this.#gather ||= window.setTimeout(() => {
      this.#gather = 0;
      void this.reload();
    }, GATHER_MS);
  }

  end(): void {
    this.#abort?.abort();
    clearTimeout(this.#timer);
    clearTimeout(this.#gather);
    this.#gather = 0;
    this.#load = null;
  }
}

/**
 * Fetch a value, and again when a hint that it `isAbout` comes. Call it while a component is made. It begins anew
 * when a state changes that `load` reads before its first await; with `keep` the former value is shown meanwhile.
 */
export function live<T>(
  load: (signal: AbortSignal) => Promise<T>,
  isAbout: (hint: Hint) => boolean = () => false,
  { keep = false } = {},
): Live<T> {
  const found = new Live<T>();
  $effect(() => {
    found.begin(track(load), keep);
    const leave = feed.subscribe((hint) => (hint === null || isAbout(hint)) && found.soon());
    return () => {
      leave();
      found.end();
    };
  });
  return found;
}

/** Run the first call of a loader at once, in the effect, so that what it reads is tracked. */
function track<T>(load: (signal: AbortSignal) => Promise<T>): (signal: AbortSignal) => Promise<T> {
  const abort = new AbortController();
  let first: Promise<T> | null = load(abort.signal);
  first.catch(() => {});
  return (signal) => {
    const taken = first;
    first = null;
    if (!taken) return load(signal);
    signal.addEventListener("abort", () => abort.abort());
    return taken;
  };
}

export interface ListSource<T> {
  /** Fetch a page. State that it reads before its first await begins the list anew. */
  load: (cursor: string | undefined, signal: AbortSignal) => Promise<Page<T>>;
  key: (item: T) => string;
  /** The kind of hints that are about its items, and how to fetch one of them. */
  kind?: Hint["kind"];
  get?: (id: string) => Promise<T>;
  /** Whether a new item belongs in the list. Items that are shown stay, changed. */
  keep?: (item: T) => boolean;
  compare?: (a: T, b: T) => number;
  /** Whether a hint about an item that isn't shown needs the list again, as only the server knows if it belongs. */
  reloadsFor?: (hint: Hint) => boolean;
}

/** A list of the API in pages, the changes of whose items are shown in place. */
export class LiveList<T> {
  items = $state.raw<T[]>([]);
  next = $state.raw<string | null>(null);
  error = $state.raw<unknown>(null);
  loading = $state(true);
  #source: ListSource<T>;
  #abort = new AbortController();
  #changed = new Set<string>();
  #timer = 0;
  #again = 0;
  #isStale = false;

  constructor(source: ListSource<T>) {
    this.#source = source;
  }

  begin(): void {
    this.items = [];
    this.next = null;
    void this.reload();
  }

  /** Fetch the first page again. */
  async reload(): Promise<void> {
    this.#abort.abort();
    clearTimeout(this.#again);
    const { signal } = (this.#abort = new AbortController());
    this.loading = true;
    try {
      const page = await this.#source.load(undefined, signal);
      if (signal.aborted) return;
      this.items = page.items;
      this.next = page.next ?? null;
      this.error = null;
    } catch (error) {
      if (signal.aborted) return;
      this.error = error;
      if (isPassing(error)) this.#again = window.setTimeout(() => void this.reload(), RETRY_MS);
    }
    this.loading = false;
  }

  /** Fetch the items again that are shown, and replace them at once. */
  async refresh(): Promise<void> {
    const { load, key } = this.#source;
    const shown = Math.min(this.items.length, MOST);
    this.#abort.abort();
    const { signal } = (this.#abort = new AbortController());
    try {
      const found: T[] = [];
      let next: string | null | undefined = undefined;
      do {
        const page: Page<T> = await load(next ?? undefined, signal);
        if (signal.aborted) return;
        found.push(...page.items);
        next = page.next ?? null;
      } while (next !== null && found.length < shown);
      const known = new Set(found.map(key));
      const rest = next === null ? [] : this.items.slice(found.length).filter((each) => !known.has(key(each)));
      this.items = [...found, ...rest];
      if (!rest.length) this.next = next;
      this.error = null;
    } catch (error) {
      if (signal.aborted) return;
      this.error = error;
      if (isPassing(error)) this.#again = window.setTimeout(() => void this.refresh(), RETRY_MS);
    }
    this.loading = false;
  }

  /** Fetch the following page, if there is one. */
  async more(): Promise<void> {
    if (this.loading || this.next === null) return;
    const { signal } = this.#abort;
    this.loading = true;
    try {
      const page = await this.#source.load(this.next, signal);
      if (signal.aborted) return;
      const known = new Set(this.items.map(this.#source.key));
      this.items = [...this.items, ...page.items.filter((each) => !known.has(this.#source.key(each)))];
      this.next = page.next ?? null;
    } catch (error) {
      if (signal.aborted) return;
      this.error = error;
    }
    this.loading = false;
  }

  /** Show an item as it is now. */
  put(item: T): void {
    const { key, keep, compare } = this.#source;
    const id = key(item);
    const place = this.items.findIndex((each) => key(each) === id);
    if (place >= 0) this.items = this.items.with(place, item);
    else if (keep?.(item) ?? true) {
      const found = [...this.items, item];
      this.items = compare ? found.sort(compare) : found;
    }
  }

  hint(hint: Hint | null): void {
    const { kind, get } = this.#source;
    if (hint === null) return void this.refresh();
    if (hint.kind !== kind) return;
    this.#changed.add(hint.id);
    const isShown = this.items.some((each) => this.#source.key(each) === hint.id);
    if (!isShown && this.#source.reloadsFor?.(hint)) this.#isStale = true;
    if (this.#timer) return;
    this.#timer = window.setTimeout(() => {
      const ids = [...this.#changed];
      const isStale = this.#isStale;
      this.#changed.clear();
      this.#isStale = false;
      this.#timer = 0;
      if (!get || isStale || ids.length > FEW) void this.refresh();
      else for (const id of ids) void this.#fetch(id, get);
    }, GATHER_MS);
  }

  end(): void {
    this.#abort.abort();
    clearTimeout(this.#timer);
    clearTimeout(this.#again);
  }

  async #fetch(id: string, get: (id: string) => Promise<T>): Promise<void> {
    try {
      this.put(await get(id));
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 404) return;
      this.items = this.items.filter((each) => this.#source.key(each) !== id);
    }
  }
}

/** Fetch a list that follows the feed. Call it while a component is made. */
export function liveList<T>(source: ListSource<T>): LiveList<T> {
  const tracked = { ...source };
  const found = new LiveList<T>(tracked);
  $effect(() => {
    const first = track<Page<T>>((signal) => source.load(undefined, signal));
    tracked.load = (cursor, signal) => (cursor === undefined ? first(signal) : source.load(cursor, signal));
    found.begin();
    const leave = feed.subscribe((hint) => found.hint(hint));
    return () => {
      leave();
      found.end();
    };
  });
  return found;
}

/** Whether an error may be gone on the next attempt. */
export function isPassing(error: unknown): boolean {
  return error instanceof ApiError && (error.status === 0 || error.status === 429 || error.status >= 500);
}
