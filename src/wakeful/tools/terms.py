"""The terms of a ticket: accepted answers, who answers, deadline, escalation and default decision."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, cast, get_args

import msgspec
from msgspec.structs import replace

from ..errors import ConfigurationError
from ..types.base import Data
from ..types.codec import encode
from ..types.tickets import (
    ANYBODY,
    SYSTEM,
    Answer,
    Approval,
    Decision,
    Escalation,
    GrantOffer,
    OnDeadline,
    ResumeMode,
    Seconds,
    Ticket,
    is_assignee,
    plain_assignee,
)
from .schema import Shape, schema_faults, value_fault

__all__ = ["Terms", "default_decision", "escalate_ticket", "schema_of", "terms_of", "terms_problems"]

# In seconds: a later deadline would be after the year 9999.
MAX_DEADLINE = 250e9


class Terms(Data):
    """The terms with which a ticket is opened. The deadline counts milliseconds from the opening."""

    accepts: tuple[ResumeMode, ...] = ("proceed",)
    schema: dict[str, Any] | None = None
    who: Approval = ANYBODY
    deadline: int | None = None
    on_deadline: OnDeadline = "deny"
    escalate: tuple[Escalation, ...] = ()
    offer: GrantOffer | None = None


def schema_of(schema: Any) -> dict[str, Any] | None:
    """The JSON schema of an answer, given as a schema or as a Python type."""
    if schema is None:
        return None
    if isinstance(schema, dict):
        if faults := schema_faults(schema):
            raise ConfigurationError(f"the schema for an answer: {'; '.join(faults)}")
        return cast(dict[str, Any], schema)
    return Shape(schema).schema


def terms_of(
    accepts: tuple[ResumeMode, ...] = ("proceed",),
    schema: Any = None,
    *,
    who: Approval = ANYBODY,
    deadline: Seconds | None = None,
    on_deadline: OnDeadline = "deny",
    escalate: Sequence[Escalation] = (),
) -> Terms:
    """Check terms and convert them; raises `ConfigurationError`. With a quorum nobody may set the result."""
    problems = terms_problems(deadline, on_deadline, escalate)
    if not isinstance(cast(Any, who), Approval):
        problems.append(f"approval is an Approval(...), not {who!r:.80}")
    unknown = [mode for mode in accepts if mode not in get_args(ResumeMode)]
    if unknown or not accepts:
        problems.append(f"accepts lists {', '.join(get_args(ResumeMode))}, not {accepts!r:.80}")
    elif not problems and who.quorum > 1:
        accepts = tuple([mode for mode in accepts if mode != "result"])
        if not accepts:
            problems.append("a quorum approves a call, and can't set its result: accept proceed or arguments")
    found = schema_of(schema)
    if problems:
        raise ConfigurationError(problems)
    within = None if deadline is None else _milliseconds(deadline)
    levels = [replace(level, to=plain_assignee(level.to), deadline=_seconds(level.deadline)) for level in escalate]
    if who.assignee is not None:
        who = replace(who, assignee=plain_assignee(who.assignee))
    terms = Terms(accepts, found, who, within, _stored(on_deadline), tuple(levels))
    if deadline is not None and (fault := _default_fault(terms)) is not None:
        raise ConfigurationError(fault)
    return terms


def terms_problems(deadline: Any, on_deadline: Any, escalate: Any) -> list[str]:
    """List the problems of a deadline, a default decision and an escalation."""
    found: list[str] = []
    if deadline is not None and not _is_time(deadline):
        found.append(
            f"deadline is in seconds or a timedelta, and positive and before the year 9999, not {deadline!r:.80}"
        )
    if on_deadline not in ("approve", "deny") and not isinstance(on_deadline, Answer):
        found.append(f"on_deadline is 'approve', 'deny' or Answer(value), not {on_deadline!r:.80}")
    if isinstance(escalate, str) or not isinstance(escalate, Sequence):
        return [*found, f"escalate is a list of Escalation(to, deadline=...), not {escalate!r:.80}"]
    levels = list(cast(Sequence[Any], escalate))
    for place, level in enumerate(levels, 1):
        if not isinstance(level, Escalation) or not is_assignee(level.to):
            found.append(f"escalate is a list of Escalation(to, deadline=...), not {level!r:.80}")
        elif level.deadline is None and place < len(levels):
            found.append(f"escalate: {level.to!r} has no deadline, so the ticket never goes further")
        elif level.deadline is not None and not _is_time(level.deadline):
            found.append(f"escalate: a deadline is in seconds or a timedelta, and positive: {level!r:.80}")
    if deadline is None and (levels or on_deadline != "deny"):
        found.append("on_deadline and escalate say what happens at the deadline: give deadline=... as well")
    return found


def _is_time(value: Any) -> bool:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    return number and 0 < seconds <= MAX_DEADLINE


def _seconds(value: Seconds | None) -> float | None:
    return value.total_seconds() if isinstance(value, timedelta) else value


def _milliseconds(value: Seconds) -> int:
    return round((_seconds(value) or 0) * 1000)


def _stored(given: OnDeadline) -> OnDeadline:
    """The default answer as it is read back from the store."""
    if not isinstance(given, Answer):
        return given
    try:
        return Answer(msgspec.json.decode(encode(given.value)))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"on_deadline: the answer can't be stored: {error}") from error


def _default_fault(terms: Terms) -> str | None:
    """Why the ticket would refuse its default answer; None if it accepts it."""
    match terms.on_deadline:
        case "deny":
            return None
        case "approve":
            if "proceed" not in terms.accepts:
                return f"on_deadline='approve' needs 'proceed' among what the ticket accepts, not {terms.accepts}"
            value, mode = None, "proceed"
        case Answer(value):
            mode = terms.accepts[0]
    if mode == "arguments" and not isinstance(value, dict):
        return f"on_deadline: new arguments are an object, not {value!r:.80}"
    if terms.schema is not None and mode == terms.accepts[0]:
        fault = value_fault(value, terms.schema)
        return None if fault is None else f"on_deadline: the answer doesn't fit the schema: {fault}"
    return None


# -- at the deadline -----------------------------------------------------------------------------------------


def escalate_ticket(ticket: Ticket, now: int) -> tuple[Ticket, Decision]:
    """Assign an overdue ticket to the next level; returns its row and the decision to record."""
    level, *rest = ticket.escalate
    deadline = None if level.deadline is None else now + _milliseconds(level.deadline)
    why = f"nobody answered in time: {ticket.assignee or 'nobody'} had it"
    row = replace(ticket, assignee=level.to, deadline=deadline, escalate=tuple(rest))
    decision = Decision(
        ticket.id,
        "reassign",
        value=level.to,
        reason=why,
        principal_id=SYSTEM,
        asked_by=ticket.asked_by,
        at=now,
        # Derived, so that a retry writes the same decision.
        id=f"{ticket.id}:escalated:{len(rest)}",
    )
    return row, decision


def default_decision(ticket: Ticket, now: int) -> Decision:
    """The decision for a ticket whose deadline passed without an answer."""
    given = ticket.on_deadline
    return Decision(
        ticket.id,
        "deny" if given == "deny" else "approve",
        mode="proceed" if given == "approve" else None,
        value=given.value if isinstance(given, Answer) else None,
        reason="nobody answered in time",
        principal_id=SYSTEM,
        at=now,
        id=f"{ticket.id}:deadline",
    )
