"""Bodies of responses: streams of events, whole answers, or something else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, TypeVar, cast

from .faults import not_a_stream, read_start
from .reader import Reader
from .sse import decode_json, read_events, starts_events

__all__ = ["events_of", "one"]

T = TypeVar("T")


async def events_of(response: Any, reader: Reader, model: str) -> AsyncIterator[Any]:
    """Decode the events of an httpx2 response, without the SDK's types: vendors leave out fields, and add others.

    Some servers ignore that a stream was asked for and send the whole answer, or name another media type.
    """
    kind, pieces = response.headers.get("content-type", "text/event-stream"), response.aiter_bytes()
    if "event-stream" in kind:
        return read_events(pieces)
    if "json" in kind:
        body = b"".join([piece async for piece in pieces])
        answer = _answers_in(body, reader)
        if answer:
            return _each(answer)
        if not starts_events(body):
            raise not_a_stream(model, str(response.url), kind, body)
        return read_events(one(body))
    first = await anext(pieces, b"")
    if not starts_events(first):
        raise not_a_stream(model, str(response.url), kind, await read_start(pieces, first))
    return read_events(_joined(first, pieces))


async def one(item: T) -> AsyncIterator[T]:
    """Iterate over one item."""
    yield item


async def _each(items: list[T]) -> AsyncIterator[T]:
    for item in items:
        yield item


async def _joined(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for piece in rest:
        yield piece


def _answers_in(body: bytes, reader: Reader) -> list[Any]:
    """The answer in a JSON body, or a list of its pieces; empty for anything else."""
    try:
        found = decode_json(body)
    except ValueError:
        return []
    items = cast(list[dict[str, Any]], found if isinstance(found, list) else [found])
    is_answer = all(isinstance(cast(Any, item), dict) and reader.is_answer(item) for item in items)
    return items if is_answer else []
