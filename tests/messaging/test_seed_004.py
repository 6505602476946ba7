"""Seed 004, row by row: the model's `send_message`."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from backends.helpers import REMOTE
from backends.helpers import Scripted as Far
from delegation.conftest import Place
from loop.helpers import Hold, Scripted, holding, replies_on, reply_text, soon, until
from wakeful import Agent, Delegate, MailPolicy, MemoryStore, Runtime, ScriptedModel, call
from wakeful.errors import InvalidArguments
from wakeful.messaging import DeliveryPolicy
from wakeful.messaging.tools import SendTool
from wakeful.stores import Commit, Committed
from wakeful.testing import FakeClock
from wakeful.tools import value_fault
from wakeful.types import OutboundMessage
from wakeful.types.codec import decode
from wakeful.types.inbox import InputItem
from wakeful.types.messages import user_message
from wakeful.types.runs import Identity, TaskRecord

from .helpers import (
    KID,
    PARENT,
    STRANGERS,
    background,
    done,
    lead,
    letters,
    read,
    receipts,
    send,
    to_agent,
    waits,
)

SAMPLES = [
    ({"to": PARENT, "message": "x"}, True),
    ({"to": KID, "message": "x"}, True),
    ({"to": to_agent("t"), "message": "x"}, True),
    ({"to": to_agent("t", "a"), "message": "x"}, True),
    ({"to": PARENT}, False),
    ({"message": "x"}, False),
    ({"to": {"relation": "child"}, "message": "x"}, False),
    ({"to": {"relation": "agent"}, "message": "x"}, False),
    ({"to": {"relation": "aunt"}, "message": "x"}, False),
    ({"to": {**PARENT, "name": "x"}, "message": "x"}, False),
]


@pytest.mark.parametrize(("arguments", "fits"), SAMPLES)
def test_seed_4_1_schema_has_three_kinds_of_recipients(arguments: dict[str, Any], fits: bool) -> None:
    schema = SendTool().spec.parameters
    assert schema["required"] == ["to", "message"]
    assert (value_fault(arguments, schema) is None) == fits


WRONG = [
    ({}, "missing 'to'"),
    ({"to": "parent"}, "missing 'to'"),
    ({"to": {}}, "missing 'to.relation'"),
    ({"to": {"relation": 3}}, "missing 'to.relation'"),
    ({"to": {"relation": "child"}}, "child requires 'name'"),
    ({"to": {"relation": "child", "name": ""}}, "child requires 'name'"),
    ({"to": {"relation": "agent", "agent_id": "a"}}, "agent requires 'thread_id'"),
    ({"to": {"relation": "aunt"}}, "unknown relation 'aunt'"),
    ({"message": 3}, "missing 'to'"),
    ({"to": {"name": "x"}, "message": 3}, "missing 'to.relation'"),
    ({"to": {"relation": "child"}, "message": 3}, "child requires 'name'"),
    ({"to": {"relation": "agent"}, "message": 3}, "agent requires 'thread_id'"),
    ({"to": {"relation": "aunt"}, "message": 3}, "unknown relation 'aunt'"),
    ({"to": PARENT}, "missing 'message'"),
    ({"to": PARENT, "message": 3}, "missing 'message'"),
]


@pytest.mark.parametrize(("arguments", "error"), WRONG)
def test_seed_4_2_argument_errors_come_in_their_order(arguments: dict[str, Any], error: str) -> None:
    """Of several errors, the first in the row's order is reported. Unknown fields are refused by the schema."""
    with pytest.raises(InvalidArguments) as raised:
        SendTool().bind(arguments)
    assert str(raised.value).startswith(error)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"message": "hi"}, '{"relation": "parent"}'),
        ({"to": "parent", "message": "hi"}, 'is not \'parent\': give {"relation": "parent"}'),
        ({"to": {"relation": 3}, "message": "hi"}, 'is not 3: give {"relation": "parent"}'),
        ({"to": {"relation": "aunt"}, "message": "hi"}, '"relation": "child"'),
        ({"to": {"relation": "child", "name": ["a"]}, "message": "hi"}, "is not ['a']: a task's id or name"),
        ({"to": {"relation": "agent"}, "message": "hi"}, "the thread that the agent works on"),
        ({"to": {"relation": "agent", "thread_id": "t", "agent_id": 3}, "message": "hi"}, "give an agent's id"),
        ({"to": {"relation": "parent", "name": "x"}, "message": "hi"}, "unknown field 'to.name'"),
        ({"to": PARENT, "message": {"text": "hi"}}, "is not {'text': 'hi'}: give a text"),
        ({"to": PARENT, "text": "hi"}, "send_message takes 'to' and 'message'"),
    ],
)
def test_argument_error_advises_repair(arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidArguments) as raised:
        SendTool().bind(arguments)
    assert told in str(raised.value)


