"""Tickets as requests to the client: permissions and forms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from ...identity.rights import is_candidate
from ...types.runs import Author
from ...types.tickets import Decision, GrantScope, Remember, Ticket

__all__ = ["form_decision", "form_of", "is_askable", "options_of", "permission_decision", "permission_of"]

# The name that a form gives to the value of a ticket that asks for a single one.
ANSWER = "answer"

_PRIMITIVES = ("string", "number", "integer", "boolean")
_SCOPES: Mapping[GrantScope, str] = {
    "run": "in this run",
    "thread": "in this session",
    "user": "for me",
    "agent": "for this agent",
}


def is_askable(ticket: Ticket, author: Author) -> bool:
    """Whether the client's user may decide on a ticket."""
    return is_candidate(ticket, author.principal) or "tickets:override" in author.rights


# -- permissions -----------------------------------------------------------------------------------------------


def permission_of(ticket: Ticket, session: str) -> dict[str, Any]:
    """The request for a permission."""
    call = {"toolCallId": ticket.call_id, "title": ticket.message or ticket.tool, "rawInput": ticket.arguments}
    return {"sessionId": session, "toolCall": {**call, "status": "pending"}, "options": options_of(ticket)}


def options_of(ticket: Ticket) -> list[dict[str, str]]:
    """The options of a permission: one more for each grant that the ticket offers."""
    yes, no = ("Allow", "Reject") if ticket.asked_by != "unknown" else ("Run it again", "Don't run it again")
    grants: list[GrantScope] = [] if ticket.offer is None else list(ticket.offer.scopes)
    return [
        {"optionId": "allow", "name": yes, "kind": "allow_once"},
        *[
            {"optionId": f"allow:{scope}", "name": f"Always allow {_SCOPES[scope]}", "kind": "allow_always"}
            for scope in grants
        ],
        {"optionId": "reject", "name": no, "kind": "reject_once"},
    ]


def permission_decision(ticket: Ticket, reply: Any) -> Decision | None:
    """The decision that a reply stands for; None if the client left the question open."""
    option = chosen(reply)
    if option is None:
        return None
    if option == "allow":
        return ticket.approve()
    scope = option.removeprefix("allow:")
    if ticket.offer is not None and scope in ticket.offer.scopes:
        return ticket.approve(remember=Remember(scope))
    return ticket.deny("rejected by the user")


def chosen(reply: Any) -> str | None:
    """The id of the chosen option; None if none was."""
    match reply:
        case {"outcome": {"outcome": "selected", "optionId": str(option)}}:
            return option
        case _:
            return None


# -- forms -----------------------------------------------------------------------------------------------------


def form_of(ticket: Ticket, session: str) -> dict[str, Any] | None:
    """The request for the values of a ticket; None if a form can't hold them."""
    fields = _fields(ticket.schema)
    if fields is None:
        return None
    return {
        "sessionId": session,
        "toolCallId": ticket.call_id,
        "mode": "form",
        "message": ticket.message or f"{ticket.tool} asks",
        "requestedSchema": fields,
    }


def _fields(schema: dict[str, Any] | None) -> dict[str, Any] | None:
    """The schema of a form: an object of plain values."""
    if schema is None:
        return {"type": "object", "properties": {ANSWER: {"type": "string"}}, "required": [ANSWER]}
    if _is_plain(schema):
        return {"type": "object", "properties": {ANSWER: schema}, "required": [ANSWER]}
    if schema.get("type") != "object":
        return None
    named = cast(dict[str, Any], schema.get("properties", {}))
    if not named or not all(map(_is_plain, named.values())):
        return None
    return {"type": "object", "properties": named, "required": list(schema.get("required", ()))}


def _is_plain(schema: Any) -> bool:
    return isinstance(schema, dict) and cast(dict[str, Any], schema).get("type") in _PRIMITIVES


def form_decision(ticket: Ticket, reply: Any) -> Decision | None:
    """The decision that a filled or refused form stands for; None if the client left it open."""
    match reply:
        case {"action": "accept", "content": given} if isinstance(given, dict):
            values = cast(dict[str, Any], given)
            is_single = ticket.schema is None or _is_plain(ticket.schema)
            return ticket.answer(values.get(ANSWER) if is_single else values)
        case {"action": "decline"}:
            return ticket.deny("declined by the user")
        case _:
            return None
