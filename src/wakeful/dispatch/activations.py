"""The factory of activations: of new runs, of stored runs, and of children."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from ..bus import LocalBus
from ..context import SummaryKey, SummaryState
from ..errors import Conflict, UnknownAgent
from ..loop import (
    NO_CALLS,
    Activation,
    Environment,
    Fingerprint,
    History,
    Rules,
    RunView,
    Tree,
    apply_inbox,
    changes_since,
    detached_of,
    inherit_tasks,
    load_history,
    load_sources,
    reach_of,
    rules_of,
    supersede,
)
from ..state import State
from ..stores import Commit, Fence, ThreadView
from ..types.codec import decode
from ..types.events import RunStart
from ..types.inbox import InboxItem
from ..types.messages import Message
from ..types.runs import Identity, RunRecord, TaskRef
from .results import NewRun

__all__ = ["ActivationFactory", "join"]


class ActivationFactory:
    """Creates activations. Their first commit claims the thread, unless they get the fence of a claim."""

    def __init__(self, env: Environment, bus: LocalBus, owner: str) -> None:
        self.env = env
        self.bus = bus
        self._owner = owner
        self._keys = env.registry.catalog.keys

    async def history(self, stored: ThreadView, agent_id: str, run: RunRecord | None = None) -> History:
        """The messages of a thread that an agent's model is shown, for a new run or for a stored one."""
        env, thread = self.env, stored.thread
        if not thread.head:
            return History([])
        agent = env.registry.resolve(agent_id)
        if agent.agent.limits.history is None and agent.backend is None:
            at = Fingerprint(thread.last_run_id, thread.version, thread.head)
            if (cached := env.histories.take((env.store.tenant_name, thread.id), at)) is not None:
                return cached
        kept = stored.state.get(SummaryKey.name)
        mark = SummaryState() if kept is None else decode(kept, SummaryState)
        reach = reach_of(agent, None, env.registry.models, env.gauges)
        return await load_history(env.store, thread.id, reach, mark, None if run is None else run.first_seq)

    def new(
        self,
        new: NewRun,
        stored: ThreadView | None = None,
        history: History | None = None,
        fence: Fence | None = None,
    ) -> Activation:
        """An activation for a new run, on a new thread by default; it supersedes a run that waits on the thread.

        With a `fence` the thread is claimed already.
        """
        now = self.env.clock.now()
        identity = new.lineage or Identity(new.run_id, new.thread_id, new.agent_id, new.run_id)
        run = RunRecord(
            identity=identity,
            status="running",
            agent_id=new.agent_id,
            principal=new.principal,
            owner=new.owner,
            options=new.options,
            created_at=now,
            started_at=now,
            updated_at=now,
            first_seq=(stored.thread.head if stored else 0) + 1,
            task=new.task,
            hops=0 if new.message is None or new.message.producer is None else new.message.producer.hops,
            priority=new.priority,
            trace=new.trace,
        )
        state = State(self._keys) if stored is None else State.load(self._keys, stored.state)
        if new.seed:
            state.seed(new.seed)
        view = RunView(run, Tree(started_at=now))
        above = identity.parent_thread_id
        channel = self.bus.hold(identity.thread_id, () if above is None else (above,))
        act = Activation(self.env, view, state, history or History([]), channel, now)
        self._claim(act, stored, fence)
        if stored is not None:
            view.inbox = {i.id: i for i in stored.inbox if i.id != new.item_id}
            view.detached = detached_of(stored)
            if stored.tasks:
                inherit_tasks(act, stored)
            if stored.run is not None:
                for entry in supersede(act.draft, stored, stored.run, now):
                    act.log(entry)
            apply_inbox(act)
        _begin(act, run, new.history, new.message)
        if new.item_id is not None:
            act.take(new.item_id, new.item_revision)
        elif new.request is not None:
            act.draft.request = new.request
        return act

    def _claim(self, act: Activation, stored: ThreadView | None, fence: Fence | None = None) -> None:
        # The epoch grows with every claim, so the owner's id is unique as a token.
        draft = act.draft
        if fence is not None:
            draft.fence = fence
        else:
            draft.claim, draft.version = self._owner, 0 if stored is None else stored.thread.version
        if stored is not None:
            act.inbox_head, act.head = stored.thread.inbox_head, stored.thread.head

    async def write(self, commit: Commit, run: RunRecord | None) -> None:
        """Write a commit to an idle thread with this open run.

        If the thread still has the claim of a dead owner, the commit takes the claim over and releases it.
        """
        store = self.env.store
        try:
            await store.commit(commit)
        except Conflict:
            thread = await store.thread(commit.thread_id)
            if thread is None or thread.claimed or thread.version != commit.version:
                raise
            runs = commit.runs or ([] if run is None else [run])  # The store settles the dispatch by the run.
            await store.commit(replace(commit, runs=runs, claim=self._owner, release=True))

    async def reopen(
        self,
        stored: ThreadView,
        run: RunRecord,
        trigger: Any,
        parent: Activation | None = None,
        fence: Fence | None = None,
        *,
        ends: bool = False,
    ) -> Activation:
        """An activation that continues a stored run, below `parent` if a call of that run awaits it.

        With a `fence` the thread is claimed already. An activation that only `ends` the run doesn't need its
        agent.
        """
        env = self.env
        if ends and not env.registry.knows(run.agent_id):
            env, history = replace(env, registry=env.registry.with_placeholder(run.agent_id)), History([])
        else:
            history = await self.history(stored, run.agent_id, run)
        view = RunView.of(stored, replace(run, status="running", waiting=None))
        state = State.load(self._keys, {**stored.state, **stored.run_state})
        now = self.env.clock.now()
        above = run.identity.parent_thread_id
        channel = self.bus.hold(run.identity.thread_id, () if above is None else (above,))
        act = Activation(env, view, state, history, channel, now)
        if parent is not None:
            join(act, parent)
        elif run.identity.parent_run_id is not None:
            await self.join_tree(act)
        else:
            view.tree.apart = run.apart or bool(view.tasks)
        self._claim(act, stored, fence)
        if act.agent.sources:
            await load_sources(act, only_pinned=True)
        return _reopened(act, run, trigger)

    def wake(self, parked: Activation, item: InboxItem) -> Activation:
        """An activation that continues a parked run with an item.

        Its first commit is refused if anything but this item was written to the thread since the run parked.
        """
        before, run = parked.view, parked.view.run
        going = replace(run, status="running", waiting=None)
        view = replace(before, run=going, inbox={**before.inbox, item.id: item}, deferred=NO_CALLS)
        channel = self.bus.hold(item.thread_id, parked.channel.above)
        act = Activation(
            self.env, view, parked.state, History(parked.history, parked.cut), channel, self.env.clock.now()
        )
        if parked.above is not None:
            act.keep_under(parked.above)
        act.draft.claim, act.draft.version = self._owner, parked.version
        act.draft.expect(item)
        act.inbox_head, act.head = parked.inbox_head + 1, parked.head
        if parked.offers:
            act.offers = parked.offers
            act.use_offers()
        return _reopened(act, run, "wake")

    def child(
        self,
        parent: Activation,
        identity: Identity,
        task: TaskRef,
        message: Message,
        seed: dict[str, bytes],
        history: tuple[Message, ...],
    ) -> Activation:
        """An activation for a child of a tool call, with its own thread and state and the parent's budget."""
        now, above = self.env.clock.now(), parent.view
        run = RunRecord(
            identity=identity,
            status="running",
            agent_id=identity.agent_id,
            principal=above.run.principal,
            owner=above.run.owner,
            created_at=now,
            started_at=now,
            updated_at=now,
            first_seq=1,
            task=task,
            hops=above.run.hops,
            trace=None if self.env.tracer is None else self.env.tracer.capture(detached=task.background),
        )
        state = State(self._keys)
        if seed:
            state.seed(seed)
        channel = self.bus.hold(identity.thread_id, parent.channel.path)
        act = Activation(self.env, RunView(run, above.tree), state, History([]), channel, now)
        act.keep_under(parent.rules)
        self._claim(act, None)
        _begin(act, run, history, message)
        return act

    async def join_tree(self, act: Activation) -> None:
        """Apply the limits of the runs above a run that this process doesn't run."""
        above = act.identity.parent_run_id
        rules: list[Rules] = []
        threads: list[str] = []
        while above is not None and (run := await self.env.store.run(above)) is not None:
            threads.append(run.thread_id)
            with suppress(UnknownAgent):  # Another process knows the agent and its limits.
                rules.append(rules_of(self.env, self.env.registry.resolve(run.agent_id)))
            above = run.identity.parent_run_id
        if rules:
            allowed = rules.pop()
            while rules:
                allowed = rules.pop().under(allowed)
            act.keep_under(allowed)
        act.channel.above = tuple(threads)
        act.view.tree.apart = True


def join(act: Activation, parent: Activation) -> None:
    """Share the counters and limits of a parent that runs in this process."""
    act.view.tree = parent.view.tree
    act.channel.above = parent.channel.path
    act.keep_under(parent.rules)


def _reopened(act: Activation, run: RunRecord, trigger: Any) -> Activation:
    """Log the start of an activation that continues a run."""
    act.trigger = trigger
    act.set_run(apart=run.apart or act.view.tree.apart)
    act.log(RunStart(act.identity, 0, act.now, trigger, changes_since(run.needs, act.agent)))
    apply_inbox(act)
    return act


def _begin(act: Activation, run: RunRecord, history: tuple[Message, ...], message: Message | None) -> None:
    """Log the start of a new run, with its initial history and message."""
    draft = act.draft
    draft.run = run
    if history:
        act.log(*history)
    draft.log.append(RunStart(run.identity, 0, act.now, "new"))
    if message is not None:
        draft.log.append(message)
        act.history.append(message)
