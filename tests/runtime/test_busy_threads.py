"""Several inputs for one thread: each is handled once, in its turn, in the way its policy says."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from loop.helpers import (
    Hold,
    Scripted,
    Spy,
    assert_settled,
    assert_valid_history,
    holding,
    log_of,
    outcomes,
    soon,
    spying,
    until,
    until_idle,
)
from wakeful import (
    Agent,
    FunctionModel,
    ModelRequest,
    ModelSettings,
    Principal,
    Runtime,
    call,
)
from wakeful.errors import InputRetracted, ThreadBusy, UnknownRun, UsageError
from wakeful.types.runs import Cancelled, NaturalEnd


def echo(*holds: Hold) -> FunctionModel:
    """A model that answers with the last thing the user said, after waiting at the holds, one for each call."""
    left = list(holds)

    async def answer(request: ModelRequest) -> str:
        said = [m.text for m in request.messages if m.role == "user" and m.visibility == "all"]
        if left:
            await left.pop(0).here()
        return f"you said {said[-1]}"

    return FunctionModel(answer)


def echoing(*holds: Hold, **options: Any) -> Runtime:
    """A runtime with an echoing agent."""
    return Runtime([Agent("agent", model=echo(*holds), **options)])


async def said(runtime: Runtime) -> list[str]:
    """The user's texts on thread `t`, in order."""
    return [m.text for m in await runtime.threads.messages("t") if m.role == "user" and m.visibility == "all"]


async def busy(runtime: Runtime, hold: Hold, text: str = "one") -> asyncio.Task[Any]:
    """A run on thread `t` that waits at the hold."""
    task = asyncio.create_task(runtime.run("agent", text, thread="t", check=False))
    await soon(hold.reached.wait())
    return task


# -- run on a running thread ---------------------------------------------------------------------------------


async def test_runs_on_busy_thread_take_turns_in_order() -> None:
    hold = Hold()
    runtime = echoing(hold)
    first = await busy(runtime, hold)
    others = [asyncio.create_task(runtime.run("agent", text, thread="t")) for text in ("two", "three", "four")]
    await asyncio.sleep(0)
    assert len(await runtime.runs.list(thread="t")) == 1
    hold.released.set()
    results = await soon(asyncio.gather(first, *others))
    assert [r.text for r in results] == [f"you said {text}" for text in ("one", "two", "three", "four")]
    assert len({r.run_id for r in results}) == 4
    assert await said(runtime) == ["one", "two", "three", "four"]
    await until_idle(runtime)
    await assert_settled(runtime, "t")


async def test_runs_on_different_threads_do_not_wait_for_each_other() -> None:
    hold = Hold()
    runtime = echoing(hold)
    first = await busy(runtime, hold)
    assert (await soon(runtime.run("agent", "other", thread="u"))).text == "you said other"
    assert not first.done()
    hold.released.set()
    await soon(first)


async def test_queued_run_keeps_its_options() -> None:
    hold = Hold()
    seen: list[ModelRequest] = []
    plain = echo(hold)

    async def stream(request: ModelRequest) -> Any:
        seen.append(request)
        async for chunk in plain.stream(request):
            yield chunk

    model = FunctionModel(stream)  # type: ignore[arg-type]
    runtime = Runtime([Agent("agent", model=model), Agent("second", model=model)])
    first = await busy(runtime, hold)
    ann = Principal("ann")
    options: dict[str, Any] = {"settings": ModelSettings(temperature=0.5), "principal": ann}
    second = asyncio.create_task(runtime.run("second", "two", thread="t", **options))
    await asyncio.sleep(0)
    hold.released.set()
    await soon(first)
    result = await soon(second)
    run = await runtime.runs.get(result.run_id)
    assert (run.agent_id, run.principal) == ("second", ann)
    assert seen[-1].settings.temperature == 0.5


async def test_queued_run_starts_after_failure_or_cancellation() -> None:
    hold = Hold()

    async def answer(request: ModelRequest) -> str:
        if hold.times == 0:
            await hold.here()
            raise OSError("no route")
        return "fine"

    runtime = Runtime([Agent("agent", model=FunctionModel(answer))])
    first = await busy(runtime, hold)
    second = asyncio.create_task(runtime.run("agent", "two", thread="t"))
    await asyncio.sleep(0)
    hold.released.set()
    assert (await soon(first)).termination.error == "ModelError"
    assert (await soon(second)).text == "fine"
    await assert_settled(runtime, "t")