async def test_seed_4_2_argument_errors_are_reported_to_model(scripted: Scripted) -> None:
    agent = Agent("a", model=scripted(send({"relation": "aunt"}), "ok"), mail=STRANGERS)
    runtime = Runtime([agent])
    await runtime.run("a", "go", thread="t")
    (reply,) = await replies_on(runtime, "t")
    assert reply.error == "invalid_arguments"
    assert reply_text(reply).startswith("unknown relation 'aunt': give ")


def family(scripted: Scripted, *turns: Any, hold: Hold, store: Any = None) -> tuple[Runtime, ScriptedModel]:
    """A lead whose child waits in a tool until the test lets it go."""
    child = ScriptedModel([call("wait"), *["fine"] * 3])  # It may hear of a message one step later.
    agents = [
        lead(scripted(background(), *turns)),
        Agent("child", model=child, tools=[holding(hold, effect="pure")]),
    ]
    return Runtime(agents, store=store), child


async def test_seed_4_3_empty_message_is_accepted(place: Place, scripted: Scripted) -> None:
    hold = Hold()
    async with family(scripted, send(KID, ""), "sent", "told", hold=hold, store=place())[0] as runtime:
        running = await runtime.start("lead", "go", thread="t")
        await soon(hold.reached.wait())
        await waits(runtime, "t")
        assert (await receipts(runtime, "t"))[0]["status"] == "accepted"
        hold.released.set()
        assert (await soon(running.result())).text == "told"
        (task,) = await runtime.store.tasks("t")
        assert await read(runtime, task.target_thread) == [""]


async def staged(tasks: list[TaskRecord], *turns: Any) -> list[dict[str, Any]]:
    """The results of a lead that owns these tasks besides its own."""
    store = MemoryStore()
    model = ScriptedModel([*turns, "done"])
    child = Agent("child", model=ScriptedModel(["again"] * 9))
    runtime = Runtime([lead(model), child], store=store)
    await store.commit(Commit("t", Identity("r0", "t", "lead", "r0"), version=0, tasks=tasks))
    await runtime.run("lead", "go", thread="t")
    found = await receipts(runtime, "t")
    await runtime.close()
    return found


def task(task_id: str, **fields: Any) -> TaskRecord:
    base = TaskRecord(task_id, "t", "r0", agent_id="child", target=task_id, target_thread=f"sub-{task_id}")
    return replace(base, **fields)


async def test_seed_4_4_child_is_found_by_id_first_then_by_name() -> None:
    store = MemoryStore()
    names = [send({"relation": "child", "name": name}) for name in ("one", "solo", "over")]
    runtime = Runtime(
        [lead(ScriptedModel([names, "done"])), Agent("child", model=ScriptedModel(["ok"] * 9))], store=store
    )
    tasks = [
        task("two", name="one"),
        task("one", name="two"),
        task("three", name="solo"),
        task("four", name="over", status="completed"),
    ]
    await store.commit(Commit("t", Identity("r0", "t", "lead", "r0"), version=0, tasks=tasks))
    await runtime.run("lead", "go", thread="t")
    await done(runtime, "sub-one")
    await done(runtime, "sub-three")
    assert await read(runtime, "sub-one") == ["hello"]  # The id, and not another's name.
    assert await read(runtime, "sub-three") == ["hello"]  # The name, where no task has that id.
    assert [await store.load(f"sub-{name}") for name in ("two", "four")] == [None, None]
    assert sorted(one["status"] for one in await receipts(runtime, "t")) == ["accepted", "accepted", "failed"]
    await runtime.close()


async def test_seed_4_5_child_of_same_step_is_found(place: Place, scripted: Scripted) -> None:
    hold = Hold()
    agents = [
        lead(scripted([background(), send(KID)], "sent", "told"), sequential=True),
        Agent("child", model=scripted(call("wait"), "fine"), tools=[holding(hold, effect="pure")]),
    ]
    async with Runtime(agents, store=place()) as runtime:
        running = await runtime.start("lead", "go", thread="t")
        await soon(hold.reached.wait())
        await waits(runtime, "t")
        hold.released.set()
        assert (await soon(running.result())).text == "told"
        assert [one["status"] for one in await receipts(runtime, "t")] == ["accepted"]


