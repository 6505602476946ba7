"""Deletion leaves no rows behind, and pruning removes what retention allows and no more."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from store_suite import (
    StoreFactory,
    Writer,
    a_bit_of_everything,
    call,
    die,
    due_threads,
    everything,
    identity,
    item,
    message,
    record,
    rows_left,
    step,
    ticket,
    waiting,
)

from wakeful.errors import DuplicateRequest, HasChildren, ThreadBusy
from wakeful.stores import Chunk, Commit, Pruned, Relay, Retention, StateWrite, Store
from wakeful.types import Request
from wakeful.types.events import MessageAdded
from wakeful.types.ids import new_id, now_ms
from wakeful.types.tickets import Decision

DAY = 24 * 3_600_000
LATER = -60_000  # Keeping things for minus a minute is pruning a minute later.
NEVER = Retention(chunks=None, events=None, children=None)


def keep(**kept: int) -> Retention:
    return replace(NEVER, **kept)


async def child_of(store: Store, parent: str, thread_id: str) -> Writer:
    writer = Writer(store, thread_id)
    lineage = replace(identity(f"r-{thread_id}", thread_id), parent_run_id="r1", parent_thread_id=parent)
    await writer.write(message(), identity=lineage)
    return writer


# -- deleting ------------------------------------------------------------------------------------------------


async def test_deleted_thread_leaves_nothing_behind(open_store: StoreFactory) -> None:
    async with open_store() as store:
        for thread_id in ("t1", "t2"):
            writer = Writer(store, thread_id)
            await store.commit(Commit(thread_id=thread_id, inbox=[item(f"w-{thread_id}", thread_id)]))
            run = record(f"r-{thread_id}", thread_id)
            await writer.claim(runs=[run], request=Request(f"q-{thread_id}"), identity=run.identity)
            await writer.write(
                message("x" * 100_000),
                step(run=run.identity),
                identity=run.identity,
                calls=[call("c1", run_id=run.id)],
                tickets=[ticket(f"k-{thread_id}", run_id=run.id)],
                decisions=[Decision(f"k-{thread_id}", id=f"d-{thread_id}")],
                chunks=[Chunk("m", 1, 0, "text", "x")],
                state=[StateWrite("a", b"1"), StateWrite("b", b"2", run.id)],
                taken=[f"w-{thread_id}"],
            )
            await writer.release()
        assert await store.delete("t1") == 1
        assert await store.load("t1") is None
        assert await store.run("r-t1") is None
        assert await store.ticket("k-t1") is None
        assert list(await store.decisions("k-t1")) == []
        assert await store.item("w-t1") is None
        assert await due_threads(store) == ["t2"]
        assert [m.text for m in await store.messages("t2")] == ["x" * 100_000]
        assert await store.delete("t2") == 1
        assert not any((await store.counts()).values())
        assert await rows_left(store) == {}


async def test_every_kind_of_row_is_deleted_with_thread(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin(inbox=[item("waiting")])
        await writer.release(**a_bit_of_everything())
        await store.delete("t1")
        assert await rows_left(store) == {}


async def test_thread_of_deleted_id_starts_over(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin(log=[message("old")], inbox=[item("a")], state=[StateWrite("n", b"1")])
        await writer.release(runs=[record(status="done")])
        await store.delete("t1")
        again = Writer(store)
        done = await again.begin(log=[message("new")], inbox=[item("a")], request=Request("q"))
        assert (done.head, done.inbox_head) == (1, 1)
        assert [m.text for m in await store.messages("t1")] == ["new"]
        assert (await again.view()).state == {}


async def test_deletion_of_missing_thread_does_nothing(open_store: StoreFactory) -> None:
    async with open_store() as store:
        assert await store.delete("t1") == 0


async def test_owned_thread_is_not_deleted(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await Writer(store).claim("w1", runs=[record()], log=[message()])
        before = await everything(store)
        with pytest.raises(ThreadBusy, match="'t1'"):
            await store.delete("t1")
        assert await everything(store) == before
        await die(store, "w1")
        assert await store.delete("t1") == 1


async def test_deletion_of_thread_with_children_is_refused(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await Writer(store).write(message())
        await child_of(store, "t1", "kid")
        with pytest.raises(HasChildren, match="1 child"):
            await store.delete("t1")
        assert (await store.counts())["threads"] == 2


async def test_deletion_may_detach_children(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await Writer(store).write(message())
        await child_of(store, "t1", "kid")
        await child_of(store, "kid", "grandkid")
        assert await store.delete("t1", children="detach") == 1
        assert [(t.id, t.parent_id) for t in await store.threads()] == [("kid", None)]
        assert len(await store.messages("grandkid")) == 1


async def test_deletion_may_include_children(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await Writer(store).write(message())
        await child_of(store, "t1", "kid")
        await child_of(store, "kid", "grandkid")
        await child_of(store, "elsewhere", "stranger")
        assert await store.delete("t1", children="cascade") == 3
        assert await store.thread("stranger") is not None
        assert await store.delete("stranger") == 1
        assert await rows_left(store) == {}


async def test_running_child_prevents_deletion(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await Writer(store).write(message())
        await child_of(store, "t1", "idle")
        kid = await child_of(store, "t1", "kid")
        await kid.claim("w1")
        with pytest.raises(ThreadBusy, match="'kid'"):
            await store.delete("t1", children="cascade")
        assert (await store.counts())["threads"] == 3


# -- pruning -------------------------------------------------------------------------------------------------


async def finished(store: Store, thread_id: str = "t1", *, at: int = 1, **changes: Any) -> str:
    """A run with two messages and two events that was done at some time."""
    writer, run = Writer(store, thread_id), record(new_id(), thread_id)
    if (known := await store.thread(thread_id)) is not None:
        writer.version = known.version
    await writer.claim(
        runs=[run],
        identity=run.identity,
        log=[step(1, run.identity), message("hi")],
        calls=[call("c1", run_id=run.id)],
    )
    done = replace(run, status="done", finished_at=at)
    log = [message("bye"), step(2, run.identity)]
    await writer.release(runs=[done], identity=run.identity, log=log, **changes)
    return run.id


async def kinds(store: Store, thread_id: str = "t1") -> str:
    return "".join(["m" if isinstance(e, MessageAdded) else "e" for e in await store.events(thread_id)])


async def test_prune_keeps_recent_records(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await finished(store, at=now_ms())
        writer = Writer(store, "t2")
        await writer.begin("r2", chunks=[Chunk("m", 1, 0, "text", "x")])
        before = await everything(store), await everything(store, "t2")
        everything_for_a_day = Retention(
            chunks=DAY, events=DAY, runs=DAY, threads=DAY, runs_kept=9, threads_kept=9
        )
        assert await store.prune(everything_for_a_day) == Pruned()
        assert await store.prune(Retention()) == await store.prune(NEVER) == Pruned()
        assert (await everything(store), await everything(store, "t2")) == before
        assert await store.chunks("t2") == [Chunk("m", 1, 0, "text", "x")]


async def test_prune_deletes_old_chunks(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin(chunks=[Chunk("m", 1, n, "text", "x") for n in range(3)])
        assert await store.prune(keep(chunks=DAY)) == Pruned()
        assert await store.prune(keep(chunks=LATER)) == Pruned(chunks=3)
        assert await store.chunks("t1") == []


async def test_prune_deletes_old_events_but_not_messages(open_store: StoreFactory) -> None:
    async with open_store() as store:
        old = await finished(store)
        await finished(store, at=now_ms())
        assert await store.prune(keep(events=DAY)) == Pruned(events=2)
        assert await kinds(store) == "mmemme"
        assert [e.seq for e in await store.events("t1")] == [2, 3, 5, 6, 7, 8]
        assert [e.seq for e in await store.events("t1", after=3, limit=2)] == [5, 6]
        assert [m.text for m in await store.messages("t1")] == ["hi", "bye"] * 2
        assert await store.run(old) is not None
        assert len(await store.calls(old)) == 1
        assert await store.head("t1") == 8
        assert await store.prune(keep(events=DAY)) == Pruned()


async def test_prune_keeps_events_of_open_run(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin(log=[step(), message()])
        await writer.release(runs=[record(status="waiting", waiting=waiting("decision"))])
        pruned = await store.prune(keep(events=LATER, runs=LATER, runs_kept=0, threads=LATER, threads_kept=0))
        assert pruned == Pruned()
        assert await kinds(store) == "em"


async def test_thread_continues_after_its_events_are_pruned(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await finished(store)
        await store.prune(keep(events=LATER))
        await finished(store, at=now_ms())
        assert [e.seq for e in await store.events("t1")] == [2, 3, 5, 6, 7, 8]
        assert await store.head("t1") == 8


async def test_prune_deletes_later_events_of_pruned_run(
    open_store: StoreFactory,
) -> None:
    async with open_store() as store:
        run = await store.run(await finished(store))
        assert run is not None
        await store.prune(keep(events=LATER))
        writer, again = Writer(store), replace(run, status="running", finished_at=None)
        writer.version = (await writer.view()).thread.version
        await writer.claim(runs=[again], identity=run.identity, log=[step(3, run.identity)])
        await writer.release(runs=[replace(run, finished_at=2)], identity=run.identity, log=[message("at last")])
        assert await kinds(store) == "mmem"
        assert await store.prune(keep(events=LATER)) == Pruned(events=1)
        assert await store.prune(keep(events=LATER)) == Pruned()
        assert await kinds(store) == "mmm"


async def test_prune_keeps_current_state(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        for number in range(3):
            await writer.write(message(), state=[StateWrite("n", b"%d" % number)])
        await store.prune(keep(events=LATER))
        assert (await writer.view()).state == {"n": b"2"}
        await store.fork("t1", 3, "f")
        assert (await Writer(store, "f").view()).state == {"n": b"2"}


async def test_prune_deletes_old_runs_but_not_messages(open_store: StoreFactory) -> None:
    async with open_store() as store:
        old = await finished(store)
        young = await finished(store, at=now_ms())
        assert await store.prune(keep(runs=DAY)) == Pruned(runs=1)
        assert await store.run(old) is None
        assert list(await store.calls(old)) == []
        assert await store.answer(old) is None
        assert [run.id for run in await store.runs()] == [young]
        assert [m.text for m in await store.messages("t1")] == ["hi", "bye"] * 2
        assert await kinds(store) == "mmemme"
        assert (await store.counts())["done"] == 1


async def test_prune_deletes_tickets_with_their_run(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin(
            calls=[call("c1")],
            tickets=[ticket("k1")],
            decisions=[Decision("k1", id="d1")],
            state=[StateWrite("mine", b"1", "r1"), StateWrite("ours", b"2")],
        )
        done = record(status="done", finished_at=1)
        await writer.release(runs=[done], tickets=[ticket("k1", status="answered")])
        await store.prune(keep(runs=DAY))
        assert await store.ticket("k1") is None
        assert list(await store.tickets()) == []
        assert list(await store.decisions("k1")) == []
        view = await writer.view()
        assert (view.state, view.thread.last_run_id, view.thread.last_agent_id) == ({"ours": b"2"}, None, None)


async def test_prune_keeps_undelivered_relays(open_store: StoreFactory) -> None:
    async with open_store() as store:
        run = await finished(store)
        sent = [
            Relay(id="m1", thread_id="t1", run_id=run, kind="message", cursor=-1),
            Relay(id="m2", thread_id="t1", run_id=run, kind="message", cursor=-1, status="done"),
            Relay(id="m3", thread_id="t1", run_id=run, kind="message", cursor=-1, status="dead"),
            Relay(id="p1", thread_id="t1", run_id=run, kind="push", cursor=3),
        ]
        await store.commit(Commit("t1", relays=sent))
        assert await store.prune(keep(runs=LATER)) == Pruned(runs=1)
        assert [relay.id for relay in await store.relays()] == ["m1"]
        assert [relay.id for relay in await store.due_relays("message", now_ms(), limit=9)] == ["m1"]


async def test_prune_keeps_request_ids(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await store.commit(Commit(thread_id="t1", inbox=[item("a")]))
        old = await finished(store, taken=["a"], request=Request("q1"))
        await store.prune(keep(runs=DAY))
        await store.commit(Commit(thread_id="t1", inbox=[item("a")]))
        assert (await Writer(store).view()).inbox == ()
        for request in ("a", "q1"):
            with pytest.raises(DuplicateRequest) as refused:
                await Writer(store, "t2").begin("r2", request=Request(request))
            assert refused.value.run_id == old
        left = await store.item("a")
        assert left is not None
        assert (left.status, left.taken_by, left.thread_id, left.kind) == ("taken", old, "t1", "request")


async def test_prune_keeps_newest_runs_of_each_thread(open_store: StoreFactory) -> None:
    async with open_store() as store:
        mine = [await finished(store, at=now_ms()) for _ in range(4)]
        other = await finished(store, "t2")
        assert await store.prune(keep(runs_kept=2)) == Pruned(runs=2)
        assert [run.id for run in await store.runs(thread_id="t1")] == [mine[3], mine[2]]
        assert [run.id for run in await store.runs(thread_id="t2")] == [other]
        assert (await Writer(store).view()).thread.last_run_id == mine[3]


async def test_prune_counts_open_run_among_newest(open_store: StoreFactory) -> None:
    async with open_store() as store:
        first = [await finished(store) for _ in range(2)]
        known = await store.thread("t1")
        assert known is not None
        writer = Writer(store)
        writer.version = known.version
        await writer.begin("r9")
        assert await store.prune(keep(runs_kept=2)) == Pruned(runs=1)
        assert {run.id for run in await store.runs()} == {"r9", first[1]}


async def test_prune_deletes_old_threads(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await finished(store)
        await child_of(store, "t1", "kid")
        assert await store.prune(keep(threads=DAY)) == Pruned()
        assert await store.prune(keep(threads=LATER)) == Pruned(threads=2)
        assert await rows_left(store) == {}
        assert not any((await store.counts()).values())


async def test_prune_deletes_child_threads_first(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await finished(store)
        await child_of(store, "t1", "kid")
        assert await store.prune(keep(children=DAY)) == Pruned()
        assert await store.prune(keep(children=LATER)) == Pruned(threads=1)
        assert [thread.id for thread in await store.threads()] == ["t1"]
        assert await store.thread("kid") is None


async def test_prune_keeps_child_of_open_run(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin()
        await writer.release(runs=[record(status="waiting", waiting=waiting("task"))])
        await child_of(store, "t1", "kid")
        assert await store.prune(keep(children=LATER, threads=LATER)) == Pruned()
        assert await store.thread("kid") is not None


async def test_prune_ignores_items_for_finished_run(open_store: StoreFactory) -> None:
    """A cancellation that came as the run ended."""
    async with open_store() as store:
        kinds: list[Any] = ["cancel", "pause", "unpause", "decision"]
        for kind in kinds:
            await Writer(store, kind).write(message())
            await child_of(store, kind, f"kid of {kind}")
            for thread_id in (kind, f"kid of {kind}"):
                one = item(f"for {thread_id}", thread_id, kind)
                await store.commit(Commit(thread_id, inbox=[one]))
        await Writer(store, "input").write(message())
        await store.commit(Commit("input", inbox=[item("i1", "input")]))
        assert await store.prune(keep(threads=LATER)) == Pruned(threads=8)
        assert [thread.id for thread in await store.threads()] == ["input"]


async def test_prune_keeps_newest_threads(open_store: StoreFactory) -> None:
    async with open_store() as store:
        for number in range(4):
            await Writer(store, f"t{number}").write(message())
            await child_of(store, f"t{number}", f"kid{number}")
        assert await store.prune(keep(threads_kept=2)) == Pruned(threads=4)
        assert [thread.id for thread in await store.threads()] == ["t3", "t2"]
        assert (await store.counts())["threads"] == 4


async def test_prune_keeps_last_active_threads(open_store: StoreFactory) -> None:
    async with open_store() as store:
        old, new = Writer(store, "old"), Writer(store, "new")
        await old.write(message())
        await new.write(message())
        while await updated_at(store, "old") <= await updated_at(
            store, "new"
        ):  # A clock may stand still that long.
            await old.write(message())
        assert await store.prune(keep(threads_kept=1)) == Pruned(threads=1)
        assert [thread.id for thread in await store.threads()] == ["old"]


async def updated_at(store: Store, thread_id: str) -> int:
    found = await store.thread(thread_id)
    assert found is not None
    return found.updated_at


@pytest.mark.parametrize("why", ["open run", "pending item", "relay", "owner", "a child's run", "a child's owner"])
async def test_prune_keeps_threads_with_waiting_work(open_store: StoreFactory, why: str) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.write(message())
        if "child" in why:
            writer = await child_of(store, "t1", "kid")
        if why.endswith("run"):
            run = record("r9", writer.thread_id, status="waiting", waiting=waiting("decision"))
            await writer.write(runs=[run], identity=replace(run.identity, parent_thread_id="t1"))
        elif why == "pending item":
            await store.commit(Commit(thread_id="t1", inbox=[item("a")]))
        elif why == "relay":
            await store.commit(Commit("t1", relays=[Relay(id="m1", thread_id="t1", kind="message", cursor=-1)]))
        else:
            await writer.claim("w1")
        before = await everything(store), await everything(store, "kid")
        assert await store.prune(keep(threads=LATER, threads_kept=0)) == Pruned()
        assert (await everything(store), await everything(store, "kid")) == before


async def test_fork_keeps_messages_when_base_is_pruned(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await finished(store)
        await store.fork("t1", 3, "f")
        assert await store.prune(keep(threads_kept=1)) == Pruned(threads=1)
        assert [m.text for m in await store.messages("f")] == ["hi", "bye"]
