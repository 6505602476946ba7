/** Calls of the HTTP API, by the names of its operations: `await call("tickets.get", { path: { ticket } })`. */
import type { operations } from "./generated/schema";
import { OPERATIONS } from "./generated/operations";
import type { Problem } from "./types";

export type OperationName = keyof operations & string;

type Parameters<O extends OperationName> = operations[O]["parameters"];
type BodyOf<O extends OperationName> = operations[O] extends {
  requestBody?: { content: { "application/json": infer B } };
}
  ? B
  : never;
type Content<R> = R extends { content: { "application/json": infer T } } ? T : never;
type Responses<O extends OperationName> = operations[O]["responses"];
type ReplyOf<O extends OperationName> = Content<Responses<O>[keyof Responses<O> & (200 | 201 | 202)]>;

export interface Given<O extends OperationName> {
  path?: Parameters<O>["path"];
  query?: Parameters<O>["query"];
  body?: BodyOf<O>;
  /** The version that is changed, for operations that take If-Match. */
  match?: string;
  signal?: AbortSignal;
}

/** An error of the API, or of the way to it (`status` 0). */
export class ApiError extends Error {
  constructor(readonly problem: Problem) {
    super(problem.detail || problem.title);
  }

  get status(): number {
    return this.problem.status;
  }

  get code(): string {
    return this.problem.code;
  }
}

/** What the session adds to requests, and is told. Set once, by `session`. */
export const credential: { token: () => string | null; refused: () => void } = {
  token: () => null,
  refused: () => {},
};

const ROOT = new URL("../", document.baseURI);
const RETRIES = 3;

/** The URL of an operation. */
export function urlOf<O extends OperationName>(name: O, given: Given<O> = {}): URL {
  const path = OPERATIONS[name]![1].replace(/{(\w+)}/g, (_, key: string) =>
    encodeURIComponent(String((given.path as Record<string, unknown> | undefined)?.[key] ?? "")),
  );
  const url = new URL(path.slice(1), ROOT);
  for (const [key, value] of Object.entries((given.query ?? {}) as Record<string, unknown>)) {
    if (value === undefined || value === null || value === "") continue;
    for (const each of Array.isArray(value) ? value : [value]) url.searchParams.append(key, String(each));
  }
  return url;
}

/** Call an operation. Throws `ApiError`. A request that may be repeated is, under one key. */
export async function call<O extends OperationName>(name: O, given: Given<O> = {}): Promise<ReplyOf<O>> {
  const response = await request(name, given);
  if (response.status === 204) return undefined as ReplyOf<O>;
  const type = response.headers.get("content-type") ?? "";
  return (type.includes("json") && !type.includes("ndjson") ? await response.json() : await response.text()) as ReplyOf<O>;
}

/** Call an operation and return its response, for streams and headers. */
export async function request<O extends OperationName>(
  name: O,
  given: Given<O> = {},
  extra: Record<string, string> = {},
): Promise<Response> {
  const [method, , , repeatable] = OPERATIONS[name]!;
  const headers: Record<string, string> = { ...extra };
  const token = credential.token();
  if (token) headers["Authorization"] = `Bearer ${token}`;
  if (given.body !== undefined) headers["Content-Type"] = "application/json";
  if (given.match !== undefined) headers["If-Match"] = given.match;
  if (repeatable) headers["Idempotency-Key"] = crypto.randomUUID();
  const init: RequestInit = { method, headers, credentials: "omit", cache: "no-store", redirect: "error" };
  if (given.body !== undefined) init.body = JSON.stringify(given.body);
  if (given.signal) init.signal = given.signal;
  const mayRepeat = method === "GET" ? 0 : repeatable ? RETRIES : 0;
  for (let attempt = 0; ; attempt++) {
    let response: Response;
    try {
      response = await fetch(urlOf(name, given), init);
    } catch (error) {
      if (given.signal?.aborted || attempt >= mayRepeat) throw given.signal?.aborted ? error : unreachable(error);
      await pause(500 * 2 ** attempt);
      continue;
    }
    if (response.ok) return response;
    const error = await errorOf(response);
    if (error.status === 503 && attempt < mayRepeat) {
      await pause(1000 * Number(response.headers.get("retry-after") ?? "1"));
      continue;
    }
    if (error.status === 401) credential.refused();
    throw error;
  }
}

async function errorOf(response: Response): Promise<ApiError> {
  try {
    const found: unknown = await response.json();
    if (found && typeof found === "object" && "status" in found) return new ApiError(found as Problem);
  } catch {
    // Not a problem of ours: a proxy's page.
  }
  const title = response.statusText || `HTTP ${response.status}`;
  return new ApiError({ type: "about:blank", title, status: response.status, code: "http", detail: "" } as Problem);
}

function unreachable(error: unknown): ApiError {
  const detail = `the server can't be reached (${String(error)}); it is tried again when the connection is back`;
  return new ApiError({ type: "about:blank", title: "No connection", status: 0, code: "unreachable", detail } as Problem);
}

/** The text of an error for a person. */
export function textOf(error: unknown): string {
  if (!(error instanceof ApiError)) return error instanceof Error ? error.message : String(error);
  const details = (error.problem.errors ?? []).map((each) => `${each.pointer}: ${each.detail}`);
  return [error.message, ...details].join("; ");
}

export const pause = (milliseconds: number): Promise<void> => new Promise((done) => setTimeout(done, milliseconds));