@pytest.mark.parametrize("by", ["request", "caller"])
async def test_queued_run_starts_when_front_run_is_cancelled(by: str) -> None:
    hold = Hold()
    runtime = echoing(hold)
    first = await busy(runtime, hold)
    second = asyncio.create_task(runtime.run("agent", "two", thread="t"))
    await asyncio.sleep(0)
    (run,) = await runtime.runs.list(thread="t")
    if by == "caller":
        first.cancel()
    else:
        await soon(runtime.cancel(run.id))
    assert (await soon(second)).text == "you said two"
    await asyncio.wait([first])
    await until_idle(runtime)
    await assert_settled(runtime, "t")


async def test_queued_input_is_withdrawn_when_caller_is_cancelled() -> None:
    hold = Hold()
    runtime = echoing(hold)
    first = await busy(runtime, hold)
    second = asyncio.create_task(runtime.run("agent", "two", thread="t"))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait([second])
    hold.released.set()
    await soon(first)
    await until_idle(runtime)
    assert await said(runtime) == ["one"]
    await assert_settled(runtime, "t")


async def test_queued_request_runs_after_its_caller_is_cancelled() -> None:
    hold = Hold()
    runtime = echoing(hold)
    first = await busy(runtime, hold)
    calls = [asyncio.create_task(runtime.run("agent", "two", thread="t", request_id="r")) for _ in range(2)]
    await until(lambda: len(runtime._scope.dispatch.turns._waiting) == 1)
    calls[0].cancel()
    await asyncio.wait([calls[0]])
    hold.released.set()
    assert (await soon(first)).text == "you said one"
    assert (await soon(calls[1])).text == "you said two"
    again = await soon(runtime.run("agent", "two", thread="t", request_id="r"))
    assert (again.text, again.run_id) == ("you said two", calls[1].result().run_id)
    assert await said(runtime) == ["one", "two"]
    await assert_settled(runtime, "t")


async def test_queued_run_cancelled_before_its_turn_is_no_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hold = Hold()
    runtime = echoing(hold)
    first = await busy(runtime, hold)
    handle = await runtime.start("agent", "two", thread="t")
    assert await soon(handle.cancel())
    with pytest.raises(InputRetracted):
        await soon(handle.result())
    hold.released.set()
    assert (await soon(first)).text == "you said one"
    assert await said(runtime) == ["one"]
    await runtime.close()
    assert caplog.records == []


async def test_running_queued_run_is_cancelled_with_its_caller() -> None:
    hold = Hold()
    runtime = echoing(hold)
    first = await busy(runtime, hold)
    second = asyncio.create_task(runtime.run("agent", "wait", thread="t"))
    await asyncio.sleep(0)
    hold.released.set()
    await soon(first)
    await until(lambda: "t" in runtime._scope.dispatch.active or second.done())
    second.cancel()
    await asyncio.wait([second])
    await until_idle(runtime)
    await assert_settled(runtime, "t")


# -- run on a waiting thread ---------------------------------------------------------------------------------


async def test_new_run_supersedes_waiting_run(scripted: Scripted) -> None:
    model = scripted(call("ask"), "then this")
    runtime = Runtime([Agent("agent", model=model, tools=[spying(Spy(), "ask", approval=True)])])
    first = await runtime.run("agent", "one", thread="t")
    second = await runtime.run("agent", "two", thread="t")
    assert (second.text, second.termination) == ("then this", NaturalEnd())
    assert await outcomes(runtime, first.run_id) == {"ask": "superseded"}
    await assert_settled(runtime, "t")


# -- send ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["queue", "steer", "interrupt", "reject"])
async def test_send_to_idle_thread_starts_run_in_background(policy: Any) -> None:
    runtime = echoing()
    receipt = await runtime.send("t", "hello", agent="agent", policy=policy)
    assert (receipt.status, receipt.thread_id) == ("accepted", "t")
    await until_idle(runtime)
    messages = await runtime.threads.messages("t")
    assert [m.text for m in messages] == ["hello", "you said hello"]
    assert messages[0].id == receipt.message_id
    await assert_settled(runtime, "t")


