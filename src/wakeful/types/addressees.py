"""The addressees of a ticket, as names that principals are matched with."""

from __future__ import annotations

from .runs import Principal
from .tickets import Ticket

__all__ = ["ANYONE", "addressees_of", "asks_consent", "barred_from", "group_names", "is_named", "names_of"]

ANYONE = "*"
_SHARED = ("group:", "role:")


def asks_consent(ticket: Ticket) -> bool:
    """Whether a ticket asks for consent or for a call's outcome, rather than for a value.

    A gate asks for consent, whatever it accepts.
    """
    if ticket.asked_by == "remote":
        return not ticket.asks_value
    return ticket.asked_by not in ("tool", "client")


def addressees_of(ticket: Ticket) -> tuple[str, ...]:
    """The names of those who may answer a ticket: `user:<id>`, `group:<name>`, `role:<name>`, or `*` for anybody.

    `barred_from` names the one principal that may not, whatever its names are.
    """
    named = [] if ticket.assignee is None else [_name(ticket.assignee)]
    if not asks_consent(ticket):
        return tuple(named or [ANYONE if ticket.requester is None else f"user:{ticket.requester}"])
    named = [*named, *[f"group:{group}" for group in ticket.groups]] or [ANYONE]
    if ticket.by_requester and ticket.requester is not None:
        named.append(f"user:{ticket.requester}")
    return tuple(dict.fromkeys(named))


def barred_from(ticket: Ticket) -> str | None:
    """The id of the requester, if it may not answer its own ticket."""
    return ticket.requester if asks_consent(ticket) and not ticket.by_requester else None


def names_of(principal: Principal) -> frozenset[str]:
    """The names by which tickets are addressed to a principal."""
    return frozenset([f"user:{principal.id}", ANYONE]) | group_names(principal)


def group_names(principal: Principal) -> frozenset[str]:
    """The names of a principal's groups and roles."""
    groups = [f"group:{group}" for group in principal.groups]
    return frozenset([*groups, *[f"role:{role}" for role in principal.roles]])


def is_named(assignee: str, principal: Principal) -> bool:
    """Whether an assignee is this principal, or one of its groups or roles."""
    return _name(assignee) in names_of(principal)


def _name(assignee: str) -> str:
    return assignee if assignee.startswith((*_SHARED, "user:")) else f"user:{assignee}"
