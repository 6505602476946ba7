"""The emitter, with which a backend shows what its agent does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..errors import ExecutionFailed
from ..models import PartChunk, ReasoningChunk, TextChunk
from ..types.content import Artifact, Base64, ServerTool, Url, clean_text
from ..types.runs import Usage

__all__ = ["Emission", "Emitter", "Progress"]


class Progress(Struct, frozen=True):
    """The progress of a run, or of one of its calls."""

    call_id: str | None
    name: str
    fraction: float | None
    done: int | None
    total: int | None
    message: str


Emission = TextChunk | ReasoningChunk | PartChunk | Progress | Artifact | Usage


def _discard(emission: Emission) -> None:
    """Show nothing."""


class Emitter:
    """Shows what an agent does while it runs: `emit(text)` streams a piece of the answer, methods the rest.

    Everything becomes part of the answer, but progress, which is only shown. After the request is over, and for
    values that can't be stored, `ExecutionFailed` is raised.
    """

    __slots__ = ("_calls", "_show")

    def __init__(self, show: Callable[[Emission], None] = _discard) -> None:
        self._show = show
        self._calls: dict[str, ServerTool] = {}

    def __call__(self, text: str) -> None:
        """Stream a piece of the answer's text."""
        self._show(TextChunk(_require_text(text, "emit")))

    def reasoning(self, text: str) -> None:
        """Stream a piece of the agent's reasoning."""
        self._show(ReasoningChunk(_require_text(text, "emit.reasoning")))

    def call(self, call_id: str, name: str, arguments: Any = None) -> None:
        """Show that the agent calls a tool of its own."""
        call_id, name = _clean(call_id, "emit.call"), _clean(name, "emit.call")
        if call_id in self._calls:
            raise ExecutionFailed(f"emit.call: call {call_id!r:.80} was emitted before; its id must be unique")
        self._put(ServerTool(call_id, name, _to_json(arguments, f"the arguments of {name}"), status="running"))

    def result(self, call_id: str, result: Any = None, *, failed: bool = False) -> None:
        """Show the result of a call."""
        if (tool := self._calls.get(call_id)) is None:
            known = ", ".join(self._calls) or "none"
            raise ExecutionFailed(f"emit.result: there is no call {call_id!r:.80} (emitted calls: {known})")
        shown = _to_json(result, f"the result of {tool.name}")
        self._put(replace(tool, result=shown, status="failed" if failed else "done"))

    def progress(
        self,
        fraction: float | None = None,
        *,
        done: int | None = None,
        total: int | None = None,
        message: str = "",
        call_id: str | None = None,
    ) -> None:
        """Show the progress of the run, or of one of its calls."""
        if fraction is not None and type(fraction) not in (int, float):
            raise ExecutionFailed(f"emit.progress takes a fraction, such as 0.5, not {fraction!r:.80}")
        for value in (done, total):
            if value is not None and type(value) is not int:
                raise ExecutionFailed(f"emit.progress: done and total are whole numbers, not {value!r:.80}")
        name = self._calls[call_id].name if call_id in self._calls else ""
        self._show(Progress(call_id, name, fraction, done, total, _clean(message, "emit.progress")))

    def artifact(self, artifact: Artifact) -> None:
        """Add an artifact to the answer; one with the same id replaces it."""
        if not isinstance(cast(Any, artifact), Artifact):
            raise ExecutionFailed(f"emit.artifact takes an Artifact(...), not {artifact!r:.80}")
        content = artifact.content
        if not isinstance(content, Base64 | Url):
            content = _to_json(content, "an artifact's content")
        self._show(replace(artifact, content=content))

    def usage(self, usage: Usage) -> None:
        """Add to the usage of the run."""
        try:
            self._show(msgspec.convert(msgspec.to_builtins(usage), Usage))
        except (msgspec.ValidationError, TypeError) as error:
            raise ExecutionFailed(f"emit.usage takes a Usage(...) of whole numbers, not {usage!r:.80}") from error

    def _put(self, tool: ServerTool) -> None:
        self._calls[tool.id] = tool
        self._show(PartChunk(tool))


def _require_text(text: Any, method: str) -> str:
    if not isinstance(text, str):
        raise ExecutionFailed(f"{method} takes a text, not {type(text).__name__}")
    return text


def _clean(text: Any, method: str) -> str:
    return clean_text(_require_text(text, method))


def _to_json(value: Any, what: str) -> Any:
    """A value as it is read back from the store."""
    try:
        return msgspec.json.decode(msgspec.json.encode(value))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ExecutionFailed(f"{what} can't be stored as JSON: {error}") from error
