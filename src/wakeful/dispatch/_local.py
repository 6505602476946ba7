"""Runs in this process: starting, resuming, superseding, and taking turns on a thread."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from ..bus import Channel, LocalBus
from ..errors import (
    Conflict,
    InvalidDecision,
    RunFailed,
    RunNotWaiting,
    RuntimeClosed,
    ThreadBusy,
    ToolError,
    UnknownRun,
)
from ..loop import Activation, Environment, RunView, Tree, match_decision, supersede
from ..state import State
from ..stores import Commit, InboxItem, InputPolicy, ThreadView
from ..tools import ChildResult, ClientTool, ToolContext
from ..types.events import RunStart
from ..types.ids import new_id
from ..types.messages import Message, user_message
from ..types.runs import (
    BehaviourRequested,
    Failed,
    Identity,
    NaturalEnd,
    Principal,
    RunOptions,
    RunRecord,
    Stopped,
    Termination,
    Usage,
)
from ..types.tickets import Decision, Ticket

__all__ = ["Dispatcher", "NewRun", "RunResult"]

_log = logging.getLogger("wakeful")


class RunResult(Struct, frozen=True, kw_only=True):
    """What a run came to so far. With status `waiting`, `tickets` are the questions it waits on; with `done`,
    `termination` says how it ended. `text` is the last answer, `output` the typed one."""

    run_id: str
    thread_id: str
    agent_id: str
    status: str
    text: str
    output: Any = None
    termination: Termination | None = None
    tickets: tuple[Ticket, ...] = ()
    usage: Usage = Usage()
    steps: int = 0

    @property
    def error(self) -> str | None:
        """Why the run is done without having come to its end, if that is so."""
        match self.termination:
            case None | NaturalEnd() | BehaviourRequested():
                return None
            case Failed(error, message):
                return f"{error}: {message}"
            case Stopped(policy, detail):
                return f"stopped by {policy}: {detail}"
            case other:
                return f"{type(other).__name__.lower()}: {getattr(other, 'reason', '')}"

    def raise_for_failure(self) -> RunResult:
        """Raise `RunFailed` if there is an error; else return the result itself."""
        if self.error is not None:
            raise RunFailed(f"run {self.run_id} of {self.agent_id} failed: {self.error}")
        return self


class NewRun(Struct, frozen=True, kw_only=True):
    """A run that somebody asks for."""

    thread_id: str
    agent_id: str
    message: Message
    run_id: str = field(default_factory=new_id)
    principal: Principal | None = None
    options: RunOptions | None = None
    seed: dict[str, bytes] = {}
    item_id: str | None = None


class Dispatcher:
    """The runs that this process executes. At most one at a time on a thread; others wait in its inbox."""

    def __init__(self, env: Environment, bus: LocalBus) -> None:
        self.env = env
        self.bus = bus
        self.active: dict[str, Activation] = {}
        self.tasks: set[asyncio.Task[Any]] = set()
        self._turns: dict[str, asyncio.Future[RunResult]] = {}
        self.closed = False
        self._owner = new_id()

    # -- new input -------------------------------------------------------------------------------------------

    async def run(self, new: NewRun, *, fresh: bool, opened: Callable[[str], None] | None = None) -> RunResult:
        """Run a new intent on its thread: now if the thread is free, else when its turn comes.

        `opened` is told the id of the run that takes the input.
        """
        self._check_open()
        stored = None if fresh else await self.env.store.load(new.thread_id)
        while True:
            act = await self._open(new, stored)
            if opened is not None:
                opened(new.run_id if act is None else act.identity.root_run_id)
            if act is None:
                return await self._in_turn(new)
            try:
                return await self._drive(act, new.thread_id)
            except Conflict:
                stored = await self.env.store.load(new.thread_id)

    async def send(self, new: NewRun, policy: InputPolicy) -> None:
        """Put input into the thread's inbox, or start a run in the background if the thread is free."""
        self._check_open()
        stored = await self.env.store.load(new.thread_id)
        busy = stored is not None and (stored.run is not None or stored.thread.claimed)
        if busy and policy == "reject":
            raise ThreadBusy(f"thread {new.thread_id!r} has an open run; wait for it or choose another policy")
        await self._deliver(_item(new, policy))
        if busy and policy == "interrupt":
            await self._interrupt(new.thread_id, stored)
        await self.pump(new.thread_id)

    async def _interrupt(self, thread_id: str, stored: ThreadView | None) -> None:
        if stored is not None and stored.run is not None:
            await self.cancel(stored.run.id, "interrupted by new input")

    async def _in_turn(self, new: NewRun) -> RunResult:
        """Wait in the thread's inbox for the run that takes this input, and for what it comes to."""
        turn: asyncio.Future[RunResult] = asyncio.get_running_loop().create_future()
        item = _item(new, "queue")
        self._turns[item.id] = turn
        try:
            await self._deliver(item)
            await self.pump(new.thread_id)
            return await turn
        finally:
            self._turns.pop(item.id, None)

    async def _deliver(self, item: InboxItem) -> None:
        committed = await self.env.store.commit(Commit(thread_id=item.thread_id, inbox=[item]))
        act = self.active.get(item.thread_id)
        if act is not None:
            act.deliver([item], committed.inbox_head)

    async def pump(self, thread_id: str) -> None:
        """Start what waits in a thread's inbox, if nobody runs the thread and something may."""
        if self.closed or thread_id in self.active:
            return
        stored = await self.env.store.load(thread_id)
        if stored is None or stored.thread.claimed:
            return
        if stored.run is not None:
            waiting = stored.run.waiting
            if waiting is not None and any(_wakes(item, waiting.wakes) for item in stored.inbox):
                self._spawn(self._wake(stored, stored.run))
            return
        item = next((i for i in stored.inbox if i.kind == "input" and i.message is not None), None)
        if item is not None:
            self._spawn(self._turn(item))

    async def _turn(self, item: InboxItem) -> None:
        """Run one input that waited its turn."""
        turn = self._turns.get(item.id)
        try:
            stored = await self.env.store.load(item.thread_id)
            if stored is None or all(pending.id != item.id for pending in stored.inbox):
                return  # Somebody else took the item in before this turn came.
            act = await self._open(_from_item(item), stored)
            if act is None:
                return
            result = await self._drive(act, item.thread_id)
        except Conflict:
            return  # Somebody else took the thread first; the item is still there for whoever is next.
        except Exception as error:
            if turn is None or turn.done():
                raise
            turn.set_exception(error)
        else:
            if turn is not None and not turn.done():
                turn.set_result(result)

    async def _wake(self, stored: ThreadView, run: RunRecord) -> None:
        act = await self._reopen(stored, run, "wake")
        await self._drive(act, run.thread_id)

    # -- activations -----------------------------------------------------------------------------------------

    async def _open(self, new: NewRun, stored: ThreadView | None) -> Activation | None:
        """An activation for a new run, or None if the thread is busy and the input must wait."""
        if new.thread_id in self.active:
            return None
        if stored is None:
            return self._new_activation(new, None, [])
        if stored.thread.claimed:
            return None
        history = await self.env.store.messages(new.thread_id)
        open_run = stored.run
        if open_run is None or (open_run.waiting is not None and "input" not in open_run.waiting.wakes):
            return self._new_activation(new, stored, list(history))
        if open_run.waiting is None:
            # Nobody runs it: it goes on from where it stood, and takes the input when its step is closed.
            await self._deliver(_item(new, "steer"))
            return await self._reopen(await self.env.store.load(new.thread_id) or stored, open_run, "recover")
        act = await self._reopen(stored, open_run, "wake")
        act.log(new.message)
        act.set_run(ending=None)
        return act

    def _new_activation(self, new: NewRun, stored: ThreadView | None, history: list[Message]) -> Activation:
        now = self.env.clock.now()
        identity = Identity(new.run_id, new.thread_id, new.agent_id, new.run_id)
        run = RunRecord(
            identity=identity,
            status="running",
            agent_id=new.agent_id,
            principal=new.principal,
            options=new.options,
            created_at=now,
            started_at=now,
            updated_at=now,
            first_seq=(stored.thread.head if stored else 0) + 1,
        )
        keys = self.env.registry.catalog.keys
        state = State(keys, stored.state if stored else None)
        state.seed(new.seed)
        view = RunView(run, tree=Tree(started_at=now))
        act = Activation(self.env, view, state, history, self.bus.hold(new.thread_id))
        self._claim(act, stored)
        if stored is not None:
            view.inbox = {i.id: i for i in stored.inbox if i.id != new.item_id}
            if stored.run is not None:
                for entry in supersede(act.draft, stored, stored.run, now):
                    act.log(entry)
        act.draft.put_run(run)
        act.log(RunStart(identity, 0, now, "new"))
        act.log(new.message)
        if new.item_id is not None:
            act.take(new.item_id)
        return act

    def _claim(self, act: Activation, stored: ThreadView | None) -> None:
        # With the epoch, which grows with every claim, the owner's id is a token nobody else can have.
        act.draft.claim = self._owner
        act.draft.version = stored.thread.version if stored else 0
        act.inbox_head = stored.thread.inbox_head if stored else 0
        act.head = stored.thread.head if stored else 0

    async def _reopen(self, stored: ThreadView, run: RunRecord, trigger: Any) -> Activation:
        """An activation that goes on with a run that the store holds."""
        history = list(await self.env.store.messages(run.thread_id))
        view = RunView.of(stored, replace(run, status="running", waiting=None))
        state = State(self.env.registry.catalog.keys, {**stored.state, **stored.run_state})
        act = Activation(self.env, view, state, history, self.bus.hold(run.thread_id))
        self._claim(act, stored)
        act.set_run()
        act.log(RunStart(act.identity, 0, self.env.clock.now(), trigger))
        return act

    async def _drive(self, act: Activation, thread_id: str) -> RunResult:
        """Run an activation to its end here, in the caller's task."""
        if thread_id in self.active:
            self.bus.release(thread_id)
            raise Conflict(f"thread {thread_id!r} was taken by another run of this process")
        self.active[thread_id] = act
        try:
            await act.drive()
        finally:
            del self.active[thread_id]
            self.bus.release(thread_id)
            if act.view.inbox:
                self._spawn(self.pump(thread_id))
        return self.result(act)

    def result(self, act: Activation) -> RunResult:
        """What an activation came to."""
        return self._result(act.view.run, act.view.answer, tuple(act.view.tickets.values()))

    async def _recall(self, run_id: str) -> RunResult:
        """What a run came to so far, from the store alone."""
        store = self.env.store
        run = await store.run(run_id)
        if run is None:
            raise UnknownRun(f"no run {run_id!r} in this store")
        messages = await store.messages(run.thread_id)
        answer = next((m for m in reversed(messages) if m.id == run.answer_id), None)
        return self._result(run, answer, tuple([t for t in await store.tickets(run_id) if t.status == "open"]))

    def _result(self, run: RunRecord, answer: Message | None, tickets: tuple[Ticket, ...]) -> RunResult:
        outcome, output = run.outcome, None
        if outcome is not None and isinstance(outcome.output, msgspec.Raw):
            shape = self.env.registry.resolve(run.agent_id).shape
            output = None if shape is None else shape.decode(bytes(outcome.output))
        return RunResult(
            run_id=run.id,
            thread_id=run.thread_id,
            agent_id=run.agent_id,
            status=run.status,
            text=answer.text if answer is not None else "",
            output=output,
            termination=outcome.termination if outcome is not None else None,
            tickets=tickets,
            usage=run.usage + run.descendants if run.descendants.total_tokens else run.usage,
            steps=run.steps,
        )

    # -- resuming and cancelling -----------------------------------------------------------------------------

    async def resume(self, run_id: str, decisions: Sequence[Decision]) -> RunResult:
        """Answer tickets of a run and go on with it."""
        self._check_open()
        while True:
            run, stored = await self._find(run_id)
            if run.status == "done":
                raise RunNotWaiting(f"run {run_id} is done; there is nothing to answer")
            matched = await self._match(run, stored, decisions)
            items = [InboxItem(id=new_id(), thread_id=run.thread_id, kind="decision", decision=d) for d in matched]
            act = self.active.get(run.thread_id)
            if act is not None:
                for item in items:
                    await self._deliver(item)
                return await self._after(act, items)
            act = await self._reopen(stored, run, "resume")
            for item in items:
                act.answer(item)
            try:
                return await self._drive(act, run.thread_id)
            except Conflict:
                continue

    async def _after(self, act: Activation, items: Sequence[InboxItem]) -> RunResult:
        """What a run came to once it took these items in, in the activation that ran or in one after it."""
        run_id, thread_id = act.identity.run_id, act.identity.thread_id
        while True:
            await act.ended()
            if act.has_taken(items):
                return self.result(act)
            stored = await self.env.store.load(thread_id)
            if running := self.active.get(thread_id):
                act = running
                continue
            open_run = None if stored is None or stored.thread.claimed else stored.run
            if stored is None or open_run is None or open_run.id != run_id:
                return await self._recall(run_id)
            if all(pending.id != item.id for item in items for pending in stored.inbox):
                return await self._recall(run_id)
            act = await self._reopen(stored, open_run, "wake")
            try:
                await self._drive(act, thread_id)
            except Conflict:
                act = self.active.get(thread_id, act)

    async def _match(self, run: RunRecord, stored: ThreadView, decisions: Sequence[Decision]) -> list[Decision]:
        closed = {t.id: t for t in await self.env.store.tickets(run.id) if t.status != "open"}
        tickets = {ticket.id: ticket for ticket in stored.tickets if ticket.run_id == run.id}
        matched: list[Decision] = []
        for decision in decisions:
            ticket, full = match_decision(decision, tickets, closed)
            self._check_value(run, ticket, full)
            matched.append(full)
            closed[ticket.id] = replace(tickets.pop(ticket.id), status="answered")
        return matched

    def _check_value(self, run: RunRecord, ticket: Ticket, decision: Decision) -> None:
        mode = decision.mode or ticket.accepts[0]
        if decision.verdict == "deny":
            return
        try:
            msgspec.json.encode(decision.value)
            tool = self.env.registry.resolve(run.agent_id).tools.get(ticket.tool)
            if mode == "arguments" and tool is not None and not isinstance(tool, ClientTool):
                tool.parameters.bind(decision.value)
        except (ToolError, TypeError, UnicodeEncodeError) as error:
            raise InvalidDecision(f"the answer to ticket {ticket.id} for {ticket.tool}: {error}") from error

    async def cancel(self, run_id: str, reason: str) -> bool:
        """Cancel a run and wait until it is quiet; False if it was done before."""
        while True:
            run, stored = await self._find(run_id)
            if run.status == "done":
                return False
            act = self.active.get(run.thread_id)
            if act is not None and act.view.run.id == run_id:
                act.cancel(reason)
                await act.ended()
                return True
            act = await self._reopen(stored, run, "wake")
            act.set_run(cancel=reason)
            try:
                await self._drive(act, run.thread_id)
            except Conflict:
                continue
            return True

    async def _find(self, run_id: str) -> tuple[RunRecord, ThreadView]:
        run = await self.env.store.run(run_id)
        stored = None if run is None else await self.env.store.load(run.thread_id)
        if run is None or stored is None:
            raise UnknownRun(f"no run {run_id!r} in this store")
        if stored.thread.claimed and run.status != "done" and run.thread_id not in self.active:
            raise ThreadBusy(f"run {run_id} is being run by another runtime")
        return run, stored

    # -- children --------------------------------------------------------------------------------------------

    async def run_child(self, parent: Activation, context: ToolContext, agent_id: str, prompt: str) -> ChildResult:
        """Run an agent as a child of a tool call: a thread and a state of its own, the parent's budget."""
        above = context.run
        if above.depth >= parent.rules.limits.depth:
            raise ToolError(
                f"agent {agent_id} can't be called here: runs are nested {above.depth} deep and the limit is "
                f"{parent.rules.limits.depth}"
            )
        act = self._child_activation(parent, context, agent_id, prompt)
        children = parent.executor.children
        children[context.call_id] = children.get(context.call_id, 0) + 1
        try:
            await self._drive(act, act.identity.thread_id)
        finally:
            children[context.call_id] -= 1
            run = act.view.run
            used = parent.view.run.descendants + run.usage + run.descendants
            parent.set_run(descendants=used, tree_calls=parent.view.tree.calls)
        if run.status == "waiting":
            await self.cancel(run.id, "a delegate can't wait for a person")
            error = "it asked for a person's answer, and a delegate can't wait for one"
            return ChildResult(run.id, agent_id, "waiting", "", run.steps, error)
        result = self.result(act)
        return ChildResult(run.id, agent_id, *_child_status(result), run.steps, _child_error(result))

    def _child_activation(
        self, parent: Activation, context: ToolContext, agent_id: str, prompt: str
    ) -> Activation:
        now, run_id, above = self.env.clock.now(), new_id(), context.run
        identity = Identity(
            run_id,
            run_id,
            agent_id,
            above.root_run_id,
            above.run_id,
            above.thread_id,
            context.call_id,
            "subagent",
            above.depth + 1,
        )
        run = RunRecord(
            identity=identity,
            status="running",
            agent_id=agent_id,
            principal=parent.view.run.principal,
            created_at=now,
            started_at=now,
            updated_at=now,
            first_seq=1,
        )
        view = RunView(run, tree=parent.view.tree)
        channel: Channel = self.bus.hold(run_id, parent.channel)
        act = Activation(self.env, view, State(self.env.registry.catalog.keys), [], channel)
        act.keep_under(parent.rules)
        self._claim(act, None)
        act.draft.put_run(run)
        act.log(RunStart(identity, 0, now, "new"))
        act.log(user_message(prompt, at=now))
        return act

    # -- lifetime --------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self.closed:
            raise RuntimeClosed("the runtime was closed; make a new one")

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        self.track(asyncio.get_running_loop().create_task(work))

    def track(self, task: asyncio.Task[Any], *, heard: bool = False) -> None:
        """Keep a background task until it ends, and log its failure unless somebody hears of it."""
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard if heard else self._untrack)

    def _untrack(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a run in the background failed", exc_info=error)

    async def close(self) -> None:
        """Cancel what runs and wait until all is quiet."""
        self.closed = True
        for turn in self._turns.values():
            if not turn.done():
                turn.set_exception(RuntimeClosed("the runtime was closed; the input waits in its thread's inbox"))
        while self.active or self.tasks:
            ends = [act.ended() for act in self.active.values()]
            for act in list(self.active.values()):
                act.cancel("the runtime was closed")
            await asyncio.wait({*self.tasks, *ends})
        self.env.threads.close()


def _item(new: NewRun, policy: InputPolicy) -> InboxItem:
    return InboxItem(
        id=new.run_id,
        thread_id=new.thread_id,
        kind="input",
        message=new.message,
        policy="queue" if policy == "interrupt" else policy,
        agent_id=new.agent_id,
        principal=new.principal,
        options=new.options,
        run_id=new.run_id,
        seed=new.seed,
    )


def _from_item(item: InboxItem) -> NewRun:
    if item.message is None or item.agent_id is None:
        raise ValueError(f"inbox item {item.id} has no message or agent")
    return NewRun(
        thread_id=item.thread_id,
        agent_id=item.agent_id,
        message=item.message,
        run_id=item.run_id or new_id(),
        principal=item.principal,
        options=item.options,
        seed=item.seed,
        item_id=item.id,
    )


def _wakes(item: InboxItem, kinds: tuple[str, ...]) -> bool:
    return item.kind in kinds and (item.kind != "input" or item.policy == "steer")


def _child_status(result: RunResult) -> tuple[str, str]:
    match result.termination:
        case NaturalEnd() | BehaviourRequested():
            return "completed", result.text
        case Stopped() | Failed():
            return "failed", result.text
        case _:
            return "cancelled", result.text


def _child_error(result: RunResult) -> str | None:
    match result.termination:
        case NaturalEnd() | BehaviourRequested():
            return None
        case Stopped(policy, detail):
            return f"stopped: {policy}: {detail}"
        case Failed(_, message):
            return message
        case other:
            return f"{type(other).__name__.lower()}: {getattr(other, 'reason', '')}"