async def test_seed_4_6_receipt_has_our_id_and_no_error() -> None:
    (receipt,) = await staged([task("one")], send({"relation": "child", "name": "one"}))
    assert set(receipt) == {"message_id", "status"}
    assert receipt["status"] == "accepted"
    assert UUID(receipt["message_id"]).version == 7


async def test_seed_4_7_unknown_or_foreign_child_is_not_found() -> None:
    store = MemoryStore()
    strange = replace(task("theirs"), thread_id="other")
    await store.commit(Commit("other", Identity("r1", "other", "lead", "r1"), version=0, tasks=[strange]))
    model = ScriptedModel([send(KID), send({"relation": "child", "name": "theirs"}), "done"])
    runtime = Runtime([lead(model), Agent("child", model=ScriptedModel([]))], store=store)
    await runtime.run("lead", "go", thread="t")
    for receipt in await receipts(runtime, "t"):
        assert receipt["detail"]
        assert {**receipt, "detail": ""} == {
            "message_id": "",
            "status": "failed",
            "error": "recipient_not_found",
            "detail": "",
        }


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"status": "completed"}, "recipient_unavailable"),
        ({"status": "cancelled"}, "recipient_unavailable"),
        ({"target_thread": ""}, "recipient_unavailable"),
    ],
)
async def test_seed_4_8_ended_child_is_unavailable(fields: dict[str, Any], error: str) -> None:
    (receipt,) = await staged([task("one", **fields)], send({"relation": "child", "name": "one"}))
    assert (receipt["status"], receipt["error"]) == ("failed", error)


async def test_seed_4_8_remote_child_is_unavailable() -> None:
    """A remote child has no inbox here, whatever thread mirrors it."""
    store, backend = MemoryStore(), Far(capabilities=REMOTE)
    model = ScriptedModel([send({"relation": "child", "name": "one"}), "done"])
    delegates = [Delegate("far", background=True)]
    runtime = Runtime([Agent("lead", model, delegates=delegates), Agent("far", backend=backend)], store=store)
    remote = task("one", agent_id="far", remote=True)
    await store.commit(Commit("t", Identity("r0", "t", "lead", "r0"), version=0, tasks=[remote]))
    await runtime.run("lead", "go", thread="t")
    (receipt,) = await receipts(runtime, "t")
    assert (receipt["status"], receipt["error"], receipt["message_id"]) == ("failed", "recipient_unavailable", "")
    assert await store.load("sub-one") is None
    assert backend.requests == []
    await runtime.close()


async def test_seed_4_8_child_that_takes_no_messages_denies_permission(scripted: Scripted) -> None:
    hold = Hold()
    agents = [
        lead(scripted(background(), send(KID), "sent", "told")),
        Agent(
            "child",
            model=scripted(call("wait"), "fine"),
            tools=[holding(hold, effect="pure")],
            mail=MailPolicy(accept=()),
        ),
    ]
    async with Runtime(agents) as runtime:
        running = await runtime.start("lead", "go", thread="t")
        await soon(hold.reached.wait())
        await waits(runtime, "t")
        hold.released.set()
        await soon(running.result())
        (receipt,) = await receipts(runtime, "t")
        assert (receipt["status"], receipt["error"]) == ("failed", "permission_denied")


async def alone(scripted: Scripted, lineage: dict[str, Any]) -> dict[str, Any]:
    """The result of a message to the parent, from a run with this lineage."""
    store = MemoryStore()
    runtime = Runtime([Agent("child", model=scripted(send(PARENT), "ok"), mail=STRANGERS)], store=store)
    identity = Identity("r1", "t", "child", "r1", **lineage)
    item = InputItem(
        id="i1",
        thread_id="t",
        message=user_message("go"),
        agent_id="child",
        run_id="r1",
        lineage=identity,
    )
    await store.commit(Commit("t", inbox=[item]))
    await runtime._scope.dispatch.start_if_due("t")
    await done(runtime, "t")
    (receipt,) = await receipts(runtime, "t")
    await runtime.close()
    return receipt


