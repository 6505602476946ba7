"""Any sequence of claims, deaths, writes, deliveries and refusals leaves a store as a small model says."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from store_suite import STORES, StoreFactory, die, due_threads, identity, item, message, record, step, waiting

from wakeful.errors import Conflict, DuplicateRequest, InboxMoved, StaleFence
from wakeful.stores import Commit, Fence, Store
from wakeful.types import Request
from wakeful.types.events import MessageAdded
from wakeful.types.ids import new_id

threads = st.sampled_from(["t1", "t2"])
entries = st.lists(st.sampled_from(["message", "event"]), max_size=3)
items = st.lists(st.sampled_from([f"item{n}" for n in range(6)]), max_size=2)
requests = st.none() | st.sampled_from([f"item{n}" for n in range(6)] + ["ask1", "ask2"])
policies = st.sampled_from(["queue", "steer"])
mostly = st.sampled_from([True, True, True, False])
statuses = st.sampled_from(["running", "waiting on decisions", "waiting on input", "done"])


class Model:
    """The expected state of a thread."""

    def __init__(self) -> None:
        self.exists = False
        self.version = 0
        self.claim: Fence | None = None
        self.alive = False
        self.run: str | None = None
        self.due = False
        self.lost: list[Fence] = []
        self.epoch = 0
        self.log: list[str] = []
        self.pending: list[str] = []
        self.inbox_head = 0

    @property
    def wakes(self) -> set[str]:
        """The policies of input that wake the thread."""
        return {None: {"queue", "steer"}, "waiting on input": {"steer"}}.get(self.run, set())

    def settle(self, policies: dict[str, str], *, run_written: bool) -> None:
        """Nobody owns the thread any more: what is due now?"""
        if any(policies[i] in self.wakes for i in self.pending):
            self.due = True
        elif self.run is None or run_written:
            self.due = self.run == "running"


def owned(machine: Any) -> bool:
    """Whether a thread has an owner, alive or dead: without one, what owners do isn't worth trying."""
    return any(model.claim is not None for model in machine.threads.values())


