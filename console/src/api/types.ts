/** The API's types, under short names. Add a line for each schema that a page needs. */
import type { components } from "./generated/schema";

type Schemas = components["schemas"];

export type Agent = Schemas["AgentView"];
export type ApiKey = Schemas["KeyView"];
export type AuditEntry = Schemas["AuditEntry"];
export type Call = Schemas["Call"];
export type DeadLetter = Schemas["DeadLetter"];
export type Decision = Schemas["Decision"];
export type DecisionBody = Schemas["DecisionBody"];
export type Dispatch = Schemas["Dispatch"];
export type Me = Schemas["Me"];
export type Message = Schemas["Message"];
export type Content = Message["content"][number];
export type Parked = Schemas["ParkedProblem"];
export type PendingInput = Schemas["PendingInput"];
export type Permission = Schemas["PermissionView"];
export type Problem = Schemas["Problem"];
export type Queue = Schemas["QueueSeen"];
export type Relay = Schemas["RelayView"];
export type Run = Schemas["RunRecord"];
export type Schedule = Schemas["Schedule"];
export type Thread = Schemas["ThreadRecord"];
export type Ticket = Schemas["Ticket"];
export type TicketContext = Schemas["TicketContext"];
export type RunTree = Schemas["RunTree"];
export type Ledger = Schemas["Ledger"];
export type Usage = Schemas["Usage"];
export type UsageRow = Schemas["UsageRow"];
export type Worker = Schemas["WorkerSeen"];

/** What changed, in the watch feed. `status` is absent if it is gone. */
export interface Hint {
  kind: "run" | "thread" | "ticket" | "worker";
  id: string;
  status?: string;
  thread_id?: string;
}

export interface Page<T> {
  items: T[];
  next?: string | null;
}

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
