/** Numbers and times for people. */

const UNITS: readonly [string, number][] = [
  ["d", 86_400_000],
  ["h", 3_600_000],
  ["min", 60_000],
  ["s", 1000],
];

/** A duration in its two largest units: `2 h 5 min`. */
export function duration(milliseconds: number): string {
  let rest = Math.abs(milliseconds);
  if (rest < 1000) return `${Math.round(rest)} ms`;
  if (rest < 10_000) return `${(rest / 1000).toFixed(1)} s`;
  const found: string[] = [];
  for (const [name, size] of UNITS) {
    const count = Math.floor(rest / size);
    if (count || found.length) found.push(`${count} ${name}`);
    rest -= count * size;
    if (found.length === 2) break;
  }
  return found.filter((each) => !each.startsWith("0 ")).join(" ");
}

/** How long ago, or in how long: `5 min ago`, `in 2 h`. */
export function relative(at: number, now: number): string {
  const distance = at - now;
  if (Math.abs(distance) < 5000) return "now";
  const [name, size] = UNITS.find(([, each]) => Math.abs(distance) >= each) ?? UNITS[3]!;
  const text = `${Math.round(Math.abs(distance) / size)} ${name}`;
  return distance > 0 ? `in ${text}` : `${text} ago`;
}

/** A point in time in the reader's own zone. */
export function moment(at: number): string {
  return new Date(at).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
}

/** A count with separators. */
export const count = (value: number): string => value.toLocaleString("en");

/** A cost, given in micro-units of the currency. */
export function cost(micro: number): string {
  if (!micro) return "0";
  const value = micro / 1e6;
  return value >= 0.01 ? value.toFixed(2) : value.toPrecision(2);
}

/** An id, short enough for a table: what differs between ids of one millisecond, and the end. */
export const shortId = (id: string): string =>
  /^[0-9a-f]{8}-[0-9a-f]{4}-7/.test(id) ? `${id.slice(9, 18)}…${id.slice(-4)}` : id.length > 16 ? `…${id.slice(-12)}` : id;

/** One line of a text. */
export function oneLine(text: string, length = 120): string {
  const line = text.replace(/\s+/g, " ").trim();
  return line.length > length ? `${line.slice(0, length - 1)}…` : line;
}
