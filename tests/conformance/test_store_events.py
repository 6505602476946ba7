"""Events are read from behind any entry, however the store keeps those of one commit together."""

from __future__ import annotations

from msgspec.structs import replace
from store_suite import StoreFactory, Writer, identity, message, record, step

from wakeful.stores import Retention, Store
from wakeful.types.content import ToolCall
from wakeful.types.events import Event, MessageAdded, StepStart, ToolCallReady
from wakeful.types.messages import Message

NEVER = Retention(chunks=None, events=None, children=None)


async def a_long_thread(store: Store) -> Writer:
    """Commits of one entry and of many, with messages before, among and behind their events; two agents."""
    writer = Writer(store)
    await writer.begin(log=[step(1), step(2), message("a"), step(3), message("b")])
    asked = Message("answer", "assistant", (ToolCall("c0", "look", {"at": "sky"}),), 9)
    ready = ToolCallReady(identity(), 0, 11, "c0", "look", {"at": "sky"})
    other = replace(identity(), agent_id="other")
    await writer.write(asked, step(4), ready, step(5, other), step(6, other), step(7), runs=[record()])
    await writer.write(*[step(n) for n in range(8, 158)], runs=[record()])
    await writer.write(message("c"), *[step(n) for n in range(158, 160)], runs=[record()])
    return writer


def plain(events: list[Event]) -> list[object]:
    return [(e.seq, e.at, e.run.agent_id, e.message.text) if isinstance(e, MessageAdded) else e for e in events]


async def test_events_are_numbered_without_gaps(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await a_long_thread(store)
        events = await store.events("t1", limit=1000)
        assert [event.seq for event in events] == list(range(1, await store.head("t1") + 1))
        assert [event.step for event in events if isinstance(event, StepStart)] == list(range(1, 160))
        (ready,) = [event for event in events if isinstance(event, ToolCallReady)]
        assert (ready.arguments, ready.at, ready.seq) == ({"at": "sky"}, 11, 8)
        assert [e.seq for e in events if e.run.agent_id == "other"] == [9, 10]


async def test_events_are_read_after_any_cursor_up_to_limit(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await a_long_thread(store)
        everything = plain(await store.events("t1", limit=1000))
        for after in (0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 74, 75, 76, 140, 160, len(everything)):
            for limit in (1, 2, 3, 70, 1000):
                found = plain(await store.events("t1", after=after, limit=limit))
                assert found == everything[after : after + limit]


async def test_fork_has_events_up_to_its_entry(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await a_long_thread(store)
        everything = await store.events("t1", limit=1000)
        for at in (1, 4, 7, 9, 40):
            await store.fork("t1", at, f"f{at}")
            writer = Writer(store, f"f{at}")
            writer.version = 1
            own = identity("r2", f"f{at}")
            await writer.begin("r2", log=[message("own"), step(1, own)], identity=own)
            found = await store.events(f"f{at}", limit=1000)
            assert [event.seq for event in found] == list(range(1, at + 3))
            assert plain(found)[:at] == plain(everything)[:at]


async def test_pruned_events_are_counted_and_messages_stay(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = await a_long_thread(store)
        await writer.write(runs=[record(status="done", finished_at=1)], release=True)
        pruned = await store.prune(replace(NEVER, events=-60_000))
        assert pruned.events == 160
        assert [type(event) for event in await store.events("t1", limit=1000)] == [MessageAdded] * 4
        assert [m.text for m in await store.messages("t1")] == ["a", "b", "", "c"]
