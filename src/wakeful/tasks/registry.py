"""The task registry: a runtime's functions, and the internal agents that run tasks."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from ..agents import Agent
from ..clock import Clock
from ..errors import UsageError
from ..tools import ToolThreads, deps_problem
from ..types.runs import FUNCTION, SCHEDULE
from .environment import TaskEnvironment
from .function import FunctionTask

if TYPE_CHECKING:
    from .backend import TaskBackend

__all__ = ["COROUTINE", "EVERYWHERE", "SCHEDULE", "TaskRegistry"]

COROUTINE = f"{FUNCTION}(coroutine)"
# The internal agents that every process runs: schedules, and coroutines whose process died.
EVERYWHERE = (COROUTINE, SCHEDULE)


class TaskRegistry:
    """The functions of a runtime. The agents that run them are internal and never listed."""

    def __init__(self, tasks: Sequence[Any], clock: Clock, threads: ToolThreads, grace: float) -> None:
        self.functions: dict[str, FunctionTask] = {}
        self.problems: list[str] = []
        self._env = TaskEnvironment(clock, threads, grace, {})
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

    def deps_problems(self, value: Any) -> list[str]:
        """List the functions that need other dependencies than these."""
        found = [(one.name, deps_problem(one.deps_type, value)) for one in self.functions.values()]
        return [f"Runtime(tasks=...): task {name!r}: {problem}" for name, problem in found if problem is not None]

    @property
    def agent_ids(self) -> Sequence[str]:
        """The ids of the agents that run the functions."""
        return [one.agent_id for one in self.functions.values()]

    @property
    def agents(self) -> Sequence[Agent]:
        """The internal agents that run functions, coroutines and schedules."""
        functions = [Agent(one.agent_id, backend=LazyBackend(self._env, one)) for one in self.functions.values()]
        return [
            *functions,
            Agent(COROUTINE, backend=LazyBackend(self._env)),
            Agent(SCHEDULE, backend=LazyBackend(self._env)),
        ]

    def add_coroutine(self, run_id: str, name: str, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Keep a coroutine until its run starts."""
        self._env.coroutines[run_id] = (name, coroutine)

    def find(self, target: Callable[..., Any] | str) -> FunctionTask | None:
        """The task of a function or a name; None for an unknown name."""
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
        """The agent id and the input that run a function; None for an unknown name."""
        found = self.find(target)
        return None if found is None else (found.agent_id, found.pack(arguments))


class LazyBackend:
    """The backend of a task; the backends package is imported on first use."""

    timeout: float | None = None

    def __init__(self, env: TaskEnvironment, function: FunctionTask | None = None) -> None:
        self._env = env
        self._function = function

    @cached_property
    def _backend(self) -> TaskBackend:
        from .backend import TaskBackend

        return TaskBackend(self._env, self._function)

    @property
    def capabilities(self) -> Any:
        """The capabilities of the backend."""
        return self._backend.capabilities

    async def execute_root(self, request: Any) -> Any:
        """Execute a run without a parent."""
        return await self._backend.execute_root(request)

    async def execute_delegate(self, request: Any) -> Any:
        """Execute a task of another run."""
        return await self._backend.execute_delegate(request)

    async def abort(self, request: Any) -> None:
        """Do nothing: a task has no remote side."""
