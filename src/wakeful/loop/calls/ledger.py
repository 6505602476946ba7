"""Transitions of the ledger: calls are suspended, answered and finished. Pure functions that return a `Change`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from ...errors import InvalidDecision, TicketClosed, ToolError, UnknownTicket
from ...identity.rights import add_vote
from ...stores import ThreadView
from ...tools import MAX_RESULT_BYTES, Terms, Tool, error_reply, reply_of, value_fault
from ...types.base import Data
from ...types.calls import Call, CallOutcome
from ...types.codec import encode
from ...types.content import Artifact, Text, ToolReply
from ...types.events import (
    Event,
    RunFinish,
    StepEnd,
    ToolCallDone,
    ToolCallResumed,
    ToolCallSuspended,
)
from ...types.ids import new_id
from ...types.mail import MAX_MESSAGE_BYTES
from ...types.messages import Message, Producer
from ...types.runs import Cancelled, Identity, Outcome, RunRecord
from ...types.tickets import SYSTEM, Decision, ResumeMode, Ticket
from ..draft import Draft
from ..tasks import cancel_item, report_of

__all__ = [
    "Change",
    "answered",
    "asked_again",
    "change_ticket",
    "check_value",
    "closed",
    "edit_fault",
    "finished",
    "interrupted_reply",
    "left_reply",
    "match_decision",
    "not_handed_over",
    "supersede",
    "suspended",
    "unknown_ticket",
]


class Change(Data):
    """A call's new row, its ticket, and log entries; `message` is the one for the model."""

    call: Call
    log: tuple[Message | Event, ...]
    message: Message | None = None
    ticket: Ticket | None = None


def finished(
    call: Call,
    reply: ToolReply,
    outcome: CallOutcome,
    run: Identity,
    now: int,
    producer: Producer | None = None,
) -> Change:
    """Finish a call with a reply; `producer` is that of the step's answer, if it is known.

    A guardrail's question has no message.
    """
    if call.is_guardrail:
        return Change(replace(call, state="finished", outcome=outcome, ticket_id=None, finished_at=now), ())
    if call.edited is not None and outcome in ("ok", "error"):
        reply = _with_note(reply, call.edited)
    message = Message(new_id(), "tool", (reply,), now, producer or Producer(run.run_id, call.step, run.agent_id))
    row = replace(
        call, state="finished", outcome=outcome, ticket_id=None, message_id=message.id, finished_at=now, kept=None
    )
    done = ToolCallDone(run, 0, now, call.id, call.name, outcome, message.id, reply.error)
    return Change(row, (message, done), message)


def not_handed_over(reply: ToolReply, wanted: str, winner: str) -> ToolReply:
    """The reply of a call whose handoff came after another one."""
    note = Text(f"\n[{wanted} does not take over: {winner} does, after this step]")
    return replace(reply, content=(*reply.content, note))


def _with_note(reply: ToolReply, edited: dict[str, Any]) -> ToolReply:
    note = Text(f"\n[a person changed the arguments before the call ran, to: {encode(edited).decode()}]")
    return replace(reply, content=(*reply.content, note), metadata={**reply.metadata, "edited": edited})


def interrupted_reply(call: Call, reason: str) -> ToolReply:
    """The reply of a call with an unknown outcome."""
    return error_reply(
        call.id,
        call.name,
        "interrupted",
        f"{call.name} was interrupted ({reason}) and its outcome is unknown: it may or may not have taken "
        "effect. Don't assume either, and don't repeat it without checking first.",
    )


def left_reply(call: Call, kind: str, reason: str) -> ToolReply:
    """The reply of a call that is dropped before it ran, or while it waited."""
    return error_reply(call.id, call.name, kind, f"{call.name} {_left(call)}: {reason}.")


def _left(call: Call) -> str:
    # A tool that was unwound has run the code before its wait.
    return "had begun, and did not go on" if call.attempt else "did not run"


