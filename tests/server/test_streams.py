"""Server-sent events: their bytes, their ends, slow readers, and the cleanup of every stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import msgspec
import pytest
from a2a_serving import Gate
from http_serving import office
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from sockets import serve_app
from wakeful import Agent, FunctionModel, ModelRequest, Runtime
from wakeful.client import Client
from wakeful.errors import NotAuthenticated, StoreUnavailable
from wakeful.identity import ApiKeys, create_key, revoke_key
from wakeful.models import Chunk, StopChunk, TextChunk
from wakeful.server import ServerLimits, app
from wakeful.server.sse import EventStream, frame


class Source:
    """Frames of a test; `closed` is set at the end of a cleanup that awaits."""

    def __init__(self, *frames: bytes, then: Any = None) -> None:
        self._frames = frames
        self._then = then
        self.begun = asyncio.Event()
        self.closed = asyncio.Event()

    async def frames(self) -> AsyncGenerator[bytes]:
        try:
            self.begun.set()
            for each in self._frames:
                yield each
            if isinstance(self._then, Exception):
                raise self._then
            if self._then is not None:
                await self._then
        finally:
            await asyncio.sleep(0)
            self.closed.set()


@asynccontextmanager
async def streaming(source: Source, **options: Any) -> AsyncIterator[str]:
    """A server with one stream, at its root."""

    class Endpoint:
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            await EventStream(source.frames(), **options)(scope, receive, send)

    async with serve_app(Starlette(routes=[Route("/", Endpoint())]), lifespan="off") as url:
        yield url


async def raw(url: str, path: str = "/") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A stream that is read byte by byte, after the head of its response."""
    reader, writer = await asyncio.open_connection("127.0.0.1", httpx.URL(url).port, limit=10_000_000)
    writer.write(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
    await reader.readuntil(b"\r\n\r\n")
    return reader, writer


def gated(gate: Gate, *pieces: str) -> Runtime:
    """An agent that streams these pieces and waits at the gate after the first."""

    async def answer(request: ModelRequest) -> AsyncIterator[Chunk]:
        yield TextChunk(pieces[0])
        await gate.wait()
        for piece in pieces[1:]:
            yield TextChunk(piece)
        yield StopChunk("end_turn")

    return Runtime([Agent("desk", model=FunctionModel(answer))])


# -- bytes -----------------------------------------------------------------------------------------------------


async def test_first_bytes_come_before_the_first_event() -> None:
    source = Source(then=asyncio.Event().wait())
    async with streaming(source) as url:
        reader, writer = await raw(url)
        assert await reader.readuntil(b"\n\n") == b"14\r\n: open\nretry: 1000\n\n"
        writer.close()
        await source.closed.wait()


async def test_silence_is_filled_with_comments() -> None:
    source = Source(then=asyncio.Event().wait())
    async with streaming(source, beat_seconds=0.02) as url:
        reader, writer = await raw(url)
        for _ in range(3):
            await reader.readuntil(b": beat\n\n")
        writer.close()
        await source.closed.wait()


async def test_lines_end_with_lf_and_ids_are_cursors() -> None:
    async with serve_app(app(office())) as url, httpx.AsyncClient(base_url=url) as http:
        async with http.stream("POST", "/v1/runs:stream", json={"agent": "desk", "input": "Hi"}) as answer:
            body = await answer.aread()
        assert answer.headers["cache-control"] == "no-cache"
        assert answer.headers["x-accel-buffering"] == "no"
        assert b"\r" not in body
        frames = [each.split(b"\n") for each in body.split(b"\n\n") if each.startswith(b"id")]
        for cursor, event, data in frames:
            decoded = msgspec.json.decode(data.removeprefix(b"data: "))
            assert event == b"event: " + decoded["type"].encode()
            assert cursor.removeprefix(b"id: ").decode().split(".")[0] == str(decoded["seq"])
        assert body.endswith(b'event: end\ndata: {"reason":"run_done"}\n\n')


@pytest.mark.parametrize("path", ["/a2a/desk", "/a2a/desk/message:stream", "/a2a/desk/v1/message:stream"])
async def test_a2a_streams_have_the_same_writer(path: str) -> None:
    """Version 1.0 over both bindings, and version 0.3."""
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "Hi"}]}
    body: dict[str, Any] = {"message": message}
    headers = {"A2A-Version": "1.0"}
    if path == "/a2a/desk":
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": body}
    if "/v1/" in path:
        message["content"] = message.pop("parts")
        headers = {}
    async with serve_app(app(office())) as url, httpx.AsyncClient(base_url=url, headers=headers) as http:
        found = await http.post(path, json=body)
        assert found.headers["content-type"].startswith("text/event-stream")
        assert found.content.startswith(b": open\n\ndata: {")
        assert b"\r" not in found.content
        assert b"Hello!" in found.content


