"""Tickets in the status message of a wakeful server; other servers ask one question at a time."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
from msgspec import UNSET, Struct

from ...tools import schema_faults
from ...types.tickets import ResumeMode
from ..contract import Question
from .objects import RemoteMessage

__all__ = ["has_tickets", "questions_in"]


class _Ticket(Struct, rename="camel"):
    """A ticket of the server's status message; the first of `accepts` is `deny`."""

    ticket_id: str
    asked_by: str
    tool: str
    accepts: list[str]
    arguments: dict[str, Any] = {}
    message: str = ""
    schema: dict[str, Any] | None = None
    deadline: int | float | None = None


class _TicketList(Struct):
    tickets: list[_Ticket]


def questions_in(message: RemoteMessage | None) -> tuple[Question, ...]:
    """The questions of a status message, one for each ticket."""
    return tuple([_question(ticket) for ticket in _tickets_in(message)])


def has_tickets(message: RemoteMessage | None) -> bool:
    """Whether a status message lists tickets: then an answer must name its ticket."""
    return bool(_tickets_in(message))


def _tickets_in(message: RemoteMessage | None) -> list[_Ticket]:
    for part in () if message is None else message.parts:
        data: Any = None if part.data is UNSET else part.data
        try:
            return msgspec.convert(data, _TicketList).tickets
        except msgspec.ValidationError:
            continue
    return []


def _question(ticket: _Ticket) -> Question:
    """Make a question of a ticket: an approval accepts the ticket's modes, a request for a value a result."""
    modes: tuple[ResumeMode, ...] = tuple([mode for mode in get_args(ResumeMode) if mode in ticket.accepts])
    asks_value = ticket.asked_by in ("tool", "client") or "proceed" not in modes
    if asks_value:
        modes = ("result", "arguments") if "arguments" in modes else ("result",)
    text = ticket.message or f"May {ticket.tool} run?"
    if not asks_value and ticket.asked_by != "remote":  # A remote agent's question includes its call.
        text = f"{text} {ticket.tool} {msgspec.json.encode(ticket.arguments).decode()}"
    data: dict[str, Any] = {"tool": ticket.tool, "arguments": ticket.arguments, "askedBy": ticket.asked_by}
    schema = ticket.schema
    if schema is not None and schema_faults(schema):
        data["schema"], schema = schema, None  # A schema that isn't supported here is left to the remote.
    deadline = None if ticket.deadline is None else int(ticket.deadline)
    return Question(ticket.ticket_id, text, data, modes, schema, deadline)