def suspended(
    call: Call,
    run: Identity,
    now: int,
    *,
    message: str,
    asked_by: str,
    terms: Terms,
    requester: str | None = None,
    held: Ticket | None = None,
    surfaces: tuple[Artifact, ...] = (),
) -> Change:
    """Suspend a call on a new ticket, or on a `held` one that has asked the same before."""
    who = terms.who
    ticket = Ticket(
        id=new_id() if held is None else held.id,
        run_id=run.run_id,
        thread_id=run.thread_id,
        agent_id=run.agent_id,
        call_id=call.id,
        tool=call.name,
        arguments=call.effective_arguments,
        message=message,
        asked_by=asked_by,
        accepts=terms.accepts,
        schema=terms.schema,
        assignee=who.assignee if held is None else held.assignee,
        deadline=None if terms.deadline is None else now + terms.deadline,
        created_at=now if held is None else held.created_at,
        on_deadline=terms.on_deadline,
        escalate=terms.escalate,
        requester=requester,
        by_requester=who.requester,
        groups=who.groups,
        quorum=who.quorum,
        offer=terms.offer,
    )
    row = replace(call, state="suspended", ticket_id=ticket.id)
    return Change(row, (ToolCallSuspended(run, 0, now, call.id, call.name, ticket, surfaces),), ticket=ticket)


def answered(
    call: Call, ticket: Ticket, decision: Decision, run: Identity, now: int, limit: int = MAX_RESULT_BYTES
) -> Change:
    """Answer a ticket: the call continues, or finishes with the decision as its result or refusal.

    `limit` is the size in bytes of a result that the model is shown.
    """
    mode = decision.mode or ticket.accepts[0]
    decision = replace(decision, asked_by=ticket.asked_by, at=decision.at or now)
    done = replace(ticket, status="answered")
    row = replace(call, ticket_id=None, decisions=(*call.decisions, decision))
    resumed = ToolCallResumed(run, 0, now, call.id, decision, mode)
    if ticket.asked_by == "remote":
        change = _finish_for_backend(row, ticket, decision, run, now)
    elif decision.verdict == "approve" and ticket.asked_by == "guardrail":
        change = finished(row, reply_of(None, call.id, call.name), "ok", run, now)
    elif decision.verdict == "deny" and ticket.asked_by == "unknown":
        change = finished(row, _left_unknown(call, decision), "unknown", run, now)
    elif decision.verdict == "deny" and not (ticket.asked_by == "tool" and call.kept is not None):
        change = finished(row, _denied(call, decision), "blocked", run, now)
    elif mode == "result" and decision.verdict == "approve":
        change = finished(row, reply_of(decision.value, call.id, call.name, limit), "ok", run, now)
    else:
        edited = decision.value if mode == "arguments" else row.edited
        change = Change(replace(row, state="requested", edited=edited), ())
    return replace(change, log=(resumed, *change.log), ticket=done)


_REFUSED = "The answer was refused: "


def asked_again(call: Call, ticket: Ticket, why: str, run: Identity, now: int) -> Change:
    """Refuse an answer that doesn't fit: the ticket stays open, and its message says why."""
    question = ticket.message
    if question.startswith(_REFUSED):
        question = question.partition("\n")[2]
    asked = replace(ticket, message=f"{_REFUSED}{' '.join(why.split())}\n{question}".rstrip())
    return Change(call, (ToolCallSuspended(run, 0, now, call.id, call.name, asked),), ticket=asked)


def _denied(call: Call, decision: Decision) -> ToolReply:
    why = f": {decision.reason}" if decision.reason else ""
    return error_reply(call.id, call.name, "denied", f"{call.name} was denied{why}. It {_left(call)}.")


def _finish_for_backend(call: Call, ticket: Ticket, decision: Decision, run: Identity, now: int) -> Change:
    """Finish a backend's question: the decision goes to the backend as it is."""
    details = {"question": call.arguments.get("question"), "mode": decision.mode, "reason": decision.reason}
    metadata = {"verdict": decision.verdict, **{name: value for name, value in details.items() if value}}
    if decision.verdict == "deny":
        return finished(call, replace(_denied(call, decision), metadata=metadata), "blocked", run, now)
    text = decision.value if isinstance(decision.value, str) else encode(decision.value).decode()
    reply = replace(reply_of(text, call.id, call.name), data=Raw(encode(decision.value)), metadata=metadata)
    return finished(call, reply, "ok", run, now)


