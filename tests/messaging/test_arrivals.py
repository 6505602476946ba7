"""Arrivals of messages: recipients that run, wait, are idle, or don't exist yet."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from delegation.conftest import Place
from loop.helpers import Hold, Scripted, Spy, holding, soon, spying, until
from wakeful import Agent, ConfigurationError, MailPolicy, Runtime, ScriptedModel, call
from wakeful.stores import Commit
from wakeful.types.inbox import DecisionItem, InputItem
from wakeful.types.messages import user_message
from wakeful.types.runs import Cancelled, Identity, NaturalEnd, TaskRecord
from wakeful.types.tickets import Decision

from .helpers import STRANGERS, background, done, lead, read, receipts, send, to_agent, waits


def writer(*turns: Any) -> Agent:
    """An agent that writes to the thread `there`."""
    return Agent("writer", model=ScriptedModel(list(turns) or [send(to_agent("there")), "sent"]), mail=STRANGERS)


def reader(model: Any, hold: Hold | None = None, **policy: Any) -> Agent:
    """An agent that takes messages from anybody."""
    tools = [] if hold is None else [holding(hold, effect="pure")]
    return Agent("reader", model=model, tools=tools, mail=replace(STRANGERS, **policy))


async def receipt(runtime: Runtime, agent: str = "writer", thread: str = "t") -> dict[str, Any]:
    """Let an agent write, and see what it is told."""
    await soon(runtime.run(agent, "go", thread=thread))
    return (await receipts(runtime, thread))[-1]


async def test_new_thread_starts_with_named_agent(place: Place, scripted: Scripted) -> None:
    agents = [writer(send(to_agent("there", "reader")), "sent"), reader(scripted("read"))]
    async with Runtime(agents, store=place()) as runtime:
        assert (await receipt(runtime))["status"] == "accepted"
        await done(runtime, "there")
        (run,) = await runtime.runs.list(thread="there")
        assert (run.agent_id, run.identity.origin, run.hops) == ("reader", "message", 1)
        assert await read(runtime, "there") == ["hello"]


@pytest.mark.parametrize("named", [None, "nobody"])
async def test_new_thread_needs_known_agent(named: str | None) -> None:
    runtime = Runtime([writer(send(to_agent("there", named)), "sent")])
    assert (await receipt(runtime))["error"] == "recipient_not_found"
    assert await runtime.store.load("there") is None


async def test_idle_thread_wakes_with_last_agent(place: Place, scripted: Scripted) -> None:
    async with Runtime([writer(), reader(scripted("hi", "read"))], store=place()) as runtime:
        await runtime.run("reader", "hello", thread="there")
        assert (await receipt(runtime))["status"] == "accepted"
        await done(runtime, "there", 2)
        assert await read(runtime, "there") == ["hello"]


async def test_message_waits_behind_running_run(place: Place, scripted: Scripted) -> None:
    hold = Hold()
    model = scripted(call("wait"), "first", "second")
    async with Runtime([writer(), reader(model, hold)], store=place()) as runtime:
        running = await runtime.start("reader", "work", thread="there")
        await soon(hold.reached.wait())
        assert (await receipt(runtime))["status"] == "accepted"
        assert [one.text for one in await runtime.mail.pending("there")] == ["hello"]
        hold.released.set()
        assert (await soon(running.result())).text == "first"
        await done(runtime, "there", 2)
        assert "agent_message" not in "".join(m.text for m in model.requests[1].messages)
        assert "agent_message" in model.requests[2].messages[-1].text


async def test_message_steers_when_recipient_allows(place: Place, scripted: Scripted) -> None:
    hold = Hold()
    model = scripted(call("wait"), "first")
    async with Runtime([writer(), reader(model, hold, arriving="steer")], store=place()) as runtime:
        running = await runtime.start("reader", "work", thread="there")
        await soon(hold.reached.wait())
        assert (await receipt(runtime))["status"] == "accepted"
        await until(lambda: runtime._scope.dispatch.active["there"].view.inbox)
        hold.released.set()
        assert (await soon(running.result())).text == "first"
        assert "agent_message" in model.requests[1].messages[-1].text
        assert (await runtime.runs.get(running.run_id)).hops == 1


async def test_message_interrupts_when_recipient_allows(place: Place, scripted: Scripted) -> None:
    hold = Hold()
    agents = [writer(), reader(scripted(call("wait"), "second"), hold, arriving="interrupt")]
    async with Runtime(agents, store=place()) as runtime:
        running = await runtime.start("reader", "work", thread="there")
        await soon(hold.reached.wait())
        assert (await receipt(runtime))["status"] == "accepted"
        result = await soon(running.result())
        assert result.termination == Cancelled("interrupted by a message from agent writer")
        await done(runtime, "there", 2)
        newest = (await runtime.runs.list(thread="there"))[0]
        assert newest.outcome is not None
        assert newest.outcome.termination == NaturalEnd()


async def test_message_is_rejected_when_recipient_says_so(place: Place, scripted: Scripted) -> None:
    hold = Hold()
    turns = [send(to_agent("there")), "sent"] * 2
    agents = [writer(*turns), reader(scripted(call("wait"), "first", "second"), hold, arriving="reject")]
    async with Runtime(agents, store=place()) as runtime:
        running = await runtime.start("reader", "work", thread="there")
        await soon(hold.reached.wait())
        refused = await receipt(runtime)
        assert (refused["status"], refused["error"]) == ("failed", "recipient_busy")
        hold.released.set()
        await soon(running.result())
        assert (await receipt(runtime))["status"] == "accepted"
        await done(runtime, "there", 2)


@pytest.mark.parametrize("arriving", [None, "steer"])
async def test_message_leaves_waiting_run_alone(arriving: Any, place: Place, scripted: Scripted) -> None:
    spy = Spy()
    model = scripted(call("pay"), *(["paid"] if arriving else ["paid", "read"]))
    pay = spying(spy, "pay", approval=True)
    agents = [writer(), replace(reader(model, arriving=arriving), tools=[pay])]
    async with Runtime(agents, store=place()) as runtime:
        result = await soon(runtime.run("reader", "work", thread="there"))
        assert (await receipt(runtime))["status"] == "accepted"
        await asyncio.sleep(0)
        assert (await runtime.runs.get(result.run_id)).status == "waiting"
        (ticket,) = result.tickets
        assert (await soon(runtime.tickets.answer(ticket.id, True))).text == "paid"
        await done(runtime, "there", 1 if arriving else 2)
        assert (await read(runtime, "there"), spy.ran) == (["hello"], ["pay"])


async def test_message_wakes_run_waiting_for_tasks(place: Place, scripted: Scripted) -> None:
    hold = Hold()
    agents = [
        writer(),
        lead(ScriptedModel([background(), "waits", "heard", "all done"]), agent_id="reader", mail=STRANGERS),
        Agent("child", model=scripted(call("wait"), "fine"), tools=[holding(hold, effect="pure")]),
    ]
    async with Runtime(agents, store=place()) as runtime:
        running = await runtime.start("reader", "work", thread="there")
        await soon(hold.reached.wait())
        await waits(runtime, "there")
        async with asyncio.timeout(120):
            await receipt(runtime)
            while "heard" not in [m.text for m in await runtime.threads.messages("there")]:
                await asyncio.sleep(0.005)
        hold.released.set()
        assert (await soon(running.result())).text == "all done"


async def test_late_message_for_task_keeps_its_parent() -> None:
    agents = [
        lead(ScriptedModel([send({"relation": "child", "name": "one"}), "sent"])),
        Agent("child", model=ScriptedModel(["done already", "late"])),
    ]
    runtime = Runtime(agents)
    await runtime.run("child", "work", thread="sub")
    task = TaskRecord("one", "t", "r0", agent_id="child", target="one", target_thread="sub")
    await runtime.store.commit(Commit("t", Identity("r0", "t", "lead", "r0"), version=0, tasks=[task]))
    assert (await receipt(runtime, "lead"))["status"] == "accepted"
    await done(runtime, "sub", 2)
    late = (await runtime.runs.list(thread="sub"))[0].identity
    assert (late.parent_thread_id, late.origin, late.depth) == ("t", "message", 1)
    await runtime.close()


async def test_message_id_is_delivered_once(place: Place, scripted: Scripted) -> None:
    async with Runtime([writer(), reader(scripted("hi", "read"))], store=place()) as runtime:
        await runtime.run("reader", "hello", thread="there")
        message_id = (await receipt(runtime))["message_id"]
        await done(runtime, "there", 2)
        item = await runtime.store.item(message_id)
        assert item is not None
        again = InputItem(id=message_id, thread_id="there", message=user_message("again"), agent_id="reader")
        await runtime.store.commit(Commit("there", inbox=[again]))
        assert await runtime.mail.pending("there") == []
        assert item.status == "taken"


async def test_message_for_agent_of_another_process_waits_for_it(place: Place, scripted: Scripted) -> None:
    store = place()
    both = [writer(), reader(ScriptedModel(["hi"]), accept=())]
    async with Runtime(both, store=store) as runtime:
        await runtime.run("reader", "hello", thread="there")
    apart = replace(STRANGERS, accept=())
    stranger = Agent("writer", model=scripted(send(to_agent("there")), "sent"), mail=apart)
    async with Runtime([stranger], store=place()) as runtime:
        refused = await receipt(runtime)
        assert refused["error"] == "permission_denied"  # Nobody here knows that it takes messages from strangers.


async def test_messages_leave_room_for_answers_in_inbox(scripted: Scripted) -> None:
    runtime = Runtime([writer(), reader(ScriptedModel([]))])
    crowd = [DecisionItem(id=f"i{n}", thread_id="there", decision=Decision("k")) for n in range(900)]
    await runtime.store.commit(Commit("there", inbox=crowd))
    agents = [writer(send(to_agent("there", "reader")), "sent"), reader(ScriptedModel([]))]
    runtime = Runtime(agents, store=runtime.store)
    assert (await receipt(runtime))["error"] == "inbox_full"
    await runtime.close()


def test_mail_policy_is_checked_by_runtime() -> None:
    wrong = MailPolicy(to=("aunt", "agent:"), accept=("outside:x",))
    with pytest.raises(ConfigurationError) as raised:
        Runtime([Agent("a", model=ScriptedModel([]), mail=wrong)])
    text = str(raised.value)
    for entry in ("mail.to: 'aunt'", "mail.to: 'agent:'", "mail.accept: 'outside:x'"):
        assert entry in text
