"""After a crash a fresh runtime continues from the store, and each effect is handled as declared."""

from __future__ import annotations

from typing import Any

import pytest

from wakeful import Agent, Limits, MemoryStore, Runtime, ToolContext, call, tool
from wakeful.tools import Done, FunctionTool, NotDone, UnknownOutcome
from wakeful.types.calls import Call
from wakeful.types.events import ErrorRaised, RunStart
from wakeful.types.runs import Cancelled, NaturalEnd, Stopped, Waiting

from .helpers import (
    Scripted,
    Spy,
    assert_cancelled,
    assert_settled,
    events_of,
    leave_behind,
    outcomes,
    recover,
    replies_on,
    reply_text,
    row,
    spying,
)

WAITS = {"status": "waiting", "waiting": Waiting("tool_permission", 0, ("decision",))}


def checking(spy: Spy, found: Any) -> FunctionTool:
    """A tool with a check for the outcome of a call."""

    async def check(key: str) -> Any:
        spy.keys.append(key)
        if isinstance(found, Exception):
            raise found
        return found

    return spying(spy, "act", effect="reconcile", check=check)


def started(effect: str, **fields: Any) -> Call:
    """A call that was started and has no result."""
    return row("act", "started", effect=effect, **fields)


# -- what each effect does -----------------------------------------------------------------------------------


@pytest.mark.parametrize("effect", ["pure", "idempotent"])
async def test_repeatable_call_runs_again_with_same_key(scripted: Scripted, effect: Any) -> None:
    spy, store = Spy(), MemoryStore()
    run = await leave_behind(store, "agent", lost := started(effect))
    runtime = Runtime(
        [Agent("agent", model=scripted("done"), tools=[spying(spy, "act", effect=effect)])], store=store
    )
    result = await recover(runtime)
    assert (result.text, result.termination) == ("done", NaturalEnd())
    assert spy.ran == ["act"]
    assert spy.attempts == [2]
    assert spy.keys == [f"{run.id}:{lost.id}"]
    assert [reply_text(r) for r in await replies_on(runtime, "t")] == ["act 0"]
    await assert_settled(runtime, "t")


async def test_once_call_never_reruns_and_is_reported_unknown(scripted: Scripted) -> None:
    spy, store = Spy(), MemoryStore()
    run = await leave_behind(store, "agent", started("once"))
    model = scripted("I will check first.")
    runtime = Runtime([Agent("agent", model=model, tools=[spying(spy, "act")])], store=store)
    await recover(runtime)
    assert spy.ran == []
    (reply,) = await replies_on(runtime, "t")
    assert reply.error == "interrupted"
    assert "its process ended" in reply_text(reply)
    assert "outcome is unknown" in reply_text(reply)
    assert await outcomes(runtime, run.id) == {"act": "unknown"}
    assert model.requests[0].messages[-1].reply == reply
    await assert_settled(runtime, "t")


async def test_reconciled_call_with_effect_gets_its_result(scripted: Scripted) -> None:
    spy, store = Spy(), MemoryStore()
    run = await leave_behind(store, "agent", lost := started("reconcile"))
    agent = Agent("agent", model=scripted("done"), tools=[checking(spy, Done({"id": 7}))])
    runtime = Runtime([agent], store=store)
    await recover(runtime)
    assert spy.ran == []
    assert spy.keys == [f"{run.id}:{lost.id}"]
    (reply,) = await replies_on(runtime, "t")
    assert (reply.error, reply_text(reply)) == (None, '{"id":7}')
    assert await outcomes(runtime, run.id) == {"act": "ok"}


async def test_reconciled_call_without_effect_runs_again(scripted: Scripted) -> None:
    spy, store = Spy(), MemoryStore()
    await leave_behind(store, "agent", started("reconcile"))
    runtime = Runtime([Agent("agent", model=scripted("done"), tools=[checking(spy, NotDone())])], store=store)
    await recover(runtime)
    assert spy.ran == ["act"]
    assert spy.attempts == [2]
    assert [reply_text(r) for r in await replies_on(runtime, "t")] == ["act 0"]


