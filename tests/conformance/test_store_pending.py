"""Pending items can be edited, moved and retracted until a run takes them, by one writer at a time."""

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
from msgspec.structs import replace
from store_suite import STORES, StoreFactory, Writer, due_threads, item, message, record, waiting

from wakeful.errors import Conflict, InboxMoved
from wakeful.stores import Commit, Fence, Store
from wakeful.types.inbox import InboxItem


def changed(of: InboxItem, **fields: Any) -> InboxItem:
    return replace(of, revision=of.revision + 1, **fields)


async def pending(store: Store, thread_id: str = "t1") -> list[InboxItem]:
    return list((await Writer(store, thread_id).view()).inbox)


async def put(store: Store, *items: InboxItem) -> None:
    await store.commit(Commit("t1", pending=items))


async def test_edited_item_has_next_revision(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await store.commit(Commit("t1", inbox=[item("a"), item("b")]))
        first, second = await pending(store)
        assert first.revision == 0
        await put(store, changed(first, message=message("edited \0" + "x" * 50_000)))
        again, untouched = await pending(store)
        assert again.message is not None
        assert (again.message.text[:6], len(again.message.text), again.revision) == ("edited", 50_008, 1)
        assert untouched == second
        assert await store.item("a") == again


async def test_item_change_needs_current_revision(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin(inbox=[item("a")])
        (first,) = await pending(store)
        await put(store, changed(first, message=message("one")))
        with pytest.raises(Conflict, match="'a' was changed meanwhile: it is at revision 1"):
            await put(store, changed(first, message=message("two")))
        (now,) = await pending(store)
        assert now.message is not None
        assert now.message.text == "one"
        await writer.write(message())


async def test_items_are_reordered_in_one_commit(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await store.commit(Commit("t1", inbox=[item("a"), item("b"), item("c")]))
        a, b, c = await pending(store)
        await put(store, changed(c, position=a.position), changed(a, position=b.position), changed(b, position=3))
        assert [i.id for i in await pending(store)] == ["c", "a", "b"]
        await store.commit(Commit("t1", inbox=[item("d")]))
        assert [i.id for i in await pending(store)] == ["c", "a", "b", "d"]


async def test_item_changes_in_one_commit_are_atomic(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await store.commit(Commit("t1", inbox=[item("a"), item("b")]))
        a, b = await pending(store)
        await put(store, changed(b, status="retracted"))
        with pytest.raises(Conflict, match="'b' was retracted before"):
            await put(store, changed(a, position=2), changed(b, position=1))
        assert await pending(store) == [a]


async def test_retracted_item_is_gone_and_not_delivered_again(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await store.commit(Commit("t1", inbox=[item("a")]))
        (first,) = await pending(store)
        assert await due_threads(store) == ["t1"]
        await put(store, changed(first, status="retracted"))
        assert await pending(store) == []
        assert await due_threads(store) == []
        await store.commit(Commit("t1", inbox=[item("a")]))
        assert await pending(store) == []
        found = await store.item("a")
        assert found is not None
        assert (found.status, found.taken_by) == ("retracted", None)


async def test_taken_or_foreign_item_cannot_be_changed(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin(inbox=[item("a"), item("b", "t2")])
        (first,) = await pending(store)
        await writer.write(message(), taken=["a"])
        with pytest.raises(Conflict, match="'a' was taken before"):
            await put(store, changed(first, status="retracted"))
        (other,) = await pending(store, "t2")
        with pytest.raises(Conflict, match="'b' isn't in this thread's inbox"):
            await put(store, changed(other, status="retracted"))
        with pytest.raises(Conflict, match="'zzz' isn't in this thread's inbox"):
            await put(store, item("zzz", revision=1))


async def test_owner_cannot_take_changed_item(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin(inbox=[item("a"), item("b")])
        a, b = await pending(store)
        await put(store, changed(a, message=message("edited")), changed(b, status="retracted"))
        for one in ("a", "b"):
            with pytest.raises(Conflict, match=f"'{one}' was"):
                await writer.write(message(), taken=[one], seen={one: 0})
        assert await store.messages("t1") == []
        await writer.write(message("edited"), taken=["a"], seen={"a": 1})
        assert await pending(store) == []


async def test_item_change_refuses_finish_of_owner(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        seen = (await writer.begin(inbox=[item("a")])).inbox_head
        (first,) = await pending(store)
        done = await store.commit(Commit("t1", pending=[changed(first, message=message("edited"))]))
        assert done.inbox_head == seen + 1
        with pytest.raises(InboxMoved):
            await writer.release(inbox_head=seen, runs=[record(status="done")])
        await writer.release(inbox_head=seen + 1, runs=[record(status="done")])


async def test_waiting_run_is_not_due_after_retraction(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin()
        run = record(status="waiting", waiting=waiting("input", until=10**15))
        done = await writer.release(runs=[run])
        await store.commit(Commit("t1", inbox=[item("a", policy="steer")]))
        assert [due.at < 10**15 for due in await store.due()] == [True]
        (first,) = await pending(store)
        gone = changed(first, status="retracted")
        await store.commit(Commit("t1", version=done.version, runs=[run], pending=[gone]))
        assert [due.at for due in await store.due()] == [10**15]


# -- any sequence --------------------------------------------------------------------------------------------


class InboxMachine(RuleBasedStateMachine):
    """Delivering, editing, moving, retracting and taking against a list of (id, text)."""

    open_store: StoreFactory

    @initialize()
    def open(self) -> None:
        self.runner = asyncio.Runner()
        self.held = AsyncExitStack()
        self.store: Store = self.runner.run(self.held.enter_async_context(self.open_store()))
        done = self.runner.run(self.store.commit(Commit("t1", version=0, claim="w", runs=[record()])))
        self.fence = Fence(done.epoch, "w")
        self.queue: list[tuple[str, str]] = []
        self.stale: list[InboxItem] = []
        self.log: list[str] = []
        self.count = 0

    def teardown(self) -> None:
        if hasattr(self, "runner"):
            self.runner.run(self.held.aclose())
            self.runner.close()

    def items(self) -> list[InboxItem]:
        return self.runner.run(pending(self.store))

    def change(self, *items: InboxItem) -> None:
        self.stale += [i for i in self.items() if any(i.id == new.id for new in items)]
        self.runner.run(put(self.store, *items))

    @rule(count=st.integers(1, 3))
    def deliver(self, count: int) -> None:
        ids = [f"i{self.count + n}" for n in range(count)]
        self.count += count
        self.runner.run(self.store.commit(Commit("t1", inbox=[item(i) for i in ids])))
        self.queue += [(i, i) for i in ids]

    @precondition(lambda self: self.queue)
    @rule(which=st.integers(0, 99), text=st.text(max_size=5))
    def edit(self, which: int, text: str) -> None:
        place = which % len(self.queue)
        self.change(changed(self.items()[place], message=message(text)))
        self.queue[place] = (self.queue[place][0], text)

    @precondition(lambda self: self.queue)
    @rule(which=st.integers(0, 99), to=st.integers(0, 99))
    def move(self, which: int, to: int) -> None:
        found = self.items()
        place, to = which % len(found), to % len(found)
        order = [i for n, i in enumerate(found) if n != place]
        order.insert(to, found[place])
        moves = [(i, old.position) for i, old in zip(order, found, strict=True) if i.position != old.position]
        if moves:
            self.change(*[changed(i, position=position) for i, position in moves])
        self.queue.insert(to, self.queue.pop(place))

    @precondition(lambda self: self.queue)
    @rule(which=st.integers(0, 99))
    def retract(self, which: int) -> None:
        place = which % len(self.queue)
        self.change(changed(self.items()[place], status="retracted"))
        del self.queue[place]

    @precondition(lambda self: self.queue)
    @rule(which=st.integers(0, 99))
    def take(self, which: int) -> None:
        place = which % len(self.queue)
        found = self.items()[place]
        assert found.message is not None
        self.stale.append(found)
        taken, seen = [found.id], {found.id: found.revision}
        commit = Commit("t1", record().identity, self.fence, [found.message], taken=taken, seen=seen)
        self.runner.run(self.store.commit(commit))
        self.log.append(self.queue.pop(place)[1])

    @precondition(lambda self: self.stale)
    @rule(which=st.integers(0, 99), take=st.booleans())
    def act_on_what_is_no_longer_so(self, which: int, take: bool) -> None:
        old = self.stale[which % len(self.stale)]
        commit = Commit("t1", pending=[changed(old, message=message("late"))])
        if take:
            commit = Commit("t1", record().identity, self.fence, [message("late")], taken=[old.id])
            commit.seen = {old.id: old.revision}
        with pytest.raises(Conflict):
            self.runner.run(self.store.commit(commit))

    @invariant()
    def the_inbox_is_as_the_model_says(self) -> None:
        if hasattr(self, "queue"):
            found = self.items()
            assert [(i.id, i.message.text if i.message else None) for i in found] == self.queue
            told = self.runner.run(self.store.messages("t1"))
            assert [m.text for m in told] == self.log


@pytest.mark.parametrize("name", STORES)
def test_inbox_model_holds_for_any_changes(name: str) -> None:
    machine = type("Machine", (InboxMachine,), {"open_store": staticmethod(STORES[name])})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=settings().max_examples, stateful_step_count=20)
    )
