"""`Leaks`: detection of tasks and threads left running."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from wakeful import Agent, Runtime, call, tool
from wakeful.testing import LeakError, Leaks


async def for_ever() -> None:
    await asyncio.Event().wait()


async def test_leaks_pass_when_nothing_is_left() -> None:
    leaks = Leaks()
    await asyncio.create_task(asyncio.sleep(0))
    leaks.check()


async def test_leaks_name_running_task() -> None:
    leaks = Leaks()
    task = asyncio.create_task(for_ever(), name="straggler")
    with pytest.raises(LeakError, match=r"(?s)still running.*task straggler: .*for_ever"):
        leaks.check()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    leaks.check()


def test_leaks_name_running_thread() -> None:
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


def test_leaks_ignore_earlier_thread() -> None:
    release = threading.Event()
    thread = threading.Thread(target=release.wait)
    thread.start()
    Leaks().check()
    release.set()
    thread.join()


def test_leaks_ignore_loop_thread_of_sync_calls(scripted: Any) -> None:
    @tool
    def look() -> str:
        """Look."""
        return "seen"

    leaks = Leaks()
    runtime = Runtime([Agent("a", model=scripted(call("look"), "done"), tools=[look])])
    assert runtime.run_sync("a", "go").text == "done"
    leaks.check()


async def test_leaks_list_all_tasks() -> None:
    leaks = Leaks()
    tasks = [asyncio.create_task(for_ever(), name=f"straggler {n}") for n in range(2)]
    with pytest.raises(LeakError) as raised:
        leaks.check()
    assert str(raised.value).count("\n  - ") == 2
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_leaks_ignore_idle_tool_thread(scripted: Any) -> None:
    @tool
    def look() -> str:
        """Look, in a thread."""
        return threading.current_thread().name

    leaks = Leaks()
    async with Runtime([Agent("a", model=scripted(call("look"), "done"), tools=[look])]) as runtime:
        await runtime.run("a", "go", thread="t1")
        (reply,) = [m.reply for m in await runtime.threads.messages("t1") if m.reply is not None]
    assert reply.content[0].text.startswith("wakeful-tool")
    leaks.check()


def test_leak_error_is_assertion_error() -> None:
    assert issubclass(LeakError, AssertionError)
