"""Seed 002, rows 2.36 to 2.42: the run record of a backend's run."""

from __future__ import annotations

from typing import Any

import pytest

from loop.helpers import assert_settled, events_of
from wakeful import MemoryStore, Principal
from wakeful.backends import BackendResult, FailedStatus, Suspended, WaitingAuth, WaitingInput
from wakeful.testing import FakeClock
from wakeful.types.events import RunFinish
from wakeful.types.runs import Cancelled, Failed, NaturalEnd, Outcome

from .helpers import REMOTE, Scripted, serving

ASK = BackendResult("far", WaitingInput("which?"), response="Let me see.")


async def test_seed_2_36_record_times(fake_clock: FakeClock) -> None:
    runtime = serving(Scripted(ASK, "done", capabilities=REMOTE), clock=fake_clock)
    began = fake_clock.now()
    result = await runtime.run("far", "hi")
    run = await runtime.runs.get(result.run_id)
    assert (run.created_at, run.started_at, run.finished_at) == (began, began, None)
    await fake_clock.advance(2.5)
    await runtime.resume(result.run_id, result.tickets[0].answer("red"))
    run = await runtime.runs.get(result.run_id)
    assert (run.created_at, run.started_at, run.finished_at) == (began, began, began + 2500)


async def test_seed_2_37_record_fields_kept_over_wait() -> None:
    store, who = MemoryStore(), Principal("ann")
    backend = Scripted(ASK, "done", capabilities=REMOTE)
    result = await serving(backend, store).run("far", "hi", principal=who, thread="t")
    before = await serving(backend, store).runs.get(result.run_id)
    runtime = serving(backend, store)
    result = await runtime.resume(result.run_id, result.tickets[0].answer("red"))
    run = await runtime.runs.get(result.run_id)
    assert (run.identity, run.principal, run.options) == (before.identity, who, before.options)
    assert run.first_seq == before.first_seq
    assert (run.usage.total_tokens, run.usage.cost) == (0, 0)


@pytest.mark.parametrize(
    ("status", "given", "reason", "detail"),
    [
        (WaitingInput("q"), None, "user_input", "input_required"),
        (WaitingAuth("q"), None, "tool_permission", "auth_required"),
        (Suspended("q"), None, "tool_permission", "suspended"),
        (Suspended("q"), "input_required", "user_input", "input_required"),
        (Suspended("q"), "user_input_required", "user_input", "user_input_required"),
        (Suspended("q"), "awaiting_tasks", "awaiting_tasks", "awaiting_tasks"),
        (Suspended("q"), "rate_limit", "rate_limit", "rate_limit"),
        (Suspended("q"), "manual_pause", "manual_pause", "manual_pause"),
        (Suspended("q"), "the moon", "external_event", "the moon"),
    ],
)
async def test_seed_2_38_wait_reason(status: Any, given: Any, reason: str, detail: str) -> None:
    asked = BackendResult("far", status, status_reason=given)
    runtime = serving(Scripted(asked, capabilities=REMOTE))
    result = await runtime.run("far", "hi", thread="t")
    run = await runtime.runs.get(result.run_id)
    assert run.waiting is not None
    assert (run.waiting.reason, run.waiting.detail, run.waiting.wakes) == (reason, detail, ("decision",))
    # The question is a ticket, which can be answered at any time.
    (ticket,) = result.tickets
    assert run.waiting.tickets == (ticket.id,)
    assert (ticket.asked_by, ticket.accepts, ticket.message) == ("remote", ("result",), "q")
    (finish,) = await events_of(runtime, "t", RunFinish)
    assert finish.waiting == run.waiting


async def test_seed_2_39_outcome_only_when_done() -> None:
    runtime = serving(Scripted(ASK, "done", BackendResult("far", FailedStatus("boom")), capabilities=REMOTE))
    result = await runtime.run("far", "hi", thread="t")
    assert (await runtime.runs.get(result.run_id)).outcome is None
    result = await runtime.resume(result.run_id, result.tickets[0].answer("red"))
    run = await runtime.runs.get(result.run_id)
    assert run.outcome == Outcome(NaturalEnd())
    assert result.text == "done"
    failed = await runtime.run("far", "hi", thread="t", check=False)
    run = await runtime.runs.get(failed.run_id)
    assert run.outcome == Outcome(Failed("ExecutionFailed", "boom"))
    assert (failed.text, failed.error) == ("", "ExecutionFailed: boom")


async def test_seed_2_40_first_event_of_input() -> None:
    """The row's range of input; our record has the first position of the run, kept over a wait."""
    runtime = serving(Scripted("one", ASK, "two", capabilities=REMOTE))
    first = await runtime.runs.get((await runtime.run("far", "hi", thread="t")).run_id)
    assert first.first_seq == 1
    before = await runtime.threads.messages("t")
    result = await runtime.run("far", "again", thread="t")
    second = await runtime.runs.get(result.run_id)
    assert second.first_seq > before[-1].seq
    mine = [m for m in await runtime.threads.messages("t") if m.seq >= second.first_seq]
    assert [m.text for m in mine if m.role == "user"] == ["again"]
    await runtime.resume(result.run_id, result.tickets[0].answer("red"))
    assert (
        await runtime.runs.get(result.run_id)
    ).first_seq == second.first_seq  # Of the run, not of the activation.


async def test_seed_2_41_output_is_marked() -> None:
    """The row collects ids of output; our record has the last answer, and each message its run and step."""
    runtime = serving(Scripted(ASK, "two", capabilities=REMOTE))
    result = await runtime.run("far", "hi", thread="t")
    await runtime.resume(result.run_id, result.tickets[0].answer("red"))
    marks = [
        (m.role, None if m.producer is None else (m.producer.run_id, m.producer.step, m.producer.agent_id))
        for m in await runtime.threads.messages("t")
    ]
    run_id = result.run_id
    assert marks == [
        ("user", None),
        ("assistant", (run_id, 1, "far")),
        ("tool", (run_id, 1, "far")),
        ("assistant", (run_id, 2, "far")),
    ]
    assert (await runtime.runs.get(run_id)).answer_id == (await runtime.threads.messages("t"))[-1].id
    await assert_settled(runtime, "t")


async def test_seed_2_42_previous_output_is_kept() -> None:
    store = MemoryStore()
    backend = Scripted(ASK, capabilities=REMOTE)
    result = await serving(backend, store).run("far", "hi", thread="t")
    before = await serving(backend, store).runs.get(result.run_id)
    runtime = serving(backend, store)
    assert await runtime.cancel(result.run_id, "enough")
    run = await runtime.runs.get(result.run_id)
    assert run.answer_id == before.answer_id
    ended = await runtime.wait(result.run_id)
    assert (ended.termination, ended.text) == (Cancelled("enough"), "Let me see.")
    await assert_settled(runtime, "t")
