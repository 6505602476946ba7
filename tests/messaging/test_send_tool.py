"""Sending from tools: with the call's result or not at all, and within what both sides allow."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from delegation.conftest import Place
from loop.helpers import Scripted, replies_on, reply_text, soon
from wakeful import (
    Agent,
    Delegate,
    Limits,
    MailPolicy,
    Principal,
    Runtime,
    ScriptedModel,
    ToolContext,
    ToolError,
    call,
    tool,
)
from wakeful.types import Recipient

from .helpers import PARENT, STRANGERS, done, lead, read, receipts, send, sender, to_agent


def reader(*turns: Any, **policy: Any) -> Agent:
    model = ScriptedModel(list(turns) or ["read"] * 20)
    return Agent("reader", model=model, mail=replace(STRANGERS, **policy))


THERE = Recipient.agent("there", "reader")


async def test_send_in_tool_is_staged(place: Place, scripted: Scripted) -> None:
    agent = Agent("a", model=scripted(call("write"), "done"), tools=[sender(THERE)], mail=STRANGERS)
    async with Runtime([agent, reader()], store=place()) as runtime:
        await runtime.run("a", "go", thread="t", principal=Principal("ann"))
        (reply,) = await replies_on(runtime, "t")
        told = json.loads(reply_text(reply))
        assert told["status"] == "staged"
        await done(runtime, "there")
        (run,) = await runtime.runs.list(thread="there")
        assert run.principal == Principal("ann")
        message = (await runtime.threads.messages("there"))[0]
        assert (message.id, message.visibility) == (told["id"], "internal")


async def test_failed_call_sends_nothing(scripted: Scripted) -> None:
    @tool
    async def write(ctx: ToolContext) -> str:
        """Write, and fail."""
        await ctx.send(THERE, "hello")
        raise ToolError("after all")

    runtime = Runtime([Agent("a", model=scripted(call("write"), "ok"), tools=[write], mail=STRANGERS), reader()])
    await runtime.run("a", "go", thread="t")
    assert await runtime.store.load("there") is None
    await runtime.close()


async def test_rerun_tool_sends_once(place: Place, scripted: Scripted) -> None:
    @tool(resumable=True)
    async def write(ctx: ToolContext) -> str:
        """Write, and ask."""
        await ctx.send(THERE, "hello")
        return str(ctx.ask("sure?"))

    agent = Agent("a", model=scripted(call("write"), "ok"), tools=[write], mail=STRANGERS)
    async with Runtime([agent, reader()], store=place()) as runtime:
        result = await soon(runtime.run("a", "go", thread="t"))
        assert await runtime.store.load("there") is None
        (ticket,) = result.tickets
        await soon(runtime.tickets.answer(ticket.id, "yes"))
        await done(runtime, "there")
        assert await read(runtime, "there") == ["hello"]


@pytest.mark.parametrize("to", ["aunt", 3, None])
async def test_invalid_recipient_is_tool_error(to: Any, scripted: Scripted) -> None:
    runtime = Runtime([Agent("a", model=scripted(call("write"), "ok"), tools=[sender(to)])])
    await runtime.run("a", "go", thread="t")
    (reply,) = await replies_on(runtime, "t")
    assert reply.error is not None
    assert "Recipient.child(name)" in reply_text(reply)


@pytest.mark.parametrize("thread", ["", "é" * 65], ids=["empty", "long"])
async def test_invalid_thread_id_is_tool_error(thread: str, scripted: Scripted) -> None:
    tools = [sender(Recipient.agent(thread, "reader"))]
    model = scripted(call("write"), send(to_agent(thread, "reader")), "ok")
    async with Runtime([Agent("a", model=model, tools=tools, mail=STRANGERS), reader()]) as runtime:
        await runtime.run("a", "go", thread="t")
        by_tool, by_model = await replies_on(runtime, "t")
        assert "a thread id has 1 to 128 bytes" in reply_text(by_tool)
        assert (by_tool.error, by_model.error is None) == ("failed", False)
        assert [found.id for found in await runtime.threads.list()] == ["t"]


async def test_message_size_is_limited_to_mebibyte(scripted: Scripted) -> None:
    tools = [sender("parent", "x" * (1024 * 1024 + 1))]
    model = scripted(call("write"), send(PARENT, "x" * (1024 * 1024 + 1)), "ok")
    runtime = Runtime([Agent("a", model=model, tools=tools, mail=STRANGERS)])
    await runtime.run("a", "go", thread="t")
    for reply in await replies_on(runtime, "t"):
        assert "at most 1,048,576 bytes" in reply_text(reply)


# -- policy --------------------------------------------------------------------------------------------------


async def refusal(writes: MailPolicy, reads: MailPolicy, scripted: Scripted) -> str | None:
    """The error of a message from `writer` to `reader`, if any."""
    agents = [
        Agent("writer", model=scripted(send(to_agent("there", "reader")), "ok"), mail=writes),
        Agent("reader", model=ScriptedModel(["read"]), mail=reads),
    ]
    runtime = Runtime(agents)
    await runtime.run("writer", "go", thread="t")
    (receipt,) = await receipts(runtime, "t")
    await runtime.close()
    return receipt.get("error")


@pytest.mark.parametrize(
    ("to", "accept", "error"),
    [
        (("agent:*",), ("agent:*",), None),
        (("agent:read*",), ("agent:writer",), None),
        (("agent:bill*",), ("agent:*",), "permission_denied"),
        (("agent:*",), ("agent:billing",), "permission_denied"),
        (("agent:*",), ("parent", "child"), "permission_denied"),
        (("agent:*",), (), "permission_denied"),
    ],
)
async def test_unrelated_agents_write_when_both_allow(
    to: tuple[str, ...], accept: tuple[str, ...], error: str | None, scripted: Scripted
) -> None:
    assert await refusal(MailPolicy(to=to), MailPolicy(accept=accept), scripted) == error


async def test_schedule_thread_takes_no_messages(scripted: Scripted) -> None:
    model = scripted(send(to_agent("(schedule)tick", "reader")), "ok")
    async with Runtime([Agent("a", model=model, mail=STRANGERS), reader()]) as runtime:
        await runtime.schedules.put("tick", "reader", "tick", cron="@daily")
        await runtime.run("a", "go", thread="t")
        (receipt,) = await receipts(runtime, "t")
        assert (receipt["status"], receipt["error"]) == ("failed", "recipient_unavailable")
        stored = await runtime.store.load("(schedule)tick")
        assert stored is not None
        assert stored.inbox == ()


async def test_relatives_are_recognized_by_any_address(scripted: Scripted) -> None:
    agents = [
        lead(ScriptedModel([call("agent_run_child", prompt="work", background=True), *["ok"] * 9])),
        Agent("child", model=scripted(call("write"), "fine"), tools=[sender(Recipient.agent("t"))]),
    ]
    async with Runtime(agents) as runtime:
        await soon(runtime.run("lead", "go", thread="t"))
        assert await read(runtime, "t") == ["hello"]


async def test_child_is_refused_when_parent_denies_mail(scripted: Scripted) -> None:
    agents = [
        lead(ScriptedModel([call("agent_run_child", prompt="work", background=True), *["ok"] * 9])),
        Agent("child", model=scripted(send(PARENT), "fine"), mail=MailPolicy(to=())),
    ]
    async with Runtime(agents) as runtime:
        await soon(runtime.run("lead", "go", thread="t"))
        (task,) = await runtime.store.tasks("t")
        (receipt,) = await receipts(runtime, task.target_thread)
        assert receipt["error"] == "permission_denied"
        assert await read(runtime, "t") == []


def offered(agent: Agent, **options: Any) -> set[str]:
    others = [Agent("child", model=ScriptedModel([]))]
    runtime = Runtime([agent, *others], **options)
    return {spec.name for spec in runtime.agents.tools(agent.id)} & {"send_message", "recover_failed_messages"}


def test_send_tool_is_offered_when_recipients_exist() -> None:
    class Nowhere:
        async def deliver(self, message: Any) -> None: ...

    model = ScriptedModel([])
    assert offered(Agent("a", model=model)) == set()
    assert offered(Agent("a", model=model, delegates=["child"])) == set()
    assert offered(lead(model)) == {"send_message"}
    assert offered(lead(model, mail=MailPolicy(to=()))) == set()
    assert offered(Agent("a", model=model, mail=STRANGERS)) == {"send_message"}
    outside = Agent("a", model=model, mail=MailPolicy(to=("outside:mail:*",)))
    assert offered(outside, transports={"mail": Nowhere()}) == {"send_message", "recover_failed_messages"}


# -- hops ----------------------------------------------------------------------------------------------------


async def test_ping_pong_ends_at_hop_limit(place: Place) -> None:
    limits = Limits(hops=5)

    def player(name: str, other: str) -> Agent:
        turns = [send(to_agent(f"thread-{other}", other), f"from {name}"), "sent"] * 20
        return Agent(name, model=ScriptedModel(turns), mail=STRANGERS, limits=limits)

    async with Runtime([player("ping", "pong"), player("pong", "ping")], store=place()) as runtime:
        await soon(runtime.run("ping", "go", thread="thread-ping"))
        await done(runtime, "thread-pong", 3)
        await done(runtime, "thread-ping", 3)
        told = [*await receipts(runtime, "thread-ping"), *await receipts(runtime, "thread-pong")]
        assert sorted(one["status"] for one in told) == ["accepted"] * 5 + ["failed"]
        assert [one["error"] for one in told if one["status"] == "failed"] == ["hop_limit"]
        hops = [
            run.hops for thread in ("thread-ping", "thread-pong") for run in await runtime.runs.list(thread=thread)
        ]
        assert sorted(hops) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("durable", [False, True])
async def test_child_continues_hop_count_of_parent(durable: bool) -> None:
    agents = [
        Agent("writer", model=ScriptedModel([send(to_agent("there", "lead")), "ok"]), mail=STRANGERS),
        Agent(
            "lead",
            model=ScriptedModel([call("agent_run_child", prompt="work"), "ok"]),
            delegates=[Delegate("child", durable=durable)],
            mail=STRANGERS,
        ),
        Agent("child", model=ScriptedModel(["fine"])),
    ]
    async with Runtime(agents) as runtime:
        await runtime.run("writer", "go", thread="t")
        await done(runtime, "there")
        (task,) = await runtime.store.tasks("there")
        assert (await runtime.runs.get(task.target)).hops == 1
