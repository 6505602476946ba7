"""The model protocol: requests, and answers as chunks."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterable, Sequence
from contextlib import aclosing
from types import CoroutineType
from typing import Any, Protocol, cast

from ..errors import ModelError
from ..types.base import Data
from ..types.content import Citation, Logprobs, Part, ServerTool
from ..types.events import StopReason
from ..types.messages import Message
from ..types.requests import ModelSettings, OutputSpec, ServerToolSpec, ToolSpec
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
    "stream_type_error",
]


class ModelRequest(Data):
    """A request for one answer. The messages are shared with the thread: don't modify them."""

    system: str
    messages: Sequence[Message]
    tools: Sequence[ToolSpec] = ()
    settings: ModelSettings = ModelSettings()
    output: OutputSpec | None = None
    server_tools: Sequence[ServerToolSpec] = ()


class TextChunk(Data):
    """A chunk of text."""

    text: str


class ReasoningChunk(Data):
    """A chunk of reasoning by `vendor`. A signature or an encrypted value ends the block."""

    text: str = ""
    signature: str | None = None
    encrypted: str | None = None
    vendor: str | None = None


class CallStartChunk(Data):
    """The start of a tool call; its arguments follow under the same index. `signature` is sent back with it."""

    index: int
    name: str
    vendor_id: str | None = None
    signature: str | None = None


class CallDeltaChunk(Data):
    """A chunk of a call's arguments, as JSON text."""

    index: int
    json: str


class CallChunk(Data):
    """A complete tool call, from vendors that don't stream calls. `signature` is sent back with it."""

    name: str
    arguments: dict[str, Any]
    vendor_id: str | None = None
    signature: str | None = None


class PartChunk(Data):
    """A complete part of another kind, such as an image or a citation.

    A `ServerTool` replaces the earlier one with its id, so that a reader sees it run. A citation's span is in
    characters of the text that this request streams.
    """

    part: Part | ServerTool | Citation | Logprobs


class UsageChunk(Data):
    """The usage of the answer; replaces an earlier one."""

    usage: Usage


class StopChunk(Data):
    """Why the model stopped."""

    reason: StopReason


Chunk = (
    TextChunk | ReasoningChunk | CallStartChunk | CallDeltaChunk | CallChunk | PartChunk | UsageChunk | StopChunk
)


class Model(Protocol):
    """A model.

    Two async methods are optional. `close` releases connections; the runtime awaits it when it closes. `prepare`
    loads what the model needs; it is awaited before each request, and `RetryPolicy` doesn't count its time. A sync
    method `check_credentials` may raise `BadCredentials` for a missing key before anything is sent. An attribute
    `defers_tools` that is true says that it takes deferred tools.
    """

    @property
    def name(self) -> str:
        """The model's name, as events and errors show it."""
        ...

    @property
    def live(self) -> bool:
        """Whether a call costs money or uses a network; False for scripted models."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[Chunk] | Coroutine[Any, Any, Iterable[Chunk]]:
        """Answer the request, as an async generator of chunks or a coroutine that returns all of them.

        Raises `ModelError`.
        """
        ...


async def chunks_from(model: Model, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
    """Stream a model's answer, for both forms of `Model.stream`."""
    answer = model.stream(request)
    if isinstance(answer, CoroutineType):
        whole = await answer
        if not hasattr(whole, "__iter__"):
            raise stream_type_error(whole)
        for chunk in whole:
            yield chunk
        return
    if not hasattr(answer, "__aiter__"):
        raise stream_type_error(answer)
    async with aclosing(cast(Any, answer)) as chunks:
        async for chunk in chunks:
            yield chunk


def stream_type_error(given: object) -> ModelError:
    """Build the error for a `stream` of another form."""
    return ModelError(
        f"stream must be an async generator that yields chunks, or an async def that returns a list of them; this "
        f"one returned {given!r:.100}"
    )
