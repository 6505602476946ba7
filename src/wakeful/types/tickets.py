"""Tickets (questions that a suspended run waits for) and the decisions that answer them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal

from msgspec import field

from ..errors.arguments import Checked
from .base import Data
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

ResumeMode = Literal["proceed", "result", "arguments"]
TicketStatus = Literal["open", "answered", "superseded", "cancelled"]
Verdict = Literal["approve", "deny", "reassign"]
Seconds = int | float | timedelta

# The principal of decisions made by a deadline. Reserved: no caller's principal may have this id.
SYSTEM = "wakeful"

# Values of `asked_by` that aren't plugin names. Reserved: no plugin may have one of these names.
ASKERS = frozenset({"approval", "client", "remote", "tool", "unknown"})


class Answer(Data, metaclass=Checked, omit_defaults=True):
    """The answer that a ticket gets at its deadline."""

    value: Any = None


OnDeadline = Literal["approve", "deny"] | Answer


class Escalation(Data, metaclass=Checked, omit_defaults=True):
    """The next assignee of a ticket whose deadline passed, and their deadline in seconds from then on.

    Without a deadline the ticket waits indefinitely.
    """

    to: str
    deadline: float | timedelta | None = None


class Decision(Data, metaclass=Checked, omit_defaults=True):
    """An answer to a ticket.

    The meaning of `value` depends on the mode: the value of `ctx.decision` in the tool (`proceed`), the tool's
    result (`result`), or its new arguments (`arguments`). With the verdict `reassign` the ticket stays open, and
    `value` is the new assignee.
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


class Ticket(Data, omit_defaults=True, kw_only=True):
    """A question that a run waits for.

    `accepts` lists the modes of an approving decision; the first is the default, and `schema` is the JSON schema
    of its value. `asked_by` is `approval`, `client`, `tool`, `remote` (an agent's backend), `unknown` (an
    interrupted call of unknown outcome), or the name of the plugin whose gate suspended the call.

    At its `deadline` the ticket goes to the first entry of `escalate`. If none is left, `on_deadline` decides.
    """

    id: str
    run_id: str
    thread_id: str
    call_id: str
    tool: str
    arguments: dict[str, Any]
    message: str = ""
    asked_by: str
    accepts: tuple[ResumeMode, ...] = ("proceed",)
    schema: dict[str, Any] | None = None
    status: TicketStatus = "open"
    assignee: str | None = None
    deadline: int | None = None
    created_at: int = 0
    on_deadline: OnDeadline = "deny"
    escalate: tuple[Escalation, ...] = ()

    @property
    def asks_value(self) -> bool:
        """Whether the ticket asks for a value, rather than for an approval or a call's outcome."""
        if self.asked_by == "unknown":
            return False
        return self.asked_by in ("tool", "client") or self.accepts[0] != "proceed" or self.schema is not None

    def approve(self, value: Any = None, *, reason: str = "") -> Decision:
        """Run the call; the tool sees `value` as `ctx.decision`. Repeats a call of unknown outcome."""
        return Decision(self.id, mode="proceed", value=value, reason=reason)

    def deny(self, reason: str = "") -> Decision:
        """Refuse the call: it doesn't run, and the model sees the reason."""
        return Decision(self.id, "deny", reason=reason)

    def answer(self, value: Any, *, reason: str = "") -> Decision:
        """Answer in the ticket's default mode."""
        return Decision(self.id, value=value, reason=reason)

    def edit(self, arguments: dict[str, Any], *, reason: str = "") -> Decision:
        """Run the call with these arguments."""
        return Decision(self.id, mode="arguments", value=arguments, reason=reason)

    def result(self, value: Any, *, reason: str = "") -> Decision:
        """Set the call's result without running the tool. A call of unknown outcome counts as done."""
        return Decision(self.id, mode="result", value=value, reason=reason)
