"""Functions that run as background tasks: their name, parameters and effect."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from functools import cached_property, update_wrapper
from typing import Any, Generic, Literal, Protocol, cast, overload

import msgspec
from msgspec import Struct

from ..errors import ConfigurationError, InvalidArguments, ToolCancelled, UsageError
from ..errors.arguments import checked
from ..tools import Parameters, parameters_of, require_deps
from ..tools.checks import check_progress
from ..types.content import require_text
from ..types.generics import Deps
from ..types.runs import FUNCTION, Identity, TaskEvent

__all__ = ["MAX_EVENTS", "MAX_EVENT_BYTES", "FunctionTask", "TaskContext", "TaskEffect", "TaskHost", "task"]

TaskEffect = Literal["pure", "idempotent", "once"]

# The limits of the events that a task sends to its owner.
MAX_EVENTS = 200
MAX_EVENT_BYTES = 16 * 1024


class TaskHost(Protocol):
    """The services that a task's context gets from its run."""

    def progress(self, fraction: float | None, done: int | None, total: int | None, message: str) -> None:
        """Publish the task's progress; safe from any thread."""
        ...

    def send_event(self, number: int, event: TaskEvent) -> asyncio.Future[None]:
        """Put an event into the owner's inbox; from another thread, block until it is there."""
        ...


class TaskContext(Struct, Generic[Deps], eq=False):
    """Given to a function that has a parameter of this type. `TaskContext[T]` says that its `deps` are a `T`.

    `run` is the identity of the task's run, `attempt` counts the starts of the function, this one included.
    """

    run: Identity
    name: str
    attempt: int
    _host: TaskHost
    _deps: Any = None
    _events: int = 0
    _cancelled: bool = False

    @property
    def deps(self) -> Deps:
        """The dependencies of this process's runtime; raises `UsageError` if it has none."""
        return require_deps(self._deps)

    @property
    def idempotency_key(self) -> str:
        """A key that is equal over all attempts of this task and unique to it."""
        return f"{self.run.run_id}:{self.name}"

    @property
    def cancelled(self) -> bool:
        """Whether the task was cancelled. A function in a thread polls this."""
        return self._cancelled

    def check_cancelled(self) -> None:
        """Raise `ToolCancelled` if the task was cancelled."""
        if self._cancelled:
            raise ToolCancelled(f"task {self.name} was cancelled")

    def progress(
        self,
        fraction: float | None = None,
        *,
        done: int | None = None,
        total: int | None = None,
        message: str = "",
    ) -> None:
        """Publish progress to live readers. It isn't stored."""
        check_progress(fraction, done, total)
        self._host.progress(fraction, done, total, require_text(message, "the message of a progress"))

    def emit(self, kind: str, payload: Any = None) -> asyncio.Future[None]:
        """Send an event to the owner's inbox, where its model sees it.

        Await the returned future to know that the event is stored; without that it is stored before the task ends.
        In a function that runs in a thread it is stored on return. Events are deduped over attempts by their
        ordinal.
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
                "store it, and send its location"
            )
        if self._events >= MAX_EVENTS:
            raise UsageError(
                f"task {self.name} sent its owner {MAX_EVENTS} events, which is the limit; use progress(...) for "
                "frequent updates"
            )
        self._events += 1
        return self._host.send_event(self._events, TaskEvent(kind, msgspec.json.decode(data)))

    def cancel(self) -> None:
        """Cancel the task; called by its backend."""
        self._cancelled = True


class FunctionTask:
    """A function that runs as a background task. Calling it calls the function."""

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
        """The id of the internal agent that runs the function."""
        return f"{FUNCTION}{self.name}"

    @cached_property
    def parameters(self) -> Parameters:
        """The parameters: their schema and validation."""
        return parameters_of(self.function, context_type=TaskContext)

    @property
    def deps_type(self) -> Any:
        """The type of dependencies that the function's context names, as in `TaskContext[Deps]`, or None."""
        try:
            return self.parameters.deps
        except ConfigurationError:
            return None  # One of its `problems`.

    def pack(self, arguments: Mapping[str, Any]) -> str:
        """Encode arguments as JSON; raises `InvalidArguments` if they are invalid or have no JSON form."""
        try:
            text = msgspec.json.encode(arguments, enc_hook=_dumped).decode()
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
            raise InvalidArguments(f"the arguments of task {self.name} can't be kept as JSON: {error}") from error
        self.parameters.bind(msgspec.json.decode(text))
        return text

    def problems(self) -> list[str]:
        """Problems of the task's definition."""
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
    """Make a background task of a function, sync or async, whose arguments have a JSON form.

    `effect` decides after a crash: `pure` and `idempotent` run again, with the same `ctx.idempotency_key`; `once`
    doesn't, and its outcome is reported as unknown. After `timeout` seconds the task is cancelled. A parameter of
    type `TaskContext` gets the task's context.
    """

    def decorate(function: Callable[..., Any]) -> FunctionTask:
        return FunctionTask(function, name, effect, timeout)

    return decorate if function is None else decorate(function)