class StoreMachine(RuleBasedStateMachine):
    open_store: StoreFactory

    @initialize()
    def open(self) -> None:
        self.runner = asyncio.Runner()
        self.held = AsyncExitStack()
        self.store: Store = self.runner.run(self.held.enter_async_context(self.open_store()))
        self.threads = {"t1": Model(), "t2": Model()}
        self.delivered: set[str] = set()
        self.policies: dict[str, str] = {}
        # Most of what can go wrong happens to owners: begin with one.
        self.claim_thread("t1", [], right=True, request=None)

    def teardown(self) -> None:
        if hasattr(self, "runner"):
            self.runner.run(self.held.aclose())
            self.runner.close()

    def commit(self, thread_id: str, expected: type[Exception] | None, **changes: Any) -> Any:
        """Commit, and say whether it went as expected."""
        commit = Commit(thread_id=thread_id, identity=identity(thread_id=thread_id), **changes)
        if expected is None:
            return self.runner.run(self.store.commit(commit))
        with pytest.raises(expected):
            self.runner.run(self.store.commit(commit))
        return None

    def owner_of(self, thread_id: str) -> tuple[str, Model]:
        """This thread if it has an owner, else the one that has."""
        if self.threads[thread_id].claim is None:
            thread_id = next(name for name, model in self.threads.items() if model.claim is not None)
        return thread_id, self.threads[thread_id]

    def append(self, thread_id: str, log: list[str]) -> None:
        model = self.threads[thread_id]
        model.exists = True
        model.log += log

    def packed(self, to: str, ids: list[str], policy: str) -> list[Any]:
        return [item(i, to, policy=policy) for i in ids]

    def deliver(self, to: str, ids: list[str], policy: str = "queue") -> None:
        model = self.threads[to]
        for item_id in ids:
            model.exists = True
            if item_id not in self.delivered:
                self.delivered.add(item_id)
                self.policies[item_id] = policy
                model.pending.append(item_id)
                model.inbox_head += 1
                if model.claim is None and policy in model.wakes:
                    model.due = True

    # A store may ignore an item it had before; the thread it was meant for may exist all the same.
    @rule(to=threads, ids=items, policy=policies)
    def deliver_to_an_inbox(self, to: str, ids: list[str], policy: str) -> None:
        ids = [i for i in ids if i not in self.delivered or self.threads[to].exists]
        done = self.commit(to, None, inbox=self.packed(to, ids, policy))
        self.deliver(to, ids, policy)
        assert (done.version, done.inbox_head) == (self.threads[to].version, self.threads[to].inbox_head)

    @rule(thread_id=threads, log=entries, right=mostly, request=requests)
    def claim(self, thread_id: str, log: list[str], right: bool, request: str | None) -> None:
        self.claim_thread(thread_id, log, right=right, request=request)

    def claim_thread(self, thread_id: str, log: list[str], *, right: bool, request: str | None) -> None:
        model, token = self.threads[thread_id], new_id()
        expected: type[Exception] | None = None
        if not right or (model.claim is not None and model.alive):
            expected = Conflict
        elif request in self.delivered:
            expected = DuplicateRequest
        version = model.version + (0 if right else 1)
        done = self.commit(
            thread_id, expected, claim=token, version=version, log=_log(log), request=request and Request(request)
        )
        if done is not None:
            assert done.epoch > model.epoch
            if model.claim is not None:
                model.lost.append(model.claim)
            model.claim, model.alive, model.due = Fence(done.epoch, token), True, True
            model.epoch, model.version = done.epoch, done.version
            self.append(thread_id, log)
            if request is not None:
                self.delivered.add(request)

    @precondition(owned)
    @rule(thread_id=threads)
    def kill_the_owner(self, thread_id: str) -> None:
        _, model = self.owner_of(thread_id)
        assert model.claim is not None
        self.runner.run(die(self.store, model.claim.token))
        model.alive = False

    @precondition(owned)
    @rule(thread_id=threads, status=statuses, release=st.booleans())
    def write_the_run(self, thread_id: str, status: str, release: bool) -> None:
        thread_id, model = self.owner_of(thread_id)
        if status == "done" and model.run is None:
            return
        done = self.commit(thread_id, None, fence=model.claim, runs=[_run(thread_id, status)], release=release)
        model.version = done.version
        model.run = None if status == "done" else status
        if release:
            self.released(model, run_written=True)

    def released(self, model: Model, *, run_written: bool = False) -> None:
        assert model.claim is not None
        model.lost.append(model.claim)
        model.claim, model.alive = None, False
        model.settle(self.policies, run_written=run_written)

    @precondition(owned)
    @rule(
        thread_id=threads,
        log=entries,
        to=threads,
        ids=items,
        policy=policies,
        release=st.booleans(),
        take=st.integers(0, 2),
    )
    def write_as_the_owner(
        self, thread_id: str, log: list[str], to: str, ids: list[str], policy: str, release: bool, take: int
    ) -> None:
        thread_id, model = self.owner_of(thread_id)
        ids = [i for i in ids if i not in self.delivered]
        taken = model.pending[:take]
        done = self.commit(
            thread_id,
            None,
            fence=model.claim,
            log=_log(log),
            inbox=self.packed(to, ids, policy),
            taken=taken,
            release=release,
        )
        assert done.version > model.version if log or taken else done.version >= model.version
        model.version = done.version
        model.pending = model.pending[take:]
        self.append(thread_id, log)
        self.deliver(to, ids, policy)
        if release:
            self.released(model)

    @rule(thread_id=threads, log=entries.filter(len), ids=items, which=st.integers(0, 9))
    def write_with_a_fence_that_was_lost(self, thread_id: str, log: list[str], ids: list[str], which: int) -> None:
        model = self.threads[thread_id]
        if model.lost:
            fence = model.lost[which % len(model.lost)]
            inbox = [item(i, thread_id) for i in ids]
            self.commit(thread_id, StaleFence, fence=fence, log=_log(log), inbox=inbox, release=True)

    @rule(thread_id=threads, log=entries.filter(len), right=mostly)
    def write_without_a_claim(self, thread_id: str, log: list[str], right: bool) -> None:
        model = self.threads[thread_id]
        expected = None if right and model.claim is None else Conflict
        done = self.commit(thread_id, expected, version=model.version + (0 if right else 1), log=_log(log))
        if done is not None:
            assert done.version > model.version
            model.version = done.version
            self.append(thread_id, log)
            model.settle(self.policies, run_written=False)

    @precondition(owned)
    @rule(thread_id=threads, request=requests.filter(bool))
    def repeat_a_request(self, thread_id: str, request: str) -> None:
        thread_id, model = self.owner_of(thread_id)
        if request in self.delivered:
            self.commit(
                thread_id,
                DuplicateRequest,
                fence=model.claim,
                log=_log(["event"]),
                request=Request(request),
                release=True,
            )

    @precondition(owned)
    @rule(thread_id=threads, right=mostly)
    def finish_on_the_inbox_as_it_was_seen(self, thread_id: str, right: bool) -> None:
        thread_id, model = self.owner_of(thread_id)
        head = model.inbox_head if right else model.inbox_head + 1
        expected = None if right else InboxMoved
        done = self.commit(
            thread_id, expected, fence=model.claim, log=_log(["event"]), inbox_head=head, release=True
        )
        if done is not None:
            self.append(thread_id, ["event"])
            model.version = done.version
            self.released(model)

    @invariant()
    def the_store_is_as_the_model_says(self) -> None:
        for thread_id, model in getattr(self, "threads", {}).items():
            self.runner.run(self.compare(thread_id, model))

    @invariant()
    def what_is_due_is_as_the_model_says(self) -> None:
        if hasattr(self, "threads"):
            due = {name for name, model in self.threads.items() if model.due and not model.alive}
            assert set(self.runner.run(due_threads(self.store))) == due

    async def compare(self, thread_id: str, model: Model) -> None:
        view = await self.store.load(thread_id)
        if view is None:
            assert model.epoch == 0
            assert not model.exists
            return
        thread = view.thread
        assert (thread.claimed, thread.epoch, thread.version) == (
            model.alive,
            model.epoch,
            model.version,
        )
        assert (view.run is None) == (model.run is None)
        assert (thread.head, thread.inbox_head) == (len(model.log), model.inbox_head)
        assert [i.id for i in view.inbox] == model.pending
        events = await self.store.events(thread_id)
        assert ["message" if isinstance(e, MessageAdded) else "event" for e in events] == model.log
        assert [e.seq for e in events] == list(range(1, len(model.log) + 1))
        told = await self.store.messages(thread_id)
        assert [m.seq for m in told] == [n for n, kind in enumerate(model.log, 1) if kind == "message"]


def _run(thread_id: str, status: str) -> Any:
    run_id = f"run of {thread_id}"
    if not status.startswith("waiting"):
        return record(run_id, thread_id, status=status)
    wakes = "input" if status.endswith("input") else "decision"
    return record(run_id, thread_id, status="waiting", waiting=waiting(wakes))


def _log(kinds: list[str]) -> list[Any]:
    return [message() if kind == "message" else step() for kind in kinds]


@pytest.mark.parametrize("name", STORES)
def test_store_model_holds_for_any_commits(name: str) -> None:
    machine = type("Machine", (StoreMachine,), {"open_store": staticmethod(STORES[name])})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=settings().max_examples, stateful_step_count=25)
    )
