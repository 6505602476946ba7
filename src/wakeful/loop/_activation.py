"""One activation of a run: the loop around `next_move`.

Everything is gathered in a draft and committed before anything of the user's runs next: hooks, tools, models.
That one rule gives every commit point: an answer is durable before its calls run, a result before the next
model call, and a step without hooks costs two commits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property
from typing import Any, Literal, TypeVar, cast

from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from ..agents import Hook, Registry, ResolvedAgent
from ..bus import Channel
from ..clock import Clock
from ..errors import InboxMoved, StoreError, WakefulError
from ..plugins import ActionQueue, HookContext, RunEnd, Step
from ..state import Command, SentNotice, State
from ..stores import InboxItem, Store, number
from ..tools import ChildResult, ClientTool, ToolContext, ToolThreads
from ..types.events import ErrorRaised, Event, Handoff, MessageAdded, RunFinish, StepEnd
from ..types.messages import Message, Producer, user_message
from ..types.runs import (
    BehaviourRequested,
    Failed,
    Identity,
    NaturalEnd,
    Outcome,
    RunRecord,
    Stopped,
    Termination,
    Waiting,
)
from . import _calls, _inference
from ._draft import Draft
from ._executor import Executor
from ._ledger import Change, answered
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
    Recover,
    Rules,
    RunView,
    SuspendRun,
    SwitchAgent,
    Take,
    WaitForTasks,
    next_move,
)
from ._phases import run_actions, run_hooks
from ._policies import output_of
from ._services import CallServices

__all__ = ["Activation", "Children", "Environment"]

H = TypeVar("H", bound=HookContext)

MAX_TROUBLES = 8

Children = Callable[["Activation", ToolContext, str, str], Awaitable[ChildResult]]


class Environment(Struct):
    """What activations share: one of these for each runtime."""

    registry: Registry
    store: Store
    clock: Clock
    threads: ToolThreads
    abandoned: set[Any]
    grace: float
    run_child: Children
    rules: dict[str, Rules] = {}


class Activation:
    """A run while it runs: owns its tool calls, its draft and its place in the thread."""

    def __init__(
        self, env: Environment, view: RunView, state: State, history: list[Message], channel: Channel
    ) -> None:
        self.env = env
        self.view = view
        self.state = state
        self.history = history
        self.channel = channel
        self.clock = env.clock
        self.now = env.clock.now()
        self.identity: Identity = view.run.identity
        self.draft = Draft(self.identity, state)
        self.head = 0
        self.inbox_head = 0
        self.output: Raw | UnsetType = UNSET
        self.interrupted: dict[str, str] = {}
        self.agent: ResolvedAgent
        self.rules: Rules
        self._above: Rules | None = None
        self._use_agent(view.run.agent_id)
        self._task: asyncio.Task[Any] | None = None
        self._cancels = 0
        self._pending = 0
        self._caller_cancelled = False
        self._ended = False
        self._over = False
        self._taken: tuple[str, ...] = ()
        self._troubles = 0
        self._watchers: list[asyncio.Future[None]] = []

    @cached_property
    def executor(self) -> Executor:
        """What runs the calls; made with the first of them."""
        return Executor(self.env.clock, self.env.threads, self.env.abandoned, self.env.grace)

    @cached_property
    def services(self) -> CallServices:
        """What running tools reach through their context."""
        return CallServices(self)

    # -- driving ---------------------------------------------------------------------------------------------

    async def drive(self) -> None:
        """Run until the run waits or is done. Errors end the run; only losing the thread is raised."""
        self._task = asyncio.current_task()
        self._pending = 0 if self._task is None else self._task.cancelling()
        try:
            if not self.quiet("activate", "run_start"):
                try:
                    await self._begin()
                except (Exception, asyncio.CancelledError) as error:
                    self._trouble(error)
            while not self._ended:
                now = self.now = self.clock.now()
                move = next_move(self.view, self.rules, now)
                try:
                    await _PERFORM[type(move)](self, move)
                except (Exception, asyncio.CancelledError) as error:
                    self._trouble(error)
        except BaseException:
            if self.view.live:
                self.executor.interrupt()
            raise
        finally:
            self._uncancel()
            self._task = None
            self._over = True
            for watcher in self._watchers:
                if not watcher.done():
                    watcher.set_result(None)
        if self._caller_cancelled:
            raise asyncio.CancelledError

    def _trouble(self, error: BaseException) -> None:
        """What goes wrong in a move becomes the run's ending, and the loop goes on to close it."""
        if isinstance(error, StoreError) or self.draft.claim is not None:
            # What can't be written can't be recorded as a failure either; and a run that isn't begun doesn't
            # exist yet. The caller hears why.
            raise error
        if isinstance(error, asyncio.CancelledError):
            self._take_cancellation()
        else:
            self.fail(error)

    def _take_cancellation(self) -> None:
        by_request = self._cancels > 0
        self._uncancel()
        pending = 0 if self._task is None else self._task.cancelling()
        if pending > self._pending:
            self._pending = pending
            self._caller_cancelled = True
            if self.view.run.cancel is None:
                self.set_run(cancel="the caller was cancelled")
        elif not by_request:
            self.fail(asyncio.CancelledError("something it awaited was cancelled, and nobody cancelled the run"))

    def _uncancel(self) -> None:
        """Take back from the task what `cancel` did to it."""
        while self._cancels:
            self._cancels -= 1
            if self._task is not None:
                self._task.uncancel()

    def cancel(self, reason: str) -> None:
        """Cancel the run: it stops what it does and ends with that outcome."""
        if self._ended or self.view.run.cancel is not None:
            return
        self.set_run(cancel=reason)
        if self.view.live:
            self.executor.interrupt()
        if self._task is not None:
            self._cancels += 1
            self._task.cancel()

    def ended(self) -> asyncio.Future[None]:
        """A future for the end of this activation."""
        watcher: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._over:
            watcher.set_result(None)
        else:
            self._watchers.append(watcher)
        return watcher

    def fail(self, error: BaseException) -> None:
        """End the run with this error; a second error while it ends is only noted."""
        if isinstance(self.view.run.ending, Failed):
            self._troubles += 1
            if self._troubles > MAX_TROUBLES:
                raise error
            self.note(error, "while the run was ending")
        else:
            self.set_run(ending=Failed(type(error).__name__, str(error)))

    async def _begin(self) -> None:
        if hooks := [h for h in self.agent.hooks["activate"] if not self.view.run.steps]:
            await self.phase("activate", hooks, Step)
        await self.phase("run_start", self.agent.hooks["run_start"], Step)

    # -- writing ---------------------------------------------------------------------------------------------

    def set_run(self, **changes: Any) -> RunRecord:
        """Change the run's record."""
        run = self.view.run = replace(self.view.run, updated_at=self.now, **changes)
        self.draft.put_run(run)
        return run

    def log(self, *entries: Message | Event) -> None:
        """Add messages and durable events to the draft."""
        for entry in entries:
            self.draft.log.append(entry)
            if type(entry) is Message:
                self.history.append(entry)

    def note(self, error: BaseException | str, source: str) -> None:
        """Log something that failed while the run goes on."""
        kind = "error" if isinstance(error, str) else type(error).__name__
        self.log(ErrorRaised(self.identity, 0, self.now, kind, str(error), source))

    def change(self, change: Change) -> None:
        """Write a call's transition."""
        self.view.calls[change.call.id] = change.call
        self.draft.put_call(change.call)
        self.log(*change.log)
        if (ticket := change.ticket) is not None:
            self.draft.put_ticket(ticket)
            if ticket.status == "open":
                self.view.tickets[ticket.id] = ticket
            else:
                self.view.tickets.pop(ticket.id, None)

    def hint(self, text: str) -> None:
        """Tell the model something that no person is shown."""
        producer = Producer(self.identity.run_id, self.view.run.steps)
        self.log(user_message(text, visibility="internal", producer=producer, at=self.now))

    def apply(self, command: Command) -> None:
        """Apply a command to the state in memory; it is durable with the next commit."""
        self.state.apply(command.updates)
        self.draft.notices.extend(command.notices)
        if command.ending is not None and self.view.run.ending is None:
            self.set_run(ending=BehaviourRequested(command.ending))
        if command.handoff is not None:
            self.set_run(next_agent=command.handoff)

    async def flush(self, *, release: bool = False, inbox_head: int | None = None) -> None:
        """Commit the draft, then show its events and deliver its notices."""
        if not release and not self.draft:
            return
        committed, logged, notices = await self.draft.flush(
            self.env.store, self.now, release=release, inbox_head=inbox_head
        )
        self.head = committed.head
        if self.channel.watched():
            number(logged, committed.head)
            self._publish(logged)
        for notice in notices:
            await self._deliver(notice)

    def _publish(self, logged: list[Message | Event]) -> None:
        for entry in logged:
            if type(entry) is Message:
                entry = MessageAdded(self.identity, entry.seq, entry.created_at, entry)
            self.channel.publish(cast(Event, entry))

    async def _deliver(self, notice: SentNotice) -> None:
        handler = self.env.registry.catalog.notices[notice.name]
        try:
            await handler.function(handler.payload.decode(notice.payload))
        except Exception as error:
            self.note(error, f"notice {notice.name!r}")

    # -- hooks -----------------------------------------------------------------------------------------------

    def quiet(self, *phases: str) -> bool:
        """Whether these phases have no hooks and no actions wait: then they cost nothing."""
        if ActionQueue.name in self.state.values:
            return False
        return self.agent.silent or not any(self.agent.hooks[phase] for phase in phases)

    async def phase(
        self,
        name: str,
        hooks: tuple[Hook, ...] | list[Hook],
        kind: type[H],
        prepare: Callable[[H], None] | None = None,
    ) -> list[H]:
        """Run a phase's hooks and actions. What came before is committed first."""
        if not hooks and ActionQueue.name not in self.state.values:
            return []
        await self.flush()
        contexts: list[H] = []

        def context(hook: Hook) -> H:
            snapshot, run = self.state.snapshot(), self.view.run
            ctx = kind(self.identity, run.steps, snapshot, run.principal, self.env.registry.catalog, hook.config)
            if prepare is not None:
                prepare(ctx)
            return ctx

        if hooks:
            contexts = await run_hooks(name, hooks, context, self.apply)
            self.now = self.clock.now()
        if ActionQueue.name in self.state.values:
            catalog, configs = self.env.registry.catalog, self.agent.configs
            done, problems = await run_actions(name, catalog, configs, self.state, context, self.apply)
            contexts += done
            for problem in problems:
                self.note(problem, name)
        return contexts

    # -- moves -----------------------------------------------------------------------------------------------

    async def _await(self, move: Await) -> None:
        await self.flush()
        await self.executor.wait()
        self.now = self.clock.now()
        _calls.settle_arrivals(self)

    async def _interrupt(self, move: Interrupt) -> None:
        self.executor.interrupt()
        while self.view.live:
            await self.executor.wait()
            self.now = self.clock.now()
            _calls.settle_arrivals(self)

    async def _take(self, move: Take) -> None:
        for item in move.items:
            self.view.inbox.pop(item.id, None)
            self.take(item.id)
            if item.decision is not None:
                self.answer(item)
            elif item.message is not None:
                self.log(item.message)
                self.set_run(ending=None)

    def take(self, item_id: str) -> None:
        """Mark an inbox item as taken in."""
        self._taken = (*self._taken, item_id)
        self.draft.take(item_id)

    def has_taken(self, items: Sequence[InboxItem]) -> bool:
        """Whether all of these items were taken in."""
        return all(item.id in self._taken for item in items)

    def answer(self, item: InboxItem) -> None:
        """Apply a decision to its call; one whose ticket is closed by now changes nothing."""
        decision = item.decision
        ticket = self.view.tickets.get(decision.ticket_id) if decision is not None else None
        if decision is None or ticket is None:
            return
        self.draft.put_decision(decision)
        change = answered(self.view.calls[ticket.call_id], ticket, decision, self.identity, self.now)
        if change.call.state == "finished" and not self.quiet("after_tool"):
            change = Change(replace(change.call, hooks_due=True), change.log, change.ticket)
        self.change(change)

    async def _end_step(self, move: EndStep) -> None:
        if not self.quiet("step_end"):
            await self.phase("step_end", self.agent.hooks["step_end"], Step)
        self._close_step()

    def _close_step(self) -> None:
        run = self.set_run(stage="between")
        self.view.calls.clear()
        self.draft.log.append(StepEnd(self.identity, 0, self.now, run.steps))

    async def _switch_agent(self, move: SwitchAgent) -> None:
        run, now = self.view.run, self.now
        if run.handoffs >= self.rules.limits.handoffs:
            detail = f"more than {self.rules.limits.handoffs} handoffs"
            self.set_run(next_agent=None, ending=Stopped("max_handoffs", detail))
            return
        old, new = self.agent, self.env.registry.resolve(move.agent_id)
        await self.phase("deactivate", [h for h in old.hooks["deactivate"] if h.plugin not in new.configs], Step)
        self.set_run(agent_id=move.agent_id, next_agent=None, handoffs=run.handoffs + 1)
        self._use_agent(move.agent_id)
        self.log(Handoff(self.identity, 0, now, run.agent_id, move.agent_id))
        await self.phase("activate", [h for h in new.hooks["activate"] if h.plugin not in old.configs], Step)

    def keep_under(self, above: Rules) -> None:
        """Keep to what the run above allows its whole tree."""
        self._above = above
        self.rules = self.rules.under(above)

    def _use_agent(self, agent_id: str) -> None:
        agent = self.env.registry.resolve(agent_id)
        options = self.view.run.options
        if options is not None and options.client_tools:
            own = [ClientTool(s.name, s.description, s.parameters) for s in options.client_tools]
            agent = agent.with_client_tools(own)
        self.agent = agent
        rules = self.env.rules.get(agent_id)
        if rules is None:
            rules = self.env.rules[agent_id] = Rules(
                agent.agent.limits,
                tuple(agent.agent.stop),
                agent.agent.sequential,
                frozenset(name for name, tool in agent.tools.items() if tool.sequential),
            )
        self.rules = rules if self._above is None else rules.under(self._above)
        if self.identity.agent_id != agent_id:
            self.identity = self.draft.identity = replace(self.identity, agent_id=agent_id)

    async def _suspend(self, move: SuspendRun) -> None:
        kinds = {self.view.tickets[t].asked_by for t in move.tickets}
        reason = "user_input" if kinds <= {"tool", "client"} else "tool_permission"
        waiting = Waiting(reason, self.now, ("decision",), move.tickets)
        await self._leave("waiting", None, waiting)

    async def _wait_for_tasks(self, move: WaitForTasks) -> None:
        waiting = Waiting("awaiting_tasks", self.now, ("task", "input"))
        await self._leave("waiting", NaturalEnd(), waiting)

    async def _finish(self, move: Finish) -> None:
        if self.view.run.stage != "between":
            self._close_step()
        if self.agent.shape is not None and self.output is UNSET and type(move.termination) is NaturalEnd:
            # An activation before this one judged the answer.
            self.output = output_of(self.view.answer, self.agent.shape) if self.view.answer else UNSET
        await self._leave("done", move.termination, None)

    async def _leave(
        self, status: Literal["waiting", "done"], termination: Termination | None, waiting: Waiting | None
    ) -> None:
        """End the activation, unless something came in that changes what to do."""
        if not self.quiet("run_end"):
            hooks, seen = self.agent.hooks["run_end"], self.inbox_head
            try:
                await self.phase("run_end", hooks, RunEnd, lambda c: _ending(c, status, termination, waiting))
            except WakefulError as error:
                self.note(error, "run_end")
            if self.inbox_head != seen and isinstance(next_move(self.view, self.rules, self.now), Take):
                return  # What came in meanwhile is for this run: it doesn't end yet.
        if self.draft.notices:
            await self.flush()  # So that one which fails is noted while the log is still open.
        before, now = self.view.run, self.now
        changes: dict[str, Any] = {"status": status, "waiting": waiting}
        if termination is not None and status == "done":
            changes |= {"outcome": Outcome(termination, self.output), "finished_at": now, "ending": None}
        run = self.set_run(**changes)
        finish = RunFinish(self.identity, 0, now, status, termination, waiting, run.usage, run.steps)
        self.log(finish)
        natural = status == "waiting" or isinstance(termination, NaturalEnd)
        try:
            await self.flush(release=True, inbox_head=self.inbox_head if natural else None)
        except InboxMoved:
            self.draft.log.remove(finish)
            self.view.run = before
            self.draft.put_run(before)
            await self._reload_inbox()
            return
        self._ended = True

    async def _reload_inbox(self) -> None:
        stored = await self.env.store.load(self.identity.thread_id)
        if stored is not None:
            self.view.inbox = {item.id: item for item in stored.inbox if item.id not in self._taken}
            self.view.tasks = tuple([t for t in stored.tasks if t.run_id == self.view.run.id])
            self.inbox_head = stored.thread.inbox_head

    def deliver(self, items: list[InboxItem], inbox_head: int) -> None:
        """Take note of items that this process put into the thread's inbox."""
        for item in items:
            # A run that found the item in the store may have taken it before its sender is told.
            if item.id not in self._taken:
                self.view.inbox[item.id] = item
        self.inbox_head = max(self.inbox_head, inbox_head)
        if self.view.live:
            self.executor.nudge()


def _ending(
    ctx: RunEnd,
    status: Literal["waiting", "done"],
    termination: Termination | None,
    waiting: Waiting | None,
) -> None:
    ctx.status = status
    ctx.termination = termination
    ctx.waiting = waiting


_PERFORM: dict[type[Move], Callable[[Activation, Any], Awaitable[None]]] = {
    Infer: _inference.infer,
    Execute: _calls.execute,
    Recover: _calls.recover,
    AfterCalls: _calls.after_calls,
    Drop: _calls.drop,
    Await: Activation._await,  # pyright: ignore[reportPrivateUsage]
    Interrupt: Activation._interrupt,  # pyright: ignore[reportPrivateUsage]
    Take: Activation._take,  # pyright: ignore[reportPrivateUsage]
    EndStep: Activation._end_step,  # pyright: ignore[reportPrivateUsage]
    SwitchAgent: Activation._switch_agent,  # pyright: ignore[reportPrivateUsage]
    SuspendRun: Activation._suspend,  # pyright: ignore[reportPrivateUsage]
    WaitForTasks: Activation._wait_for_tasks,  # pyright: ignore[reportPrivateUsage]
    Finish: Activation._finish,  # pyright: ignore[reportPrivateUsage]
}
