"""Bodies and queries of tickets."""

from __future__ import annotations

from msgspec import Struct

from ..types.tickets import Decision, TicketStatus
from .pages import PageQuery
from .problems import Problem
from .runs import DecisionBody, check_wait

__all__ = [
    "AnswerTicket",
    "AnswerTickets",
    "CommentTicket",
    "Count",
    "LeftView",
    "ListTickets",
    "ReassignTicket",
    "TicketOutcome",
    "WithdrawAnswer",
]

MAX_BULK = 200


class ListTickets(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filters of tickets. `assignee` may be `me`: the caller, its groups and its roles."""

    status: TicketStatus | None = None
    assignee: str | None = None
    thread: str | None = None
    run: str | None = None


class Count(Struct, frozen=True, kw_only=True):
    """A count; with `more` a lower bound."""

    count: int
    more: bool = False


class AnswerTicket(DecisionBody, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An answer to a ticket. `wait` is how many seconds to wait for the run, at most 60."""

    wait: float = 0

    def __post_init__(self) -> None:
        check_wait(self.wait)


class AnswerTickets(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Answers to tickets of any runs, at most 200. Each is judged alone."""

    answers: tuple[DecisionBody, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.answers) <= MAX_BULK:
            raise ValueError(f"answers are 1 to {MAX_BULK}, not {len(self.answers)}")


class TicketOutcome(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The outcome of one of several answers: the ticket's status, or why the answer was refused."""

    ticket_id: str
    status: TicketStatus | None = None
    problem: Problem | None = None


class ReassignTicket(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The new assignee: a user's id, `user:<id>`, `group:<name>` or `role:<name>`."""

    to: str
    reason: str = ""


class CommentTicket(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A comment on a ticket."""

    text: str


class WithdrawAnswer(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Why an answer is withdrawn."""

    reason: str = ""


class LeftView(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer that no run has taken yet, and why it can't be taken."""

    decision: Decision | None = None
    problem: str = ""
