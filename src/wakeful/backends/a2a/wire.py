"""Calls to a remote agent: the SDK's client behind typed methods on plain data."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, TypeVar, cast

import msgspec
from a2a.client import Client, ClientCallContext
from a2a.types import a2a_pb2 as pb
from google.protobuf import json_format
from google.protobuf.message import Message as Proto
from msgspec import Struct

from ...traces import trace_headers
from .credentials import Credentials
from .faults import Errored, translate
from .objects import ArtifactUpdate, Event, RemoteMessage, RemoteTask, StatusUpdate, with_whole_numbers

__all__ = ["Wire"]

T = TypeVar("T")

# Timeout in seconds of a read-only call, and of a stream without a byte.
CALL_TIMEOUT = 30.0


class _Stream(Struct, rename="camel"):
    task: RemoteTask | None = None
    message: RemoteMessage | None = None
    status_update: StatusUpdate | None = None
    artifact_update: ArtifactUpdate | None = None


class _Page(Struct, rename="camel"):
    tasks: tuple[RemoteTask, ...] = ()
    next_page_token: str = ""


def _plain(message: Proto, kind: type[T]) -> T:
    return msgspec.convert(with_whole_numbers(json_format.MessageToDict(message)), kind)


class Wire:
    """Calls to one remote agent; they raise `Fault` or an error of wakeful.

    `sign` provides the headers for a binding without an HTTP client (gRPC).
    """

    def __init__(self, streaming: Client, plain: Client, *, timeout: float, sign: Credentials | None) -> None:
        self._streaming = streaming
        self._plain = plain
        self._timeout = timeout
        self._sign = sign

    async def stream(self, message: RemoteMessage) -> AsyncIterator[Event]:
        """Send a message and yield the events of its task."""
        call = self._streaming.send_message(_request(message), context=await self._context(None))
        async for event in _events(call):
            yield event

    async def send(self, message: RemoteMessage) -> Event:
        """Send a message; returns the remote's first event."""
        request = _request(message)
        # The task's id is needed at once, and its result is polled. A remote may ignore this.
        request.configuration.return_immediately = True
        call = self._plain.send_message(request, context=await self._context(self._timeout))
        found = [event async for event in _events(call)]
        if not found:
            raise Errored("it answers a message with neither a task nor a message")
        return found[0]

    async def subscribe(self, task_id: str) -> AsyncIterator[Event]:
        """Yield the events of a task from now on."""
        request = pb.SubscribeToTaskRequest(id=task_id)
        async for event in _events(self._streaming.subscribe(request, context=await self._context(None))):
            yield event

    async def get(self, task_id: str) -> RemoteTask:
        """Fetch a snapshot of a task."""
        task = await self._call(self._plain.get_task, pb.GetTaskRequest(id=task_id), RemoteTask)
        if task.id and task.id != task_id:
            raise Errored(f"asked for task {task_id}, it answered with {task.id!r:.80}")
        return task

    async def cancel(self, task_id: str) -> RemoteTask:
        """Cancel a task."""
        return await self._call(self._plain.cancel_task, pb.CancelTaskRequest(id=task_id), RemoteTask)

    async def list(self, context_id: str | None, *, pages: int) -> list[RemoteTask]:
        """List the newest tasks of a context, or of all contexts, with their histories."""
        found: list[RemoteTask] = []
        request = pb.ListTasksRequest(context_id=context_id or "", page_size=50)
        for _ in range(pages):
            page = await self._call(self._plain.list_tasks, request, _Page)
            found += page.tasks
            if not page.next_page_token:
                break
            request.page_token = page.next_page_token
        return found

    async def _call(self, call: Callable[..., Awaitable[Any]], request: Proto, kind: type[T]) -> T:
        context = await self._context(CALL_TIMEOUT)
        try:
            return _plain(await call(request, context=context), kind)
        except Exception as error:
            raise translate(error) from None

    async def _context(self, timeout: float | None) -> ClientCallContext:
        headers = trace_headers()
        if self._sign is not None:
            headers |= await self._sign.headers()
        return ClientCallContext(timeout=timeout, service_parameters=headers or None)


def _request(message: RemoteMessage) -> pb.SendMessageRequest:
    return json_format.ParseDict({"message": msgspec.to_builtins(message)}, pb.SendMessageRequest())


async def _events(stream: AsyncIterator[pb.StreamResponse]) -> AsyncIterator[Event]:
    # Closing the SDK's generator closes its connection.
    async with aclosing(cast(AsyncGenerator[pb.StreamResponse, None], stream)) as responses:
        try:
            async for response in responses:
                found = _plain(response, _Stream)
                event = found.task or found.message or found.status_update or found.artifact_update
                if event is not None:
                    yield event
        except Exception as error:
            raise translate(error) from None
