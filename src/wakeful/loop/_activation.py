"""One activation of a run: the loop around `next_move`.

Everything is gathered in a draft and committed before anything of the user's runs next: hooks, tools, models.
That one rule gives every commit point: an answer is durable before its calls run, a result is written before the
next model call, and a step without hooks costs two commits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, TypeVar

from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from ..bus import Channel
from ..errors import RuntimeClosed, StoreError, explain
from ..models import Model, ModelRequest
from ..plugins import HookContext, Step
from ..state import State
from ..stores import InboxItem
from ..types.content import clean_text
from ..types.messages import Message
from ..types.runs import Failed, RunRecord
from . import _boundaries, _calls, _inference
from ._answer import Answer
from ._asking import Asking
from ._committing import Committer
from ._context import Fitting
from ._draft import Draft
from ._environment import Environment, Host, rules_of
from ._executor import Executor
from ._moves import (
    AfterCalls,
    Await,
    Drop,
    EndStep,
    Execute,
    Finish,
    Infer,
    Interrupt,
    Move,
    Overdue,
    PassOn,
    Pause,
    Recover,
    Rules,
    RunView,
    SuspendRun,
    SwitchAgent,
    Take,
    WaitForTasks,
    next_move,
)
from ._needs import agent_of
from ._rides import Ride
from ._watch import Watch
from ._writer import ACTIONS

__all__ = ["Activation"]

_log = logging.getLogger("wakeful")

H = TypeVar("H", bound=HookContext)

MAX_TROUBLES = 8


class Activation(Committer):
    """A run while it runs: owns its tool calls, its draft and its place in the thread."""

    # Every step reads these a hundred times: slots are several times faster than a dict.
    __slots__ = (
        "_caller_cancelled",
        "_cancels",
        "_over",
        "_pending",
        "_raises",
        "_troubles",
        "_watchers",
        "aborted",
        "above",
        "asking",
        "attached",
        "fitting",
        "interrupted",
        "left",
        "ordered",
        "output",
        "plain",
        "remote",
        "rules",
        "run_end_due",
        "stopping",
        "task",
        "tools",
        "watch",
    )

    def __init__(
        self,
        env: Environment,
        view: RunView,
        state: State,
        history: list[Message],
        channel: Channel,
        now: int,
    ) -> None:
        run = view.run
        self.env = env
        self.view = view
        self.state = state
        self.history = history
        self.channel = channel
        self.clock = env.clock
        self.now = now
        self.identity = run.identity
        self.draft = Draft(run.identity, state)
        self.head = self.inbox_head = self.version = 0
        self.rules: Rules
        # Whom the agent asks, and what with, where no plugin has a say in it.
        self.plain: tuple[Model, ModelRequest] | None
        # The history, once it was found to be in order: it stays so while it only grows.
        self.ordered: Sequence[Message] | None
        # What the runs above allow their whole tree.
        self.above: Rules | None = None
        self.use_agent(run)
        self.fitting: Fitting | None = None
        self.output: Raw | UnsetType = UNSET
        # Why calls have no result that ran here, by their ids.
        self.interrupted: dict[str, str] = {}
        # The answer that the model is being asked for, over all retries.
        self.asking: Asking | None = None
        # The one that a backend is being asked for.
        self.remote: Answer | None = None
        # Whether a call of another run waits for this one in this process, and so will see what it comes to.
        self.attached = False
        # The task that runs it, and how often that was cancelled: by this, and before it.
        self.task: asyncio.Task[Any] | None = None
        self._cancels = self._pending = 0
        self._caller_cancelled = self.aborted = self.left = self._over = False
        self.run_end_due = True
        # How the process that runs this is being stopped: hand the run over at its next step boundary, or at once.
        self.stopping: Literal["at_boundary", "now"] | None = None
        self.taken = ()
        self._raises: BaseException | None = None
        self._troubles = 0
        self._watchers: tuple[asyncio.Future[None], ...] = ()
        # What runs the calls, once there was one; and what watches the streams.
        self.tools: Executor | None = None
        self.watch: Watch | None = None

    @property
    def executor(self) -> Executor:
        """What runs the calls; made with the first of them."""
        if self.tools is None:
            self.tools = Executor(self)
        return self.tools

    @property
    def streamed(self) -> Answer | None:
        """The answer that is being made, if one is."""
        return self.remote if self.asking is None else self.asking.answer

    # -- driving ---------------------------------------------------------------------------------------------

    async def drive(self, host: Host) -> None:
        """Run until the run waits or is done. Errors end the run; only losing the thread is raised, and that the
        run goes on elsewhere."""
        host.began(self)
        self.task = asyncio.current_task()
        self._pending = 0 if self.task is None else self.task.cancelling()
        try:
            if not (self.still or (self.quiet("activate") and self.quiet("run_start"))):
                try:
                    await self._begin()
                except BaseException as error:
                    self._trouble(error)
            while not self.left:
                if self.stopping is not None and await self._hand_over():
                    break
                try:
                    if self.view.tree.apart and self._judged():
                        await self.env.children.measure(self)
                    move = next_move(self.view, self.rules, self.now)
                    if (performed := _PERFORM[type(move)](self, move)) is not None:
                        await performed
                except BaseException as error:
                    self._trouble(error)
                    self.now = self.clock.now()
            if self.env.store.durable and self.being_cancelled():
                await self._too_late()
            if self._raises is not None:
                raise self._raises
            if self._caller_cancelled:
                raise asyncio.CancelledError
        except BaseException as error:
            if self.view.live:
                self.executor.give_up()
            if self._cancels and isinstance(error, Exception | asyncio.CancelledError):
                await self._too_late()  # Else what goes on in this task would be cancelled, and not the run.
            host.lost(self, error)
            if self._caller_cancelled and isinstance(error, Exception):
                raise asyncio.CancelledError from error
            if self.stopping == "now" and not self.attached and isinstance(error, asyncio.CancelledError):
                raise self._stopped() from None
            raise
        finally:
            if self.fitting is not None:
                self.fitting.cancel()
            if self._cancels:
                self._uncancel()
            if self.watch is not None:
                self.watch.close()
            # Without the ring through the services of its calls, all of it is freed here and now.
            self.task = self.tools = None
            self._over = True
            for watcher in self._watchers:
                if not watcher.done():
                    watcher.set_result(None)
            host.ended(self)
        if self.stopping is not None and self.view.run.status == "running":
            raise self._stopped()

    def _stopped(self) -> RuntimeClosed:
        return RuntimeClosed(
            f"the runtime was closed before run {self.identity.run_id} ended; it goes on where the store is served"
        )

    def _judged(self) -> bool:
        """Whether the next move asks what the tree used."""
        run = self.view.run
        return run.stage == "between" and run.steps > 0 and run.ending is None

    def _trouble(self, error: BaseException) -> None:
        """What goes wrong in a move becomes the run's ending, and the loop goes on to close it."""
        if self.stopping == "now":
            raise error
        cancelled = isinstance(error, asyncio.CancelledError)
        if isinstance(error, StoreError) or (self.draft.claim is not None and not (cancelled and self._cancels)):
            # What can't be written can't be recorded as a failure either; and a run that isn't begun doesn't
            # exist yet. The caller hears why, unless it is the run that was cancelled, and not the caller.
            raise error
        if cancelled:
            self._take_cancellation()
            return
        if isinstance(error, GeneratorExit):
            raise error  # The coroutine itself is being closed: there is no way to await anything any more.
        if not isinstance(error, Exception):
            self._raises = error
        self.fail(error)

    def _take_cancellation(self) -> None:
        by_request = self._cancels > 0
        self._uncancel()
        pending = 0 if self.task is None else self.task.cancelling()
        if pending > self._pending:
            self._pending = pending
            self._caller_cancelled = True
            if self.view.run.cancel is None:
                self.set_run(cancel="the caller was cancelled")
        elif not by_request:
            self.fail(asyncio.CancelledError("something it awaited was cancelled, and nobody cancelled the run"))

    async def _too_late(self) -> None:
        """A cancellation that came while the last commit was written: the run is over, its caller may not be."""
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            self._uncancel()
            self._caller_cancelled = self.task is not None and self.task.cancelling() > self._pending

    def being_cancelled(self) -> bool:
        """Whether somebody asked for it: the run's owner or its caller."""
        return self._cancels > 0 or (self.task is not None and self.task.cancelling() > self._pending)

    def _uncancel(self) -> None:
        """Take back from the task what `cancel` did to it."""
        while self._cancels:
            self._cancels -= 1
            if self.task is not None:
                self.task.uncancel()

    def cancel(self, reason: str, *, interrupt: bool = True, leave_tasks: bool = False) -> None:
        """Cancel the run: it stops what it does, by an interruption or at its next move, and ends with that. What
        works for it in the background is stopped too, or is left to the next run, if nobody wants it stopped."""
        run = self.view.run
        if self.left or run.cancel is not None:
            if not self.left and run.leaves_tasks and not leave_tasks:
                self.set_run(leaves_tasks=False)
            return
        self.set_run(cancel=reason, leaves_tasks=leave_tasks)
        if self.view.live:
            self.executor.interrupt()
        if self.task is not None and interrupt:
            self._cancels += 1
            self.task.cancel()

    def hand_over(self) -> None:
        """Leave the run to another process at its next step boundary; a run that ends before that ends here."""
        self.stopping = "at_boundary"
        if self.fitting is not None:
            self.fitting.cancel()

    async def _hand_over(self) -> bool:
        """Release the thread with its run as it is, if this is a step boundary. The run is due at once."""
        run = self.view.run
        if self.stopping == "now":
            raise asyncio.CancelledError
        if self.attached or run.stage != "between" or run.ending is not None or run.cancel is not None:
            return False
        await self.flush(release=True)
        self.left = True
        return True

    def cut_off(self, *, interrupt: bool = True) -> None:
        """Stop at once and write nothing more: whoever goes on does what a crash would need. With `interrupt` the
        task is told, which an activation that runs inside another's task leaves to that."""
        if self.left or self.stopping == "now":
            return
        self.stopping = "now"
        if self.task is not None and interrupt:
            self._cancels += 1
            self.task.cancel()

    def ended(self) -> asyncio.Future[None]:
        """A future for the end of this activation."""
        watcher: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._over:
            watcher.set_result(None)
        else:
            self._watchers = (*self._watchers, watcher)
        return watcher

    def fail(self, error: BaseException) -> None:
        """End the run with this error; a second error while it ends is only noted."""
        if isinstance(self.view.run.ending, Failed):
            self._troubles += 1
            if self._troubles > MAX_TROUBLES:
                raise error
            self.note(error, "while the run was ending")
        else:
            _log.debug("run %s failed", self.identity.run_id, exc_info=error)
            self.set_run(ending=Failed(type(error).__name__, clean_text(explain(error).partition(": ")[2])))

    async def _begin(self) -> None:
        run = self.view.run
        if not run.steps and run.needs is None:  # One that was paused before its first step has begun, too.
            await self.phase("activate", self.agent.hooks["activate"], Step)
        await self.phase("run_start", self.agent.hooks["run_start"], Step)

    # -- the inbox and the agent ------------------------------------------------------------------------------

    def keep_under(self, above: Rules) -> None:
        """Keep to what the run above allows its whole tree."""
        self.above = above
        self.rules = self.rules.under(above)

    def use_agent(self, run: RunRecord) -> None:
        """Go on as the agent that the run has now."""
        env, agent_id, task = self.env, run.agent_id, run.task
        own = run.options is None and (task is None or not task.background)
        self.plain = self.ordered = None
        agent = self.agent = env.registry.resolve(agent_id) if own else agent_of(env.registry, run)
        rules = env.rules.get(agent_id) or rules_of(env, agent)
        self.rules = rules if self.above is None else rules.under(self.above)
        self.still = not agent.hooked and ACTIONS not in self.state.values
        if self.identity.agent_id != agent_id:
            self.identity = self.draft.identity = replace(self.identity, agent_id=agent_id)

    async def catch_up(self) -> None:
        """Read what others put into the thread's inbox."""
        stored = await self.env.store.load(self.identity.thread_id)
        self.now = self.clock.now()
        if stored is not None:
            self.deliver(stored.inbox, stored.thread.inbox_head)

    def board(self, items: Sequence[InboxItem]) -> Awaitable[Sequence[Ride]]:
        """Begin here with what is about to be put into the inboxes of others."""
        return self.env.children.board(self, items)

    def deliver(self, items: Sequence[InboxItem], inbox_head: int) -> None:
        """Take note of what the thread's inbox holds, unless something newer was read before."""
        if inbox_head >= self.inbox_head:
            # A run that found the item in the store may have taken it before its sender is told.
            self.view.inbox = {item.id: item for item in items if item.id not in self.taken}
            self.inbox_head = inbox_head
        self.heed()

    def heed(self) -> None:
        """Do at once what an item of the inbox says that waits for no boundary: to stop, to stand still, or to
        tell the owner of the run's end."""
        for item in [i for i in self.view.inbox.values() if i.kind in _AT_ONCE]:
            del self.view.inbox[item.id]
            self.take(item.id)
            if item.run_id != self.identity.run_id:
                continue
            match item.kind:
                case "cancel":
                    self.attached |= item.task_id is not None  # Its owner knows.
                    inside, leave = asyncio.current_task() is self.task, item.policy == "interrupt"
                    self.cancel(item.reason, interrupt=not inside, leave_tasks=leave)
                case "tell":
                    self.attached = False
                case _:
                    self.set_run(paused=item.kind == "pause")
        if self.view.live:
            self.executor.nudge()


