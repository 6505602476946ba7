"""The services behind a tool's context, for the calls of one activation."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from typing import Any

from ...agents import convert_input
from ...state import AnyKey, Command
from ...tools import CallContext, ChildRequest, ChildResult, Mail, SpawnRequest
from ...types.content import text_of
from ...types.events import LiveEvent
from ...types.runs import TaskRecord, TaskRef
from ..activation import Activation
from ..inference.window import find_reply, page_size
from ..memories import RunMemories
from ..reports import read_tasks
from ..tasks import cancel_task

__all__ = ["CallServices"]


class CallServices:
    """The services of one activation's calls. `publish` is safe from any thread."""

    __slots__ = ("_act", "_loop", "_thread")

    def __init__(self, act: Activation, loop: asyncio.AbstractEventLoop) -> None:
        self._act = act
        self._loop = loop
        self._thread = threading.get_ident()

    def publish(self, event: LiveEvent) -> None:
        """Publish a live event."""
        if threading.get_ident() == self._thread:
            self._act.channel.publish(event)
        else:
            self._loop.call_soon_threadsafe(self._act.channel.publish, event)

    def watched(self) -> bool:
        """Whether the run has live readers."""
        return self._act.channel.is_watched()

    def now(self) -> int:
        """The time in milliseconds."""
        return self._act.clock.now()

    def head(self) -> int:
        """The last sequence number of the thread's log."""
        return self._act.head

    def check_key(self, key: AnyKey) -> None:
        """Refuse a state key that isn't registered."""
        self._act.env.registry.catalog.check_key(key)

    def check_agent(self, agent_id: str) -> None:
        """Refuse an agent that isn't registered."""
        self._act.env.registry.catalog.check_agent(agent_id)

    def convert_input(self, agent_id: str, given: Any) -> Any:
        """Convert a value of an agent's `input` type to text or content parts; refuses one that doesn't fit."""
        registry = self._act.env.registry
        is_known = agent_id in registry.agents
        return convert_input(agent_id, registry.resolve(agent_id).input, given) if is_known else given

    def notify(self, command: Command, name: str, payload: Any) -> None:
        """Put a notice into the command."""
        self._act.env.registry.catalog.notify(command, name, payload)

    def schedule(self, command: Command, name: str, payload: Any, phase: str) -> None:
        """Put an action into the command."""
        self._act.env.registry.catalog.schedule(command, name, payload, phase)

    def run_agent(self, context: CallContext, request: ChildRequest) -> Coroutine[Any, Any, ChildResult]:
        """Run another agent as a child of this call."""
        return self._act.env.children.run(self._act, context, request)

    async def result_of(self, call_id: str) -> tuple[str, int] | None:
        """The text of a call's result, and how many characters of it the model is shown at once."""
        act = self._act
        reply = find_reply(act.history, call_id)
        before = None
        # A result that isn't in the history any more is still in the log.
        while reply is None and (
            page := await act.env.store.messages(act.identity.thread_id, before=before, newest=256)
        ):
            reply, before = find_reply(page, call_id), page[0].seq
        return None if reply is None else (text_of(reply.content), page_size(act.window))

    @property
    def mail(self) -> Mail:
        """The mail of the run's thread."""
        return self._act.env.mailer.mail_of(self._act)

    @property
    def memories(self) -> RunMemories:
        """The memories of the run's tenant."""
        return RunMemories(self._act)

    async def spawn(self, context: CallContext, request: SpawnRequest) -> TaskRecord:
        """Start a background task."""
        return await self._act.env.children.spawn(self._act, context, request)

    async def sleep(self, until: int) -> None:
        """Wait in memory until a time."""
        due: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        clock = self._act.clock
        timer = clock.call_later((until - clock.now()) / 1000, _resolve, due)
        try:
            await due
        finally:
            timer.cancel()

    def task(self) -> TaskRef | None:
        """The task that the run carries out, if it carries out one."""
        return self._act.view.run.task

    async def tasks(self) -> Sequence[TaskRecord]:
        """The tasks of the run's thread, oldest first, with uncommitted changes."""
        return await read_tasks(self._act)

    async def refresh_task(self, task: TaskRecord) -> TaskRecord:
        """The present state of a task; a remote one that nobody follows is followed from now on."""
        return await self._act.env.children.refresh(task) if task.remote and task.status == "running" else task

    async def task_output(self, task: TaskRecord) -> str:
        """The last answer of a task's agent."""
        answer = await self._act.env.store.answer(task.target)
        return "" if answer is None else answer.text

    async def cancel_task(self, task: TaskRecord, reason: str) -> int:
        """Cancel a task and its tree with this call's result; returns the number of runs."""
        if task.status != "running":
            return 0
        act = self._act
        act.env.children.check_stoppable(task)
        below = await act.env.children.count_below(task.target_thread, task.target)
        cancel_task(act.view, act.draft, task, reason, act.now)
        return 1 + below

    async def cancel_self(self, reason: str) -> tuple[str, int]:
        """Cancel the run and its tree once the call has returned; returns its id and the number of runs."""
        act = self._act
        below = await act.env.children.count_below(act.identity.thread_id, act.identity.run_id)
        act.set_run(cancel=reason)
        ref = act.view.run.task
        return act.identity.run_id if ref is None else ref.id, 1 + below

    async def resume_task(self, context: CallContext, task: TaskRecord, prompt: str) -> TaskRecord:
        """Continue a cancelled task; returns its new record."""
        return await self._act.env.children.resume(self._act, context, task, prompt)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
