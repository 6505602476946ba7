"""Bodies and queries of tickets."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from ..stores import TicketOrder
from ..types.calls import Ruling
from ..types.messages import Message
from ..types.tickets import Decision, TicketStatus
from .agents import ToolView
from .numbers import Time
from .pages import check_limit
from .problems import Problem
from .runs import DecisionBody, check_wait

__all__ = [
    "AnswerTicket",
    "AnswerTickets",
    "CommentTicket",
    "CountTickets",
    "LeftView",
    "ListTickets",
    "ReassignTicket",
    "TicketAction",
    "TicketContext",
    "TicketOutcome",
    "WithdrawAnswer",
]

MAX_BULK = 200


class CountTickets(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filters of tickets.

    - `assignee`: `me` for tickets that the caller may answer, `my-groups` for those of them that are for its
      groups and roles, or an assignee as tickets have it: a user's id, `group:<name>` or `role:<name>`.
    - `asked_by`: what asked, such as `approval`, `tool` (a question), `client` or a plugin's name.
    - `due_before`: their deadline is before this time, in milliseconds.
    - `thread`, `run`: with everything below it.
    """

    status: TicketStatus | None = None
    agent: str | None = None
    tool: str | None = None
    asked_by: str | None = None
    assignee: str | None = None
    requester: str | None = None
    thread: str | None = None
    run: str | None = None
    due_before: Time | None = None


class ListTickets(CountTickets, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filters of tickets as in `CountTickets`.

    They are listed oldest first, or with `order=deadline` and a `status` by their nearest deadline.
    """

    order: TicketOrder = "created"
    limit: int = 50
    cursor: str | None = None

    def __post_init__(self) -> None:
        check_limit(self)


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


TicketAction = Literal["answer", "edit", "supply", "reassign", "comment"]


class TicketContext(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The context of a ticket, for a decision.

    `messages` are the last ones of the thread before the ticket was made, oldest first. `tool` is the tool that is
    called, with the schema of its arguments; `ruling` the decision of the permission rules that asked. `may` lists
    what the caller may do with the ticket while it is open.
    """

    title: str = ""
    messages: tuple[Message, ...] = ()
    tool: ToolView | None = None
    ruling: Ruling | None = None
    may: tuple[TicketAction, ...] = ()


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
