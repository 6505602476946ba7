/** Differences of two JSON values, by path. */
import type { Json } from "../api/types";

export interface Change {
  path: string;
  before?: Json;
  after?: Json;
}

/** List the leaves that differ. */
export function diff(before: Json | undefined, after: Json | undefined, path = ""): Change[] {
  if (same(before, after)) return [];
  if (isBranch(before) && isBranch(after) && Array.isArray(before) === Array.isArray(after)) {
    const keys = new Set([...Object.keys(before), ...Object.keys(after)]);
    return [...keys].flatMap((key) => diff(at(before, key), at(after, key), path ? `${path}.${key}` : key));
  }
  const change: Change = { path };
  if (before !== undefined) change.before = before;
  if (after !== undefined) change.after = after;
  return [change];
}

/** Whether two JSON values are equal; the order of keys doesn't count. */
export function same(a: Json | undefined, b: Json | undefined): boolean {
  if (a === b) return true;
  if (!isBranch(a) || !isBranch(b) || Array.isArray(a) !== Array.isArray(b)) return false;
  const [left, right] = [Object.keys(a), Object.keys(b)];
  return left.length === right.length && left.every((key) => key in b && same(at(a, key), at(b, key)));
}

const isBranch = (value: Json | undefined): value is Json[] | { [key: string]: Json } =>
  typeof value === "object" && value !== null;
const at = (value: Json[] | { [key: string]: Json }, key: string): Json | undefined =>
  Object.hasOwn(value, key) ? (value as { [key: string]: Json })[key] : undefined;
