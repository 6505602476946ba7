"""Streams of the SDK's routes, sent by our writer."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any, cast

from a2a.server.context import ServerCallContext
from sse_starlette.sse import EventSourceResponse
from starlette.requests import Request
from starlette.routing import Route

from ...errors import NotAllowed
from ..problems import error_response
from ..sse import EventStream

__all__ = ["STREAMS", "keep", "with_own_streams"]

STREAMS = "wakeful.streams"
"""The key under which a request's streams are listed, in its scope and in the SDK's context."""


def with_own_streams(route: Route, check: Callable[[Request], None]) -> Route:
    """The SDK's route, with its streams sent by our writer; `check` refuses a request by `NotAllowed`.

    The SDK's lines end with CRLF, a reader that takes nothing is never cut off, and the cleanup of its nested
    generators is left to the garbage collector.
    """
    endpoint: Any = route.endpoint

    async def respond(request: Request) -> Any:
        try:
            check(request)
        except NotAllowed as error:
            return error_response(error)
        response: Any = await endpoint(request)
        if not isinstance(response, EventSourceResponse):
            return response
        source = cast(Any, response).body_iterator
        return EventStream(_frames(source, request.scope.get(STREAMS, [])), opening=b": open\n\n")

    return Route(route.path, respond, methods=list(route.methods or ()))


def keep(context: ServerCallContext, stream: AsyncGenerator[Any]) -> AsyncGenerator[Any]:
    """Note a stream of a request, so that it is closed with the response."""
    context.state[STREAMS].append(stream)
    return stream


async def _frames(source: Any, streams: list[AsyncGenerator[Any]]) -> AsyncGenerator[bytes]:
    try:
        async for item in source:
            yield _encode(item)
    finally:
        if isinstance(source, AsyncGenerator):
            await source.aclose()
        for stream in streams:
            await stream.aclose()


def _encode(item: Any) -> bytes:
    """The frame of what the SDK yields: text, an object with `data` and `event`, or a dict of them."""
    if isinstance(item, str):
        event, data = None, item
    elif isinstance(item, dict):
        fields = cast(dict[str, str], item)
        event, data = fields.get("event"), fields["data"]
    else:
        event, data = item.event, item.data
    head = f"event: {event}\n" if event else ""
    return f"{head}data: {data}\n\n".encode()
