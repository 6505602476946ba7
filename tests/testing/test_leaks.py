"""Finding what a test left running."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from wakeful import Agent, Runtime, call, tool
from wakeful.testing import LeakError, Leaks


async def for_ever() -> None:
    await asyncio.Event().wait()


async def test_nothing_left_is_no_leak() -> None:
    leaks = Leaks()
    await asyncio.create_task(asyncio.sleep(0))
    leaks.check()


async def test_a_task_that_still_runs_is_named() -> None:
    leaks = Leaks()
    task = asyncio.create_task(for_ever(), name="straggler")
    with pytest.raises(LeakError, match=r"(?s)still running.*task straggler: .*for_ever"):
        leaks.check()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    leaks.check()


def test_a_thread_that_still_runs_is_named() -> None:
    leaks, release = Leaks(), threading.Event()
    thread = threading.Thread(target=release.wait, name="straggler")
    thread.start()
    try:
        with pytest.raises(LeakError, match="thread straggler"):
            leaks.check()
    finally:
        release.set()
        thread.join()
    leaks.check()


def test_a_thread_that_ran_before_is_not_a_leak() -> None:
    release = threading.Event()
    thread = threading.Thread(target=release.wait)
    thread.start()
    Leaks().check()
    release.set()
    thread.join()


def test_the_loop_of_the_sync_calls_is_no_leak(scripted: Any) -> None:
    @tool
    def look() -> str:
        """Look."""
        return "seen"

    leaks = Leaks()
    runtime = Runtime([Agent("a", model=scripted(call("look"), "done"), tools=[look])])
    assert runtime.run_sync("a", "go").text == "done"
    leaks.check()


async def test_all_leaks_are_listed() -> None:
    leaks = Leaks()
    tasks = [asyncio.create_task(for_ever(), name=f"straggler {n}") for n in range(2)]
    with pytest.raises(LeakError) as raised:
        leaks.check()
    assert str(raised.value).count("\n  - ") == 2
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_an_idle_tool_thread_is_not_a_leak(scripted: Any) -> None:
    @tool
    def look() -> str:
        """Look, in a thread."""
        return threading.current_thread().name

    leaks = Leaks()
    async with Runtime([Agent("a", model=scripted(call("look"), "done"), tools=[look])]) as runtime:
        await runtime.run("a", "go", thread="t1")
        (reply,) = [m.reply for m in await runtime.messages("t1") if m.reply is not None]
    assert reply.content[0].text.startswith("wakeful-tool")
    leaks.check()


def test_a_leak_is_a_failed_assertion() -> None:
    assert issubclass(LeakError, AssertionError)
