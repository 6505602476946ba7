"""What a wakeful server waits for, ticket by ticket; other servers ask one thing at a time."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
from msgspec import UNSET, Struct

from ...tools import schema_faults
from ...types.tickets import ResumeMode
from .._contract import Question
from ._objects import RemoteMessage

__all__ = ["is_addressed", "questions_in"]


class _Ticket(Struct, rename="camel"):
    """A ticket as the server's status message has it; `accepts` begins with `deny`."""

    ticket_id: str
    asked_by: str
    tool: str
    accepts: list[str]
    arguments: dict[str, Any] = {}
    message: str = ""
    schema: dict[str, Any] | None = None
    deadline: int | float | None = None


class _Asking(Struct):
    tickets: list[_Ticket]


def questions_in(message: RemoteMessage | None) -> tuple[Question, ...]:
    """The tickets that a status message lists, one question for each."""
    return tuple([_question(ticket) for ticket in _tickets(message)])


def is_addressed(message: RemoteMessage | None) -> bool:
    """Whether answers to it name the ticket that they are for: then nothing else is an answer."""
    return bool(_tickets(message))


def _tickets(message: RemoteMessage | None) -> list[_Ticket]:
    for part in () if message is None else message.parts:
        data: Any = None if part.data is UNSET else part.data
        try:
            return msgspec.convert(data, _Asking).tickets
        except msgspec.ValidationError:
            continue  # It is something else.
    return []


def _question(ticket: _Ticket) -> Question:
    """A question whether a call may run takes what the ticket takes; one for a value takes that as its result."""
    modes: tuple[ResumeMode, ...] = tuple([mode for mode in get_args(ResumeMode) if mode in ticket.accepts])
    asks_value = ticket.asked_by in ("tool", "client") or "replay" not in modes
    if asks_value:
        modes = ("result", "arguments") if "arguments" in modes else ("result",)
    words = ticket.message or f"May {ticket.tool} run?"
    if not asks_value and ticket.asked_by != "remote":  # That one's own question says it.
        words = f"{words} {ticket.tool} {msgspec.json.encode(ticket.arguments).decode()}"
    data: dict[str, Any] = {"tool": ticket.tool, "arguments": ticket.arguments, "askedBy": ticket.asked_by}
    if ticket.deadline is not None:
        data["deadline"] = int(ticket.deadline)
    schema = ticket.schema
    if schema is not None and schema_faults(schema):
        data["schema"], schema = schema, None  # It can't be checked here; the remote does that.
    return Question(ticket.ticket_id, words, data, modes, schema)
