"""What a running tool reaches through its context."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from ..agents import said_to
from ..state import AnyKey, Command
from ..tools import ChildRequest, ChildResult, Mail, SpawnRequest, ToolContext
from ..types.content import text_of
from ..types.events import LiveEvent
from ..types.runs import TaskRecord, TaskRef
from ._context import find_reply, page_size
from ._tasks import give_up_task

if TYPE_CHECKING:
    from ._activation import Activation

__all__ = ["CallServices"]


class CallServices:
    """The services of one activation's calls; safe to use from a tool's thread."""

    __slots__ = ("_act", "_loop", "_thread")

    def __init__(self, act: Activation, loop: asyncio.AbstractEventLoop) -> None:
        self._act = act
        self._loop = loop
        self._thread = threading.get_ident()

    def publish(self, event: LiveEvent) -> None:
        """Show a live event to whoever listens."""
        if threading.get_ident() == self._thread:
            self._act.channel.publish(event)
        else:
            self._loop.call_soon_threadsafe(self._act.channel.publish, event)

    def watched(self) -> bool:
        """Whether anybody listens."""
        return self._act.channel.watched()

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

    def said_to(self, agent_id: str, given: Any) -> Any:
        """What is given to an agent, as a text or content parts; what doesn't fit its `input` is refused."""
        registry = self._act.env.registry
        known = agent_id in registry.agents
        return said_to(agent_id, registry.resolve(agent_id).input, given) if known else given

    def notify(self, command: Command, name: str, payload: Any) -> None:
        """Put a notice into the command."""
        self._act.env.registry.catalog.notify(command, name, payload)

    def schedule(self, command: Command, name: str, payload: Any, phase: str) -> None:
        """Put an action into the command."""
        self._act.env.registry.catalog.schedule(command, name, payload, phase)

    def run_agent(self, context: ToolContext, request: ChildRequest) -> Coroutine[Any, Any, ChildResult]:
        """Run another agent as a child of this call."""
        return self._act.env.children.run(self._act, context, request)

    async def result_of(self, call_id: str) -> tuple[str, int] | None:
        """The text of a call's result, and how many characters of it the model is shown at once."""
        act = self._act
        reply = find_reply(act.history, call_id)
        after = 0
        while reply is None and (
            page := await act.env.store.messages(act.identity.thread_id, after=after, limit=500)
        ):
            # A summary stands for it by now: it is further back in the log.
            reply, after = find_reply(page, call_id), page[-1].seq
        return None if reply is None else (text_of(reply.content), page_size(act))

    @property
    def mail(self) -> Mail:
        """Messages to other agents."""
        return self._act.env.post.of(self._act)

    async def spawn(self, context: ToolContext, request: SpawnRequest) -> TaskRecord:
        """Begin work in the background."""
        return await self._act.env.children.spawn(self._act, context, request)

    async def sleep(self, until: int) -> None:
        """Wait in memory until that time."""
        late: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        clock = self._act.clock
        timer = clock.call_later((until - clock.now()) / 1000, _wake, late)
        try:
            await late
        finally:
            timer.cancel()

    def task(self) -> TaskRef | None:
        """The task that the run is, if it is one."""
        return self._act.view.run.task

    async def tasks(self) -> Sequence[TaskRecord]:
        """The tasks of the run's thread, oldest first."""
        stored = await self._act.env.store.tasks(self._act.identity.thread_id)
        return [self._act.draft.task(task) for task in stored]

    async def refresh_task(self, task: TaskRecord) -> TaskRecord:
        """How a task stands; one of a backend that nobody follows any more is followed from here on."""
        return await self._act.env.children.refresh(task) if task.remote and task.status == "running" else task

    async def task_output(self, task: TaskRecord) -> str:
        """The last answer of a task's agent."""
        answer = await self._act.env.store.answer(task.target)
        return "" if answer is None else answer.text

    async def cancel_task(self, task: TaskRecord, reason: str) -> int:
        """Stop a task with all below it, once this call's result is committed; how many runs that are."""
        if task.status != "running":
            return 0
        self._act.env.children.check_stoppable(task)
        below = await self._act.env.children.below(task.target_thread, task.target)
        give_up_task(self._act, task, reason)
        return 1 + below

    async def cancel_self(self, reason: str) -> tuple[str, int]:
        """Stop the run with all below it, once this call has returned: the task it is, or its id, and how many."""
        act = self._act
        below = await act.env.children.below(act.identity.thread_id, act.identity.run_id)
        act.set_run(cancel=reason)
        ref = act.view.run.task
        return act.identity.run_id if ref is None else ref.id, 1 + below

    async def resume_task(self, context: ToolContext, task: TaskRecord, prompt: str) -> TaskRecord:
        """Let a stopped task go on; the task as it is then."""
        return await self._act.env.children.resume(self._act, context, task, prompt)


def _wake(sleeper: asyncio.Future[None]) -> None:
    if not sleeper.done():
        sleeper.set_result(None)
