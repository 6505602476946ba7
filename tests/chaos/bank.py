"""The outside world: a server that is never killed and records every change by tools."""

from __future__ import annotations

import asyncio
import json
import socket
from collections import Counter
from typing import Any

__all__ = ["Bank", "ask", "ask_sync"]


class Bank:
    """A server that executes `once` requests, dedupes `idempotent` ones and compares fences for `reconcile`.

    A request is one line, executed completely or not at all.
    """

    def __init__(self) -> None:
        self.done: Counter[tuple[str, str]] = Counter()
        self.asked: Counter[str] = Counter()
        self.refused = 0
        self.fences: dict[tuple[str, int], set[str]] = {}
        self._highest: Counter[str] = Counter()
        self._server: asyncio.Server | None = None

    async def open(self) -> int:
        """Start listening; returns the port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = await reader.readline()
            if line.endswith(b"\n"):
                writer.write(json.dumps(self._carry_out(**json.loads(line))).encode() + b"\n")
                await writer.drain()
        except OSError:
            pass  # The client was killed.
        finally:
            writer.close()

    def _carry_out(self, how: str, kind: str, key: str, fence: int, thread: str, worker: str) -> bool:
        """Execute a request; returns whether it was done, or for a check whether it had been."""
        self.asked[how] += 1
        if thread:
            self.fences.setdefault((thread, fence), set()).add(worker)
        if how == "idempotent" and self.done[kind, key]:
            return True
        if how in ("reconcile", "check"):
            if fence < self._highest[key]:
                self.refused += 1
                return False
            self._highest[key] = fence
        if how == "check":
            return self.done[kind, key] > 0
        self.done[kind, key] += 1
        return True


async def ask(port: int, **order: Any) -> bool:
    """Send the bank a request."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(json.dumps(order).encode() + b"\n")
        return bool(json.loads(await reader.readline()))
    finally:
        writer.close()


def ask_sync(port: int, **order: Any) -> bool:
    """Send the bank a request from a thread."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(json.dumps(order).encode() + b"\n")
        return bool(json.loads(connection.makefile().readline()))