def _left_unknown(call: Call, decision: Decision) -> ToolReply:
    who = "nobody could say what became of it" if decision.principal_id == SYSTEM else "a person looked at it"
    why = f" ({decision.reason})" if decision.reason else ""
    text = (
        f"{call.name} was interrupted and its outcome is unknown: it may or may not have taken effect; {who}, and "
        f"it was not run again{why}. Don't repeat it without checking first."
    )
    return error_reply(call.id, call.name, "interrupted", text)


def change_ticket(ticket: Ticket, decision: Decision, now: int) -> Ticket | None:
    """An open ticket after a decision that leaves it open; None if the decision answers it.

    A repeated vote leaves it as it is.
    """
    match decision.verdict:
        case "reassign":
            return replace(ticket, assignee=decision.value)
        case "comment":
            return ticket
        case _:
            return add_vote(ticket, decision, now)


def closed(
    call: Call, ticket: Ticket | None, reply: ToolReply, outcome: CallOutcome, run: Identity, now: int
) -> Change:
    """Finish an open call without an answer; an unknown outcome stays unknown."""
    if call.state == "started" or (ticket is not None and ticket.asked_by == "unknown"):
        why = "its process ended" if call.state == "started" else "nobody said what became of it"
        return finished(call, interrupted_reply(call, why), "unknown", run, now)
    return finished(call, reply, outcome, run, now)


_HOW: dict[ResumeMode, str] = {
    "proceed": "ticket.approve()",
    "result": "ticket.result(value)",
    "arguments": "ticket.edit(arguments)",
}


def _ways(ticket: Ticket) -> str:
    """The Python calls that answer a ticket."""
    first = ticket.accepts[0]
    ways = [
        "ticket.answer(value)" if ticket.asks_value and mode == first else _HOW[mode] for mode in ticket.accepts
    ]
    return " or ".join(ways)


def unknown_ticket(ticket_id: str, open_ones: Iterable[Ticket]) -> UnknownTicket:
    """The error for an unknown ticket, with the open ones."""
    waiting = ", ".join(f"{ticket.id} ({ticket.tool})" for ticket in open_ones) or "none"
    return UnknownTicket(f"no open ticket or call {ticket_id!r} (open tickets: {waiting})")


def match_decision(
    decision: Decision, tickets: dict[str, Ticket], before: dict[str, Ticket]
) -> tuple[Ticket, Decision]:
    """Find the open ticket of a decision, by ticket id or call id, and complete the decision."""
    ticket = tickets.get(decision.ticket_id)
    if ticket is None:
        ticket = next((t for t in tickets.values() if t.call_id == decision.ticket_id), None)
    if ticket is None:
        was = before.get(decision.ticket_id)
        was = was or next((t for t in reversed(before.values()) if t.call_id == decision.ticket_id), None)
        if was is not None:
            raise TicketClosed(
                f"ticket {was.id} for {was.tool} was {was.status} before; nothing was changed", was.id
            )
        raise unknown_ticket(decision.ticket_id, tickets.values())
    if decision.verdict == "reassign" or decision.verdict == "comment":
        raise InvalidDecision(
            f"a {decision.verdict} doesn't answer ticket {ticket.id}: use runtime.tickets.{decision.verdict}(...)"
        )
    plain = decision.mode is None and decision.verdict == "approve"
    if plain and ticket.asked_by == "unknown":
        raise InvalidDecision(
            f"ticket {ticket.id} asks what became of {ticket.tool}: ticket.result(value) if it took effect, "
            "ticket.approve() to run it again, ticket.deny() to leave it"
        )
    if plain and ticket.asked_by not in ("tool", "client") and ticket.accepts[0] == "proceed":
        decision = _yes_or_no(ticket, decision)
    if decision.verdict == "approve" and (decision.mode or ticket.accepts[0]) not in ticket.accepts:
        raise InvalidDecision(
            f"ticket {ticket.id} for {ticket.tool} takes {' or '.join(ticket.accepts)}, not {decision.mode}; "
            f"use {_ways(ticket)}"
        )
    if decision.mode == "arguments" and not isinstance(decision.value, dict):
        raise InvalidDecision(f"new arguments for {ticket.tool} must be an object, not {decision.value!r}")
    return ticket, replace(decision, ticket_id=ticket.id)


