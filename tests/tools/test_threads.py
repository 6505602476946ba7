"""Threads for synchronous tools: reused, counted, and let go when they don't come back."""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from wakeful import Agent, Runtime, ToolContext, call, tool
from wakeful.testing import FakeClock
from wakeful.tools import ToolThreads
from wakeful.tools import threads as threads_module

name = contextvars.ContextVar("name", default="nobody")


@pytest.fixture
def threads() -> Iterator[ToolThreads]:
    made = ToolThreads(limit=3)
    yield made
    made.close()


@pytest.fixture
def crashes(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The exceptions that escaped from threads."""
    seen: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", seen.append)
    return seen


class Busy:
    """A function that runs until it is released."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.released = threading.Event()
        self.thread: threading.Thread | None = None

    def __call__(self) -> str:
        self.thread = threading.current_thread()
        self.started.set()
        assert self.released.wait(120)
        return "released"


async def until(condition: Callable[[], bool]) -> None:
    """Let the event loop run until something holds."""
    async with asyncio.timeout(120):
        while not condition():
            await asyncio.sleep(0)


async def begun(*busy: Busy) -> None:
    """Let the event loop run until these have started."""
    await until(lambda: all(one.started.is_set() for one in busy))


# -- running -------------------------------------------------------------------------------------------------


async def test_function_runs_in_another_thread(threads: ToolThreads) -> None:
    thread = await threads.submit(threading.current_thread)
    assert thread is not threading.current_thread()
    assert thread.daemon


async def test_error_is_raised_to_caller(threads: ToolThreads) -> None:
    def fail() -> None:
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        await threads.submit(fail)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt("stop"), StopIteration(1), GeneratorExit()])
async def test_base_exception_is_error_of_tool(threads: ToolThreads, error: BaseException) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(RuntimeError, match=type(error).__name__):
        await threads.submit(fail)


async def test_context_variables_are_copied_in_and_not_out(threads: ToolThreads) -> None:
    def rename() -> str:
        before = name.get()
        name.set("thread")
        return before

    name.set("task")
    assert await threads.submit(rename) == "task"
    assert name.get() == "task"
    assert await threads.submit(name.get) == "task"


async def test_idle_thread_is_reused() -> None:
    threads = ToolThreads()
    used = {await threads.submit(threading.get_ident) for _ in range(60)}
    threads.close()
    assert len(used) < 10


async def test_functions_run_in_parallel_up_to_limit(threads: ToolThreads) -> None:
    jobs = [Busy() for _ in range(4)]
    futures = [threads.submit(job) for job in jobs]
    await begun(*jobs[:3])
    assert threads.alive == 3
    assert not jobs[3].started.is_set()
    jobs[0].released.set()
    await begun(jobs[3])
    for job in jobs:
        job.released.set()
    assert await asyncio.gather(*futures) == ["released"] * 4
    assert jobs[3].thread is jobs[0].thread


async def test_every_job_gets_an_idle_thread(threads: ToolThreads) -> None:
    for _ in range(200):
        first, second = Busy(), Busy()
        one, two = threads.submit(first), threads.submit(second)
        second.released.set()
        assert await two == "released"
        first.released.set()
        assert await one == "released"


async def test_job_is_not_lost_when_idle_thread_ends(
    threads: ToolThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads_module, "IDLE_SECONDS", 0.00005)
    for number in range(500):
        assert await asyncio.wait_for(threads.submit(lambda number=number: number), 120) == number


async def test_idle_threads_end_by_themselves(threads: ToolThreads, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads_module, "IDLE_SECONDS", 0.001)
    thread = await threads.submit(threading.current_thread)
    thread.join(20)
    assert (thread.is_alive(), threads.alive) == (False, 0)


async def test_idle_threads_end_on_close(threads: ToolThreads) -> None:
    thread = await threads.submit(threading.current_thread)
    threads.close()
    thread.join(20)
    assert (thread.is_alive(), threads.alive) == (False, 0)


# -- letting go ----------------------------------------------------------------------------------------------


async def test_abandoned_thread_is_counted_and_takes_no_slot(threads: ToolThreads) -> None:
    stuck = [Busy() for _ in range(3)]
    futures = [threads.submit(job) for job in stuck]
    await begun(*stuck)
    for future in futures:
        threads.abandon(future)
    assert threads.abandoned == 3
    assert await threads.submit(lambda: "room") == "room"
    assert threads.alive == 4
    for job in stuck:
        job.released.set()
    await asyncio.gather(*futures)
    assert threads.abandoned == 0


