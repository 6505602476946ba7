"""What a model is to the loop: something that answers a request, chunk by chunk or all at once."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterable, Sequence
from contextlib import aclosing
from types import CoroutineType
from typing import Any, Protocol, cast

from msgspec import Struct

from ..types.content import Part
from ..types.events import StopReason
from ..types.messages import Message
from ..types.requests import ModelSettings, OutputSpec, ToolSpec
from ..types.runs import Usage

__all__ = [
    "CallChunk",
    "CallDeltaChunk",
    "CallStartChunk",
    "Chunk",
    "Model",
    "ModelRequest",
    "PartChunk",
    "ReasoningChunk",
    "StopChunk",
    "TextChunk",
    "UsageChunk",
    "chunks_from",
    "no_stream",
]


class ModelRequest(Struct, frozen=True, gc=False):
    """All that a model needs for one answer. The messages are the thread's own: read them, don't change them."""

    system: str
    messages: Sequence[Message]
    tools: Sequence[ToolSpec] = ()
    settings: ModelSettings = ModelSettings()
    output: OutputSpec | None = None


class TextChunk(Struct, frozen=True, gc=False):
    """A piece of text."""

    text: str


class ReasoningChunk(Struct, frozen=True, gc=False):
    """A piece of reasoning; a signature or an encrypted value closes its block, and `vendor` says whose it is."""

    text: str = ""
    signature: str | None = None
    encrypted: str | None = None
    vendor: str | None = None


class CallStartChunk(Struct, frozen=True, gc=False):
    """A tool call begins; its arguments follow under the same index."""

    index: int
    name: str
    vendor_id: str | None = None


class CallDeltaChunk(Struct, frozen=True, gc=False):
    """A piece of a call's arguments, as JSON text."""

    index: int
    json: str


class CallChunk(Struct, frozen=True, gc=False):
    """A whole tool call, from vendors that don't stream them; `signature` goes back to the vendor with it."""

    name: str
    arguments: dict[str, Any]
    vendor_id: str | None = None
    signature: str | None = None


class PartChunk(Struct, frozen=True, gc=False):
    """A whole part of another kind, such as an image."""

    part: Part


class UsageChunk(Struct, frozen=True, gc=False):
    """What the answer cost; a later one replaces an earlier one."""

    usage: Usage


class StopChunk(Struct, frozen=True, gc=False):
    """Why the model stopped."""

    reason: StopReason


Chunk = (
    TextChunk | ReasoningChunk | CallStartChunk | CallDeltaChunk | CallChunk | PartChunk | UsageChunk | StopChunk
)


class Model(Protocol):
    """A model. `live` is False only for those that never leave the process, such as scripted ones. One that holds
    something open may have an async `close`, which the runtime awaits at its own end. One that has something to
    load may have an async `prepare`, which is awaited before each request, and doesn't count for `Patience`."""

    @property
    def name(self) -> str:
        """The model's name, as events and errors show it."""
        ...

    @property
    def live(self) -> bool:
        """Whether a call costs money or goes over a network."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[Chunk] | Coroutine[Any, Any, Iterable[Chunk]]:
        """Answer the request: an async generator yields the chunks as they come, a coroutine returns them all at
        once. Raise `ModelError` if that fails."""
        ...


async def chunks_from(model: Model, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
    """A model's answer, chunk by chunk, whichever way it is given."""
    answer = model.stream(request)
    if isinstance(answer, CoroutineType):
        whole = await answer
        if not hasattr(whole, "__iter__"):
            raise no_stream(whole)
        for chunk in whole:
            yield chunk
        return
    if not hasattr(answer, "__aiter__"):
        raise no_stream(answer)
    async with aclosing(cast(Any, answer)) as chunks:
        async for chunk in chunks:
            yield chunk


def no_stream(given: object) -> TypeError:
    """What is said of a `stream` that is neither of the two that it can be."""
    return TypeError(
        f"stream must be an async generator that yields chunks, or an async def that returns a list of them; this "
        f"one returned {given!r:.100}"
    )
