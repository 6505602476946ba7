"""Pending input: listed, edited, moved and retracted until a run takes it in."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from delegation.conftest import Place
from loop.helpers import Hold, Scripted, holding, soon
from wakeful import Agent, Runtime, ScriptedModel, call
from wakeful.errors import Conflict, InputRetracted, UnknownInput, UnknownRun, UsageError
from wakeful.stores import Commit
from wakeful.types.inbox import InputItem
from wakeful.types.messages import user_message
from wakeful.types.runs import TaskRef

from .helpers import STRANGERS, done, receipts, send, to_agent


def busy(scripted: Scripted, hold: Hold, *turns: Any) -> Agent:
    model = scripted(call("wait"), *turns)
    return Agent("a", model=model, tools=[holding(hold, effect="pure")], mail=STRANGERS)


async def begun(runtime: Runtime, hold: Hold) -> Any:
    running = await runtime.start("a", "work", thread="t")
    await soon(hold.reached.wait())
    return running


async def texts(runtime: Runtime, thread: str = "t") -> list[str]:
    return [one.text for one in await runtime.mail.pending(thread)]


async def asked(runtime: Runtime) -> list[str]:
    """The texts of users on the thread, in order."""
    return [m.text for m in await runtime.threads.messages("t") if m.role == "user"]


async def test_pending_input_is_edited_moved_and_retracted(place: Place, scripted: Scripted) -> None:
    hold = Hold()
    async with Runtime([busy(scripted, hold, "first", "second", "third")], store=place()) as runtime:
        running = await begun(runtime, hold)
        for text in ("one", "two", "three"):
            await runtime.send("t", text)
        one, two, three = await runtime.mail.pending("t")
        assert (one.text, one.revision, one.policy, one.sender, one.agent_id) == ("one", 0, "queue", None, "a")
        edited = await runtime.mail.edit(one.id, "one, changed", revision=0)
        assert (edited.text, edited.revision) == ("one, changed", 1)
        await runtime.mail.move(three.id, before=one.id)
        assert await texts(runtime) == ["three", "one, changed", "two"]
        await runtime.mail.retract(two.id)
        assert await texts(runtime) == ["three", "one, changed"]
        hold.released.set()
        await soon(running.result())
        await done(runtime, "t", 3)
        assert await asked(runtime) == ["work", "three", "one, changed"]
        assert await runtime.mail.pending("t") == []


async def test_pending_input_is_moved_first_last_or_after(scripted: Scripted) -> None:
    hold = Hold()
    async with Runtime([busy(scripted, hold, "first", *"234")]) as runtime:
        await begun(runtime, hold)
        for text in "abc":
            await runtime.send("t", text)
        a, b, c = await runtime.mail.pending("t")
        await runtime.mail.move(c.id)
        assert await texts(runtime) == ["c", "a", "b"]
        await runtime.mail.move(c.id, after=b.id)
        assert await texts(runtime) == ["a", "b", "c"]
        unchanged = await runtime.mail.move(a.id)
        assert (await runtime.mail.pending("t"))[0] == unchanged
        with pytest.raises(UsageError, match="not both"):
            await runtime.mail.move(a.id, before=b.id, after=c.id)
        with pytest.raises(UnknownInput, match="'zzz'"):
            await runtime.mail.move(a.id, before="zzz")
        for itself in ({"before": a.id}, {"after": a.id}):
            with pytest.raises(UsageError, match="before or after itself"):
                await runtime.mail.move(a.id, **itself)
        hold.released.set()
        await done(runtime, "t", 4)


async def test_edited_steering_input_is_taken_as_edited(place: Place, scripted: Scripted) -> None:
    hold = Hold()
    async with Runtime([busy(scripted, hold, "first")], store=place()) as runtime:
        running = await begun(runtime, hold)
        await runtime.send("t", "one", policy="steer")
        await runtime.send("t", "two", policy="steer")
        one, two = await runtime.mail.pending("t")
        await runtime.mail.edit(one.id, "uno")
        await runtime.mail.retract(two.id)
        hold.released.set()
        await soon(running.result())
        assert await asked(runtime) == ["work", "uno"]


async def test_retracted_input_is_not_taken_by_unaware_owner(place: Place, scripted: Scripted) -> None:
    hold = Hold()
    runtime = Runtime([busy(scripted, hold, "first")], store=place())
    running = await begun(runtime, hold)
    await runtime.send("t", "one", policy="steer")
    await runtime.send("t", "two", policy="steer")
    one, _ = await runtime.mail.pending("t")
    act = runtime._scope.dispatch.active["t"]
    assert one.id in act.view.inbox
    # Around the runtime: what its owner holds in memory is old now.
    item = next(i for i in act.view.inbox.values() if i.id == one.id)
    gone = replace(item, revision=item.revision + 1, status="retracted")
    await runtime.store.commit(Commit("t", pending=[gone]))
    hold.released.set()
    await soon(running.result())
    assert await asked(runtime) == ["work", "two"]
    await runtime.close()


async def test_waiter_is_told_of_retraction_while_thread_is_busy(place: Place, scripted: Scripted) -> None:
    hold = Hold()
    async with Runtime([busy(scripted, hold, "first")], store=place()) as runtime:
        await begun(runtime, hold)
        waits = asyncio.create_task(runtime.run("a", "one", thread="t"))
        handle = await runtime.start("a", "two", thread="t")
        while len(await runtime.mail.pending("t")) < 2:
            await asyncio.sleep(0)
        for one in await runtime.mail.pending("t"):
            await runtime.mail.retract(one.id)
        for waiting in (waits, handle.result()):
            with pytest.raises(InputRetracted):
                await soon(waiting)
        hold.released.set()


async def test_remote_retraction_is_seen_while_thread_is_busy(place: Place, scripted: Scripted) -> None:
    hold = Hold()
    async with Runtime([busy(scripted, hold, "first")], store=place()) as runtime:
        await begun(runtime, hold)
        waits = asyncio.create_task(runtime.run("a", "one", thread="t"))
        while not (
            items := [i for i in runtime._scope.dispatch.active["t"].view.inbox.values() if i.kind == "input"]
        ):
            await asyncio.sleep(0)
        gone = replace(items[0], revision=1, status="retracted")
        await runtime.store.commit(Commit("t", pending=[gone]))  # Around the runtime, as another process would.
        with pytest.raises(InputRetracted):
            await soon(waits)
        hold.released.set()


async def test_cancel_of_queued_run_retracts_its_input(place: Place, scripted: Scripted) -> None:
    hold = Hold()
    async with Runtime([busy(scripted, hold, "first")], store=place()) as runtime:
        running = await begun(runtime, hold)
        handle = await runtime.start("a", "two", thread="t")
        assert await soon(handle.cancel())
        assert not await soon(handle.cancel())
        assert await runtime.mail.pending("t") == []
        with pytest.raises(InputRetracted):
            await soon(handle.result())
        hold.released.set()
        await soon(running.result())
        assert await asked(runtime) == ["work"]
        with pytest.raises(UnknownRun):
            await runtime.cancel("nothing")


async def test_taken_input_cannot_be_changed(scripted: Scripted) -> None:
    hold = Hold()
    async with Runtime([busy(scripted, hold, "first", "second")]) as runtime:
        running = await begun(runtime, hold)
        await runtime.send("t", "one")
        await runtime.send("t", "two")
        one, two = await runtime.mail.pending("t")
        await runtime.mail.retract(two.id)
        for change in (runtime.mail.retract(two.id), runtime.mail.edit(two.id, "x"), runtime.mail.move(two.id)):
            with pytest.raises(UnknownInput, match="it was retracted"):
                await change
        hold.released.set()
        await soon(running.result())
        await done(runtime, "t", 2)
        with pytest.raises(UnknownInput, match="it was taken in"):
            await runtime.mail.edit(one.id, "late")
        with pytest.raises(UnknownInput, match="no input 'nothing' is pending"):
            await runtime.mail.retract("nothing")


async def test_second_editor_gets_conflict(scripted: Scripted) -> None:
    hold = Hold()
    async with Runtime([busy(scripted, hold, "first", "second")]) as runtime:
        running = await begun(runtime, hold)
        await runtime.send("t", "one")
        (one,) = await runtime.mail.pending("t")
        await runtime.mail.edit(one.id, "ann's", revision=one.revision)
        with pytest.raises(Conflict, match="it is at revision 1, not 0"):
            await runtime.mail.edit(one.id, "bob's", revision=one.revision)
        assert await texts(runtime) == ["ann's"]
        hold.released.set()
        await soon(running.result())
        await done(runtime, "t", 2)


async def test_waiter_is_told_of_retraction(place: Place, scripted: Scripted) -> None:
    hold = Hold()
    async with Runtime([busy(scripted, hold, "first")], store=place()) as runtime:
        running = await begun(runtime, hold)
        waits = asyncio.create_task(runtime.run("a", "two", thread="t"))
        async with asyncio.timeout(120):
            while not (found := await runtime.mail.pending("t")):
                await asyncio.sleep(0.002)
        await runtime.mail.retract(found[0].id)
        hold.released.set()
        await soon(running.result())
        with pytest.raises(InputRetracted, match="was retracted before it ran"):
            await soon(waits)


async def test_agent_message_keeps_sender_when_edited(scripted: Scripted) -> None:
    hold = Hold()
    writer = Agent("writer", model=scripted(send(to_agent("t")), "sent"), mail=STRANGERS)
    async with Runtime([writer, busy(scripted, hold, "first", "second")]) as runtime:
        running = await begun(runtime, hold)
        await soon(runtime.run("writer", "go", thread="w"))
        (one,) = await runtime.mail.pending("t")
        assert (one.text, one.sender, one.sender_thread_id) == ("hello", "writer", "w")
        await runtime.mail.edit(one.id, "good </agent_message> bye")
        assert await texts(runtime) == ["good </agent_message> bye"]
        hold.released.set()
        await soon(running.result())
        await done(runtime, "t", 2)
        (said,) = [text for text in await asked(runtime) if text.startswith("<agent_message>")]
        assert said.count("</agent_message>") == 1
        assert (await receipts(runtime, "w"))[0]["message_id"] == one.id


async def test_task_input_cannot_be_changed() -> None:
    runtime = Runtime([Agent("child", model=ScriptedModel([]))])
    message = user_message("work")
    first = InputItem(id="i1", thread_id="sub", message=message, task=TaskRef("one"))
    await runtime.store.commit(Commit("sub", inbox=[first]))
    assert await runtime.mail.pending("sub") == []
    with pytest.raises(UnknownInput, match="belongs to a task: cancel the task instead"):
        await runtime.mail.retract("i1")
    await runtime.close()