async def test_send_uses_last_agent_by_default() -> None:
    runtime = Runtime([Agent("agent", model=echo()), Agent("other", model=echo())])
    with pytest.raises(UsageError, match="say which agent"):
        await runtime.send("t", "hello")
    await runtime.run("other", "one", thread="t")
    await runtime.send("t", "two")
    await until_idle(runtime)
    assert [run.agent_id for run in await runtime.runs.list(thread="t")] == ["other", "other"]


async def test_send_queue_to_running_thread_runs_afterwards() -> None:
    hold = Hold()
    runtime = echoing(hold)
    first = await busy(runtime, hold)
    await runtime.send("t", "two")
    hold.released.set()
    assert (await soon(first)).text == "you said one"
    await until_idle(runtime)
    assert await said(runtime) == ["one", "two"]
    assert len(await runtime.runs.list(thread="t")) == 2
    await assert_settled(runtime, "t")


async def test_send_steer_lands_after_results_of_open_step(scripted: Scripted) -> None:
    first, second = Hold(), Hold()
    model = scripted([call("a"), call("b")], "seen")
    runtime = Runtime([Agent("agent", model=model, tools=[holding(first, "a"), holding(second, "b")])])
    task = await busy(runtime, first)
    await runtime.send("t", "hurry", policy="steer")
    first.released.set()
    await until(lambda: len(runtime._scope.dispatch.active["t"].view.live) == 1)
    await runtime.send("t", "please", policy="steer")
    assert "user" not in [m.role for m in (await runtime.threads.messages("t"))[1:]]
    second.released.set()
    result = await soon(task)
    assert (result.text, result.steps) == ("seen", 2)
    messages = await runtime.threads.messages("t")
    assert [m.role for m in messages] == ["user", "assistant", "tool", "tool", "user", "user", "assistant"]
    assert [m.text for m in messages[4:6]] == ["hurry", "please"]
    assert len(await runtime.runs.list(thread="t")) == 1
    await assert_settled(runtime, "t")


async def test_send_steer_at_natural_end_keeps_run_going() -> None:
    hold = Hold()
    runtime = echoing(hold)
    task = await busy(runtime, hold)
    await runtime.send("t", "one more thing", policy="steer")
    hold.released.set()
    result = await soon(task)
    assert (result.text, result.steps) == ("you said one more thing", 2)
    assert [m.role for m in await runtime.threads.messages("t")] == ["user", "assistant", "user", "assistant"]
    assert len(await runtime.runs.list(thread="t")) == 1
    await assert_settled(runtime, "t")


async def test_send_steer_to_stopping_run_starts_next_run(scripted: Scripted) -> None:
    hold = Hold()
    model = scripted(call("wait"), "on my own then")
    runtime = Runtime([Agent("agent", model=model, tools=[holding(hold, effect="pure")])])
    task = await busy(runtime, hold)
    await runtime.send("t", "hurry", policy="steer")
    (run,) = await runtime.runs.list(thread="t")
    await soon(runtime.cancel(run.id))
    assert isinstance((await soon(task)).termination, Cancelled)
    await until_idle(runtime)
    assert await said(runtime) == ["one", "hurry"]
    assert len(await runtime.runs.list(thread="t")) == 2
    await assert_settled(runtime, "t")


async def test_send_interrupt_to_running_thread_cancels_it_first() -> None:
    hold = Hold()
    runtime = echoing(hold)
    task = await busy(runtime, hold)
    await soon(runtime.send("t", "stop that", policy="interrupt"))
    assert (await soon(task)).termination == Cancelled("interrupted by new input")
    await until_idle(runtime)
    assert await said(runtime) == ["one", "stop that"]
    assert (await runtime.threads.messages("t"))[-1].text == "you said stop that"
    await assert_settled(runtime, "t")


