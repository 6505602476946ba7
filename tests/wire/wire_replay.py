"""Answers of a vendor as bytes, read by a model without a network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import httpx2
import msgspec
from wire_script import sse
from wire_suite import HELLO, Heard, listen

from wakeful.errors import ModelError
from wakeful.models import Model, ModelRequest

Make = Callable[..., Model]


class Replayed:
    """A transport that answers each request with the next body, and keeps what was sent."""

    def __init__(self, *bodies: bytes, kind: str = "text/event-stream", status: int = 200) -> None:
        self.bodies = list(bodies)
        self.kind = kind
        self.status = status
        self.requests: list[Any] = []

    def client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(transport=httpx2.MockTransport(self._answer))

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(msgspec.json.decode(request.content))
        body = self.bodies.pop(0)
        return httpx2.Response(self.status, headers={"content-type": self.kind}, content=body)


def events(*chunks: Any, done: bool = True) -> bytes:
    """A stream of events."""
    return b"".join([sse(chunk) for chunk in chunks] + ([sse("[DONE]")] if done else []))


async def heard(
    make: Make, body: bytes, *, kind: str = "text/event-stream", status: int = 200, request: ModelRequest = HELLO
) -> Heard:
    """The chunks that a model reads from a body; raises its error."""
    client = Replayed(body, kind=kind, status=status).client()
    try:
        return await listen(make(http_client=client), request)
    finally:
        await client.aclose()


async def outcome(make: Make, body: bytes, **options: Any) -> Heard | ModelError:
    """The chunks that a model reads from a body, or its error."""
    try:
        return await heard(make, body, **options)
    except ModelError as error:
        return error


async def sent(make: Make, requests: Sequence[ModelRequest], answer: bytes) -> list[Any]:
    """The bodies of requests that all have the same answer."""
    replayed = Replayed(*[answer] * len(requests))
    client = replayed.client()
    model = make(http_client=client)
    for request in requests:
        await listen(model, request)
    await client.aclose()
    return replayed.requests