async def test_check_carries_fence_against_stalled_process(
    scripted: Scripted,
) -> None:
    """The old owner may write between `NotDone` and the second attempt: a resource that compares has to know."""
    highest, written = 0, list[int]()

    def write(fence: int) -> None:
        nonlocal highest
        if fence >= highest:
            highest = fence
            written.append(fence)

    async def check(key: str, fence: int) -> NotDone:
        nonlocal highest
        highest = fence
        write(fence - 1)  # The old owner, which was about to, wakes up now.
        return NotDone()

    @tool(effect="reconcile", check=check)
    async def act(ctx: ToolContext) -> str:
        """Act."""
        write(ctx.fence)
        return "done"

    store = MemoryStore()
    await leave_behind(store, "agent", started("reconcile"))
    await recover(Runtime([Agent("agent", model=scripted("done"), tools=[act])], store=store))
    assert written == [highest]
    assert highest > 0


@pytest.mark.parametrize("found", [UnknownOutcome(), None, "nonsense", RuntimeError("the bank is closed")])
async def test_reconciled_call_is_unknown_when_check_cannot_tell(scripted: Scripted, found: Any) -> None:
    spy, store = Spy(), MemoryStore()
    run = await leave_behind(store, "agent", started("reconcile"))
    tools = [checking(spy, found)]
    runtime = Runtime([Agent("agent", model=scripted("hm"), tools=tools, expose_errors=True)], store=store)
    await recover(runtime)
    assert spy.ran == []
    (reply,) = await replies_on(runtime, "t")
    assert reply.error == "interrupted"
    assert await outcomes(runtime, run.id) == {"act": "unknown"}
    noted = await events_of(runtime, "t", ErrorRaised)
    assert [(e.message, e.source) for e in noted] == (
        [("the bank is closed", "check of act")] if isinstance(found, Exception) else []
    )
    await assert_settled(runtime, "t")


async def test_reconciled_call_with_bad_result_still_took_effect(scripted: Scripted) -> None:
    spy, store = Spy(), MemoryStore()
    await leave_behind(store, "agent", started("reconcile"))
    runtime = Runtime([Agent("agent", model=scripted("hm"), tools=[checking(spy, Done(object()))])], store=store)
    await recover(runtime)
    (reply,) = await replies_on(runtime, "t")
    assert "took effect" in reply_text(reply)
    assert spy.ran == []


async def test_recorded_effect_counts_over_changed_one(scripted: Scripted) -> None:
    spy, store = Spy(), MemoryStore()
    await leave_behind(store, "agent", started("once"))
    agent = Agent("agent", model=scripted("done"), tools=[spying(spy, "act", effect="pure")])
    await recover(Runtime([agent], store=store))
    assert spy.ran == []


@pytest.mark.parametrize("effect", ["pure", "idempotent", "reconcile", "once"])
async def test_call_of_missing_tool_is_reported_unknown(scripted: Scripted, effect: str) -> None:
    store = MemoryStore()
    run = await leave_behind(store, "agent", started(effect))
    runtime = Runtime([Agent("agent", model=scripted("hm"))], store=store)
    await recover(runtime)
    assert await outcomes(runtime, run.id) == {"act": "unknown"}


# -- where the ledger stood ----------------------------------------------------------------------------------


async def test_unstarted_call_starts(scripted: Scripted) -> None:
    spy, store = Spy(), MemoryStore()
    await leave_behind(store, "agent", row("act", "requested"))
    runtime = Runtime([Agent("agent", model=scripted("done"), tools=[spying(spy, "act")])], store=store)
    await recover(runtime)
    assert spy.ran == ["act"]
    assert spy.attempts == [1]


