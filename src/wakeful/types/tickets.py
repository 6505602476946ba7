"""Tickets, the questions a suspended run waits on, and the decisions that answer them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal

from msgspec import Struct, field

from ..errors._arguments import Checked
from .ids import new_id

__all__ = [
    "ASKERS",
    "SYSTEM",
    "Answer",
    "Decision",
    "Escalation",
    "OnDeadline",
    "ResumeMode",
    "Seconds",
    "Ticket",
    "TicketStatus",
    "Verdict",
]

ResumeMode = Literal["replay", "result", "arguments"]
TicketStatus = Literal["open", "answered", "superseded", "cancelled"]
Verdict = Literal["approve", "deny", "reassign"]
Seconds = int | float | timedelta

# Who decided where no person did: a deadline passed. No caller's principal may have this id.
SYSTEM = "wakeful"

# Who asks where no plugin's gate does; a plugin is told apart from these by its name.
ASKERS = frozenset({"approval", "client", "remote", "tool", "unknown"})


class Answer(Struct, metaclass=Checked, frozen=True, gc=False, omit_defaults=True):
    """What a ticket is answered with at its deadline if nobody did before."""

    value: Any = None


OnDeadline = Literal["approve", "deny"] | Answer


class Escalation(Struct, metaclass=Checked, frozen=True, gc=False, omit_defaults=True):
    """Who gets a ticket whose deadline passed, and the deadline that they have: in seconds from then on. Without
    one the ticket waits for them as long as it takes."""

    to: str
    deadline: float | timedelta | None = None


class Decision(Struct, metaclass=Checked, frozen=True, gc=False, omit_defaults=True):
    """An answer to a ticket. `value` means what the mode says: what `ctx.decision` shows the tool (`replay`),
    the tool's result (`result`), or its new arguments (`arguments`).

    `principal_id`, `at` and `reason` say who decided, when and why. With the verdict `reassign` the ticket stays
    open, and `value` is who has it from then on.
    """

    ticket_id: str
    verdict: Verdict = "approve"
    mode: ResumeMode | None = None
    value: Any = None
    reason: str = ""
    principal_id: str | None = None
    asked_by: str = ""
    at: int = 0
    id: str = field(default_factory=new_id)


class Ticket(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A question that a run waits on. `accepts` lists the modes an approving decision may use; the first is
    the default, and `schema` is what a value of that mode must fit. `asked_by` is `approval`, `client`, `tool`,
    `remote` (an agent's backend), `unknown` (a call that was interrupted, and nobody knows whether it took
    effect), or the name of the plugin whose gate asked.

    At its `deadline` the ticket goes to the first in `escalate`; with nobody left there, `on_deadline` decides.
    """

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
    on_deadline: OnDeadline = "deny"
    escalate: tuple[Escalation, ...] = ()

    @property
    def asks_value(self) -> bool:
        """Whether it asks for a value, and not whether a call may run or what became of it."""
        if self.asked_by == "unknown":
            return False
        return self.asked_by in ("tool", "client") or self.accepts[0] != "replay" or self.schema is not None

    def approve(self, value: Any = None, *, reason: str = "") -> Decision:
        """Let the call go on as it is; the tool finds `value` in `ctx.decision`. A call of unknown outcome is
        run again."""
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
        """Give the call's result in the tool's place; the tool doesn't run. A call of unknown outcome did take
        effect, with this result."""
        return Decision(self.id, mode="result", value=value, reason=reason)
