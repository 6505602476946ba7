"""A proxy on the loopback address that loses a request or a reply when a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Literal

__all__ = ["Proxy", "proxied"]

# The client ends a request with Sync or sends a simple query; the server then ends its reply with ReadyForQuery.
# Statements are prepared without Sync: such a message has no reply to wait for, and is never the lost one.
_SYNC = b"S\x00\x00\x00\x04"
_QUERY = b"Q"
_READY = b"Z\x00\x00\x00\x05"


class Proxy:
    """Forwards everything, until it is told to lose a request or its reply, and the connection with it."""

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._writers: set[asyncio.StreamWriter] = set()
        self._clients: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._lose: tuple[Literal["request", "reply"], Callable[[bytes], bool]] | None = None
        self._open = asyncio.Event()
        self._open.set()
        self.lost = asyncio.Event()
        self.port = 0

    def lose(self, what: Literal["request", "reply"], which: Callable[[bytes], bool] = bool) -> None:
        """Break the connection at the next request of which `which` is true."""
        self._lose = (what, which)
        self.lost.clear()

    def cut(self) -> None:
        """Close the clients' connections. The server keeps working on their statements."""
        for writer in self._clients:
            writer.transport.abort()

    def hold(self) -> None:
        """Let no new connection in until `let_in`."""
        self._open.clear()

    def let_in(self) -> None:
        self._open.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        self._clients.add(writer)
        try:
            await self._open.wait()
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._server_port)
            self._writers.add(server_writer)
            losing = asyncio.Event()
            back = asyncio.create_task(self._back(server_reader, writer, losing))
            await self._forth(reader, server_writer, losing)
            if losing.is_set():
                await back  # The server has executed the request once it has replied.
            back.cancel()
            await asyncio.gather(back, return_exceptions=True)
            server_writer.close()
        except OSError:
            pass
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _forth(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, losing: asyncio.Event
    ) -> None:
        while data := await reader.read(1 << 16):
            is_request = data.startswith(_QUERY) or data.endswith(_SYNC)
            if self._lose is not None and is_request and self._lose[1](data):
                what, self._lose = self._lose[0], None
                if what == "request":
                    self.lost.set()
                    return
                losing.set()
                writer.write(data)
                await writer.drain()
                return
            writer.write(data)
            await writer.drain()

    async def _back(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, losing: asyncio.Event
    ) -> None:
        while data := await reader.read(1 << 16):
            if not losing.is_set():
                writer.write(data)
                await writer.drain()
            elif _READY in data:
                self.lost.set()
                return
        writer.close()  # The server hung up.

    async def close(self) -> None:
        self._open.set()
        for writer in self._writers:
            writer.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def proxied(port: int) -> AsyncIterator[Proxy]:
    """A proxy to a port of the loopback address."""
    proxy = Proxy(port)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        await proxy.close()