async def test_seed_4_9_parent_needs_parent_thread(scripted: Scripted) -> None:
    receipt = await alone(scripted, {"parent_run_id": "r0"})
    assert (receipt["status"], receipt["error"]) == ("failed", "recipient_unavailable")
    receipt = await alone(scripted, {})
    assert (receipt["status"], receipt["error"]) == ("failed", "recipient_unavailable")


async def test_seed_4_9_parent_thread_gets_message_from_caller(place: Place, scripted: Scripted) -> None:
    agents = [
        lead(ScriptedModel([background(), *["heard"] * 9])),
        Agent("child", model=scripted(send(PARENT, "half done"), "fine")),
    ]
    async with Runtime(agents, store=place()) as runtime:
        result = await soon(runtime.run("lead", "go", thread="t"))
        assert result.status == "done"
        (told,) = letters(await runtime.threads.messages("t"))
        assert (told["from"], told["content"]) == ("child", "half done")
        (task,) = await runtime.store.tasks("t")
        assert told["reply_to"] == {"relation": "child", "name": task.id}
        (message,) = [m for m in await runtime.threads.messages("t") if m.producer and m.producer.sender_thread_id]
        assert message.producer is not None
        assert (message.producer.agent_id, message.producer.sender_thread_id) == ("child", task.target_thread)
        assert (message.producer.root_run_id, message.producer.hops) == (result.run_id, 1)


class Sent(MemoryStore):
    """Keeps the messages of agents that were committed to an inbox."""

    def __init__(self) -> None:
        super().__init__()
        self.items: list[InputItem] = []

    async def commit(self, commit: Commit) -> Committed:
        self.items += [i for i in commit.inbox if isinstance(i, InputItem) and i.message.producer is not None]
        return await super().commit(commit)


async def test_seed_4_10_parent_is_the_thread_of_the_caller(scripted: Scripted) -> None:
    """The caller names no agent; here the item names the agent of the parent's thread, which answers."""
    store = Sent()
    agents = [
        lead(ScriptedModel([background(), *["heard"] * 9])),
        Agent("child", model=scripted(send(PARENT, "half done"), "fine")),
    ]
    async with Runtime(agents, store=store) as runtime:
        await soon(runtime.run("lead", "go", thread="t"))
        (item,) = store.items
        assert (item.thread_id, item.agent_id) == ("t", "lead")
        assert item.message.producer is not None
        assert item.message.producer.agent_id == "child"
        assert {run.agent_id for run in await runtime.runs.list(thread="t")} == {"lead"}
        (receipt,) = await receipts(runtime, item.message.producer.sender_thread_id or "")
        assert (receipt["status"], receipt["message_id"]) == ("accepted", item.message.id)


@pytest.mark.parametrize(("named", "runs_as"), [("", "first"), ("second", "second"), (None, "first")])
async def test_seed_4_11_agent_route_passes_agent_through(
    named: str | None, runs_as: str, scripted: Scripted
) -> None:
    agents = [
        Agent("a", model=scripted(send(to_agent("there", named)), "sent"), mail=STRANGERS),
        Agent("first", model=ScriptedModel(["one", "two"]), mail=STRANGERS),
        Agent("second", model=ScriptedModel(["one", "two"]), mail=STRANGERS),
    ]
    runtime = Runtime(agents)
    await runtime.run("first", "hi", thread="there")
    await runtime.run("a", "go", thread="t")
    await done(runtime, "there", 2)
    newest = (await runtime.runs.list(thread="there"))[0]
    assert (newest.agent_id, newest.identity.origin) == (runs_as, "message")
    await runtime.close()


async def test_seed_4_12_receipt_id_is_message_id(place: Place, scripted: Scripted) -> None:
    agents = [
        Agent("a", model=scripted(send(to_agent("there", "b")), "sent"), mail=STRANGERS),
        Agent("b", model=scripted("read"), mail=STRANGERS),
    ]
    runtime = Runtime(agents, store=place())
    await runtime.run("a", "go", thread="t")
    await done(runtime, "there")
    (receipt,) = await receipts(runtime, "t")
    assert (await runtime.threads.messages("there"))[0].id == receipt["message_id"]
    await runtime.close()


class Failing:
    """A transport that never delivers."""

    def __init__(self) -> None:
        self.tried: list[OutboundMessage] = []

    async def deliver(self, message: OutboundMessage) -> None:
        self.tried.append(message)
        raise ConnectionError("nobody there")