# -- ends ------------------------------------------------------------------------------------------------------


async def test_finished_stream_gets_204_on_return() -> None:
    async with serve_app(app(office())) as url, httpx.AsyncClient(base_url=url) as http:
        run = (await http.post("/v1/runs", json={"agent": "desk", "input": "Hi", "wait": 30})).json()
        path = f"/v1/runs/{run['run_id']}/events"
        ids = [line[4:] for line in (await http.get(path)).text.splitlines() if line.startswith("id: ")]
        answers = [await http.get(path, headers={"Last-Event-ID": each}) for each in ids]
        assert [each.status_code for each in answers] == [200] * (len(ids) - 1) + [204]
        assert answers[-1].content == b""
        for number, each in enumerate(answers[:-1]):
            assert each.text.count("\nid: ") == len(ids) - number - 1


async def test_stream_of_a_waiting_run_ends_with_its_reason() -> None:
    async with serve_app(app(office())) as url, httpx.AsyncClient(base_url=url) as http:
        run = (await http.post("/v1/runs", json={"agent": "refunds", "input": "Hi", "wait": 30})).json()
        answer = await http.get(f"/v1/runs/{run['run_id']}/events")
        assert answer.text.endswith('event: end\ndata: {"reason":"run_waiting"}\n\n')


async def test_stream_of_a_deleted_thread_ends_with_its_reason() -> None:
    async with serve_app(app(office())) as url, httpx.AsyncClient(base_url=url) as http:
        await http.post("/v1/runs", json={"agent": "desk", "input": "Hi", "thread": "t", "wait": 30})
        assert (await http.get("/v1/threads/t/events?follow=false")).text.endswith('{"reason":"log_end"}\n\n')
        reader, writer = await raw(url, "/v1/threads/t/events")
        await reader.readuntil(b"event: run_finish")
        assert (await http.delete("/v1/threads/t")).status_code == 200
        assert (await reader.readuntil(b"0\r\n\r\n")).endswith(b'{"reason":"thread_deleted"}\n\n\r\n0\r\n\r\n')
        writer.close()


async def test_shutdown_ends_streams_with_their_reason() -> None:
    """A reader is told to come back, and to another server."""
    gate = Gate()
    async with serve_app(app(gated(gate, "Once ", "upon a time."))) as url:
        async with httpx.AsyncClient(base_url=url) as http:
            await http.post("/v1/runs", json={"agent": "desk", "input": "Hi", "thread": "t"})
        await gate.reached.wait()
        readers = [await raw(url, path) for path in ("/v1/threads/t/events", "/v1/watch")]
        await readers[0][0].readuntil(b"Once ")
        await readers[1][0].readuntil(b"event: ready")
        gate.opened.set()
    for reader, writer in readers:
        text = (await reader.read()).decode()
        assert 'event: end\ndata: {"reason":"draining"}\n\n' in text
        assert text.endswith("0\r\n\r\n")
        writer.close()


