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
    return [m.text for m in await runtime.messages(thread) if m.role == "user" and m.visibility == "all"]


async def test_a_send_that_is_repeated_has_the_first_ones_receipt(place: Place) -> None:
    async with answering(place) as runtime:
        first = await runtime.send("t", "hello", agent="agent", request_id="q")
        while not (messages := await runtime.messages("t")):
            await asyncio.sleep(0.005)
        assert first.message_id == messages[0].id
        assert await runtime.send("t", "hello", agent="agent", request_id="q") == first
        assert await runtime.send("t", "hello", agent="agent", request_id="q", policy="reject") == first
        assert await runtime.send("another", "hello", agent="agent", request_id="q") == first
        assert [thread.id for thread in await runtime.threads()] == ["t"]
        assert await said(runtime, "t") == ["hello"]


async def test_a_send_that_is_repeated_while_it_is_pending_has_the_first_ones_receipt(place: Place) -> None:
    async with answering(place) as runtime:
        first = await runtime.send("t", "hello", agent="agent", request_id="q", at=LATER)
        for thread in ("t", "another"):
            assert await runtime.send(thread, "hello", agent="agent", request_id="q", at=LATER) == first
        assert [pending.id for pending in await runtime.pending("t")] == ["q"]
        item = await runtime.store.item("q")
        assert item is not None
        assert item.message is not None
        assert item.message.id == first.message_id


async def test_a_send_of_what_a_run_began_with_names_its_message(place: Place) -> None:
    async with answering(place) as runtime:
        await runtime.run("agent", "before", thread="t")
        await runtime.run("agent", "hello", thread="t", request_id="q")
        again = await runtime.send("t", "hello", request_id="q")
        assert again.message_id == (await runtime.messages("t"))[2].id
        assert await said(runtime, "t") == ["before", "hello"]


@pytest.mark.parametrize("thread", [None, "new"])
async def test_a_start_that_is_repeated_has_the_first_ones_run_and_thread(
    place: Place, thread: str | None
) -> None:
    async with answering(place) as runtime:
        first = await runtime.start("agent", "hello", request_id="q")
        for delay in (None, 50.0):
            again = await runtime.start("agent", "hello", request_id="q", thread=thread, delay=delay)
            assert (again.run_id, again.thread_id) == (first.run_id, first.thread_id)
            assert (await soon(again.result())).thread_id == first.thread_id
        assert [found.id for found in await runtime.threads()] == [first.thread_id]


@pytest.mark.parametrize("delay", [None, 50.0])
async def test_a_start_that_is_repeated_before_its_time_has_the_first_ones_run_and_thread(
    place: Place, delay: float | None
) -> None:
    async with answering(place) as runtime:
        first = await runtime.start("agent", "hello", request_id="q", thread="t", delay=50.0)
        again = await soon(runtime.start("agent", "hello", request_id="q", thread="new", delay=delay))
        assert (again.run_id, again.thread_id) == (first.run_id, "t")
        assert [found.id for found in await runtime.threads()] == ["t"]
        assert await again.cancel()


async def test_starts_of_one_request_at_once_have_one_run_and_thread(place: Place) -> None:
    async with answering(place) as runtime:
        handles = await asyncio.gather(*[runtime.start("agent", "hello", request_id="q") for _ in range(4)])
        assert len({(handle.run_id, handle.thread_id) for handle in handles}) == 1
        assert [found.id for found in await runtime.threads()] == [handles[0].thread_id]
        assert (await soon(handles[0].result())).text == "ok"


async def test_a_start_that_is_repeated_after_it_was_cancelled_says_so(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
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


async def test_a_request_that_a_run_took_in_which_waited_for_its_tasks_is_made_once(place: Place) -> None:
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
        while not await runtime.list_runs(thread="t", status="waiting"):
            await asyncio.sleep(0.005)
        handle = await runtime.start("agent", "two", thread="t", request_id="q")
        again = await runtime.start("agent", "two", thread="t", request_id="q")
        hold.released.set()
        result = await soon(running)
        assert (result.status, result.run_id) == ("done", handle.run_id)
        assert (again.run_id, await said(runtime, "t")) == (handle.run_id, ["one", "two"])


async def test_a_spawn_that_is_repeated_has_the_first_ones_owner(place: Place) -> None:
    async with answering(place) as runtime:
        first = await runtime.spawn("agent", "hello", thread="t", request_id="q")
        again = await runtime.spawn("agent", "hello", thread="new", request_id="q")
        assert (again.id, again.thread_id) == (first.id, "t")
        assert await soon(again.value()) == "ok"


async def test_a_request_whose_run_was_pruned_is_not_made_again_and_not_waited_for(place: Place) -> None:
    async with answering(place) as runtime:
        await runtime.run("agent", "hello", thread="t", request_id="q1")
        first = await runtime.start("agent", "hello", thread="t", request_id="q2")
        await soon(first.result())
        assert (await runtime.prune(Retention(runs_kept=0))).runs == 2
        with pytest.raises(UnknownRun, match="deleted, or pruned"):
            await soon(runtime.run("agent", "hello", thread="t", request_id="q1"))
        again = await soon(runtime.start("agent", "hello", thread="t", request_id="q2"))
        assert again.run_id == first.run_id
        with pytest.raises(UnknownRun, match="deleted, or pruned"):
            await soon(again.result())
        assert await said(runtime, "t") == ["hello", "hello"]


async def test_a_spawn_whose_run_was_pruned_or_never_was_a_task_says_which_it_was(place: Place) -> None:
    async with answering(place) as runtime:
        run = await runtime.run("agent", "hello", thread="t", request_id="q1")
        task = await runtime.spawn("agent", "hello", request_id="q2")
        await soon(task.value())
        with pytest.raises(UnknownTask, match=f"no task '{run.run_id}'"):
            await runtime.spawn("agent", "hello", request_id="q1")
        assert (await runtime.prune(Retention(runs_kept=0))).runs == 2
        with pytest.raises(UnknownTask, match=f"no task '{task.id}'"):
            await runtime.spawn("agent", "hello", request_id="q2")


async def test_who_waits_for_a_run_of_a_thread_that_is_deleted_hears_of_it(place: Place) -> None:
    async with answering(place) as runtime:
        handle = await runtime.start("agent", "hello", thread="t", at=LATER)
        waiting = asyncio.create_task(handle.result())
        await asyncio.sleep(0.05)
        await runtime.delete("t")
        with pytest.raises(UnknownRun, match="deleted, or pruned"):
            await soon(waiting)
