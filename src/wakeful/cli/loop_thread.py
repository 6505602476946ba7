"""An event loop in its own thread, so that the main thread handles the keyboard and ctrl-C."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

__all__ = ["LoopThread"]

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for a synchronous program. Closing it cancels the rest and ends the thread."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop
        self._closing = asyncio.Event()
        ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(ready,), name="wakeful-cli", daemon=True)
        self._thread.start()
        ready.wait()

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine on the loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """Cancel running coroutines and end the thread."""
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
                    # asyncio raises it through the loop, but the task has it, too, for its waiter.
                    continue

    async def _until_closing(self) -> None:
        await self._closing.wait()
