"""A scripted HTTP server on loopback whose streams can stall or be cut anywhere."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class WireRequest:
    """A received request: header names in lower case, the body decoded if it is JSON."""

    method: str
    path: str
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> Any:
        return json.loads(self.raw)


@dataclass(frozen=True)
class Reply:
    """One HTTP response, written piece by piece.

    `ends` is `whole`, `cut` (closes the connection after `cut_at` bytes of the body), `stall` (writes as much and
    waits for the client to leave) or `reset` (as `cut`, with a TCP reset). `hold` stalls before the status line.
    With `chunked` framing a cut is visible to HTTP, with `close` only to a reader of the format.
    """

    pieces: Sequence[bytes] = ()
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict[str, str])
    ends: Literal["whole", "cut", "stall", "reset"] = "whole"
    cut_at: int | None = None
    hold: bool = False
    framing: Literal["chunked", "close"] = "chunked"

    @property
    def size(self) -> int:
        return sum(map(len, self.pieces))


Answering = Callable[[WireRequest], Reply]


class WireServer:
    """Answers each request with the next reply, or with the result of a function.

    `requests` records the requests; `gone` is set when a client leaves before its reply is complete.
    """

    def __init__(self, *replies: Reply, answer: Answering | None = None) -> None:
        self.replies = list(replies)
        self.answer = answer
        self.requests: list[WireRequest] = []
        self.stalled = asyncio.Event()
        self.gone = asyncio.Event()
        self.open = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> WireServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in [*self._tasks]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def port(self) -> int:
        assert self._server is not None
        return self._server.sockets[0].getsockname()[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.open += 1
        told = False
        try:
            while (request := await _read(reader)) is not None:
                self.requests.append(request)
                reply = self.answer(request) if self.answer is not None else self.replies.pop(0)
                told = await self._write(reply, reader, writer)
                if not told:
                    break
        except (ConnectionError, asyncio.CancelledError):
            told = False
        finally:
            if not told:
                self.gone.set()
            self.open -= 1
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _write(self, reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Write a reply; returns whether the connection stays open."""
        if reply.hold:
            await self._wait_until_gone(reader)
            return False
        chunked = reply.framing == "chunked"
        head = {**reply.headers, **({"transfer-encoding": "chunked"} if chunked else {"connection": "close"})}
        lines = [f"HTTP/1.1 {reply.status} Scripted", *[f"{k}: {v}" for k, v in head.items()], "", ""]
        writer.write("\r\n".join(lines).encode("latin-1"))
        left = reply.size if reply.ends == "whole" or reply.cut_at is None else reply.cut_at
        for piece in reply.pieces:
            piece = piece[:left]
            left -= len(piece)
            if piece:
                writer.write(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
                await writer.drain()
            # Lets the client read each piece by itself, as over a network.
            await asyncio.sleep(0)
        if reply.ends == "stall":
            await self._wait_until_gone(reader)
            return False
        if reply.ends == "reset":
            writer.transport.abort()
            return False
        if reply.ends == "whole" and chunked:
            writer.write(b"0\r\n\r\n")
            await writer.drain()
            return True
        await writer.drain()
        return False

    async def _wait_until_gone(self, reader: asyncio.StreamReader) -> None:
        self.stalled.set()
        with contextlib.suppress(ConnectionError):
            while await reader.read(65536):
                pass
        self.gone.set()


async def _read(reader: asyncio.StreamReader) -> WireRequest | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    except asyncio.IncompleteReadError:
        return None
    method, path, _ = head[0].split(" ", 2)
    headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:] if line)}
    if headers.get("transfer-encoding") == "chunked":
        raw = b""
        while size := int(await reader.readline(), 16):
            raw += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
    else:
        raw = await reader.readexactly(int(headers.get("content-length", 0)))
    return WireRequest(method, path, headers, raw)
