"""Large, long, deep and odd: what is written comes back as it was."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from store_suite import (
    StoreFactory,
    Writer,
    call,
    everything,
    identity,
    item,
    message,
    numbered,
    record,
    step,
    ticket,
)

from wakeful.errors import InboxFull
from wakeful.stores import About, Chunk, Commit, Relay, StateWrite, Store
from wakeful.types import Request
from wakeful.types.codec import clean_value
from wakeful.types.content import Base64, Image, Text, ToolCall, ToolReply
from wakeful.types.events import ErrorRaised, StateDelta, StepStart, ToolCallReady
from wakeful.types.ids import new_id
from wakeful.types.messages import Message
from wakeful.types.runs import Failed, TaskRecord
from wakeful.types.tickets import Decision

KIB = 1024


# -- a full inbox --------------------------------------------------------------------------------------------


async def fill(store: Store, thread_id: str = "t1", count: int = 1000) -> None:
    items = [item(f"{thread_id}-{n}", thread_id) for n in range(count)]
    await store.commit(Commit(thread_id=thread_id, inbox=items))


async def test_inbox_takes_thousand_items(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await fill(store)
        before = await everything(store)
        with pytest.raises(InboxFull, match="'t1' has 1,000 pending"):
            await store.commit(Commit(thread_id="t1", inbox=[item("more")]))
        assert await everything(store) == before
        assert await store.item("more") is None
        await store.commit(Commit(thread_id="t1", inbox=[item("t1-5")]))
        assert await everything(store) == before


async def test_inbox_reserves_room_for_other_kinds(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await fill(store)
        others = [item(f"task-{n}", kind="task") for n in range(100)]
        await store.commit(Commit(thread_id="t1", inbox=others))
        before = await everything(store)
        for more in (item("more"), item("more", kind="task"), item("more", kind="cancel")):
            with pytest.raises(InboxFull) as full:
                await store.commit(Commit(thread_id="other", inbox=[more]))
            assert full.value.thread_id == "t1"
        assert await everything(store) == before


async def test_commit_to_full_inbox_writes_nothing(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await fill(store, "full", 999)
        writer = Writer(store)
        await writer.begin(log=[message()])
        before = await everything(store), await everything(store, "full")
        with pytest.raises(InboxFull):
            await writer.write(
                message("lost"),
                runs=[record("r2")],
                request=Request("q1"),
                inbox=[item("new", "t3"), item("fits", "full"), item("does not", "full")],
            )
        assert (await everything(store), await everything(store, "full")) == before
        assert await store.load("t3") is None
        assert await store.item("q1") is None
        await writer.write(message("kept"), inbox=[item("fits", "full")])


async def test_taken_item_frees_room_in_same_commit(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await fill(store)
        writer = Writer(store)
        await writer.begin(taken=["t1-0", "t1-1"], inbox=[item("a"), item("b")])
        with pytest.raises(InboxFull):
            await store.commit(Commit(thread_id="t1", inbox=[item("c")]))
        assert [i.id for i in (await writer.view()).inbox][-2:] == ["a", "b"]


# -- large ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [32 * KIB - 200, 32 * KIB, 32 * KIB + 1, 100 * KIB])
async def test_content_of_any_size_comes_back(open_store: StoreFactory, size: int) -> None:
    text = "é\0😀" + "x" * size
    told = message(text)
    reply = Message(new_id(), "tool", (ToolReply("c1", "look", (Text(text), Text("small"))),), 7)
    async with open_store() as store:
        writer = Writer(store)
        asked = ticket("k1", message=text)
        decision = Decision("k1", value={"text": text}, id="d1")
        stuck = call("c1", problem=text)
        await writer.begin(
            log=[told, reply, StateDelta(identity(), 0, 7, {"text": text})],
            calls=[stuck],
            tickets=[asked],
            decisions=[decision],
            state=[
                StateWrite("big", msgspec.json.encode(text)),
                StateWrite("mine", msgspec.json.encode(text), "r1"),
            ],
            inbox=[item("i1", message=message(text, id="m9"))],
            chunks=[Chunk("m1", 1, 0, "text", text)],
        )
        assert await store.messages("t1") == [numbered(told, 1), numbered(reply, 2)]
        assert (await store.events("t1"))[2] == StateDelta(identity(), 3, 7, {"text": text})
        assert list(await store.calls("r1")) == [stuck]
        assert await store.ticket("k1") == asked
        assert list(await store.decisions("k1")) == [decision]
        assert await store.chunks("t1") == [Chunk("m1", 1, 0, "text", text)]
        view = await writer.view()
        assert msgspec.json.decode(view.state["big"]) == msgspec.json.decode(view.run_state["mine"]) == text
        assert [i.message for i in view.inbox] == [message(text, id="m9")]
        assert await store.item("i1") == view.inbox[0]


async def test_large_metadata_comes_back(open_store: StoreFactory) -> None:
    async with open_store() as store:
        metadata = {"text": "x" * 50_000}
        await store.commit(Commit(thread_id="t1", about=About("title", metadata)))
        thread = await store.thread("t1")
        assert thread is not None
        assert thread.metadata == metadata
        assert [t.metadata for t in await store.threads()] == [metadata]


async def test_message_of_ten_megabytes_comes_back(open_store: StoreFactory) -> None:
    async with open_store() as store:
        told = message("x" * 10_000_000)
        await Writer(store).begin(log=[told])
        assert await store.messages("t1") == [numbered(told, 1)]


async def test_same_large_part_may_come_twice(open_store: StoreFactory) -> None:
    picture = Image(Base64("image/png", "A" * 50_000))
    twice = Message(new_id(), "user", (picture, Text("and"), picture), 7)
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin(log=[twice])
        await writer.write(replace(twice, id=new_id()))
        first, second = await store.messages("t1")
        assert first == numbered(twice, 1)
        assert second.content == twice.content
        other = Writer(store, "t2")
        await other.write(twice)
        await writer.release()
        await store.delete("t1")
        assert [m.content for m in await store.messages("t2")] == [twice.content]


# -- long ----------------------------------------------------------------------------------------------------


async def test_hundred_thousand_events_are_paged_through(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer, run = Writer(store), identity()
        await writer.begin()
        for first in range(0, 100_000, 10_000):
            await writer.write(*[StepStart(run, 0, 7, n) for n in range(first + 1, first + 10_001)])
        last = 0
        while page := await store.events("t1", after=last, limit=20_000):
            assert page == [StepStart(run, n, 7, n) for n in range(last + 1, last + len(page) + 1)]
            last += len(page)
        assert last == 100_000 == await store.head("t1")
        assert [e.seq for e in await store.events("t1", after=99_998)] == [99_999, 100_000]
        assert len(await store.events("t1")) == 1000


async def test_list_in_state_grows_commit_by_commit(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer, values = Writer(store), list[str]()
        await writer.begin()
        for number in range(200):
            values.append(f"entry {number}")
            await writer.write(step(number), state=[StateWrite("list", msgspec.json.encode(values))])
        assert msgspec.json.decode((await writer.view()).state["list"]) == values
        await store.fork("t1", 57, "f")
        assert msgspec.json.decode((await Writer(store, "f").view()).state["list"]) == values[:57]


# -- odd -----------------------------------------------------------------------------------------------------

ODD = "nul \0 quote \" slash \\ \u2028 \ufeff 😀 \x1b[0m '; DROP TABLE threads; -- $1 ? {}"


async def test_odd_characters_come_back_from_every_place(open_store: StoreFactory) -> None:
    names = "t '\"; -- ? $1 é😀"
    async with open_store() as store:
        writer = Writer(store, names)
        run = record(names, names, cancel=ODD)
        told = message(ODD)
        asked = replace(ticket(f"k{names}", message=ODD, assignee=names), run_id=names, thread_id=names)
        await writer.claim(
            runs=[run],
            identity=run.identity,
            request=Request(f"q{names}"),
            log=[told],
            tickets=[asked],
            decisions=[Decision(asked.id, reason=ODD, id=f"d{names}")],
            state=[StateWrite(names, msgspec.json.encode(ODD))],
            inbox=[item(f"i{names}", names, message=message(ODD, id="m9"))],
            chunks=[Chunk("m", 1, 0, "text", ODD)],
            about=About(names, {ODD: ODD}),
        )
        assert await store.messages(names) == [numbered(told, 1)]
        assert await store.run(names) == run
        assert list(await store.tickets(assignee=names)) == [asked]
        assert [d.reason for d in await store.decisions(asked.id)] == [ODD]
        assert [c.delta for c in await store.chunks(names)] == [ODD]
        assert await store.item(f"q{names}") is not None
        view = await writer.view()
        assert msgspec.json.decode(view.state[names]) == ODD
        assert [i.message for i in view.inbox] == [message(ODD, id="m9")]
        assert (view.thread.title, view.thread.metadata) == (names, {ODD: ODD})


HALF = "caf\udce9"


async def test_lone_surrogate_does_not_prevent_write(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        sent = item("i1", "t2")
        await writer.begin(log=[message("first")])
        await writer.write(ErrorRaised(identity(), 0, 7, "OSError", HALF, "model"), runs=[record(steps=1)])
        await writer.release(
            runs=[record(ending=Failed("OSError", HALF))],
            log=[message(HALF)],
            tickets=[ticket("k1", message=HALF)],
            decisions=[Decision("k1", reason=HALF)],
            tasks=[TaskRecord("task1", "t1", "r1", status="failed", error=HALF)],
            inbox=[item("i0", message=message(HALF)), sent],
            chunks=[Chunk("m", 1, 0, "text", HALF)],
            relays=[Relay(id="o1", thread_id="t1", kind="mail", status="dead", last_error=HALF)],
            about=About(HALF, {HALF: [HALF]}),
            failed=HALF,
        )
        view, (run,) = await writer.view(), await store.runs(thread_id="t1")
        (relay,), error = await store.relays(), (await store.events("t1"))[1]
        assert isinstance(error, ErrorRaised)
        texts = [m.text for m in await store.messages("t1")]
        found = (run.ending, texts, view.tickets, view.tasks, view.inbox, relay.last_error, error.message)
        assert msgspec.json.decode(msgspec.json.encode(clean_value(found)))[1] == ["first", "caf\ufffd"]
        assert clean_value((view.thread.title, view.thread.metadata)) == (
            "caf\ufffd",
            {"caf\ufffd": ["caf\ufffd"]},
        )
        assert clean_value((relay.last_error, error.message)) == ("caf\ufffd", "caf\ufffd")
        assert sent.position == 1


async def test_deep_json_comes_back(open_store: StoreFactory) -> None:
    deep: Any = "bottom"
    for number in range(200):
        deep = {"down": deep} if number % 2 else [deep]
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin(
            log=[StateDelta(identity(), 0, 7, {"deep": deep})],
            state=[StateWrite("deep", msgspec.json.encode(deep))],
            calls=[replace(call("c1"), arguments={"deep": deep})],
            about=About(metadata={"deep": deep}),
        )
        assert await store.events("t1") == [StateDelta(identity(), 1, 7, {"deep": deep})]
        view = await writer.view()
        assert msgspec.json.decode(view.state["deep"]) == view.thread.metadata["deep"] == deep
        assert [c.arguments for c in await store.calls("r1")] == [{"deep": deep}]


async def test_numbers_come_back_exactly(open_store: StoreFactory) -> None:
    value = {"int": 2**63 - 1, "negative": -(2**53), "float": 0.1, "tiny": 5e-324, "true": True, "none": None}
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin(calls=[replace(call("c1"), arguments=value)], about=About(metadata=value))
        assert [c.arguments for c in await store.calls("r1")] == [value]
        assert (await writer.view()).thread.metadata == value


# -- the arguments of calls ----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 40 * KIB])
async def test_call_arguments_come_from_answer(open_store: StoreFactory, size: int) -> None:
    wanted = [{"n": n, "text": "ü\0" * size} for n in range(2)]
    answer = Message(
        new_id(), "assistant", (Text("let me"), *[ToolCall(f"c{n}", "look", wanted[n]) for n in range(2)]), 7
    )
    ready = [ToolCallReady(identity(), 0, 7, f"c{n}", "look", wanted[n]) for n in range(2)]
    calls = [replace(call(f"c{n}"), arguments=wanted[n]) for n in range(2)]
    run = record(stage="acting", steps=1, answer_id=answer.id)

    async with open_store() as store:
        writer = Writer(store)
        await writer.begin()
        await writer.write(answer, *ready, runs=[run], calls=calls)

        async def check(expected: list[Any]) -> None:
            assert list(await store.calls("r1")) == expected
            assert list((await writer.view()).calls) == expected

        await check(calls)
        assert (await store.events("t1"))[1:] == [replace(e, seq=n) for n, e in enumerate(ready, 2)]
        assert await store.events("t1", after=2) == [replace(ready[1], seq=3)]
        started = [replace(c, state="started", attempt=1, started_at=5) for c in calls]
        await writer.write(calls=started[:1])
        await check([started[0], calls[1]])
        edited = replace(started[1], edited={"n": "a person's"}, decisions=(Decision("k1", id="d1"),))
        await writer.write(calls=[edited, replace(started[0], state="finished", outcome="ok")])
        await check([replace(started[0], state="finished", outcome="ok"), edited])
        found = (await store.calls("r1"))[1]
        assert (found.arguments, found.effective_arguments) == (wanted[1], {"n": "a person's"})


async def test_call_keeps_its_initial_arguments(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin(calls=[call("c1")])
        await writer.write(calls=[replace(call("c1"), arguments={"at": "sea"}, state="started")])
        (found,) = await store.calls("r1")
        assert (found.arguments, found.state) == ({"at": "sky"}, "started")


async def test_call_without_answer_has_its_own_arguments(open_store: StoreFactory) -> None:
    async with open_store() as store:
        ready = ToolCallReady(identity(), 0, 7, "c1", "look", {"at": "sky"})
        await Writer(store).begin(log=[ready], calls=[call("c1")])
        assert await store.events("t1") == [replace(ready, seq=1)]
        assert list(await store.calls("r1")) == [call("c1")]


async def test_call_arguments_survive_run_end_and_fork(open_store: StoreFactory) -> None:
    answer = Message(new_id(), "assistant", (ToolCall("c1", "look", {"at": "sky"}),), 7)
    ready = ToolCallReady(identity(), 0, 7, "c1", "look", {"at": "sky"})
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin(log=[answer, ready], calls=[call("c1")])
        await writer.release(runs=[record(status="done")])
        await store.fork("t1", 2, "f")
        for thread_id in ("t1", "f"):
            assert (await store.events(thread_id))[1] == replace(ready, seq=2)
