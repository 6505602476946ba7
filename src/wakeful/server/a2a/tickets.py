"""Open tickets as the parts of a status message, and a caller's message as decisions on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import msgspec
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import InvalidParamsError
from msgspec.structs import replace

from ...identity.rights import accepted_from_requester
from ...types.tickets import Decision, Ticket
from .wire import data_part, plain_of, text_part

__all__ = ["decisions_of", "ticket_parts"]

_YES = frozenset({"approve", "approved", "yes", "y", "ok", "allow", "true"})
_NO = frozenset({"deny", "denied", "no", "n", "reject", "refuse", "false"})
_FIELDS = frozenset({"ticketId", "verdict", "mode", "value", "reason", "seen"})


# -- questions -----------------------------------------------------------------------------------------------


def ticket_parts(tickets: Sequence[Ticket]) -> list[pb.Part]:
    """The parts for tickets: text for a person, data for a program."""
    lines = [_text_of(ticket, several=len(tickets) > 1) for ticket in tickets]
    return [text_part("\n".join(lines)), data_part({"tickets": [_data_of(ticket) for ticket in tickets]})]


def _text_of(ticket: Ticket, *, several: bool) -> str:
    text = ticket.message or f"May {ticket.tool} run?"
    if is_approval(ticket) and ticket.asked_by != "remote":  # A remote agent's question includes its call.
        text = f"{text} {ticket.tool} {msgspec.json.encode(ticket.arguments).decode()}"
    how = "approve or deny" if is_approval(ticket) else "answer with text or data"
    if not accepted_from_requester(ticket):
        named = [*([] if ticket.assignee is None else [ticket.assignee]), *[f"group:{g}" for g in ticket.groups]]
        how = f"waits for {' or '.join(named) or 'somebody else'}"
    return f"{text} [ticket {ticket.id}: {how}]" if several else f"{text} [{how}]"


def _data_of(ticket: Ticket) -> dict[str, Any]:
    found: dict[str, Any] = {
        "ticketId": ticket.id,
        "askedBy": ticket.asked_by,
        "tool": ticket.tool,
        "arguments": ticket.arguments,
        "message": ticket.message,
        "accepts": accepted_from_requester(ticket),
        "digest": ticket.digest,
    }
    if ticket.schema is not None:
        found["schema"] = ticket.schema
    if ticket.deadline is not None:
        found["deadline"] = ticket.deadline
    return found


def is_approval(ticket: Ticket) -> bool:
    """Whether a ticket asks for the approval of a call, not for a value."""
    return ticket.asked_by not in ("tool", "client") and ticket.accepts[0] == "proceed"


# -- answers -------------------------------------------------------------------------------------------------


def decisions_of(message: pb.Message, tickets: Sequence[Ticket]) -> tuple[list[Decision], list[pb.Part]]:
    """The decisions of a message to a waiting task, and its other parts.

    A data part with `ticketId` or `verdict`, or with a list of such objects under `decisions`, is a decision.
    Without one, the whole message (a value, approve or deny) answers the only open ticket, or the ticket that its
    metadata names.
    """
    explicit = [_explicit_decisions(part, message, tickets) for part in message.parts]
    if any(explicit):
        others = [part for part, found in zip(message.parts, explicit, strict=True) if not found]
        return [decision for found in explicit for decision in found], others
    return [_decide_by_value(_find_ticket(_ticket_id_of(message), tickets), _value_of(message))], []


def _decide_by_value(ticket: Ticket, value: Any) -> Decision:
    if is_approval(ticket) or ticket.asked_by == "unknown":
        return _decide_approval(ticket, value)
    return ticket.answer(_parse_value(ticket, value))


def _ticket_id_of(message: pb.Message) -> str | None:
    ticket_id = plain_of(message.metadata).get("ticketId") if message.HasField("metadata") else None
    return ticket_id if isinstance(ticket_id, str) else None


def _find_ticket(ticket_id: str | None, tickets: Sequence[Ticket]) -> Ticket:
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


def _explicit_decisions(part: pb.Part, message: pb.Message, tickets: Sequence[Ticket]) -> list[Decision]:
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
    decision = _parse_decision(value, message, tickets)
    seen = cast(dict[str, Any], value).get("seen")
    if seen is not None and not isinstance(seen, str):
        raise InvalidParamsError(f"a decision's seen is the digest of its ticket, a text, not {seen!r:.80}")
    return replace(decision, seen=seen)


def _parse_decision(value: Any, message: pb.Message, tickets: Sequence[Ticket]) -> Decision:
    if not isinstance(value, dict):
        raise InvalidParamsError(f"a decision is an object with {', '.join(sorted(_FIELDS))}, not {value!r:.80}")
    given = cast(dict[str, Any], value)
    ticket = _find_ticket(given.get("ticketId") or _ticket_id_of(message), tickets)
    verdict, reason, mode = given.get("verdict"), given.get("reason", ""), given.get("mode")
    if verdict not in (None, "approve", "deny") or not isinstance(reason, str):
        raise InvalidParamsError(
            f"a decision's verdict is approve or deny, its reason a text; not {verdict!r:.80}"
        )
    if mode not in (None, "proceed", "result", "arguments"):
        raise InvalidParamsError(f"a decision's mode is one of {', '.join(ticket.accepts)}, not {mode!r:.80}")
    value = given.get("value")
    if verdict == "deny":
        return ticket.deny(reason)
    if mode == "result" and mode not in ticket.accepts and not is_approval(ticket):
        mode = None  # A ticket for a value takes the value as its result.
    if mode is not None:
        return Decision(ticket.id, mode=mode, value=value, reason=reason)
    if verdict == "approve" and is_approval(ticket):
        return ticket.approve(value, reason=reason)
    decision = _decide_by_value(ticket, value)
    return replace(decision, reason=reason or decision.reason)


def _value_of(message: pb.Message) -> Any:
    """The value of a message: its only data part, or its text."""
    data = [part for part in message.parts if part.WhichOneof("content") == "data"]
    text = "\n".join([part.text for part in message.parts if part.WhichOneof("content") == "text"])
    if len(data) == 1 and not text.strip():
        return plain_of(data[0].data)
    if data or len(text) == 0:
        raise InvalidParamsError("a message that answers a ticket has text, or one data part")
    return text


def _decide_approval(ticket: Ticket, value: Any) -> Decision:
    if isinstance(value, bool):
        return ticket.approve() if value else ticket.deny()
    word, _, reason = str(value).strip().partition(":")
    word = word.strip().rstrip(".!").lower()
    if word in _YES:
        return ticket.approve(reason=reason.strip())
    if word in _NO:
        return ticket.deny(reason.strip())
    raise InvalidParamsError(
        f"ticket {ticket.id} asks whether {ticket.tool} may run: answer approve or deny (deny: <why>), or with a "
        f'data part {{"verdict": "approve"}}; nothing was changed'
    )


def _parse_value(ticket: Ticket, value: Any) -> Any:
    """Parse a text as JSON if the ticket's schema isn't a string; a text that isn't JSON is kept."""
    schema = ticket.schema
    if not isinstance(value, str) or schema is None or schema.get("type") == "string":
        return value
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError:
        return value
