/** The API's types, under short names. Add a line for each schema that a page needs. */
import type { components } from "./generated/schema";

type Schemas = components["schemas"];

export type Agent = Schemas["AgentView"];
export type Decision = Schemas["Decision"];
export type DecisionBody = Schemas["DecisionBody"];
export type Me = Schemas["Me"];
export type Message = Schemas["Message"];
export type Content = Message["content"][number];
export type Problem = Schemas["Problem"];
export type Run = Schemas["RunRecord"];
export type Thread = Schemas["ThreadRecord"];
export type Ticket = Schemas["Ticket"];
export type TicketContext = Schemas["TicketContext"];
export type RunTree = Schemas["RunTree"];
export type Call = Schemas["Call"];
export type Ledger = Schemas["Ledger"];
export type Usage = Schemas["Usage"];

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
