"""Tickets, the questions a suspended run waits on, and the decisions that answer them."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct, field

from .ids import new_id

__all__ = ["Decision", "ResumeMode", "Ticket", "TicketStatus"]

ResumeMode = Literal["replay", "result", "arguments"]
TicketStatus = Literal["open", "answered", "superseded", "cancelled"]


class Decision(Struct, frozen=True, gc=False, omit_defaults=True):
    """An answer to a ticket. `value` means what the mode says: what `ctx.decision` shows the tool (`replay`),
    the tool's result (`result`), or its new arguments (`arguments`)."""

    ticket_id: str
    verdict: Literal["approve", "deny"] = "approve"
    mode: ResumeMode | None = None
    value: Any = None
    reason: str = ""
    principal_id: str | None = None
    asked_by: str = ""
    at: int = 0
    id: str = field(default_factory=new_id)


class Ticket(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A question that a run waits on. `accepts` lists the modes an approving decision may use; the first is
    the default. `asked_by` is `approval`, `client`, `tool`, or the name of the plugin whose gate asked."""

    id: str
    run_id: str
    thread_id: str
    call_id: str
    tool: str
    arguments: dict[str, Any]
    message: str = ""
    asked_by: str
    accepts: tuple[ResumeMode, ...] = ("replay",)
    schema: dict[str, Any] | None = None
    status: TicketStatus = "open"
    assignee: str | None = None
    deadline: int | None = None
    created_at: int = 0

    def approve(self, value: Any = None, *, reason: str = "") -> Decision:
        """Let the call go on as it is; the tool finds `value` in `ctx.decision`."""
        return Decision(self.id, mode="replay", value=value, reason=reason)

    def deny(self, reason: str = "") -> Decision:
        """Say no: the call doesn't run and the model is told why."""
        return Decision(self.id, "deny", reason=reason)

    def answer(self, value: Any, *, reason: str = "") -> Decision:
        """Answer the question in the way the ticket asks for first."""
        return Decision(self.id, value=value, reason=reason)

    def edit(self, arguments: dict[str, Any], *, reason: str = "") -> Decision:
        """Run the call with these arguments instead."""
        return Decision(self.id, mode="arguments", value=arguments, reason=reason)

    def result(self, value: Any, *, reason: str = "") -> Decision:
        """Give the call's result in the tool's place; the tool doesn't run."""
        return Decision(self.id, mode="result", value=value, reason=reason)