async def test_abandoned_thread_replacements_are_limited() -> None:
    """A tool that never comes back takes places one by one, and not all the threads there are."""
    threads = ToolThreads(limit=1, abandoned=2)
    stuck = [Busy() for _ in range(3)]
    futures = []
    for job in stuck:
        futures.append(threads.submit(job))
        await begun(job)
        threads.abandon(futures[-1])
    waits = threads.submit(lambda: "room")
    assert (threads.alive, threads.abandoned, waits.done()) == (3, 3, False)
    stuck[0].released.set()
    assert await waits == "room"
    for job in stuck:
        job.released.set()
    await asyncio.gather(*futures)
    threads.close()


async def test_error_of_abandoned_function_is_ignored(threads: ToolThreads) -> None:
    busy = Busy()

    def fail() -> None:
        busy()
        raise LookupError("too late")

    future = threads.submit(fail)
    await begun(busy)
    threads.abandon(future)
    busy.released.set()
    await until(lambda: not threads.abandoned)
    del future  # An error that was never looked at would be reported here, and fail the test.


async def test_function_abandoned_before_start_never_runs(threads: ToolThreads) -> None:
    stuck = [Busy() for _ in range(3)]
    futures = [threads.submit(job) for job in stuck]
    await begun(*stuck)
    ran: list[str] = []
    threads.abandon(threads.submit(lambda: ran.append("late")))
    assert threads.abandoned == 0
    after = threads.submit(lambda: ran.append("after"))
    for job in stuck:
        job.released.set()
    await asyncio.gather(*futures, after)
    assert ran == ["after"]


def test_function_ending_after_loop_close_is_harmless(threads: ToolThreads, crashes: list[Any]) -> None:
    busy = Busy()

    async def start() -> None:
        threads.submit(busy)
        await begun(busy)

    asyncio.run(start())
    busy.released.set()
    threads.close()
    assert busy.thread is not None
    busy.thread.join(20)
    assert not busy.thread.is_alive()
    assert crashes == []


def test_stuck_thread_does_not_keep_process_alive() -> None:
    program = """
        import asyncio, threading
        from wakeful import Agent, Runtime, ScriptedModel, call, tool

        started = threading.Event()

        @tool
        def hang() -> str:
            started.set()
            threading.Event().wait()

        async def main() -> None:
            runtime = Runtime([Agent("a", model=ScriptedModel([call("hang")]), tools=[hang])], cancel_grace=0.01)
            run = asyncio.create_task(runtime.run("a", "go"))
            while not started.is_set():
                await asyncio.sleep(0)
            (record,) = await runtime.runs.list()
            assert await runtime.cancel(record.id)
            print((await run).status, runtime.workers.abandoned)
            await runtime.close()

        asyncio.run(main())
    """
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("done 1\n", "", 0)


# -- in a run ------------------------------------------------------------------------------------------------


async def test_sync_tool_ignoring_timeout_is_abandoned_visibly(scripted: Any, fake_clock: FakeClock) -> None:
    busy = Busy()

    @tool(timeout=2)
    def stubborn(ctx: ToolContext) -> str:
        """Take too long."""
        return busy()

    model = scripted(call("stubborn"), "gave up")
    agents = [Agent("a", model=model, tools=[stubborn])]
    async with Runtime(agents, clock=fake_clock, cancel_grace=3) as runtime:
        run = asyncio.create_task(runtime.run("a", "go", thread="t1"))
        await begun(busy)
        await fake_clock.advance(4.9)
        assert not run.done()
        assert runtime.workers.abandoned == 0
        await fake_clock.advance(0.2)
        assert (await run).text == "gave up"
        assert runtime.workers.abandoned == 1
        assert "\nwakeful_abandoned 1\n" in await runtime.workers.metrics_text()
        (reply,) = [m.reply for m in await runtime.threads.messages("t1") if m.reply is not None]
        assert reply.error == "interrupted"
        busy.released.set()
        await until(lambda: not runtime.workers.abandoned)


async def test_caller_context_reaches_sync_tool(scripted: Any) -> None:
    @tool
    def who() -> str:
        """Say who is there."""
        return name.get()

    model = scripted(call("who"), "done")
    async with Runtime([Agent("a", model=model, tools=[who])]) as runtime:
        name.set("ann")
        await runtime.run("a", "go", thread="t1")
        (reply,) = [m.reply for m in await runtime.threads.messages("t1") if m.reply is not None]
    assert reply.content[0].text == "ann"
