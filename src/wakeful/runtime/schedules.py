"""Schedules: runs and functions that start at given times."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, get_args

from ..agents import Agent
from ..clock import Clock
from ..dispatch import (
    child_of,
    find_schedule,
    pause_schedule,
    put_schedule,
    remove_schedule,
    run_schedule,
    schedules,
)
from ..errors import InvalidArguments, UsageError
from ..errors.arguments import checked_methods
from ..tasks import Cron, Schedule
from ..tasks.schedule import Missed
from ..tools import SpawnRequest
from ..tools.checks import close_on_error, merge_arguments, to_seconds
from ..types.inbox import Request
from ..types.mail import Receipt
from ..types.runs import Principal
from .arguments import check_count, check_instance, check_request_id, check_thread_id, make_message, parse_time
from .requests import Input, input_for
from .scope import Scope

__all__ = ["Schedules"]

MAX_NAME_BYTES = 64


@checked_methods("runtime.schedules")
class Schedules:
    """`runtime.schedules`: the schedules of one tenant."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    @property
    def clock(self) -> Clock:
        """The clock by which schedules, delays and deadlines are measured."""
        return self._scope.env.clock

    async def put(
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
        request_id: str | Request | None = None,
    ) -> Schedule:
        """Start an agent's run or a function at the times of a `cron` expression, once `at` a time, or once after
        a `delay`; see `Schedule`.

        A schedule stays until it is deleted. Putting an equal one changes nothing, and doesn't restart its
        `delay`; another one of the same name replaces it, and is paused if that one was. Repeating a `request_id`
        changes nothing, and returns the present schedule.
        """
        scope = self._scope
        repeatable = check_request_id(request_id)
        with close_on_error(target):
            scope.bind()
            if missed not in get_args(Missed):
                raise UsageError(f"missed is one of {', '.join(get_args(Missed))}, not {missed!r:.80}")
            check_instance(principal, Principal, "principal")
            _check_name(name)
            moment = self._moment(cron, tz, at, delay)
            later = None if delay is None else round(to_seconds(delay, "a delay") * 1000)
            agent = target.id if isinstance(target, Agent) else target
            registry = scope.env.registry
            message = None
            if input is not None:
                message = make_message(input_for(registry, agent, input), principal)
            given = merge_arguments(arguments, {})
            if isinstance(agent, str) and agent in registry.agents and (message is None or given):
                raise InvalidArguments(
                    f"agent {agent} takes an input, and no arguments: schedules.put({name!r}, {agent!r}, input)"
                )
            request = SpawnRequest(agent, message, given)
            child = child_of(scope.dispatch, scope.shared.task_registry, request, self.put)
            found = Schedule(
                name,
                child.agent_id,
                child.message,
                cron or "",
                tz,
                missed,
                None if thread is None else check_thread_id(thread),
                moment,
                principal,
                delay=later,
            )
        return await put_schedule(scope.dispatch, found, repeatable)

    async def get(self, name: str) -> Schedule:
        """A schedule with its last and next times; raises `UnknownSchedule`."""
        _check_name(name)
        return await find_schedule(self._scope.store, name)

    async def times(self, name: str, count: int = 5) -> Sequence[int]:
        """The next times of a schedule in milliseconds, up to `count`; none while it is paused.

        Raises `UnknownSchedule`.
        """
        most = check_count(count, "count") or 1
        return (await self.get(name)).upcoming(most)

    async def list(self) -> Sequence[Schedule]:
        """All schedules by name, with their last and next times."""
        return await schedules(self._scope.store)

    async def run_now(self, name: str, *, request_id: str | Request | None = None) -> Receipt:
        """Start an occurrence at once, also of a paused schedule; its other times stay.

        The receipt names the thread. Repeating a `request_id` starts nothing. Raises `UnknownSchedule`.
        """
        self._scope.bind()
        _check_name(name)
        return await run_schedule(self._scope.dispatch, name, check_request_id(request_id))

    async def pause(self, name: str) -> Schedule:
        """Start no more occurrences until `unpause`; raises `UnknownSchedule`."""
        return await self._set_paused(name, paused=True)

    async def unpause(self, name: str) -> Schedule:
        """Continue a paused schedule with its first time from now on. Times in between aren't made up."""
        return await self._set_paused(name, paused=False)

    async def _set_paused(self, name: str, *, paused: bool) -> Schedule:
        self._scope.bind()
        _check_name(name)
        return await pause_schedule(self._scope.dispatch, name, paused=paused)

    async def delete(self, name: str) -> bool:
        """Delete a schedule; runs that it started continue. False if there is none of that name."""
        self._scope.bind()
        return await remove_schedule(self._scope.store, name)

    def _moment(
        self, cron: str | None, tz: str, at: datetime | None, delay: float | timedelta | None
    ) -> int | None:
        """The time of a schedule that happens once; None for a cron expression, which is checked."""
        if sum(given is not None for given in (cron, at, delay)) != 1:
            raise UsageError("schedules.put takes one of cron=..., at=... and delay=...")
        # Every schedule stores its zone, so it is checked without a cron expression, too.
        Cron("@daily" if cron is None else cron, tz)
        if cron is not None:
            return None
        now = self._scope.env.clock.now()
        moment = parse_time(delay, at, now)
        return now if moment is None else moment


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not name.replace("-", "").replace("_", "").isalnum():
        raise UsageError(f"a schedule's name is a word, not {name!r:.80}")
    if len(name.encode()) > MAX_NAME_BYTES:
        raise UsageError(f"a schedule's name has up to {MAX_NAME_BYTES} bytes: {name!r:.80}")
