"""Any sequence of enqueueing, claiming, giving back, dying and cancelling leaves a queue as a small model says."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from msgspec import Struct
from store_suite import STORES, StoreFactory, die, identity, item, record

from wakeful.errors import StaleFence
from wakeful.stores import MAX_ATTEMPTS, Claimed, Commit, Fence, Store
from wakeful.stores.turns import SUSPECT
from wakeful.types.ids import new_id, now_ms

HOUR = 3_600_000
THREADS = [("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"), ("b", "b2")]

threads = st.sampled_from(THREADS)
agents = st.sampled_from(["x", "y"])
knowledge = st.sampled_from([["x"], ["y"], ["x", "y"], ["x", "y"]])
priorities = st.sampled_from([0, 128, 128, 255])


class Queued(Struct):
    """A thread and its dispatch, as they should be. `items` are pending inputs: id, agent, priority, delayed. What
    comes while somebody has the thread changes its `priority` when it is given back, but not when its owner fails.
    `told` says that the last owner which failed said why; one that died didn't."""

    items: list[tuple[str, str, int, bool]] = []
    priority: int = 255
    version: int = 0
    epoch: int = 0
    owner: str | None = None
    lost: bool = False
    counted: bool = False
    attempts: int = 0
    told: bool = False
    dead: bool = False
    paused: bool = False
    fences: list[Fence] = []

    @property
    def waits(self) -> bool:
        """Whether it is there to be claimed, now or later."""
        free = self.owner is None or self.lost
        return bool(self.items) and free and not self.dead

    @property
    def delayed(self) -> bool:
        return all(delayed for *_, delayed in self.items)

    @property
    def agent(self) -> str:
        return self.items[0][1]

    @property
    def suspect(self) -> bool:
        return self.attempts >= SUSPECT and not self.told

    def given_back(self) -> None:
        self.owner, self.attempts, self.paused = None, 0, False
        self.priority = min([priority for _, _, priority, _ in self.items], default=255)


