"""A server on a real socket, and clients of the official SDK."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpx
import uvicorn
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import MessageToDict

from wakeful import Runtime, Tool, tool
from wakeful.server import app

__all__ = [
    "BINDINGS",
    "Gate",
    "answer_of",
    "connect",
    "get",
    "said",
    "send",
    "serve",
    "serve_app",
    "state",
    "states",
    "stream",
    "text_of",
    "tickets_in",
    "until",
    "updates",
]

BINDINGS = ("JSONRPC", "HTTP+JSON")


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # Signals are left to pytest.


@asynccontextmanager
async def serve_app(served: Any, port: int = 0) -> AsyncIterator[str]:
    """Serve an application on loopback, by default on a free port; yields its URL."""
    server = _Server(
        uvicorn.Config(
            served, host="127.0.0.1", port=port, log_level="critical", lifespan="on", timeout_graceful_shutdown=1
        )
    )
    task = asyncio.create_task(server.serve())
    try:
        await until(lambda: server.started or task.done())
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await task


@asynccontextmanager
async def serve(runtime: Runtime, **options: Any) -> AsyncIterator[str]:
    """Serve a runtime's agents on a free loopback port; yields the URL."""
    async with serve_app(app(runtime, **options)) as url:
        yield url


@asynccontextmanager
async def connect(
    url: str,
    binding: str = "JSONRPC",
    *,
    version: str = "1.0",
    streaming: bool = True,
    headers: dict[str, str] | None = None,
) -> AsyncIterator[Client]:
    """The SDK's client for the card's interface of a binding and version."""
    async with httpx.AsyncClient(headers=headers, timeout=60) as http:
        card = await A2ACardResolver(http, url).get_agent_card()
        kept = [
            i for i in card.supported_interfaces if (i.protocol_binding, i.protocol_version) == (binding, version)
        ]
        del card.supported_interfaces[:]
        card.supported_interfaces.extend(kept)
        config = ClientConfig(streaming=streaming, httpx_client=http, supported_protocol_bindings=[binding])
        yield ClientFactory(config).create(card)


# -- sending -------------------------------------------------------------------------------------------------

_ids = iter(range(1, 1_000_000))


def said(text: str | None = None, *, data: Any = None, **fields: Any) -> pb.Message:
    """A user's message of text or data."""
    message = pb.Message(role=pb.ROLE_USER, **({"message_id": f"m{next(_ids)}"} | fields))
    if text is not None:
        message.parts.append(pb.Part(text=text))
    if data is not None:
        part = message.parts.add()
        part.data.struct_value.update(data) if isinstance(data, dict) else setattr(part.data, "number_value", data)
    return message


async def stream(client: Client, message: pb.Message | str, **configuration: Any) -> list[pb.StreamResponse]:
    """Send a message; returns all responses."""
    message = said(message) if isinstance(message, str) else message
    request = pb.SendMessageRequest(message=message)
    if configuration:
        request.configuration.CopyFrom(pb.SendMessageConfiguration(**configuration))
    return [event async for event in client.send_message(request)]


async def send(client: Client, message: pb.Message | str, **configuration: Any) -> pb.Task:
    """Send a message; returns its task, for clients that don't stream."""
    (event,) = await stream(client, message, **configuration)
    return event.task


async def get(client: Client, task_id: str, **fields: Any) -> pb.Task:
    return await client.get_task(pb.GetTaskRequest(id=task_id, **fields))


# -- results -------------------------------------------------------------------------------------------------


def states(events: list[pb.StreamResponse]) -> list[str]:
    """The states of a stream, abbreviated."""
    found = [
        e.task.status.state if e.HasField("task") else e.status_update.status.state for e in events if not _art(e)
    ]
    return [pb.TaskState.Name(state).removeprefix("TASK_STATE_").lower() for state in found]


def _art(event: pb.StreamResponse) -> bool:
    return event.HasField("artifact_update")


def updates(events: list[pb.StreamResponse]) -> list[pb.TaskArtifactUpdateEvent]:
    return [event.artifact_update for event in events if _art(event)]


def text_of(events: list[pb.StreamResponse], artifact_id: str = "answer") -> str:
    """The text of an artifact as a client assembles it."""
    text = ""
    for event in events:
        for artifact in event.task.artifacts:
            if artifact.artifact_id == artifact_id:
                text = "".join(part.text for part in artifact.parts)
        if _art(event) and event.artifact_update.artifact.artifact_id == artifact_id:
            new = "".join(part.text for part in event.artifact_update.artifact.parts)
            text = text + new if event.artifact_update.append else new
    return text


def answer_of(task: pb.Task) -> str:
    return "".join(part.text for a in task.artifacts if a.artifact_id == "answer" for part in a.parts)


def state(task: pb.Task | pb.TaskStatusUpdateEvent) -> str:
    return pb.TaskState.Name(task.status.state).removeprefix("TASK_STATE_").lower()


def tickets_in(task: pb.Task) -> list[dict[str, Any]]:
    """The tickets of a task's status."""
    (data,) = [part.data for part in task.status.message.parts if part.HasField("data")]
    return MessageToDict(data)["tickets"]


async def until(condition: Callable[[], Any | Awaitable[Any]], seconds: float = 120) -> Any:
    """Wait until a condition holds; fails after the timeout."""
    async with asyncio.timeout(seconds):
        while True:
            found = condition()
            if isinstance(found, Awaitable):
                found = await found
            if found:
                return found
            await asyncio.sleep(0.01)


class Gate:
    """A gate at which a tool or model waits until a test opens it; `slow` is such a tool."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()

    async def wait(self) -> None:
        self.reached.set()
        await self.opened.wait()

    @property
    def slow(self) -> Tool:
        @tool
        async def slow() -> str:
            await self.wait()
            return "done"

        return slow
