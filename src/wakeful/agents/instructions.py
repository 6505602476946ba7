"""Instructions of an agent: texts, functions of a run's context, or a list of both."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Generic, cast

from ..state import Snapshot
from ..tools import require_deps
from ..types.generics import Deps
from ..types.runs import Identity, Principal

__all__ = ["InstructionsFunction", "RunContext", "describe_parts", "instruction_parts", "join_instructions"]


class RunContext(Generic[Deps]):
    """A run at the time of one model request, read-only: the argument of an instructions function.

    A type parameter, as in `RunContext[T]`, says that `deps` are a `T`.
    """

    __slots__ = ("_deps", "_now", "_principal", "_run", "_state", "_step")

    def __init__(
        self, run: Identity, step: int, state: Snapshot, principal: Principal | None, now: int, deps: Any = None
    ) -> None:
        self._run = run
        self._step = step
        self._state = state
        self._principal = principal
        self._now = now
        self._deps = deps

    @property
    def run(self) -> Identity:
        """The ids of the run, its thread and its agent."""
        return self._run

    @property
    def step(self) -> int:
        """The number of the step, from 1."""
        return self._step

    @property
    def state(self) -> Snapshot:
        """The committed state, by key."""
        return self._state

    @property
    def principal(self) -> Principal | None:
        """The caller of the run, if it named one."""
        return self._principal

    @property
    def time(self) -> datetime:
        """The time in UTC, by the runtime's clock."""
        return datetime.fromtimestamp(self._now / 1000, UTC)

    @property
    def deps(self) -> Deps:
        """The dependencies of this process's runtime; raises `UsageError` if it has none."""
        return require_deps(self._deps)


InstructionsFunction = Callable[[RunContext[Any]], str | Awaitable[str]]


def instruction_parts(
    instructions: str | InstructionsFunction | Sequence[str | InstructionsFunction],
) -> tuple[str | InstructionsFunction, ...]:
    """The texts and functions of instructions, in order."""
    if isinstance(instructions, str) or callable(instructions):
        return (instructions,)
    return tuple(instructions)


def join_instructions(texts: Sequence[str]) -> str:
    """Join the texts of instructions as paragraphs. Empty ones are left out."""
    return "\n\n".join([text for text in texts if text])


def describe_parts(parts: Sequence[str | InstructionsFunction]) -> list[Any]:
    """Describe texts and functions as JSON data that is the same in every process: a function by its name."""
    return [part if isinstance(part, str) else {"function": _qualified_name(part)} for part in parts]


def _qualified_name(function: Any) -> str:
    while isinstance(function, partial):
        function = cast(Any, function).func
    named = function if hasattr(function, "__qualname__") else cast(Any, type(function))
    return f"{named.__module__}.{named.__qualname__}"
