"""The functions of a runtime, and the agents inside it that carry tasks out."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from ..agents import Agent
from ..clock import Clock
from ..errors import UsageError
from ..tools import ToolThreads
from ..types.runs import FUNCTION, SCHEDULE
from ._function import FunctionTask

if TYPE_CHECKING:
    from ._backend import TaskBackend

__all__ = ["COROUTINE", "EVERYWHERE", "SCHEDULE", "TaskBook"]

COROUTINE = f"{FUNCTION}(coroutine)"
# What every process looks after, whichever agents it is for: schedules, and coroutines whose process is gone.
EVERYWHERE = (COROUTINE, SCHEDULE)


class TaskBook:
    """What a runtime can begin besides agents. Its agents aren't the application's: they are never listed."""

    def __init__(self, tasks: Sequence[Any], clock: Clock, threads: ToolThreads, grace: float) -> None:
        self.clock = clock
        self.threads = threads
        self.grace = grace
        self.functions: dict[str, FunctionTask] = {}
        # The coroutines that wait for their run, by its id.
        self.coroutines: dict[str, tuple[str, Coroutine[Any, Any, Any]]] = {}
        self.problems: list[str] = []
        if isinstance(cast(Any, tasks), Iterable) and not isinstance(cast(Any, tasks), str | Mapping):
            for entry in tasks:
                self._add(entry)
        else:
            self.problems.append(f"Runtime(tasks=...) takes a list of tasks, such as tasks=[f], not {tasks!r:.80}")

    def _add(self, entry: Any) -> None:
        if not isinstance(entry, FunctionTask):
            self.problems.append(f"Runtime(tasks=...): {entry!r:.80} is no task; put @task above the function")
            return
        if self.functions.setdefault(entry.name, entry) is not entry:
            self.problems.append(f"Runtime(tasks=...): two tasks are named {entry.name!r}; names must be unique")
        self.problems += [f"Runtime(tasks=...): {problem}" for problem in entry.problems()]

    @property
    def agent_ids(self) -> Sequence[str]:
        """Under which names its functions are run."""
        return [one.agent_id for one in self.functions.values()]

    @property
    def agents(self) -> Sequence[Agent]:
        """The agents that carry out what this book holds."""
        functions = [Agent(one.agent_id, backend=LazyBackend(self, one)) for one in self.functions.values()]
        return [
            *functions,
            Agent(COROUTINE, backend=LazyBackend(self)),
            Agent(SCHEDULE, backend=LazyBackend(self)),
        ]

    def find(self, target: Callable[..., Any] | str) -> FunctionTask | None:
        """The task that a function or the name of one is; None for a name that is none."""
        if isinstance(target, str):
            return self.functions.get(target)
        found = [one for one in self.functions.values() if one is target or one.function is target]
        if found:
            return found[0]
        name = getattr(target, "__name__", repr(target))
        known = ", ".join(sorted(self.functions)) or "none"
        raise UsageError(
            f"{name!r:.80} is no task of this runtime (known: {known}); put @task above it and give it to "
            "Runtime(tasks=[...])"
        )

    def pack(self, target: Callable[..., Any] | str, arguments: Mapping[str, Any]) -> tuple[str, str] | None:
        """The agent that carries a function out and its input, if the target is one."""
        found = self.find(target)
        return None if found is None else (found.agent_id, found.pack(arguments))


class LazyBackend:
    """The backend of a task. Nothing of the backends is loaded before it is used."""

    timeout: float | None = None

    def __init__(self, book: TaskBook, function: FunctionTask | None = None) -> None:
        self._book = book
        self._function = function

    @cached_property
    def _backend(self) -> TaskBackend:
        from ._backend import TaskBackend

        return TaskBackend(self._book, self._function)

    @property
    def capabilities(self) -> Any:
        """What it can do."""
        return self._backend.capabilities

    async def execute_root(self, request: Any) -> Any:
        """Carry out a run of its own."""
        return await self._backend.execute_root(request)

    async def execute_delegate(self, request: Any) -> Any:
        """Carry out a task of another run."""
        return await self._backend.execute_delegate(request)

    async def abort(self, request: Any) -> None:
        """There is nothing elsewhere."""