# What is heard of in whatever state a run is.
_AT_ONCE = ("cancel", "pause", "unpause", "tell")

Perform = Callable[[Activation, Any], Awaitable[None] | None]


def _timely(perform: Callable[[Activation, Any], Awaitable[None]]) -> Perform:
    """A performer that takes time, and after which the clock is looked at."""

    async def performed(act: Activation, move: Any) -> None:
        await perform(act, move)
        act.now = act.clock.now()

    return performed


# What needn't be waited for is done once its function returns. Where the clock isn't looked at afterwards, the
# move takes no time, or looks itself when it is over.
_PERFORM: dict[type[Move], Perform] = {
    Infer: _inference.infer,
    Execute: _calls.execute,
    Await: _boundaries.await_calls,
    EndStep: _boundaries.end_step,
    Finish: _boundaries.finish,
    Recover: _timely(_calls.recover),
    AfterCalls: _timely(_calls.after_calls),
    Drop: _timely(_calls.drop),
    Overdue: _timely(_boundaries.overdue),
    Interrupt: _timely(_boundaries.interrupt),
    Take: _timely(_boundaries.take),
    SwitchAgent: _timely(_boundaries.switch_agent),
    PassOn: _timely(_boundaries.pass_on),
    SuspendRun: _boundaries.suspend,
    Pause: _boundaries.pause,
    WaitForTasks: _boundaries.wait_for_tasks,
}
