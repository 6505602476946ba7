"""A call that is repeated with its request id finds what it made first: the run, its thread, its message."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from delegation.conftest import Place
from delegation.conftest import place as place
from loop.helpers import Hold, soon
from wakeful import Agent, FunctionModel, Retention, Runtime, ScriptedModel, ToolContext, call, task, tool
from wakeful.errors import InputRetracted, UnknownRun, UnknownTask

LATER = datetime.now(UTC) + timedelta(days=1)


def answering(place: Place, model: Any = None) -> Runtime:
    return Runtime([Agent("agent", model=model or FunctionModel(lambda _: "ok"))], store=place())


async def said(runtime: Runtime, thread: str) -> list[str]:
    return [m.text for m in await runtime.threads.messages(thread) if m.role == "user" and m.visibility == "all"]


async def test_repeated_send_returns_first_receipt(place: Place) -> None:
    async with answering(place) as runtime:
        first = await runtime.send("t", "hello", agent="agent", request_id="q")
        while not (messages := await runtime.threads.messages("t")):
            await asyncio.sleep(0.005)
        assert first.message_id == messages[0].id
        assert await runtime.send("t", "hello", agent="agent", request_id="q") == first
        assert await runtime.send("t", "hello", agent="agent", request_id="q", policy="reject") == first
        assert await runtime.send("another", "hello", agent="agent", request_id="q") == first
        assert [thread.id for thread in await runtime.threads.list()] == ["t"]
        assert await said(runtime, "t") == ["hello"]


async def test_repeated_send_returns_first_receipt_while_pending(place: Place) -> None:
    async with answering(place) as runtime:
        first = await runtime.send("t", "hello", agent="agent", request_id="q", at=LATER)
        for thread in ("t", "another"):
            assert await runtime.send(thread, "hello", agent="agent", request_id="q", at=LATER) == first
        assert [pending.id for pending in await runtime.mail.pending("t")] == ["q"]
        item = await runtime.store.item("q")
        assert item is not None
        assert item.message is not None
        assert item.message.id == first.message_id


async def test_repeated_send_of_first_input_names_its_message(place: Place) -> None:
    async with answering(place) as runtime:
        await runtime.run("agent", "before", thread="t")
        await runtime.run("agent", "hello", thread="t", request_id="q")
        again = await runtime.send("t", "hello", request_id="q")
        assert again.message_id == (await runtime.threads.messages("t"))[2].id
        assert await said(runtime, "t") == ["before", "hello"]


@pytest.mark.parametrize("thread", [None, "new"])
async def test_repeated_start_returns_first_run_and_thread(place: Place, thread: str | None) -> None:
    async with answering(place) as runtime:
        first = await runtime.start("agent", "hello", request_id="q")
        for delay in (None, 50.0):
            again = await runtime.start("agent", "hello", request_id="q", thread=thread, delay=delay)
            assert (again.run_id, again.thread_id) == (first.run_id, first.thread_id)
            assert (await soon(again.result())).thread_id == first.thread_id
        assert [found.id for found in await runtime.threads.list()] == [first.thread_id]


@pytest.mark.parametrize("delay", [None, 50.0])
async def test_repeated_start_returns_first_run_while_delayed(place: Place, delay: float | None) -> None:
    async with answering(place) as runtime:
        first = await runtime.start("agent", "hello", request_id="q", thread="t", delay=50.0)
        again = await soon(runtime.start("agent", "hello", request_id="q", thread="new", delay=delay))
        assert (again.run_id, again.thread_id) == (first.run_id, "t")
        assert [found.id for found in await runtime.threads.list()] == ["t"]
        assert await again.cancel()


async def test_concurrent_starts_of_one_request_share_run(place: Place) -> None:
    async with answering(place) as runtime:
        handles = await asyncio.gather(*[runtime.start("agent", "hello", request_id="q") for _ in range(4)])
        assert len({(handle.run_id, handle.thread_id) for handle in handles}) == 1
        assert [found.id for found in await runtime.threads.list()] == [handles[0].thread_id]
        assert (await soon(handles[0].result())).text == "ok"


async def test_repeated_start_after_cancellation_says_so(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    async with answering(place) as runtime:
        first = await runtime.start("agent", "hello", request_id="q", thread="t", delay=50.0)
        await first.cancel()
        for delay in (None, 50.0):
            again = await runtime.start("agent", "hello", request_id="q", thread="t", delay=delay)
            with pytest.raises(InputRetracted):
                await soon(again.result())
        with pytest.raises(InputRetracted):
            await soon(runtime.run("agent", "hello", request_id="q", thread="t"))
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_request_taken_by_waiting_run_counts_once(place: Place) -> None:
    hold = Hold()

    @task
    async def work() -> str:
        await hold.here()
        return "worked"

    @tool
    async def begin(ctx: ToolContext) -> str:
        """Begin it."""
        return (await ctx.spawn(work)).id

    model = ScriptedModel([call("begin"), *["ok"] * 4])
    agent = Agent("agent", model=model, tools=[begin])
    async with Runtime([agent], tasks=[work], store=place()) as runtime:
        running = asyncio.create_task(runtime.run("agent", "one", thread="t"))
        while not await runtime.runs.list(thread="t", status="waiting"):
            await asyncio.sleep(0.005)
        handle = await runtime.start("agent", "two", thread="t", request_id="q")
        again = await runtime.start("agent", "two", thread="t", request_id="q")
        hold.released.set()
        result = await soon(running)
        assert (result.status, result.run_id) == ("done", handle.run_id)
        assert (again.run_id, await said(runtime, "t")) == (handle.run_id, ["one", "two"])


async def test_repeated_spawn_returns_first_owner(place: Place) -> None:
    async with answering(place) as runtime:
        first = await runtime.tasks.spawn("agent", "hello", thread="t", request_id="q")
        again = await runtime.tasks.spawn("agent", "hello", thread="new", request_id="q")
        assert (again.id, again.thread_id) == (first.id, "t")
        assert await soon(again.value()) == "ok"


async def test_request_of_pruned_run_is_not_repeated(place: Place) -> None:
    async with answering(place) as runtime:
        await runtime.run("agent", "hello", thread="t", request_id="q1")
        first = await runtime.start("agent", "hello", thread="t", request_id="q2")
        await soon(first.result())
        assert (await runtime.threads.prune(Retention(runs_kept=0))).runs == 2
        with pytest.raises(UnknownRun, match="deleted, or pruned"):
            await soon(runtime.run("agent", "hello", thread="t", request_id="q1"))
        again = await soon(runtime.start("agent", "hello", thread="t", request_id="q2"))
        assert again.run_id == first.run_id
        with pytest.raises(UnknownRun, match="deleted, or pruned"):
            await soon(again.result())
        assert await said(runtime, "t") == ["hello", "hello"]


async def test_repeated_spawn_names_pruned_or_foreign_run(place: Place) -> None:
    async with answering(place) as runtime:
        run = await runtime.run("agent", "hello", thread="t", request_id="q1")
        task = await runtime.tasks.spawn("agent", "hello", request_id="q2")
        await soon(task.value())
        with pytest.raises(UnknownTask, match=f"no task '{run.run_id}'"):
            await runtime.tasks.spawn("agent", "hello", request_id="q1")
        assert (await runtime.threads.prune(Retention(runs_kept=0))).runs == 2
        with pytest.raises(UnknownTask, match=f"no task '{task.id}'"):
            await runtime.tasks.spawn("agent", "hello", request_id="q2")


async def test_waiter_is_told_when_run_thread_is_deleted(place: Place) -> None:
    async with answering(place) as runtime:
        handle = await runtime.start("agent", "hello", thread="t", at=LATER)
        waiting = asyncio.create_task(handle.result())
        await asyncio.sleep(0.05)
        await runtime.threads.delete("t")
        with pytest.raises(UnknownRun, match="deleted, or pruned"):
            await soon(waiting)
