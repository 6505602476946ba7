"""Models that fail, for the tests of what happens then."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from msgspec.structs import replace

from wakeful import Message, ModelRequest, RetryPolicy
from wakeful.loop.inference.request import CONTINUE
from wakeful.models import Chunk

AT_ONCE = RetryPolicy(backoff=0, overloaded_backoff=0)


class Streams:
    """A model that streams what it is told, one list for each request; an exception in a list is raised there."""

    live = False

    def __init__(self, *answers: Sequence[Chunk | BaseException], name: str = "streams") -> None:
        self.name = name
        self.answers = list(answers)
        self.requests: list[ModelRequest] = []
        self.closed = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Stream the next answer."""
        self.requests.append(replace(request, messages=tuple(request.messages)))
        try:
            for chunk in self.answers[len(self.requests) - 1]:
                if isinstance(chunk, BaseException):
                    raise chunk
                yield chunk
        finally:
            self.closed += 1


def goes_on(request: ModelRequest) -> Message | None:
    """The begun answer that the request asks to continue, if any."""
    *_, before, last = [None, None, *request.messages]
    asks = last is not None and last.text == CONTINUE and last.visibility == "internal"
    return before if asks else None


def shown(events: Sequence[Any]) -> str:
    """The text that a reader has in the end, who does what the events say."""
    from wakeful.types.events import StreamReset, TextDelta

    text, attempt = "", None
    for event in events:
        if isinstance(event, StreamReset):
            text, attempt = "", None
        elif isinstance(event, TextDelta):
            assert attempt in (None, event.attempt), "a new attempt without a reset"
            assert event.offset == len(text), f"{event} after {text!r}"
            text, attempt = text + event.delta, event.attempt
    return text