def _yes_or_no(ticket: Ticket, decision: Decision) -> Decision:
    """Convert True or False to a verdict; other values are refused where they could pass for consent."""
    if isinstance(decision.value, bool):
        return replace(decision, verdict="approve" if decision.value else "deny", mode="proceed", value=None)
    if ticket.asked_by in ("approval", "guardrail", "remote"):
        asked = f"whether {ticket.tool} may run" if ticket.asked_by == "approval" else f"{ticket.message!r:.200}"
        raise InvalidDecision(
            f"ticket {ticket.id} asks {asked}: answer with ticket.approve() or ticket.deny(), or True or False, "
            f"not {decision.value!r:.80}"
        )
    return decision


def check_value(tool: Tool | None, ticket: Ticket, decision: Decision) -> Decision:
    """Check a decision's value and convert it as it is stored; raises `InvalidDecision`."""
    if decision.verdict == "deny":
        return decision
    about = f"the answer to ticket {ticket.id} for {ticket.tool}"
    mode = decision.mode or ticket.accepts[0]
    try:
        data = encode(decision.value)
        if len(data) > MAX_MESSAGE_BYTES:
            raise ValueError(
                f"it has {len(data):,} bytes; the limit is {MAX_MESSAGE_BYTES:,}: give a part, or a link"
            )
        value = msgspec.json.decode(data)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidDecision(f"{about}: {error}") from error
    fault = edit_fault(tool, ticket, replace(decision, value=value))
    schema = ticket.schema if mode == ticket.accepts[0] else None
    if fault is None and schema is not None:
        fault = value_fault(value, schema)
    if fault is not None:
        raise InvalidDecision(f"{about}: {fault}")
    return replace(decision, value=value)


def edit_fault(tool: Tool | None, ticket: Ticket, decision: Decision) -> str | None:
    """Why edited arguments don't fit the tool; None if they fit."""
    mode = decision.mode or ticket.accepts[0]
    if tool is None or decision.verdict != "approve" or mode != "arguments":
        return None
    try:
        tool.bind(decision.value)
    except (ToolError, TypeError, ValueError, RecursionError) as error:
        return str(error)
    return None


def supersede(draft: Draft, stored: ThreadView, run: RunRecord, now: int) -> list[Message | Event]:
    """Close a waiting run for new input: its open calls, tickets and tasks are superseded."""
    identity = replace(run.identity, agent_id=run.agent_id)
    log: list[Message | Event] = []
    tickets = {ticket.id: ticket for ticket in stored.tickets}
    for call in stored.calls:
        if call.state == "finished":
            continue
        reply = left_reply(call, "superseded", "new input came before it was decided")
        change = closed(call, tickets.get(call.ticket_id or ""), reply, "superseded", identity, now)
        draft.calls[change.call.id] = change.call
        log.extend(change.log)
    for ticket in stored.tickets:
        draft.put_ticket(replace(ticket, status="superseded"))
    for task in [task for task in stored.tasks if task.run_id == run.id]:
        draft.put_task(replace(task, status="cancelled", error="superseded by new input", finished_at=now))
        if task.target_thread:
            draft.put_item(cancel_item(task, "superseded by new input"))
    if run.stage != "between":
        log.append(StepEnd(identity, 0, now, run.steps))
    ending = Cancelled("superseded by new input")
    if (report := report_of(replace(run, outcome=Outcome(ending)), None)) is not None:
        draft.put_item(report)
    draft.put_closed(
        replace(
            run,
            status="done",
            stage="between",
            waiting=None,
            ending=None,
            outcome=Outcome(ending),
            finished_at=now,
        )
    )
    log.append(RunFinish(identity, 0, now, "done", ending, None, run.usage, run.steps))
    return log
