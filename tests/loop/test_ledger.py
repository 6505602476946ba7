"""The ledger's transitions as pure functions: suspending, every way to answer, answering again, superseding."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from wakeful import Decision
from wakeful.errors import InvalidDecision, TicketClosed, UnknownTicket
from wakeful.loop import match_decision
from wakeful.loop.calls.ledger import Change, answered, finished, supersede, suspended
from wakeful.loop.draft import Draft
from wakeful.loop.moves import Execute, SuspendRun
from wakeful.state import KeyRegistry, State
from wakeful.stores import ThreadRecord, ThreadView
from wakeful.tools import Terms, reply_of
from wakeful.types.calls import Call
from wakeful.types.content import Text
from wakeful.types.events import RunFinish, StepEnd, ToolCallDone, ToolCallResumed, ToolCallSuspended
from wakeful.types.messages import Message
from wakeful.types.runs import Cancelled, Waiting

from .helpers import reply_text
from .views import ME, NOW, acting, ledger, move, record, ticket


def ask(call: Call, **fields: Any) -> Change:
    """Suspend a call."""
    defaults: dict[str, Any] = {
        "message": "May it?",
        "asked_by": "approval",
        "terms": Terms(("proceed", "result")),
    }
    return suspended(call, ME, NOW, **{**defaults, **fields})


def message_of(change: Change) -> Message:
    """The one message a change adds to the conversation."""
    (message,) = [entry for entry in change.log if isinstance(entry, Message)]
    return message


def answer(decision: Decision, **fields: Any) -> Change:
    """Answer the ticket of a suspended call `a`."""
    return answered(ledger(a="suspended")["a"], ticket("a", **fields), decision, ME, NOW)


# -- suspending ----------------------------------------------------------------------------------------------


def test_suspension_makes_open_ticket_and_no_message() -> None:
    change = ask(ledger(a="requested")["a"])
    assert change.call.state == "suspended"
    assert change.ticket is not None
    assert change.ticket.status == "open"
    assert change.call.ticket_id == change.ticket.id
    (event,) = change.log
    assert isinstance(event, ToolCallSuspended)
    assert event.ticket is change.ticket


def test_ticket_shows_effective_arguments() -> None:
    call = replace(ledger(a="requested")["a"], arguments={"x": 1}, edited={"x": 2})
    change = ask(call)
    assert change.ticket is not None
    assert change.ticket.arguments == {"x": 2}


def test_second_question_keeps_earlier_answers() -> None:
    first = ask(ledger(a="requested")["a"])
    assert first.ticket is not None
    second = ask(answered(first.call, first.ticket, Decision(first.ticket.id, value=1), ME, NOW).call)
    assert second.ticket is not None
    assert second.ticket.id != first.ticket.id
    assert [d.value for d in second.call.decisions] == [1]


# -- answering -----------------------------------------------------------------------------------------------


def test_proceed_continues_call_with_decision() -> None:
    change = answer(Decision("ticket-a", value="yes"), asked_by="tool")
    assert change.call.state == "requested"
    assert change.call.ticket_id is None
    assert [d.value for d in change.call.decisions] == ["yes"]
    assert change.call.decisions[0].asked_by == "tool"
    assert change.call.decisions[0].at == NOW
    (event,) = change.log
    assert isinstance(event, ToolCallResumed)
    assert event.mode == "proceed"
    assert change.ticket is not None
    assert change.ticket.status == "answered"


def test_result_decision_finishes_call() -> None:
    change = answer(Decision("ticket-a", mode="result", value={"ok": 1}))
    assert (change.call.state, change.call.outcome) == ("finished", "ok")
    assert change.call.message_id == message_of(change).id
    reply = message_of(change).reply
    assert reply is not None
    assert (reply.call_id, reply.error, reply_text(reply)) == ("a", None, '{"ok":1}')


def test_arguments_decision_keeps_original_arguments() -> None:
    call = replace(ledger(a="suspended")["a"], arguments={"x": 1})
    change = answered(call, ticket("a"), Decision("ticket-a", mode="arguments", value={"x": 2}), ME, NOW)
    assert change.call.state == "requested"
    assert change.call.arguments == {"x": 1}
    assert change.call.effective_arguments == {"x": 2}


def test_later_proceed_keeps_edited_arguments() -> None:
    call = replace(ledger(a="suspended")["a"], edited={"x": 2})
    assert answered(call, ticket("a"), Decision("ticket-a"), ME, NOW).call.effective_arguments == {"x": 2}


@pytest.mark.parametrize("mode", [None, "proceed", "result", "arguments"])
def test_denial_finishes_call_in_every_mode(mode: Any) -> None:
    change = answer(Decision("ticket-a", "deny", mode, reason="too dear"))
    assert (change.call.state, change.call.outcome) == ("finished", "blocked")
    reply = message_of(change).reply
    assert reply is not None
    assert reply.error == "denied"
    assert "too dear" in reply_text(reply)
    assert "did not run" in reply_text(reply)


def test_first_accepted_mode_is_default() -> None:
    assert answer(Decision("ticket-a", value=1), accepts=("result",)).call.state == "finished"
    assert answer(Decision("ticket-a", value=1), accepts=("proceed", "result")).call.state == "requested"
    assert answer(Decision("ticket-a", value={}), accepts=("arguments",)).call.edited == {}


@pytest.mark.parametrize("outcome", ["ok", "error"])
def test_model_is_told_of_edited_arguments_with_result(outcome: Any) -> None:
    call = replace(ledger(a="started")["a"], edited={"x": 2})
    change = finished(call, reply_of("done", "a", "a"), outcome, ME, NOW)
    reply = message_of(change).reply
    assert reply is not None
    assert reply_text(reply).startswith("done\n")
    assert '{"x":2}' in reply_text(reply)
    assert reply.metadata == {"edited": {"x": 2}}


@pytest.mark.parametrize("outcome", ["blocked", "cancelled", "superseded", "unknown"])
def test_unused_edited_arguments_are_not_mentioned(outcome: Any) -> None:
    call = replace(ledger(a="started")["a"], edited={"x": 2})
    reply = message_of(finished(call, reply_of("no", "a", "a"), outcome, ME, NOW)).reply
    assert reply is not None
    assert reply.content == (Text("no"),)


def test_finished_call_has_one_message_and_one_event() -> None:
    change = finished(ledger(a="started")["a"], reply_of("done", "a", "a"), "ok", ME, NOW)
    message, event = change.log
    assert isinstance(event, ToolCallDone)
    assert isinstance(message, Message)
    assert event.message_id == change.call.message_id == message.id


# -- which ticket a decision answers -------------------------------------------------------------------------

OPEN = {t.id: t for t in (ticket("a"), ticket("b", accepts=("result",)))}


@pytest.mark.parametrize("target", ["ticket-b", "b"])
def test_ticket_is_found_by_its_id_or_call_id(target: str) -> None:
    found, full = match_decision(Decision(target, value=1), OPEN, {})
    assert found.id == "ticket-b"
    assert full.ticket_id == "ticket-b"
    assert full.value == 1


def test_unknown_ticket_error_names_open_tickets() -> None:
    with pytest.raises(UnknownTicket, match=r"'nope'.*ticket-a \(a\), ticket-b \(b\)"):
        match_decision(Decision("nope"), OPEN, {})


@pytest.mark.parametrize("target", ["ticket-c", "c"])
@pytest.mark.parametrize("status", ["answered", "superseded", "cancelled"])
def test_closed_ticket_error_names_outcome(target: str, status: Any) -> None:
    with pytest.raises(TicketClosed, match=f"ticket-c for c was {status}"):
        match_decision(Decision(target), OPEN, {"ticket-c": ticket("c", status=status)})


def test_open_ticket_of_call_is_found_before_closed_ones() -> None:
    found, _ = match_decision(Decision("a", value=True), OPEN, {"old": ticket("a", status="answered")})
    assert found.status == "open"


@pytest.mark.parametrize("mode", ["proceed", "arguments"])
def test_unaccepted_mode_is_refused(mode: Any) -> None:
    with pytest.raises(InvalidDecision, match=f"takes result, not {mode}"):
        match_decision(Decision("b", mode=mode, value={}), OPEN, {})


@pytest.mark.parametrize(
    ("asked_by", "accepts", "told"),
    [
        ("tool", ("proceed",), "use ticket.answer(value)"),
        ("client", ("result",), "use ticket.answer(value)"),
        ("approval", ("proceed", "result"), "use ticket.approve() or ticket.result(value)"),
        ("unknown", ("result", "proceed"), "use ticket.result(value) or ticket.approve()"),
    ],
)
def test_refusal_advises_accepted_mode(asked_by: str, accepts: Any, told: str) -> None:
    asked = {"ticket-a": ticket("a", asked_by=asked_by, accepts=accepts)}
    with pytest.raises(InvalidDecision) as refused:
        match_decision(asked["ticket-a"].edit({}), asked, {})
    assert str(refused.value).endswith(told)


def test_denial_is_accepted_in_every_mode() -> None:
    found, _ = match_decision(Decision("b", "deny", "proceed"), OPEN, {})
    assert found.id == "ticket-b"


@pytest.mark.parametrize("value", [None, 1, "x", [1]])
def test_new_arguments_must_be_object(value: Any) -> None:
    with pytest.raises(InvalidDecision, match="must be an object"):
        match_decision(Decision("a", mode="arguments", value=value), OPEN, {})


# -- partial answers, by the moves they lead to --------------------------------------------------------------


def test_answers_lead_to_same_state_in_any_order() -> None:
    for order in (["a", "b", "c"], ["c", "a", "b"], ["b", "c", "a"]):
        view = acting(a="suspended", b="suspended", c="suspended")
        for count, name in enumerate(order, 1):
            open_ticket = view.tickets.pop(f"ticket-{name}")
            decision = Decision(open_ticket.id, mode="result", value=name)
            view.calls[name] = answered(view.calls[name], open_ticket, decision, ME, NOW).call
            left = tuple(view.tickets)
            found = move(view)
            assert found == SuspendRun(left) if count < 3 else not isinstance(found, SuspendRun)
        assert {c.outcome for c in view.calls.values()} == {"ok"}


def test_proceeding_call_runs_while_others_wait() -> None:
    view = acting(a="suspended", b="suspended")
    open_ticket = view.tickets.pop("ticket-a")
    view.calls["a"] = answered(view.calls["a"], open_ticket, Decision(open_ticket.id), ME, NOW).call
    found = move(view)
    assert isinstance(found, Execute)
    assert [c.id for c in found.calls] == ["a"]


# -- superseding ---------------------------------------------------------------------------------------------


def close(**states: str) -> tuple[Draft, list[Any]]:
    """Supersede a waiting run whose step has calls in these states."""
    view = acting(**states)
    run = replace(view.run, status="waiting", waiting=Waiting("tool_permission", NOW, ("decision",)))
    stored = ThreadView(
        thread=ThreadRecord(id="t"),
        run=run,
        calls=tuple(view.calls.values()),
        tickets=tuple(view.tickets.values()),
    )
    draft = Draft(ME, State(KeyRegistry()))
    return draft, supersede(draft, stored, run, NOW + 5)


def test_supersede_gives_every_open_call_one_reply() -> None:
    draft, log = close(a="done", b="suspended", c="requested", d="started")
    told = {m.reply.call_id: m.reply.error for m in log if isinstance(m, Message) and m.reply}
    assert told == {"b": "superseded", "c": "superseded", "d": "interrupted"}
    written = {c.id: c.outcome for c in draft.commit(NOW).calls}
    assert written == {"b": "superseded", "c": "superseded", "d": "unknown"}


def test_supersede_closes_tickets_step_and_run() -> None:
    draft, log = close(a="suspended", b="suspended")
    commit = draft.commit(NOW)
    assert {t.status for t in commit.tickets} == {"superseded"}
    assert [type(entry) for entry in log[-2:]] == [StepEnd, RunFinish]
    (run,) = commit.runs
    assert (run.status, run.waiting, run.finished_at) == ("done", None, NOW + 5)
    assert run.outcome is not None
    assert run.outcome.termination == Cancelled("superseded by new input") == log[-1].termination


def test_waiting_run_between_steps_has_no_step_to_close() -> None:
    run = record(status="waiting", steps=1, waiting=Waiting("timer", NOW))
    draft = Draft(ME, State(KeyRegistry()))
    log = supersede(draft, ThreadView(thread=ThreadRecord(id="t"), run=run), run, NOW)
    assert [type(entry) for entry in log] == [RunFinish]
