"""The page on streaming to a browser: its application, over HTTP, with a client that drops the connection."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import uvicorn

from loop.helpers import Hold, soon
from wakeful import Agent, ModelRequest, Runtime
from wakeful.models import Chunk, StopChunk, TextChunk

PAGE = Path(__file__).parents[2] / "docs" / "streaming.md"
PIECES = ("The quick brown ", "fox ☕ ", "jumps over ", "the lazy dog.")
WHOLE = "".join(PIECES)


class Pausing:
    """Streams half of its answer, and the rest when the test says so."""

    name, live = "pausing", False

    def __init__(self) -> None:
        self.hold = Hold()
        self.requests = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        self.requests += 1
        for piece in PIECES[:2]:
            yield TextChunk(piece)
        await self.hold.here()
        for piece in PIECES[2:]:
            yield TextChunk(piece)
        yield StopChunk("end_turn")


class Page:
    """Shows answers as the page's script does."""

    def __init__(self) -> None:
        self.answers: dict[str, str] = {}
        self.last_id = "0"

    def take(self, event_id: str, event: dict[str, Any]) -> None:
        self.last_id = event_id
        if event["type"] == "text_delta":
            text = self.answers.get(event["message_id"], "")
            assert len(text) == event["offset"], "a delta was lost or repeated"
            self.answers[event["message_id"]] = text + event["delta"]
        elif event["type"] == "stream_reset":
            self.answers.pop(event["message_id"], None)

    @property
    def text(self) -> str:
        return "".join(self.answers.values())


FRAMEWORKS = pytest.mark.parametrize("framework", ["starlette", "fastapi"])


def application(framework: str) -> str:
    """The application of the page, with the page's changes for FastAPI."""
    page = PAGE.read_text()
    blocks: list[str] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (source,) = [block for block in blocks if "app = " in block]
    if framework == "fastapi":
        pytest.importorskip("fastapi")
        (changes,) = re.findall(r"```diff\n(.*?)```", page, re.DOTALL)
        lines: list[str] = changes.splitlines()
        for old, new in zip(lines[::2], lines[1::2], strict=True):
            assert source.count(old[1:]) == 1
            source = source.replace(old[1:], new[1:])
    return source


@asynccontextmanager
async def served(framework: str, runtime: Runtime) -> AsyncIterator[httpx.AsyncClient]:
    """Serve the application of the page, with a runtime of the test."""
    source = application(framework)
    names: dict[str, Any] = {"runtime": runtime}
    exec(compile(source, str(PAGE), "exec"), names)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(names["app"], log_level="warning", timeout_graceful_shutdown=5))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            async with httpx.AsyncClient(base_url=url, timeout=60) as client:
                yield client
        finally:
            server.should_exit = True
            await soon(serving)


@asynccontextmanager
async def streaming(client: httpx.AsyncClient, page: Page) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    """Open the stream where the page left it. Leaving the block drops the connection."""
    async with client.stream("GET", "/threads/t1/events", headers={"Last-Event-ID": page.last_id}) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        yield _events(response, page)


async def _events(response: httpx.Response, page: Page) -> AsyncIterator[dict[str, Any]]:
    event_id = ""
    async for line in response.aiter_lines():
        if line.startswith("id: "):
            event_id = line.removeprefix("id: ")
        elif line.startswith("data: "):
            event = msgspec.json.decode(line.removeprefix("data: "))
            page.take(event_id, event)
            yield event


@FRAMEWORKS
async def test_stream_resumes_in_the_middle_of_an_answer(framework: str) -> None:
    model, page, seen = Pausing(), Page(), list[str]()

    async def read_half(client: httpx.AsyncClient) -> None:
        async with streaming(client, page) as events:
            async for event in events:
                seen.append(event["type"])
                if page.text == "".join(PIECES[:2]):
                    return

    async def read_rest(client: httpx.AsyncClient) -> str:
        async with streaming(client, page) as events:
            model.hold.released.set()
            async for event in events:
                seen.append(event["type"])
                if event["type"] == "run_finish":
                    break
        return page.text

    async with served(framework, Runtime([Agent("assistant", model=model)])) as client:
        message = {"id": "m1", "text": "Tell me"}
        first = await soon(client.post("/threads/t1/messages", json=message))
        assert first.status_code == 202
        await soon(read_half(client))
        assert page.last_id.count(".") == 2  # A position inside the answer.
        assert await soon(read_rest(client)) == WHOLE
        again = await soon(client.post("/threads/t1/messages", json=message))
        assert again.json() == first.json()
    assert seen.count("run_start") == 1
    assert seen.count("message") == 2
    assert model.requests == 1


@FRAMEWORKS
async def test_malformed_last_event_id_is_refused(framework: str) -> None:
    async with served(framework, Runtime([Agent("assistant", model=Pausing())])) as client:
        refused = await soon(client.get("/threads/t1/events", headers={"Last-Event-ID": "x"}))
    assert refused.status_code == 400
