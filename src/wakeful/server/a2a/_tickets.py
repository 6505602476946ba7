"""A run's open tickets as a caller sees them, and a caller's message as the answers to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import msgspec
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import InvalidParamsError
from msgspec.structs import replace

from ...types.tickets import Decision, Ticket
from ._wire import data_part, plain_of, text_part

__all__ = ["asking_parts", "decisions_of"]

_YES = frozenset({"approve", "approved", "yes", "y", "ok", "allow", "true"})
_NO = frozenset({"deny", "denied", "no", "n", "reject", "refuse", "false"})
_FIELDS = frozenset({"ticketId", "verdict", "mode", "value", "reason"})


# -- asking --------------------------------------------------------------------------------------------------


def asking_parts(tickets: Sequence[Ticket]) -> list[pb.Part]:
    """What a run waits for: as text for a person, and as data for a program."""
    lines = [_in_words(ticket, several=len(tickets) > 1) for ticket in tickets]
    return [text_part("\n".join(lines)), data_part({"tickets": [_in_data(ticket) for ticket in tickets]})]


def _in_words(ticket: Ticket, *, several: bool) -> str:
    asked = ticket.message or f"May {ticket.tool} run?"
    if is_yes_or_no(ticket) and ticket.asked_by != "remote":  # That one's own question says it.
        asked = f"{asked} {ticket.tool} {msgspec.json.encode(ticket.arguments).decode()}"
    how = "approve or deny" if is_yes_or_no(ticket) else "answer with text or data"
    return f"{asked} [ticket {ticket.id}: {how}]" if several else f"{asked} [{how}]"


def _in_data(ticket: Ticket) -> dict[str, Any]:
    found: dict[str, Any] = {
        "ticketId": ticket.id,
        "askedBy": ticket.asked_by,
        "tool": ticket.tool,
        "arguments": ticket.arguments,
        "message": ticket.message,
        "accepts": ["deny", *ticket.accepts],
    }
    if ticket.schema is not None:
        found["schema"] = ticket.schema
    if ticket.deadline is not None:
        found["deadline"] = ticket.deadline
    return found


def is_yes_or_no(ticket: Ticket) -> bool:
    """Whether a ticket asks if a call may run, and not for a value."""
    return ticket.asked_by not in ("tool", "client") and ticket.accepts[0] == "replay"


# -- answering -----------------------------------------------------------------------------------------------


def decisions_of(message: pb.Message, tickets: Sequence[Ticket]) -> tuple[list[Decision], list[pb.Part]]:
    """The decisions that a message to a waiting task makes, and the parts that say something besides.

    A data part with `ticketId` or `verdict`, or with a list of such under `decisions`, decides. Without one the
    message is the answer to the one open ticket, or to the one that its metadata names: a value, approve or deny.
    """
    explicit = [_explicit(part, message, tickets) for part in message.parts]
    if any(explicit):
        besides = [part for part, found in zip(message.parts, explicit, strict=True) if not found]
        return [decision for found in explicit for decision in found], besides
    return [_plain(_ticket(_named(message), tickets), _value_of(message))], []


def _plain(ticket: Ticket, value: Any) -> Decision:
    """The decision that a value alone is."""
    if is_yes_or_no(ticket) or ticket.asked_by == "unknown":
        return _yes_or_no(ticket, value)
    return ticket.answer(_fitted(ticket, value))


def _named(message: pb.Message) -> str | None:
    named = plain_of(message.metadata).get("ticketId") if message.HasField("metadata") else None
    return named if isinstance(named, str) else None


def _ticket(ticket_id: str | None, tickets: Sequence[Ticket]) -> Ticket:
    listed = ", ".join(f"{ticket.id} ({ticket.tool})" for ticket in tickets)
    if ticket_id is None:
        if len(tickets) == 1:
            return tickets[0]
        raise InvalidParamsError(
            f"the task waits on {len(tickets)} tickets, and the message doesn't say which it answers; put "
            f"ticketId into a data part or the message's metadata: {listed}"
        )
    for ticket in tickets:
        if ticket_id in (ticket.id, ticket.call_id):
            return ticket
    raise InvalidParamsError(f"the task has no open ticket {ticket_id!r}; those it waits on: {listed}")


def _explicit(part: pb.Part, message: pb.Message, tickets: Sequence[Ticket]) -> list[Decision]:
    if part.WhichOneof("content") != "data":
        return []
    value = plain_of(part.data)
    if not isinstance(value, dict):
        return []
    given = cast(dict[str, Any], value)
    if isinstance(several := given.get("decisions"), list) and len(given) == 1:
        return [_decision(each, message, tickets) for each in cast(list[Any], several)]
    if given.keys() <= _FIELDS and ("ticketId" in given or given.get("verdict") in ("approve", "deny")):
        return [_decision(given, message, tickets)]
    return []


def _decision(value: Any, message: pb.Message, tickets: Sequence[Ticket]) -> Decision:
    if not isinstance(value, dict):
        raise InvalidParamsError(f"a decision is an object with {', '.join(sorted(_FIELDS))}, not {value!r:.80}")
    given = cast(dict[str, Any], value)
    ticket = _ticket(given.get("ticketId") or _named(message), tickets)
    verdict, reason, mode = given.get("verdict"), given.get("reason", ""), given.get("mode")
    if verdict not in (None, "approve", "deny") or not isinstance(reason, str):
        raise InvalidParamsError(
            f"a decision's verdict is approve or deny, its reason a text; not {verdict!r:.80}"
        )
    if mode not in (None, "replay", "result", "arguments"):
        raise InvalidParamsError(f"a decision's mode is one of {', '.join(ticket.accepts)}, not {mode!r:.80}")
    value = given.get("value")
    if verdict == "deny":
        return ticket.deny(reason)
    if mode == "result" and mode not in ticket.accepts and not is_yes_or_no(ticket):
        mode = None  # The result of a question for a value is that value.
    if mode is not None:
        return Decision(ticket.id, mode=mode, value=value, reason=reason)
    if verdict == "approve" and is_yes_or_no(ticket):
        return ticket.approve(value, reason=reason)
    decision = _plain(ticket, value)
    return replace(decision, reason=reason or decision.reason)


def _value_of(message: pb.Message) -> Any:
    """What a message says: its one data part, or its text."""
    data = [part for part in message.parts if part.WhichOneof("content") == "data"]
    text = "\n".join([part.text for part in message.parts if part.WhichOneof("content") == "text"])
    if len(data) == 1 and not text.strip():
        return plain_of(data[0].data)
    if data or len(text) == 0:
        raise InvalidParamsError("a message that answers a ticket has text, or one data part")
    return text


def _yes_or_no(ticket: Ticket, value: Any) -> Decision:
    if isinstance(value, bool):
        return ticket.approve() if value else ticket.deny()
    word, _, reason = str(value).strip().partition(":")
    said = word.strip().rstrip(".!").lower()
    if said in _YES:
        return ticket.approve(reason=reason.strip())
    if said in _NO:
        return ticket.deny(reason.strip())
    raise InvalidParamsError(
        f"ticket {ticket.id} asks whether {ticket.tool} may run: answer approve or deny (deny: <why>), or with a "
        f'data part {{"verdict": "approve"}}; nothing was changed'
    )


def _fitted(ticket: Ticket, value: Any) -> Any:
    """A text as the value that a schema wants, where it can be one."""
    schema = ticket.schema
    if not isinstance(value, str) or schema is None or schema.get("type") == "string":
        return value
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError:
        return value
