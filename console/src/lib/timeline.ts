/** The timeline of a run: bars for what took time, marks for what happened at a moment. */
import type { Call, Run, RunTree } from "../api/types";
import type { RunEvent } from "./run.svelte";

export interface Bar {
  key: string;
  kind: "step" | "call" | "wait" | "run" | "timer";
  label: string;
  from: number;
  /** null while it lasts. */
  to: number | null;
  tone: "plain" | "good" | "bad" | "warn" | "accent";
  /** Where more is said. */
  path?: string;
}

export interface Mark {
  key: string;
  at: number;
  label: string;
  tone: "bad" | "warn" | "accent";
}

export const WAITS: Record<string, string> = {
  tool_permission: "an approval",
  user_input: "an answer",
  awaiting_tasks: "its tasks",
  timer: "a timer",
  rate_limit: "a rate limit",
  manual_pause: "somebody to continue it: it is paused",
  external_event: "an event from outside",
};

/** The bars of a run: its model calls, tool calls, waits and timers, and the runs directly below. */
export function barsOf(run: Run, events: readonly RunEvent[], calls: readonly Call[], tree: RunTree | undefined): Bar[] {
  const id = run.identity.run_id;
  const found: Bar[] = [];
  let wait: Bar | null = null;
  for (const event of events) {
    if (event.run.run_id !== id) continue;
    if (event.type === "inference_complete") {
      const duration = Number(event["duration_ms"] ?? 0);
      found.push({ key: `i${event.seq}`, kind: "step", label: String(event["model"]), from: event.at - duration, to: event.at, tone: "accent" });
    } else if (event.type === "run_finish" && event["status"] === "waiting") {
      const reason = (event["waiting"] as Run["waiting"])?.reason ?? "unknown";
      wait = { key: `w${event.seq}`, kind: "wait", label: `waits for ${WAITS[reason] ?? reason}`, from: event.at, to: null, tone: "warn" };
      found.push(wait);
    } else if (event.type === "run_start" && wait) {
      wait.to = event.at;
      wait = null;
    }
  }
  for (const call of calls) {
    if (!call.started_at) continue;
    const tone = call.outcome === "ok" ? "good" : call.outcome ? "bad" : "accent";
    found.push({ key: call.id, kind: "call", label: call.name, from: call.started_at, to: call.finished_at ?? null, tone });
    if (call.until) found.push({ key: `${call.id}.t`, kind: "timer", label: `${call.name}: timer`, from: call.started_at, to: call.until, tone: "warn" });
  }
  for (const child of tree?.children ?? []) {
    const each = child.run;
    const tone = each.status === "done" ? (each.outcome?.termination.type === "error" ? "bad" : "good") : each.status === "waiting" ? "warn" : "accent";
    found.push({
      key: each.identity.run_id, kind: "run", label: `run of ${each.agent_id}`, from: each.created_at,
      to: each.finished_at ?? null, tone, path: `/runs/${each.identity.run_id}`,
    });
  }
  return found.sort((a, b) => a.from - b.from);
}

/** The moments of a run: takeovers, resumes, retries and errors. */
export function marksOf(run: Run, events: readonly RunEvent[]): Mark[] {
  const id = run.identity.run_id;
  return events.flatMap((event): Mark[] => {
    if (event.run.run_id !== id) return [];
    const mark = { key: String(event.seq), at: event.at };
    if (event.type === "run_start" && event["trigger"] === "recover") return [{ ...mark, label: "taken over by another worker", tone: "warn" }];
    if (event.type === "run_start" && event["trigger"] === "retry") return [{ ...mark, label: "retried by a person", tone: "accent" }];
    if (event.type === "run_start" && event["trigger"] !== "new") return [{ ...mark, label: `continued: ${String(event["trigger"])}`, tone: "accent" }];
    if (event.type === "handoff") return [{ ...mark, label: `handed to ${String(event["to_agent"])}`, tone: "accent" }];
    if (event.type === "error") {
      const next = event["retry_at"] ? `; next attempt ${new Date(Number(event["retry_at"])).toLocaleTimeString()}` : "";
      return [{ ...mark, label: `${String(event["error"])}: ${String(event["message"])}${next}`, tone: "bad" }];
    }
    return [];
  });
}
