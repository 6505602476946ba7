"""A server on a real socket."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from queue import SimpleQueue
from typing import Any

import uvicorn

from wakeful.server import ServerLimits, http_protocol

__all__ = ["serve_app", "serve_in_thread"]


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # Signals are left to pytest.

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()


@asynccontextmanager
async def serve_app(
    served: Any, port: int = 0, limits: ServerLimits | None = None, **options: Any
) -> AsyncIterator[str]:
    """Serve an application on loopback, by default on a free port; yields its URL."""
    options = {"log_level": "critical", "timeout_graceful_shutdown": 1, "lifespan": "on", **options}
    config = uvicorn.Config(served, host="127.0.0.1", port=port, http=http_protocol(limits), **options)
    server = _Server(config)
    task = asyncio.create_task(server.serve())
    try:
        await server.ready.wait()
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await task


@contextmanager
def serve_in_thread(make: Callable[[], Any]) -> Iterator[str]:
    """Serve an application from a thread of its own; yields its URL."""
    urls: SimpleQueue[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = SimpleQueue()

    async def main() -> None:
        stop = asyncio.Event()
        async with serve_app(make()) as url:
            urls.put((url, asyncio.get_running_loop(), stop))
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    url, loop, stop = urls.get(timeout=60)
    try:
        yield url
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
