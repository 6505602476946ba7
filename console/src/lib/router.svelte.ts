/** A small router: paths below the console's base, and filters in the query. */

const BASE = new URL("./", document.baseURI);

class Route {
  /** The path below the base, such as `/runs/abc`. */
  path = $state("/");
  query = $state.raw(new URLSearchParams());

  constructor() {
    this.#read();
    window.addEventListener("popstate", () => this.#read());
    document.addEventListener("click", (event) => this.#follow(event));
  }

  /** Go to a path, such as `/runs?status=waiting`. */
  go(path: string, how: { replace?: boolean } = {}): void {
    const url = href(path);
    if (how.replace) history.replaceState(null, "", url);
    else history.pushState(null, "", url);
    this.#read();
    if (!how.replace) window.scrollTo(0, 0);
  }

  /** Change parameters of the query in place; empty ones are removed. */
  set(changes: Record<string, string | null | undefined>): void {
    const query = new URLSearchParams(this.query);
    for (const [name, value] of Object.entries(changes)) {
      if (value) query.set(name, value);
      else query.delete(name);
    }
    const text = query.toString();
    this.go(this.path + (text ? `?${text}` : ""), { replace: true });
  }

  /** A parameter of the query; empty if absent. */
  get(name: string): string {
    return this.query.get(name) ?? "";
  }

  #read(): void {
    const { pathname, search } = window.location;
    this.path = "/" + pathname.slice(BASE.pathname.length);
    this.query = new URLSearchParams(search);
  }

  /** Follow links inside the console without loading it again. */
  #follow(event: MouseEvent): void {
    if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = (event.target as Element | null)?.closest?.("a");
    if (!link || link.target || link.hasAttribute("download")) return;
    const url = new URL(link.href);
    if (url.origin !== BASE.origin || !url.pathname.startsWith(BASE.pathname)) return;
    event.preventDefault();
    this.go("/" + url.pathname.slice(BASE.pathname.length) + url.search);
  }
}

export const route = new Route();

/** The URL of a path below the base. */
export function href(path: string): string {
  return BASE.pathname + path.replace(/^\//, "");
}

/** Match a path with a pattern such as `/runs/:run`; null if it doesn't. */
export function match(pattern: string, path: string): Record<string, string> | null {
  const [wanted, given] = [pattern.split("/"), path.replace(/(.)\/$/, "$1").split("/")];
  if (wanted.length !== given.length) return null;
  const found: Record<string, string> = {};
  for (const [place, part] of wanted.entries()) {
    const value = given[place]!;
    if (part.startsWith(":")) {
      if (!value) return null;
      try {
        found[part.slice(1)] = decodeURIComponent(value);
      } catch {
        return null;
      }
    } else if (part !== value) return null;
  }
  return found;
}
