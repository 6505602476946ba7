"""Detection of tasks and threads that a test leaves running."""

from __future__ import annotations

import asyncio
import threading

__all__ = ["LeakError", "Leaks"]

# Threads that outlive a run by design: idle tool threads end by themselves, and the loop thread of sync calls ends
# when its runtime is collected.
_EXPECTED = ("wakeful-tool", "wakeful-loop")


class LeakError(AssertionError):
    """A task or thread still runs at the end of a test."""


class Leaks:
    """Records the running threads when it is made; `check` fails if there are new ones, or other tasks."""

    def __init__(self) -> None:
        self._threads = set(threading.enumerate())

    def check(self) -> None:
        """Raise LeakError if a task of the running loop or a thread started since still runs."""
        left = [f"task {task.get_name()}: {task.get_coro()!r}" for task in _running_tasks()]
        left += [
            f"thread {thread.name}"
            for thread in threading.enumerate()
            if thread not in self._threads and thread.is_alive() and not thread.name.startswith(_EXPECTED)
        ]
        if left:
            raise LeakError("still running at the end of the test:\n" + "\n".join(f"  - {leak}" for leak in left))


def _running_tasks() -> list[asyncio.Task[object]]:
    try:
        current = asyncio.current_task()
    except RuntimeError:
        return []
    # The loop closes dropped async generators in tasks of its own; these are no leaks.
    return [
        task
        for task in asyncio.all_tasks()
        if task is not current and not task.done() and type(task.get_coro()).__name__ != "async_generator_athrow"
    ]