class QueueMachine(RuleBasedStateMachine):
    open_store: StoreFactory

    @initialize()
    def open(self) -> None:
        self.runner = asyncio.Runner()
        self.held = AsyncExitStack()
        self.store: Store = self.runner.run(self.held.enter_async_context(self.open_store()))
        self.queue = {key: Queued() for key in THREADS}
        for key in THREADS:
            self.enqueue(key, "x", 128, False)

    def teardown(self) -> None:
        if hasattr(self, "runner"):
            self.runner.run(self.held.aclose())
            self.runner.close()

    def commit(self, key: tuple[str, str], **changes: Any) -> Any:
        commit = Commit(key[1], identity(thread_id=key[1]), **changes)
        return self.runner.run(self.store.tenant(key[0]).commit(commit))

    @rule(key=threads, agent=agents, priority=priorities, delayed=st.booleans())
    def enqueue(self, key: tuple[str, str], agent: str, priority: int, delayed: bool) -> None:
        one, item_id = self.queue[key], new_id()
        at = now_ms() + HOUR if delayed else None
        self.commit(key, inbox=[item(item_id, key[1], agent_id=agent, priority=priority, at=at)])
        one.items.append((item_id, agent, priority, delayed))
        if one.owner is None:  # New input is a reason to try a dead letter again, and not to wait.
            one.priority = min(one.priority, priority)
            one.dead = one.told = False
            one.paused &= delayed

    @rule(known=knowledge, limit=st.integers(0, 4), per_tenant=st.none() | st.integers(1, 3), late=st.booleans())
    def claim(self, known: list[str], limit: int, per_tenant: int | None, late: bool) -> None:
        worker, now = new_id(), now_ms() + 2 * HOUR if late else None
        live = {tenant: self.live(tenant) for tenant in "ab"}
        self.count_the_dead()
        claims = self.runner.run(
            self.store.claim(worker, agents=known, limit=limit, now=now, per_tenant=per_tenant)
        )
        ready = {
            key: (one.priority, one.paused and not late)
            for key, one in self.queue.items()
            if one.waits and one.agent in known and (late or not one.delayed)
        }
        got = [(claimed.tenant, claimed.thread_id) for claimed in claims.claimed]
        assert len(set(got)) == len(got) <= limit
        suspects = [key for key in got if self.queue[key].suspect]
        assert len(suspects) <= 1
        if suspects:
            ready = {key: one for key, one in ready.items() if key in got or not self.queue[key].suspect}
        assert set(got) <= set(ready)
        for tenant in "ab":
            mine = [key for key in got if key[0] == tenant]
            left = [key for key in ready if key[0] == tenant and key not in got and not ready[key][1]]
            room = len(mine) + live[tenant] < (per_tenant or 99)
            assert per_tenant is None or not mine or len(mine) + live[tenant] <= per_tenant
            if left and room:
                # It could have had more: all that was asked for is taken, and nobody had two more than it.
                assert len(got) == limit
                others = [key for key in got if key[0] != tenant]
                assert len(others) - len(mine) <= 1
            if left and mine:
                assert max(ready[key][0] for key in mine) <= min(ready[key][0] for key in left)
        for key, claimed in zip(got, claims.claimed, strict=True):
            self.claimed(self.queue[key], claimed, worker, late)

    def live(self, tenant: str) -> int:
        return sum(key[0] == tenant and one.owner is not None and not one.lost for key, one in self.queue.items())

    def count_the_dead(self) -> None:
        """Count the attempts of dead owners, as every claim does first."""
        for one in self.queue.values():
            if one.lost and not one.counted:
                one.counted, one.attempts, one.told = True, one.attempts + 1, False
                if one.attempts >= MAX_ATTEMPTS:
                    one.dead, one.owner, one.lost, one.counted = True, None, False, False

    def claimed(self, one: Queued, claimed: Claimed, worker: str, late: bool) -> None:
        assert claimed.epoch == one.epoch + 1
        assert claimed.taken_over == (one.owner is not None)
        assert claimed.attempts == one.attempts
        one.epoch, one.owner, one.lost, one.counted = claimed.epoch, worker, False, False
        one.paused &= late  # Whose owner dies before the pause is over waits for its end.
        one.fences.append(Fence(one.epoch, worker))

    def owned(self, key: tuple[str, str]) -> Queued | None:
        one = self.queue[key]
        return one if one.owner is not None and not one.lost else None

    @rule(key=threads)
    def give_back(self, key: tuple[str, str]) -> None:
        if (one := self.owned(key)) is not None:
            self.commit(key, fence=one.fences[-1], release=True)
            one.given_back()

    @rule(key=threads)
    def give_up(self, key: tuple[str, str]) -> None:
        if (one := self.owned(key)) is not None:
            self.commit(key, fence=one.fences[-1], release=True, failed="no luck")
            one.owner, one.attempts, one.paused, one.told = None, one.attempts + 1, True, True
            one.dead = one.attempts >= MAX_ATTEMPTS

    @rule(key=threads)
    def finish(self, key: tuple[str, str]) -> None:
        """Run the first input to its end."""
        if (one := self.owned(key)) is None:
            return
        run = record(new_id(), key[1], status="done")
        taken = [one.items.pop(0)[0]] if one.items else []
        self.commit(key, fence=one.fences[-1], release=True, runs=[run], taken=taken)
        one.given_back()
        one.version += 1

    @rule(key=threads)
    def kill(self, key: tuple[str, str]) -> None:
        if (one := self.owned(key)) is not None and one.owner is not None:
            self.runner.run(die(self.store, one.owner))
            owner = one.owner
            for other in self.queue.values():
                other.lost |= other.owner == owner

    @rule(key=threads)
    def cancel_what_is_queued(self, key: tuple[str, str]) -> None:
        one = self.queue[key]
        if one.owner is None and one.items:
            done = self.commit(key, version=self.version(key), taken=[i[0] for i in one.items])
            one.items, one.dead, one.version = [], False, done.version
            one.given_back()

    def version(self, key: tuple[str, str]) -> int:
        found = self.runner.run(self.store.tenant(key[0]).load(key[1]))
        assert found is not None
        return found.thread.version

    @rule(key=threads)
    def write_with_a_fence_that_was_lost(self, key: tuple[str, str]) -> None:
        one = self.queue[key]
        stale = one.fences if one.owner is None else one.fences[:-1]
        if stale:
            with pytest.raises(StaleFence):
                self.commit(key, fence=stale[-1], release=True)

    @rule(key=threads)
    def put_a_dead_letter_back(self, key: tuple[str, str]) -> None:
        one = self.queue[key]
        assert self.runner.run(self.store.tenant(key[0]).revive(key[1])) == one.dead
        if one.dead:
            one.dead, one.attempts, one.paused = False, 0, False

    @invariant()
    def the_queue_is_as_the_model_says(self) -> None:
        if not hasattr(self, "queue"):
            return
        for tenant in "ab":
            found = {one.thread_id: one for one in self.runner.run(self.store.tenant(tenant).dispatches())}
            mine = {key[1]: one for key, one in self.queue.items() if key[0] == tenant}
            assert set(found) == {name for name, one in mine.items() if one.items or one.owner is not None}
            for name, seen in found.items():
                one = mine[name]
                assert seen.claimed_by == (None if one.lost else one.owner)
                assert (seen.attempts, seen.dead_at is not None) == (one.attempts, one.dead)
                if one.owner is None:
                    assert (seen.agent_id, seen.priority) == (one.agent, one.priority)


@pytest.mark.parametrize("name", STORES)
def test_queue_model_holds_for_any_history(name: str) -> None:
    machine = type("Machine", (QueueMachine,), {"open_store": staticmethod(STORES[name])})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=settings().max_examples, stateful_step_count=25)
    )
