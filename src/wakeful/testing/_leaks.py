"""Finding tasks and threads that a test left behind."""

from __future__ import annotations

import asyncio
import threading

__all__ = ["LeakError", "Leaks"]

# Threads of wakeful that outlive a run on purpose: idle tool threads end by themselves, and the loop of the sync
# calls once nobody holds its runtime.
_OURS = ("wakeful-tool", "wakeful-loop")


class LeakError(AssertionError):
    """Something still runs that should have ended."""


class Leaks:
    """Remembers what ran when it was made; `check` fails if more does now."""

    def __init__(self) -> None:
        self._threads = set(threading.enumerate())

    def check(self) -> None:
        """Fail if a task of the running loop, or a thread that was started since, still runs."""
        left = [f"task {task.get_name()}: {task.get_coro()!r}" for task in _tasks()]
        left += [
            f"thread {thread.name}"
            for thread in threading.enumerate()
            if thread not in self._threads and thread.is_alive() and not thread.name.startswith(_OURS)
        ]
        if left:
            raise LeakError("still running at the end of the test:\n" + "\n".join(f"  - {one}" for one in left))


def _tasks() -> list[asyncio.Task[object]]:
    try:
        current = asyncio.current_task()
    except RuntimeError:
        return []
    # The loop itself closes generators that were dropped, in a task for each.
    return [
        task
        for task in asyncio.all_tasks()
        if task is not current and not task.done() and type(task.get_coro()).__name__ != "async_generator_athrow"
    ]
