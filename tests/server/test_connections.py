"""Connections that are slow, idle, malformed or too many: each is bounded, and others are served meanwhile."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from http_serving import office

from sockets import serve_app
from wakeful.server import ServerLimits, app

HOST = b"host: localhost\r\n"
READ = b"GET /v1/agents HTTP/1.1\r\n" + HOST + b"\r\n"


class Peer:
    """A client that sends exactly what it is told to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def reply(self) -> tuple[int, dict[str, Any]]:
        """One reply: its status and its JSON."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
        size = int(head.partition("content-length: ")[2].split()[0])
        return int(head.split()[1]), json.loads(await self.reader.readexactly(size))

    async def is_closed(self) -> bool:
        """Wait for the end of the connection; True if nothing came before."""
        try:
            return await self.reader.read() == b""
        except ConnectionResetError:
            return True


@asynccontextmanager
async def served(**limits: Any) -> AsyncIterator[Any]:
    """A server with these limits; yields a function that connects to it."""
    peers: list[Peer] = []
    found = ServerLimits(**limits)
    options = {"log_config": None, "log_level": "warning"}
    async with serve_app(app(office(), limits=found), limits=found, **options) as url:

        async def connect() -> Peer:
            peers.append(Peer(*await asyncio.open_connection("127.0.0.1", httpx.URL(url).port)))
            return peers[-1]

        yield connect
        for peer in peers:
            peer.writer.close()


async def reads(connect: Any) -> int:
    """The status that another client gets meanwhile."""
    other = await connect()
    await other.send(READ)
    return (await other.reply())[0]


async def test_slow_header_gets_408_and_the_end() -> None:
    async with served(header_seconds=1) as connect:
        silent = await connect()
        slow = [await connect() for _ in range(3)]
        for peer, sent in zip(slow, (b"GET /v1/agents HTTP/1.1\r\nhost: loc", b"\r\n", b"POST"), strict=True):
            await peer.send(sent)
        assert await reads(connect) == 200
        for peer in slow:
            status, problem = await peer.reply()
            assert (status, problem["code"]) == (408, "headers-too-slow")
            assert await peer.is_closed()
        assert await silent.is_closed()


async def test_dripping_header_has_one_deadline() -> None:
    """Another byte doesn't give it more time."""
    async with served(header_seconds=0.5) as connect:
        slow = await connect()
        reply = asyncio.create_task(slow.reply())
        for byte in READ:
            if reply.done():
                break
            await slow.send(bytes([byte]))
            await asyncio.wait({reply}, timeout=0.1)
        assert (await reply)[1]["code"] == "headers-too-slow"


async def test_half_closed_connection_is_closed() -> None:
    async with served() as connect:
        half = await connect()
        await half.send(b"GET /v1/agents HTTP/1.1\r\n")
        half.writer.write_eof()
        assert await half.is_closed()


async def test_slow_body_gets_408_and_the_end() -> None:
    async with served(body_seconds=0.3) as connect:
        slow = [await connect() for _ in range(2)]
        for peer, declared in zip(slow, (b"content-length: 100", b"transfer-encoding: chunked"), strict=True):
            await peer.send(b"POST /v1/runs HTTP/1.1\r\n" + HOST + declared + b"\r\n\r\n")
        assert await reads(connect) == 200
        for peer in slow:
            status, problem = await peer.reply()
            assert (status, problem["code"]) == (408, "body-too-slow")
            assert await peer.is_closed()


async def test_finished_request_leaves_no_deadline() -> None:
    async with served(header_seconds=1, body_seconds=1) as connect:
        peer = await connect()
        body = b'{"agent": "desk", "input": "Hi", "wait": 30}'
        head = b"POST /v1/runs HTTP/1.1\r\ncontent-type: application/json\r\n" + HOST
        await peer.send(head + b"content-length: %d\r\n\r\n" % len(body) + body)
        assert (await peer.reply())[0] == 200
        await peer.send(b"GET /v1/watch?seconds=1.2 HTTP/1.1\r\n" + HOST + b"\r\n" + READ)
        await peer.reader.readuntil(b"event: end")
        await peer.reader.readuntil(b"\r\n0\r\n\r\n")
        assert (await peer.reply())[0] == 200


@pytest.mark.parametrize("pieces", [1, 50])
async def test_large_head_gets_431(pieces: int) -> None:
    async with served(header_bytes=4096) as connect:
        peer = await connect()
        head = (
            b"GET /v1/agents HTTP/1.1\r\n" + HOST + b"".join([b"x-%d: %s\r\n" % (n, b"a" * 90) for n in range(50)])
        )
        for start in range(0, len(head), len(head) // pieces):
            await peer.send(head[start : start + len(head) // pieces])
        status, problem = await peer.reply()
        assert (status, problem["code"]) == (431, "headers-too-large")
        assert "4,096 bytes" in problem["detail"]


@pytest.mark.parametrize(
    "sent", [b"\x16\x03\x01\x02\x00\x01", b"GET / HTTP/1.1\r\nbad header\r\n\r\n", b"get\r\n\r\n"]
)
async def test_malformed_request_logs_one_line(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with served() as connect:
        peer = await connect()
        await peer.send(sent)
        status, problem = await peer.reply()
        assert (status, problem["code"]) == (400, "malformed-request")
        assert await peer.is_closed()
    (line,) = caplog.messages
    assert "\n" not in line


async def test_new_connection_displaces_the_oldest_idle_one() -> None:
    async with served(connections=3, header_seconds=60) as connect:
        idle = [await connect() for _ in range(3)]
        assert await reads(connect) == 200
        assert await idle[0].is_closed()
        await idle[2].send(READ)
        assert (await idle[2].reply())[0] == 200


async def test_connection_gets_503_when_all_are_busy() -> None:
    async with served(connections=2, body_seconds=60) as connect:
        busy = [await connect() for _ in range(2)]
        for peer in busy:
            await peer.send(b"GET /v1/watch HTTP/1.1\r\n" + HOST + b"\r\n")
            await peer.reader.readuntil(b"event: ready")
        late = await connect()
        status, problem = await late.reply()
        assert (status, problem["code"]) == (503, "too-many-connections")
        busy[0].writer.close()
        while (answer := await reads(connect)) == 503:
            pass  # The server hears of it within a few events.
        assert answer == 200
