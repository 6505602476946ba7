"""Functions that can work in the background: what they are called, take and do to the world."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from functools import cached_property, update_wrapper
from typing import Any, Literal, Protocol, cast, overload

import msgspec
from msgspec import Struct

from ..errors import ConfigurationError, InvalidArguments, ToolCancelled, UsageError
from ..errors._arguments import checked
from ..tools import Parameters, parameters_of
from ..tools._showing import check_progress
from ..types.content import given_text
from ..types.runs import FUNCTION, Identity, TaskEvent

__all__ = ["MAX_EVENTS", "MAX_EVENT_BYTES", "FunctionTask", "TaskContext", "TaskEffect", "TaskHost", "task"]

TaskEffect = Literal["pure", "idempotent", "once"]

# What one task may tell its owner: so many events of its own, each so large.
MAX_EVENTS = 200
MAX_EVENT_BYTES = 16 * 1024


class TaskHost(Protocol):
    """What a task's context offers from the run that carries it out."""

    def progress(self, fraction: float | None, done: int | None, total: int | None, message: str) -> None:
        """Show how far the task has come; safe from any thread."""
        ...

    def tell(self, number: int, event: TaskEvent) -> asyncio.Future[None]:
        """Put an event into the owner's inbox; from another thread, wait until it is there."""
        ...


class TaskContext(Struct, eq=False):
    """Given to a function that has a parameter of this type.

    `run` says which run this is and where it stands in its tree, `attempt` how often the function was begun, this
    time included.
    """

    run: Identity
    name: str
    attempt: int
    _host: TaskHost
    _told: int = 0
    _cancelled: bool = False

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt at this task, and for no other task."""
        return f"{self.run.run_id}:{self.name}"

    @property
    def cancelled(self) -> bool:
        """Whether the task was told to stop. A function in a thread looks at this now and then."""
        return self._cancelled

    def check_cancelled(self) -> None:
        """Raise `ToolCancelled` if the task was told to stop."""
        if self._cancelled:
            raise ToolCancelled(f"task {self.name} was told to stop")

    def progress(
        self,
        fraction: float | None = None,
        *,
        done: int | None = None,
        total: int | None = None,
        message: str = "",
    ) -> None:
        """Show whoever watches how far the task has come. Nothing of it is kept."""
        check_progress(fraction, done, total)
        self._host.progress(fraction, done, total, given_text(message, "the message of a progress"))

    def emit(self, kind: str, payload: Any = None) -> asyncio.Future[None]:
        """Tell the owner something: it is put into the owner's inbox, and shown to its model.

        Await what this returns to know that it is there; what isn't awaited is there before the task ends. In a
        function that runs in a thread it is there when this returns. A task that runs again tells nothing twice:
        the first event of every attempt is the same one, and so on.
        """
        if not isinstance(cast(Any, kind), str) or not kind.replace("_", "").replace("-", "").isalnum():
            raise UsageError(f"an event's kind is a word, not {kind!r:.80}")
        try:
            data = msgspec.json.encode(payload)
        except (TypeError, ValueError, RecursionError) as error:
            raise UsageError(f"event {kind!r} of task {self.name}: its payload is no JSON: {error}") from error
        if len(data) > MAX_EVENT_BYTES:
            raise UsageError(
                f"event {kind!r} of task {self.name} has {len(data):,} bytes; the limit is {MAX_EVENT_BYTES:,}: "
                "store it, and tell where"
            )
        if self._told >= MAX_EVENTS:
            raise UsageError(
                f"task {self.name} told its owner {MAX_EVENTS} things; use progress(...) for what comes often"
            )
        self._told += 1
        return self._host.tell(self._told, TaskEvent(kind, msgspec.json.decode(data)))

    def cancel(self) -> None:
        """Tell the function to stop; used by what carries it out."""
        self._cancelled = True


class FunctionTask:
    """A function that can work in the background. Calling it calls the function."""

    def __init__(
        self, function: Callable[..., Any], name: str | None, effect: TaskEffect, timeout: float | None
    ) -> None:
        self.function = function
        self.name: str = name or getattr(function, "__name__", type(function).__name__)
        self.effect: TaskEffect = effect
        self.timeout = timeout
        self.is_async = inspect.iscoroutinefunction(function)
        update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<task {self.name}>"

    @property
    def agent_id(self) -> str:
        """The id of the agent that carries the function out."""
        return f"{FUNCTION}{self.name}"

    @cached_property
    def parameters(self) -> Parameters:
        """The arguments, as a schema and a check."""
        return parameters_of(self.function, context_type=TaskContext)

    def pack(self, arguments: Mapping[str, Any]) -> str:
        """The arguments as JSON; raises `InvalidArguments` if they aren't the function's, or can't be kept."""
        try:
            text = msgspec.json.encode(arguments, enc_hook=_dumped).decode()
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
            raise InvalidArguments(f"the arguments of task {self.name} can't be kept as JSON: {error}") from error
        self.parameters.bind(msgspec.json.decode(text))
        return text

    def problems(self) -> list[str]:
        """What is wrong with the task's definition."""
        label, found = f"task {self.name!r}", list[str]()
        try:
            _ = self.parameters
        except ConfigurationError as error:
            found.append(f"{label}: {error}")
        if self.effect not in ("pure", "idempotent", "once"):
            found.append(f"{label}: effect is 'pure', 'idempotent' or 'once', not {self.effect!r}")
        if self.timeout is not None and not (
            isinstance(cast(Any, self.timeout), int | float) and self.timeout > 0
        ):
            found.append(f"{label}: timeout is in seconds and positive, not {self.timeout!r}")
        plain = self.name.replace("_", "").replace("-", "")
        if not (plain.isalnum() and plain.isascii() and len(self.name) <= 64):
            found.append(f"{label}: a name has 1 to 64 letters, digits, '_' or '-'")
        return found


def _dumped(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"{type(value).__name__} has no JSON form")
    return dump(mode="json")


@overload
def task(function: Callable[..., Any], /) -> FunctionTask: ...
@overload
def task(
    *, name: str | None = None, effect: TaskEffect = "once", timeout: float | None = None
) -> Callable[[Callable[..., Any]], FunctionTask]: ...
@checked
def task(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    effect: TaskEffect = "once",
    timeout: float | None = None,
) -> Any:
    """Make a task of a function, sync or async, whose arguments can be kept as JSON.

    `effect` says what becomes of one whose process died: `pure` and `idempotent` run again, with the same
    `ctx.idempotency_key`; `once` doesn't, and its outcome is reported as unknown. After `timeout` seconds it is
    told to stop. A parameter of type `TaskContext` is given the task's context.
    """

    def decorate(function: Callable[..., Any]) -> FunctionTask:
        return FunctionTask(function, name, effect, timeout)

    return decorate if function is None else decorate(function)
