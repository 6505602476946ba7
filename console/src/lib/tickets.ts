/** What a ticket asks, in words, and the answers that it takes. */
import type { Ticket, TicketContext } from "../api/types";
import type { Schema } from "./schema";

export type Answer = "approve" | "deny" | "edit" | "supply" | "value";

const WHY: Record<string, string> = {
  approval: "The tool needs an approval.",
  client: "The caller of the run has to supply the result.",
  guardrail: "A guardrail wants a person's decision.",
  tool: "The tool asks a question.",
  remote: "A remote agent asks.",
  unknown: "The call was interrupted, and its outcome is unknown.",
};

/** Why there is a ticket. */
export function whyOf(ticket: Ticket, context?: TicketContext): string {
  const ruling = context?.ruling;
  const rule = ruling && ruling.decision === "ask" ? ` Rule: ${ruling.rule} (${ruling.layer}).` : "";
  return (WHY[ticket.asked_by] ?? `The plugin ${ticket.asked_by} asks.`) + rule;
}

/** Whether a ticket asks for consent to a call, rather than for a value. */
export const asksConsent = (ticket: Ticket): boolean => !["tool", "client", "remote"].includes(ticket.asked_by);

/** The answers that a ticket takes, of those that the caller may give. */
export function answersOf(ticket: Ticket, context: TicketContext | undefined): Answer[] {
  const may = context?.may ?? [];
  if ((ticket.status ?? "open") !== "open" || !may.includes("answer")) return [];
  const accepts = ticket.accepts ?? ["proceed"];
  if (!asksConsent(ticket)) return ["value", "deny"];
  const found: Answer[] = accepts.includes("proceed") ? ["approve", "deny"] : ["deny"];
  if (accepts.includes("arguments") && may.includes("edit")) found.push("edit");
  if (accepts.includes("result") && may.includes("supply")) found.push("supply");
  return found;
}

/** The schema of the value of an answer. */
export function schemaOf(ticket: Ticket, context: TicketContext | undefined, answer: Answer): Schema {
  if (answer === "edit") return (context?.tool?.parameters ?? {}) as Schema;
  if (answer === "value") return (ticket.schema ?? { type: "string" }) as Schema;
  return (ticket.accepts?.[0] === "result" ? ticket.schema : null) as Schema | null ?? {};
}

/** One line for lists. */
export function subjectOf(ticket: Ticket): string {
  if (!asksConsent(ticket)) return ticket.message || ticket.tool;
  const values = Object.entries(ticket.arguments ?? {}).map(([name, value]) => `${name} ${typeof value === "object" ? JSON.stringify(value) : String(value)}`);
  return values.join(" · ") || (ticket.message ?? "");
}

export const isOpen = (ticket: Ticket): boolean => (ticket.status ?? "open") === "open";