async def test_every_call_of_step_continues_from_its_state(scripted: Scripted) -> None:
    spy, store = Spy(), MemoryStore()
    names = {"a": "finished", "b": "started", "c": "requested", "d": "started"}
    rows = [row(name, state, effect="pure" if name == "d" else "once") for name, state in names.items()]
    run = await leave_behind(store, "agent", *rows)
    tools = [spying(spy, name, effect="pure" if name == "d" else "once") for name in names]
    model = scripted("done")
    runtime = Runtime([Agent("agent", model=model, tools=tools)], store=store)
    await recover(runtime)
    assert sorted(spy.ran) == ["c", "d"]
    assert await outcomes(runtime, run.id) == {"a": "ok", "b": "unknown", "c": "ok", "d": "ok"}
    assert len(model.requests) == 1
    await assert_settled(runtime, "t")


async def test_committed_answer_is_not_requested_again(scripted: Scripted) -> None:
    store = MemoryStore()
    await leave_behind(store, "agent", ending=NaturalEnd())
    runtime = Runtime([Agent("agent", model=scripted())], store=store)
    result = await recover(runtime)
    assert (result.text, result.termination) == ("an answer", NaturalEnd())
    await assert_settled(runtime, "t")


async def test_typed_output_survives_crash(scripted: Scripted) -> None:
    store = MemoryStore()
    await leave_behind(store, "agent", text="[1, 2]", ending=NaturalEnd())
    result = await recover(Runtime([Agent("agent", model=scripted(), output=list[int])], store=store))
    assert (result.termination, result.output) == (NaturalEnd(), [1, 2])


async def test_uncommitted_answer_is_requested_again(scripted: Scripted) -> None:
    store = MemoryStore()
    run = await leave_behind(store, "agent", stage="inferring", steps=2, answer_id=None)
    model = scripted("done")
    result = await recover(Runtime([Agent("agent", model=model)], store=store))
    assert (result.run_id, result.text, result.steps) == (run.id, "done", 2)


async def test_recovery_is_an_activation_in_log(scripted: Scripted) -> None:
    store = MemoryStore()
    await leave_behind(store, "agent", started("pure"))
    tools = [spying(Spy(), "act", effect="pure")]
    runtime = Runtime([Agent("agent", model=scripted("done"), tools=tools)], store=store)
    await recover(runtime)
    assert [e.trigger for e in await events_of(runtime, "t", RunStart)] == ["new", "recover"]


async def test_steps_and_limits_count_across_crash(scripted: Scripted) -> None:
    store = MemoryStore()
    await leave_behind(store, "agent", started("pure"), steps=1)
    tools = [spying(Spy(), "act", effect="pure")]
    agent = Agent("agent", model=scripted(), tools=tools, limits=Limits(steps=1))
    result = await recover(Runtime([agent], store=store))
    assert isinstance(result.termination, Stopped)
    assert result.termination.policy == "max_steps"


# -- crashed while others waited -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("effect", "runs", "outcome"),
    [("pure", 1, "ok"), ("idempotent", 1, "ok"), ("once", 0, "unknown")],
)
async def test_answer_to_sibling_recovers_lost_call(
    scripted: Scripted, effect: Any, runs: int, outcome: str
) -> None:
    spy, store = Spy(), MemoryStore()
    run = await leave_behind(store, "agent", started(effect), row("pay", "suspended"), **WAITS)
    tools = [spying(spy, "act", effect=effect), spying(spy, "pay", approval=True)]
    runtime = Runtime([Agent("agent", model=scripted("done"), tools=tools)], store=store)
    (ticket,) = await store.tickets(run.id)
    result = await runtime.resume(run.id, ticket.approve())
    assert result.status == "done"
    assert spy.ran.count("act") == runs
    assert spy.ran.count("pay") == 1
    assert await outcomes(runtime, run.id) == {"act": outcome, "pay": "ok"}
    await assert_settled(runtime, "t")


async def test_supersede_reports_lost_call_as_unknown(scripted: Scripted) -> None:
    spy, store = Spy(), MemoryStore()
    run = await leave_behind(store, "agent", started("pure"), row("pay", "suspended"), **WAITS)
    tools = [spying(spy, "act", effect="pure"), spying(spy, "pay", approval=True)]
    runtime = Runtime([Agent("agent", model=scripted("ok"), tools=tools)], store=store)
    await runtime.run("agent", "something else", thread="t")
    assert spy.ran == []
    assert await outcomes(runtime, run.id) == {"act": "unknown", "pay": "superseded"}
    await assert_settled(runtime, "t")