async def test_seed_4_13_undelivered_message_is_dead_lettered(scripted: Scripted) -> None:
    """Each failure is retried after a backoff by the clock; then the message is listed, and replayed by its id."""
    clock, failing = FakeClock(), Failing()
    agent = Agent("a", model=scripted(send(to_agent("mail:ann")), "sent"), mail=MailPolicy(to=("outside:mail:*",)))
    delivery = DeliveryPolicy(attempts=3, backoff=1.0)
    runtime = Runtime([agent], transports={"mail": failing}, clock=clock, delivery=delivery)
    async with runtime:
        await runtime.run("a", "go", thread="t")
        (receipt,) = await receipts(runtime, "t")
        assert receipt["status"] == "accepted"
        for attempt, pause in enumerate((0, 1, 2), 1):
            await clock.advance(pause)
            await soon(until(lambda attempt=attempt: len(failing.tried) == attempt))
            async with asyncio.timeout(60):
                while (await runtime.store.relays())[0].attempts < attempt:
                    await asyncio.sleep(0)
            assert (await runtime.store.relays())[0].status == ("live" if attempt < 3 else "dead")
        (letter,) = await runtime.mail.dead_letters()
        assert (letter.id, letter.attempts) == (receipt["message_id"], 3)
        assert letter.error == "ConnectionError: nobody there"
        await runtime.mail.replay(letter.id)
        await soon(until(lambda: len(failing.tried) == 4))
        assert {message.id for message in failing.tried} == {letter.id}


async def test_seed_4_13_and_14_failing_transport_is_no_tool_error(place: Place, scripted: Scripted) -> None:
    policy = MailPolicy(to=("outside:mail:*",))
    agent = Agent("a", model=scripted(send(to_agent("mail:ann")), "sent"), mail=policy)
    failing = Failing()
    async with Runtime([agent], store=place(), transports={"mail": failing}) as runtime:
        result = await runtime.run("a", "go", thread="t")
        (receipt,) = await receipts(runtime, "t")
        assert receipt["status"] == "accepted"
        assert [one.outcome for one in await runtime.runs.calls(result.run_id)] == ["ok"]
        while not failing.tried:
            await asyncio.sleep(0.005)
        assert failing.tried[0].id == receipt["message_id"]


async def test_seed_4_14_refusal_is_successful_call(scripted: Scripted) -> None:
    runtime = Runtime([Agent("a", model=scripted(send(to_agent("nowhere")), "ok"), mail=STRANGERS)])
    result = await runtime.run("a", "go", thread="t")
    (made,) = await runtime.runs.calls(result.run_id)
    (reply,) = await replies_on(runtime, "t")
    assert (made.outcome, reply.error) == ("ok", None)
    assert json.loads(reply_text(reply))["status"] == "failed"


async def test_seed_4_15_child_reads_agent_message(place: Place, scripted: Scripted) -> None:
    hold = Hold()
    runtime, child = family(scripted, send(KID, "mind <b>"), "sent", "told", hold=hold, store=place())
    async with runtime:
        running = await runtime.start("lead", "go", thread="t")
        await soon(hold.reached.wait())
        await waits(runtime, "t")
        hold.released.set()
        await soon(running.result())
    (shown,) = [m for m in child.requests[-1].messages if m.text.startswith("<agent_message>")]
    assert shown.role == "user"
    assert shown.text.startswith("<agent_message>\n")
    assert shown.text.count("<") == 2  # What an agent writes can't end the tag.
    (payload,) = letters([shown])
    assert payload == {"from": "lead", "content": "mind <b>", "reply_to": {"relation": "parent"}}


async def test_seed_4_16_sent_message_has_all_fields(scripted: Scripted) -> None:
    policy = MailPolicy(to=("outside:mail:*",))
    agent = Agent("a", model=scripted(send(to_agent("mail:ann", "b"), "hi"), "sent"), mail=policy)
    runtime = Runtime([agent], transports={"mail": Failing()})
    result = await runtime.run("a", "go", thread="t")
    (relay,) = await runtime.store.relays(thread_id="t")
    sent = decode(relay.payload, dict[str, Any])["message"]
    assert {**sent, "sent_at": 0} == {
        "id": relay.id,
        "to": "mail:ann",
        "text": "hi",
        "agent_id": "b",
        "sender_agent_id": "a",
        "sender_thread_id": "t",
        "sender_run_id": result.run_id,
        "root_run_id": result.run_id,
        "sent_at": 0,
    }
    await runtime.close()
