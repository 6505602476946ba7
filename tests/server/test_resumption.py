"""Streams that are cut at any byte, by a relay as a proxy is one, and by a server that is replaced."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from a2a_serving import Gate

from sockets import serve_app
from wakeful import Agent, FunctionModel, ModelRequest, Runtime
from wakeful.client import Client
from wakeful.events import Event, MessageAdded, StreamReset, TextDelta
from wakeful.models import Chunk, StopChunk, TextChunk
from wakeful.server import app

# Texts of one to four bytes a character, and what looks like the end of a frame.
PIECES = ("Once ", "upön ", "a tïme ", "\n\ndata: {}\n\n", "in 東京 ", "there was 🦊", ".\r\n")


class Relay:
    """A relay on loopback. It cuts the next connection after `cut` bytes of the reply."""

    def __init__(self) -> None:
        self.port = 0
        self.cut: int | None = None
        self.cuts = 0
        self.work: list[asyncio.Task[None]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        limit, self.cut = self.cut, None
        try:
            with suppress(OSError):
                there = await asyncio.open_connection("127.0.0.1", self.port)
                sending = asyncio.create_task(_copy(reader, there[1], None))
                try:
                    await _copy(there[0], writer, limit)
                    self.cuts += limit is not None
                finally:
                    sending.cancel()
                    there[1].transport.abort()
        finally:
            writer.transport.abort()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection until the relay is closed."""
        self.work.append(asyncio.create_task(self.serve(reader, writer)))

    async def close(self) -> None:
        """End all connections."""
        for task in self.work:
            task.cancel()
        await asyncio.gather(*self.work, return_exceptions=True)
        await asyncio.sleep(0)  # The loop closes their sockets.


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limit: int | None) -> None:
    sent = 0
    with suppress(OSError):
        while limit is None or sent < limit:
            data = await reader.read(65536 if limit is None else limit - sent)
            if not data or writer.is_closing():
                return
            writer.write(data)
            await writer.drain()
            sent += len(data)


@asynccontextmanager
async def relayed() -> AsyncIterator[tuple[Relay, str]]:
    relay = Relay()
    server = await asyncio.start_server(relay.accept, "127.0.0.1", 0)
    try:
        yield relay, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await relay.close()


def teller(path: Path, gate: Gate | None = None) -> Runtime:
    """An agent that tells a story in pieces; with a gate, it stops there after two of them."""

    async def answer(request: ModelRequest) -> AsyncIterator[Chunk]:
        for number, piece in enumerate(PIECES):
            if number == 2 and gate is not None:
                await gate.wait()
            yield TextChunk(piece)
        yield StopChunk("end_turn")

    return Runtime([Agent("desk", model=FunctionModel(answer))], store=path / "app.db")


async def transcript(client: Client, thread: str) -> tuple[list[tuple[str, int]], str]:
    """The durable events of a thread up to the end of its run, and the text that the deltas gave."""
    durable: list[tuple[str, int]] = []
    text = ""
    async with aclosing(cast(AsyncGenerator[Event], client.events(thread))) as events:
        async for event in events:
            match event:
                case TextDelta():
                    assert len(text) >= event.offset, "a piece is missing"
                    text = text[: event.offset] + event.delta
                case StreamReset():
                    text = ""
                case MessageAdded(message=message) if message.role == "assistant":
                    assert message.text.startswith(text)
                    text = message.text
                case _:
                    pass
            if event.durable:
                durable.append((event.type, event.seq))
            if event.type == "run_finish":
                break
    return durable, text


def offsets(whole: bytes) -> list[int]:
    """A byte of every class of the reply: in heads, ids, names, data, characters, line ends, sizes."""
    found = {0, 1, 8, 200, len(whole) - 1, len(whole) - 3}
    for word in (b"\r\n\r\n", b": open", b"retry", b"id: ", b"event: ", b"data: ", b"\n\n", b"\r\n", b"\xf0\x9f"):
        at = whole.find(word, len(whole) // 2 if word in (b"\n\n", b"\r\n") else 0)
        if at >= 0:
            found |= {at, at + 1, at + len(word)}
    found |= set(range(0, len(whole), 997))
    return sorted(found)


async def test_stream_cut_at_any_byte_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wakeful.client.events.BACKOFF", 0)
    async with serve_app(app(teller(tmp_path))) as url, relayed() as (relay, through), Client(through) as client:
        relay.port = httpx.URL(url).port or 0
        async with httpx.AsyncClient(base_url=url) as http:
            body = {"agent": "desk", "input": "Hi", "thread": "t", "wait": 30}
            assert (await http.post("/v1/runs", json=body)).json()["text"] == "".join(PIECES)
            reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
            writer.write(b"GET /v1/threads/t/events?follow=false HTTP/1.1\r\nhost: localhost\r\n\r\n")
            whole = await reader.readuntil(b"0\r\n\r\n")
            writer.close()
        expected = await transcript(client, "t")
        assert expected[1] == "".join(PIECES)
        for cut in offsets(whole):
            await client.close()  # So that the next stream has a connection of its own.
            relay.cut = cut
            assert await transcript(client, "t") == expected, cut
        assert relay.cuts > 20


async def test_reader_sees_one_answer_when_its_server_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of the answer: the second server asks the model again, and the reader has the text once."""
    monkeypatch.setattr("wakeful.client.events.ATTEMPTS", 10_000)
    monkeypatch.setattr("wakeful.client.events.MAX_BACKOFF", 0.02)
    gate, begun = Gate(), asyncio.Event()

    async def follow(client: Client) -> Any:
        await begun.wait()
        return await transcript(client, "t")

    async with relayed() as (relay, through), Client(through) as client:
        reading = asyncio.create_task(follow(client))
        async with serve_app(app(teller(tmp_path, gate))) as url:
            relay.port = httpx.URL(url).port or 0
            await client.start("desk", "Hi", thread="t")
            begun.set()
            await gate.reached.wait()
            relay.port = 1
        async with serve_app(app(teller(tmp_path))) as url:
            relay.port = httpx.URL(url).port or 0
            durable, text = await reading
            assert text == "".join(PIECES)
            assert durable == (await transcript(client, "t"))[0]