async def test_new_input_for_orphan_lands_after_step_results(
    scripted: Scripted,
) -> None:
    spy, store = Spy(), MemoryStore()
    run = await leave_behind(store, "agent", started("pure"))
    model = scripted("done")
    runtime = Runtime([Agent("agent", model=model, tools=[spying(spy, "act", effect="pure")])], store=store)
    result = await runtime.run("agent", "are you there?", thread="t")
    assert (result.run_id, result.text, spy.ran) == (run.id, "done", ["act"])
    assert [m.role for m in await runtime.threads.messages("t")] == [
        "user",
        "assistant",
        "tool",
        "user",
        "assistant",
    ]
    await assert_settled(runtime, "t")


# -- cancelling what was lost --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("effect", "found", "outcome", "error"),
    [
        ("pure", None, "cancelled", "cancelled"),
        ("idempotent", None, "unknown", "interrupted"),
        ("once", None, "unknown", "interrupted"),
        ("reconcile", Done("did it"), "ok", None),
        ("reconcile", NotDone(), "cancelled", "cancelled"),
        ("reconcile", UnknownOutcome(), "unknown", "interrupted"),
        ("reconcile", RuntimeError("no"), "unknown", "interrupted"),
    ],
)
async def test_cancel_of_orphan_reports_known_call_outcomes(
    scripted: Scripted, effect: Any, found: Any, outcome: str, error: str | None
) -> None:
    spy, store = Spy(), MemoryStore()
    run = await leave_behind(store, "agent", started(effect), row("pay", "requested"))
    act = checking(spy, found) if effect == "reconcile" else spying(spy, "act", effect=effect)
    runtime = Runtime([Agent("agent", model=scripted("again"), tools=[act, spying(spy, "pay")])], store=store)
    assert await runtime.cancel(run.id, "enough") is True
    assert spy.ran == []
    assert await outcomes(runtime, run.id) == {"act": outcome, "pay": "cancelled"}
    assert (await replies_on(runtime, "t"))[0].error == error
    assert (await assert_cancelled(runtime, "t")).outcome.termination == Cancelled("enough")  # type: ignore[union-attr]
    assert (await runtime.run("agent", "hello", thread="t")).text == "again"


async def test_sync_check_works(scripted: Scripted) -> None:
    store = MemoryStore()
    await leave_behind(store, "agent", started("reconcile"))

    @tool(effect="reconcile", check=lambda key: Done(f"found {key[-4:]}"))
    async def act() -> str:
        """Act."""
        return "ran"

    runtime = Runtime([Agent("agent", model=scripted("done"), tools=[act])], store=store)
    await recover(runtime)
    assert reply_text((await replies_on(runtime, "t"))[0]).startswith("found ")


async def test_rerun_call_passes_its_gate_again(scripted: Scripted) -> None:
    spy, store = Spy(), MemoryStore()
    await leave_behind(store, "agent", started("pure"))
    agent = Agent("agent", model=scripted("done"), tools=[spying(spy, "act", effect="pure", approval=True)])
    runtime = Runtime([agent], store=store)
    result = await recover(runtime)
    assert result.status == "waiting"
    result = await runtime.resume(result.run_id, result.tickets[0].approve())
    assert spy.ran == ["act"]
    assert spy.attempts == [2]


async def test_model_sees_whole_conversation_after_recovery(scripted: Scripted) -> None:
    spy, store = Spy(), MemoryStore()
    await leave_behind(store, "agent", started("pure"))
    model = scripted(call("act", x=4), "done")
    runtime = Runtime([Agent("agent", model=model, tools=[spying(spy, "act", effect="pure")])], store=store)
    await recover(runtime)
    roles = [m.role for m in model.requests[-1].messages]
    assert roles == ["user", "assistant", "tool", "assistant", "tool"]
