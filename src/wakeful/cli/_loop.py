"""An event loop in a thread of its own: the main thread is left to the keyboard and to ctrl-C."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

__all__ = ["LoopThread"]

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for a program that isn't async. Close it to end what is left and the thread."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop
        self._closing = asyncio.Event()
        ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(ready,), name="wakeful-cli", daemon=True)
        self._thread.start()
        ready.wait()

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin a coroutine on the loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """Cancel what is left and end the thread."""
        self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join()

    def _serve(self, ready: threading.Event) -> None:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            ready.set()
            while not self._closing.is_set():
                try:
                    runner.run(self._until_closing())
                except SystemExit:
                    # asyncio lets it through the loop, but it belongs to the task: whoever waits for it hears.
                    continue

    async def _until_closing(self) -> None:
        await self._closing.wait()
