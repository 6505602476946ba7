"""Event streams that resume by themselves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any

import httpx
import msgspec

from ..errors import Overloaded, RuntimeClosed, StoreUnavailable, WakefulError
from ..types.codec import decode_event
from ..types.events import AnyEvent
from .http import BACKOFF, MAX_BACKOFF, Http, Unreachable

__all__ = ["End", "Frame", "frames", "resumed"]

# About half a minute, in which a server is replaced.
ATTEMPTS = 12
# Reasons of an end after which a reader comes back.
_AGAIN = frozenset(["draining", "too_slow", "unauthenticated"])


class Frame(msgspec.Struct, frozen=True):
    """One server-sent event."""

    event: str
    data: str
    cursor: str | None = None


class End(msgspec.Struct, frozen=True):
    """The last frame of a stream."""

    reason: str = ""


async def frames(response: httpx.Response) -> AsyncGenerator[Frame]:
    """The frames of a response. Lines end with LF alone, as JSON may contain other line separators."""
    held, event, data, cursor = b"", "message", list[str](), None
    async for chunk in response.aiter_bytes():
        *lines, held = (held + chunk).split(b"\n")
        for line in lines:
            if not line:
                if data:
                    yield Frame(event, "\n".join(data), cursor)
                event, data = "message", []
                continue
            name, _, value = line.decode().partition(":")
            value = value.removeprefix(" ")
            if name == "event":
                event = value
            elif name == "data":
                data.append(value)
            elif name == "id":
                cursor = value


async def resumed(
    http: Http, path: str, after: str, query: Mapping[str, Any], ends: list[End] | None = None
) -> AsyncIterator[AnyEvent]:
    """The events of a stream from a cursor on. A broken stream is resumed after its last event."""
    failures = 0
    while True:
        try:
            async with http.stream("GET", path, query={**query, "after": after}) as response:
                if response.status_code == 204:
                    return
                async for found in frames(response):
                    failures = 0
                    if found.event == "end":
                        end = msgspec.json.decode(found.data, type=End)
                        if end.reason in _AGAIN:
                            break
                        if ends is not None:
                            ends.append(end)
                        return
                    after = found.cursor or after
                    yield decode_event(found.data)
        except (httpx.TransportError, StoreUnavailable, RuntimeClosed, Overloaded) as error:
            failures += 1
            if failures >= ATTEMPTS:
                if isinstance(error, WakefulError):
                    raise
                raise Unreachable(
                    f"{http.url} broke off the stream {failures} times in a row; try again"
                ) from error
        await asyncio.sleep(min(MAX_BACKOFF, BACKOFF * 2**failures))