async def test_send_reject_to_busy_thread_is_refused() -> None:
    hold = Hold()
    runtime = echoing(hold)
    task = await busy(runtime, hold)
    before = await log_of(runtime, "t")
    with pytest.raises(ThreadBusy, match="has an open run"):
        await runtime.send("t", "me too", policy="reject")
    assert await log_of(runtime, "t") == before
    hold.released.set()
    await soon(task)
    await until_idle(runtime)
    assert await said(runtime) == ["one"]


async def waiting(scripted: Scripted, *turns: Any) -> tuple[Runtime, Any]:
    """A runtime with a run on thread `t` that waits on a ticket."""
    model = scripted(call("ask"), *turns)
    runtime = Runtime([Agent("agent", model=model, tools=[spying(Spy(), "ask", approval=True)])])
    return runtime, await runtime.run("agent", "one", thread="t")


async def test_send_queue_to_waiting_thread_waits_for_ticket_too(scripted: Scripted) -> None:
    runtime, first = await waiting(scripted, "approved", "second")
    await runtime.send("t", "two")
    await until_idle(runtime)
    assert (await runtime.runs.get(first.run_id)).status == "waiting"
    assert (await runtime.resume(first.run_id, first.tickets[0].approve())).text == "approved"
    await until_idle(runtime)
    assert (await runtime.threads.messages("t"))[-1].text == "second"
    assert len(await runtime.runs.list(thread="t")) == 2
    await assert_settled(runtime, "t")


async def test_waiter_is_told_when_thread_is_deleted(scripted: Scripted) -> None:
    runtime, _ = await waiting(scripted)
    await runtime.send("t", "two", request_id="q")
    work = asyncio.create_task(runtime.run("agent", "two", thread="t", request_id="q"))
    await until(lambda: "q" in runtime._scope.dispatch.turns)

    await runtime.threads.delete("t")

    with pytest.raises(UnknownRun, match="deleted"):
        await soon(work)


async def test_send_steer_to_waiting_thread_is_seen_on_resume(scripted: Scripted) -> None:
    runtime, first = await waiting(scripted, "seen")
    await runtime.send("t", "by the way", policy="steer")
    await until_idle(runtime)
    assert (await runtime.runs.get(first.run_id)).status == "waiting"
    result = await runtime.resume(first.run_id, first.tickets[0].approve())
    assert result.text == "seen"
    assert [m.role for m in await runtime.threads.messages("t")] == [
        "user",
        "assistant",
        "tool",
        "user",
        "assistant",
    ]
    await assert_settled(runtime, "t")


async def test_send_interrupt_to_waiting_thread_cancels_it_first(scripted: Scripted) -> None:
    runtime, first = await waiting(scripted, "on to that")
    await soon(runtime.send("t", "forget it", policy="interrupt"))
    await until_idle(runtime)
    run = await runtime.runs.get(first.run_id)
    assert run.outcome is not None
    assert run.outcome.termination == Cancelled("interrupted by new input")
    assert await said(runtime) == ["one", "forget it"]
    assert len(await runtime.runs.list(thread="t")) == 2
    await assert_settled(runtime, "t")


async def test_send_reject_to_waiting_thread_is_refused(scripted: Scripted) -> None:
    runtime, first = await waiting(scripted)
    with pytest.raises(ThreadBusy):
        await runtime.send("t", "me too", policy="reject")
    assert_valid_history(await runtime.threads.messages("t"), [first.tickets[0].call_id])


async def test_many_concurrent_callers_each_get_their_result() -> None:
    runtime = echoing()
    texts = [f"number {n}" for n in range(25)]
    results = await soon(asyncio.gather(*[runtime.run("agent", text, thread="t") for text in texts]))
    assert [r.text for r in results] == [f"you said {text}" for text in texts]
    await until_idle(runtime)
    await assert_settled(runtime, "t")
    for run in await runtime.runs.list(thread="t"):
        assert run.outcome is not None
        assert run.outcome.termination == NaturalEnd()


async def test_send_reject_to_idle_thread_runs(scripted: Scripted) -> None:
    runtime = Runtime([Agent("agent", model=scripted("done"))])
    await runtime.send("t", "go", agent="agent", policy="reject")
    await until_idle(runtime)
    assert [m.text for m in await runtime.threads.messages("t")] == ["go", "done"]
