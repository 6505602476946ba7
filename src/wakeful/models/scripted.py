"""Models without a network: a scripted model and a function model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from inspect import isawaitable
from typing import Any, cast

from msgspec.structs import replace

from ..errors import ScriptError
from ..errors.arguments import Checked, checked
from ..types.base import Data
from ..types.content import clean_text
from ..types.events import StopReason
from ..types.runs import Usage
from .protocol import (
    CallChunk,
    Chunk,
    ModelRequest,
    ReasoningChunk,
    StopChunk,
    TextChunk,
    UsageChunk,
)

__all__ = ["FunctionModel", "ScriptedCall", "ScriptedModel", "Turn", "call"]


class ScriptedCall(Data):
    """A tool call in a script."""

    name: str
    arguments: dict[str, Any] = {}


def call(name: str, /, **arguments: Any) -> ScriptedCall:
    """Make a tool call for a script: `call("weather", city="Paris")`."""
    return ScriptedCall(name, arguments)


class Turn(Data, metaclass=Checked, kw_only=True):
    """One answer of a scripted model. A list as `text` is streamed in chunks; `chunks` overrides all."""

    text: str | Sequence[str] = ""
    calls: Sequence[ScriptedCall] = ()
    thinking: str = ""
    usage: Usage = Usage()
    stop: StopReason | None = None
    chunks: Sequence[Chunk] | None = None


Script = str | ScriptedCall | Sequence[ScriptedCall] | Turn | BaseException


class ScriptedModel:
    """Plays its turns in order: a text, a call, several calls, a `Turn`, or an exception to raise.

    A request beyond the last turn raises `ScriptError`; so does `verify()` with turns left. `requests` records the
    requests.
    """

    live = False

    @checked
    def __init__(self, turns: Iterable[Script], *, name: str = "scripted") -> None:
        if isinstance(turns, str):
            raise ScriptError(f"a script is a list of turns: ScriptedModel([{turns!r:.60}])")
        self.name = name
        self.turns = list(turns)
        self.requests: list[ModelRequest] = []

    @property
    def unused(self) -> int:
        """The number of unused turns."""
        return len(self.turns) - len(self.requests)

    def verify(self) -> None:
        """Raise `ScriptError` if turns are unused."""
        if self.unused:
            nxt = self.turns[len(self.requests)]
            raise ScriptError(
                f"{self.name}: {self.unused} of {len(self.turns)} turns were not used; the next is {nxt!r}"
            )

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Play the next turn."""
        played = len(self.requests)
        if played >= len(self.turns):
            raise ScriptError(
                f"{self.name}: the script has {len(self.turns)} turns and was asked for one more; "
                "add a turn, or check why the run went on"
            )
        # Copy the messages: the thread's list grows during the run.
        self.requests.append(replace(request, messages=tuple(request.messages)))
        for chunk in chunks_of(self.turns[played]):
            yield chunk


class FunctionModel:
    """Calls a function for each answer. It takes the request and returns, or awaits, an entry of a script."""

    live = False

    @checked
    def __init__(
        self,
        function: Callable[[ModelRequest], Script | Awaitable[Script] | AsyncIterator[Chunk]],
        *,
        name: str = "function",
    ) -> None:
        self.name = name
        self._function = function

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Call the function."""
        answer = self._function(request)
        if isinstance(answer, AsyncIterator):
            async for chunk in answer:
                yield chunk
            return
        for chunk in chunks_of(await answer if isawaitable(answer) else answer):
            yield chunk


def chunks_of(turn: Script) -> Iterable[Chunk]:
    """Convert a turn to chunks; raises it if it is an exception."""
    if isinstance(turn, str):
        return (TextChunk(clean_text(turn)), StopChunk("end_turn")) if turn else (StopChunk("end_turn"),)
    if isinstance(turn, ScriptedCall):
        return (CallChunk(turn.name, turn.arguments), StopChunk("tool_use"))
    if isinstance(turn, BaseException):
        raise turn
    if isinstance(turn, Turn):
        return turn.chunks if turn.chunks is not None else _expand(turn)
    calls: Any = turn
    if not isinstance(calls, Sequence) or not all(isinstance(each, ScriptedCall) for each in cast(Any, calls)):
        raise ScriptError(
            "a model answers with a text, a call(...), a list of calls, an exception to raise, or a Turn(...), "
            f"which has text and calls together: Turn(text=..., calls=[...]); not with {calls!r:.80}"
        )
    return [*[CallChunk(c.name, c.arguments) for c in turn], StopChunk("tool_use")]


def _expand(turn: Turn) -> Iterable[Chunk]:
    if turn.thinking:
        yield ReasoningChunk(turn.thinking)
    for piece in (turn.text,) if isinstance(turn.text, str) else turn.text:
        if piece:
            yield TextChunk(piece)
    for each in turn.calls:
        yield CallChunk(each.name, each.arguments)
    yield UsageChunk(turn.usage)
    yield StopChunk(turn.stop or ("tool_use" if turn.calls else "end_turn"))
