"""Work besides a conversation: tasks, schedules, and runs that stand still; what the runtime offers for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, cast, get_args

from msgspec import Struct

from ._checks import id_of, instance_of, message_of, one_of, request_of, thread_of, time_of
from ._deciding import Deciding
from .agents import Agent, said_to
from .dispatch import (
    Dispatcher,
    RunResult,
    cancel_task,
    child_of,
    find_task,
    put_schedule,
    remove_schedule,
    schedules,
    set_paused,
    spawn,
    tasks_of,
)
from .errors import InvalidArguments, UsageError
from .tasks import Cron, Schedule, TaskBook
from .tasks._schedule import Missed
from .tools import SpawnRequest
from .tools._begun import arguments_of, check_task, closing, seconds_of
from .types.content import Content, given_text
from .types.runs import Principal, TaskRecord, TaskStatus, TaskWake

__all__ = ["TaskHandle", "Working"]

# A text, content parts, or a value of the type that the agent declares as its `input`.
Input = str | Sequence[Content] | object


class TaskHandle(Struct, frozen=True, eq=False):
    """A task that was begun: it is in the store, and goes on by itself. `thread_id` is the thread that owns it."""

    id: str
    thread_id: str | None
    _dispatch: Dispatcher
    _bind: Callable[[], None]

    async def record(self) -> TaskRecord:
        """The task as it is now."""
        self._bind()
        return await find_task(self._dispatch.env.store, self.id)

    async def result(self) -> RunResult:
        """Wait until the task is done, or waits for a person, whichever process runs it."""
        task = await self.record()
        await self._dispatch.pump(task.target_thread)
        return await self._dispatch.wait(task.target)

    async def value(self) -> Any:
        """Wait for what the task came to: what a function returned, or an agent's typed output or text. Raises
        `RunFailed` if it failed."""
        task, result = await self.record(), await self.result()
        result.raise_for_failure()
        if task.function is not None:
            return result.raw
        return result.text if result.output is None else result.output

    async def cancel(self, reason: str = "cancelled by request") -> bool:
        """Stop the task with everything it does; False if it was done before."""
        reason = given_text(reason, "the reason to cancel")
        return await cancel_task(self._dispatch, await self.record(), reason)


class Working(Deciding):
    """What a runtime does in the background, later, and not now."""

    _book: TaskBook

    # -- tasks -----------------------------------------------------------------------------------------------

    async def spawn(
        self,
        target: str | Agent | Callable[..., Any],
        prompt: Input | None = None,
        *,
        thread: str | None = None,
        name: str | None = None,
        wake: TaskWake = "inbox",
        principal: Principal | None = None,
        request_id: str | None = None,
        arguments: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> TaskHandle:
        """Begin work in the background, and return once it is in the store: an agent with a prompt, or a function
        of `Runtime(tasks=...)` with its arguments.

        The `thread` that owns it is told when it is done: a run there at its next step, else the next one, or with
        `wake="run"` one that begins for it; the `name` is for that thread. Repeating a `request_id` begins
        nothing, and finds the task. Arguments whose names are options here go into `arguments`.
        """
        with closing(target):
            self._bind()
            check_task(name, True, wake)
            given = arguments_of(arguments, more)
            instance_of(principal, Principal, "principal")
            where = target.id if isinstance(target, Agent) else target
            message = None if prompt is None else message_of(self._said_to(where, prompt), principal)
            request = SpawnRequest(where, message, given, name, {}, True, wake)
            child = child_of(self._dispatch, self._book, request, self.spawn)
        owner = None if thread is None else thread_of(thread)
        if owner is None and name is not None:
            raise InvalidArguments(
                f"{name!r:.80} would name nothing: a task's name is for the thread that owns it, and this one has "
                "none; give a thread, or keep the handle's id"
            )
        task = await spawn(self._dispatch, child, owner, principal, request_of(request_id))
        return TaskHandle(task.id, task.thread_id or None, self._dispatch, self._bind)

    async def task(self, task_id: str) -> TaskHandle:
        """A task by its id, whoever began it."""
        self._bind()
        found = await find_task(self._store, id_of(task_id, "task"))
        return TaskHandle(found.id, found.thread_id or None, self._dispatch, self._bind)

    async def tasks(self, thread: str, *, status: TaskStatus | None = None) -> list[TaskRecord]:
        """The tasks that a thread owns, oldest first, with the run and the call that began each."""
        one_of(status, get_args(TaskStatus), "status")
        return await tasks_of(self._store, thread_of(thread), status=status)

    async def cancel_tasks(self, thread: str, reason: str = "cancelled by request") -> int:
        """Stop all tasks of a thread with everything they do; how many were running."""
        self._bind()
        reason = given_text(reason, "the reason to cancel")
        running = await self.tasks(thread, status="running")
        return sum([await cancel_task(self._dispatch, task, reason) for task in running])

    # -- schedules -------------------------------------------------------------------------------------------

    async def schedule(
        self,
        name: str,
        target: str | Agent | Callable[..., Any],
        input: Input | None = None,
        *,
        cron: str | None = None,
        tz: str = "UTC",
        at: datetime | None = None,
        delay: float | timedelta | None = None,
        missed: Missed = "once",
        thread: str | None = None,
        principal: Principal | None = None,
        arguments: Mapping[str, Any] | None = None,
    ) -> Schedule:
        """Begin an agent's run, or a function, at the times of a `cron` expression, once `at` a time, or after a
        `delay`; see `Schedule`. It is kept until it is unscheduled. Scheduling the same again changes nothing, and
        another one of the same name takes its place. The same `delay` again doesn't put it off."""
        with closing(target):
            self._bind()
            if missed not in get_args(Missed):
                raise UsageError(f"missed is one of {', '.join(get_args(Missed))}, not {missed!r:.80}")
            instance_of(principal, Principal, "principal")
            if not isinstance(cast(Any, name), str) or not name.replace("-", "").replace("_", "").isalnum():
                raise UsageError(f"a schedule's name is a word, not {name!r:.80}")
            if len(name.encode()) > 64:
                raise UsageError(f"a schedule's name has up to 64 bytes: {name!r:.80}")
            moment = self._moment(cron, tz, at, delay)
            later = None if delay is None else round(seconds_of(delay, "a delay") * 1000)
            where = target.id if isinstance(target, Agent) else target
            message = None if input is None else message_of(self._said_to(where, input), principal)
            given = arguments_of(arguments, {})
            if isinstance(where, str) and where in self._env.registry.agents and (message is None or given):
                raise InvalidArguments(
                    f"agent {where} takes an input, and no arguments: schedule({name!r}, {where!r}, input)"
                )
            child = child_of(self._dispatch, self._book, SpawnRequest(where, message, given), self.schedule)
            found = Schedule(
                name,
                child.agent_id,
                child.message,
                cron or "",
                tz,
                missed,
                None if thread is None else thread_of(thread),
                moment,
                principal,
                delay=later,
            )
        return await put_schedule(self._dispatch, found)

    def _said_to(self, target: Any, given: Any) -> Any:
        if not isinstance(target, str) or target not in self._env.registry.agents:
            return given
        return said_to(target, self._env.registry.resolve(target).input, given)

    def _moment(
        self, cron: str | None, tz: str, at: datetime | None, delay: float | timedelta | None
    ) -> int | None:
        """The one time at which something is scheduled; None if it is by a cron expression, which is checked."""
        if sum(given is not None for given in (cron, at, delay)) != 1:
            raise UsageError("schedule takes one of cron=..., at=... and delay=...")
        # The zone is kept with every schedule, so it is checked without a cron expression, too.
        Cron("@daily" if cron is None else cron, tz)
        if cron is not None:
            return None
        now = self._env.clock.now()
        moment = time_of(delay, at, now)
        return now if moment is None else moment

    async def schedules(self) -> list[Schedule]:
        """What is scheduled, by name, with when it happened last and will next."""
        return await schedules(self._store)

    async def unschedule(self, name: str) -> bool:
        """Forget a schedule; what it began goes on. False if there is none of that name."""
        self._bind()
        return await remove_schedule(self._store, name)

    # -- standing still --------------------------------------------------------------------------------------

    async def pause(self, run_id: str) -> bool:
        """Let a run stand still from its next step on, whichever process runs it: it waits, and holds nothing,
        until `unpause`. False if it is done."""
        self._bind()
        return await set_paused(self._dispatch, id_of(run_id, "run"), "pause")

    async def unpause(self, run_id: str) -> bool:
        """Let a paused run go on; False if it is done."""
        self._bind()
        return await set_paused(self._dispatch, id_of(run_id, "run"), "unpause")