async def test_stream_ends_with_its_credential(monkeypatch: pytest.MonkeyPatch) -> None:
    """A revoked key keeps no stream open."""
    monkeypatch.setattr("wakeful.server.sse.BEAT_SECONDS", 0.05)
    runtime = office()
    _, text = await create_key(runtime.store, "ann", principal="ann", scopes=["user"])
    async with serve_app(app(runtime, auth=ApiKeys(runtime.store))) as url:
        headers = {"Authorization": f"Bearer {text}"}
        async with httpx.AsyncClient(base_url=url, headers=headers) as http:
            await http.post("/v1/runs", json={"agent": "desk", "input": "Hi", "thread": "t", "wait": 30})
            async with http.stream("GET", "/v1/threads/t/events") as answer:
                lines = answer.aiter_lines()
                while await anext(lines) != "event: run_finish":
                    pass
                await revoke_key(runtime.store, text.split("_")[1])
                assert [line async for line in lines][-2:] == ['data: {"reason":"unauthenticated"}', ""]
        async with Client(url, text) as client:
            with pytest.raises(NotAuthenticated):
                _ = [event async for event in client.events("t")]


# -- cleanup ---------------------------------------------------------------------------------------------------


async def test_cleanup_runs_when_the_reader_leaves() -> None:
    source = Source(frame("a", b"{}"), then=asyncio.Event().wait())
    async with streaming(source) as url:
        reader, writer = await raw(url)
        await reader.readuntil(b"event: a")
        writer.transport.abort()
        await source.closed.wait()


async def test_cleanup_runs_at_shutdown() -> None:
    source = Source(frame("a", b"{}"), then=asyncio.Event().wait())
    async with streaming(source, drained=frame("end", b"{}")) as url:
        reader, writer = await raw(url)
        await reader.readuntil(b"event: a")
    assert source.closed.is_set()
    assert b"event: end" in await reader.read()
    writer.close()


async def test_slow_reader_is_cut_off() -> None:
    """The unread rest is dropped, so that the client doesn't take a part for the whole."""
    source = Source(*[frame("a", b"x" * 100_000)] * 500)
    async with streaming(source, stuck_seconds=0.2) as url:
        reader, writer = await raw(url)
        await source.closed.wait()
        assert not (await reader.read()).endswith(b"0\r\n\r\n")
        writer.close()


async def test_reader_that_reads_slowly_is_kept() -> None:
    source = Source(*[frame("a", b"x" * 100_000)] * 40)
    async with streaming(source, stuck_seconds=5) as url:
        reader, writer = await raw(url)
        size = 0
        while piece := await reader.read(50_000):
            size += len(piece)
            await asyncio.sleep(0)
            if piece.endswith(b"0\r\n\r\n"):
                break
        assert size > 40 * 100_000
        writer.close()


async def test_broken_source_cuts_the_stream(caplog: pytest.LogCaptureFixture) -> None:
    source = Source(frame("a", b"{}"), then=StoreUnavailable("the store is away"))
    async with streaming(source) as url:
        reader, writer = await raw(url)
        assert not (await reader.read()).endswith(b"0\r\n\r\n")
        writer.close()
        await source.closed.wait()
    (line,) = [record.getMessage() for record in caplog.records if record.name == "wakeful.server"]
    assert line == "a stream broke off: StoreUnavailable: the store is away"


async def test_a2a_stream_is_closed_when_its_reader_leaves() -> None:
    gate = Gate()
    limits = ServerLimits(streams=1)
    served = app(gated(gate, "Once ", "upon a time."), limits=limits)
    async with serve_app(served) as url, httpx.AsyncClient(base_url=url) as http:
        reader, writer = await asyncio.open_connection("127.0.0.1", httpx.URL(url).port)
        message = {"messageId": "m", "contextId": "c", "role": "ROLE_USER", "parts": [{"text": "Hi"}]}
        asked = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": {"message": message}}
        body = msgspec.json.encode(asked)
        head = f"POST / HTTP/1.1\r\nhost: localhost\r\nA2A-Version: 1.0\r\ncontent-length: {len(body)}\r\n"
        writer.write(f"{head}content-type: application/json\r\n\r\n".encode() + body)
        await reader.readuntil(b"Once ")
        assert (await http.get("/v1/watch")).status_code == 429
        writer.transport.abort()
        while (await http.get("/v1/watch?seconds=0.01")).status_code == 429:
            await asyncio.sleep(0)
        gate.opened.set()
