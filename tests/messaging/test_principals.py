"""Messages across principals: who may write to whose threads, and what a sender learns."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from delegation.conftest import Place
from loop.helpers import Scripted, soon
from wakeful import (
    Agent,
    ConfigurationError,
    Delegate,
    FunctionModel,
    MailPolicy,
    Principal,
    Runtime,
    ScriptedModel,
    ToolContext,
    call,
    tool,
)
from wakeful.errors import NotAllowed
from wakeful.types import Recipient

from .helpers import STRANGERS, done, read, receipts, send, sender, to_agent

ANN, BOB = Principal("ann", groups=("ops",)), Principal("bob")


def agents(*principals: str, **options: Any) -> list[Agent]:
    """A `writer` to the thread `bobs`, whose `reader` admits these principals."""
    model = ScriptedModel([send(to_agent("bobs")), "ok"] * 3)
    reads = options.pop("model", None) or ScriptedModel(["read"] * 9)
    policy = replace(STRANGERS, principals=principals, **options.pop("policy", {}))
    return [Agent("writer", model=model, mail=STRANGERS), Agent("reader", model=reads, mail=policy, **options)]


async def test_thread_of_another_principal_takes_no_message(place: Place) -> None:
    async with Runtime(agents(), store=place()) as runtime:
        await runtime.run("reader", "My secret", thread="bobs", principal=BOB)
        await runtime.run("writer", "go", thread="t", principal=ANN)
        (receipt,) = await receipts(runtime, "t")
        assert (receipt["status"], receipt["error"]) == ("failed", "permission_denied")
        assert receipt["detail"] == "thread 'bobs' belongs to another principal than 'ann'"
        assert await read(runtime, "bobs") == []
        # Its owner and trusted code may write there.
        await runtime.run("writer", "go", thread="t2", principal=BOB)
        await runtime.run("writer", "go", thread="t3")
        await done(runtime, "bobs", 3)
        assert await read(runtime, "bobs") == ["hello", "hello"]


async def test_tool_may_not_write_to_thread_of_another_principal(scripted: Scripted) -> None:
    writes = sender(Recipient.agent("bobs"))
    writer = Agent("writer", model=scripted(call("write"), "ok"), tools=[writes], mail=STRANGERS)
    reader = Agent("reader", model=scripted("read"), mail=STRANGERS)
    async with Runtime([writer, reader]) as runtime:
        await runtime.run("reader", "My secret", thread="bobs", principal=BOB)
        await runtime.run("writer", "go", thread="t", principal=ANN)
        (text,) = [m.reply.content[0].text for m in await runtime.threads.messages("t") if m.reply]
        assert "permission_denied" in text


@pytest.mark.parametrize("admitted", ["*", "ann", "user:ann", "group:ops"])
async def test_policy_admits_other_principals(place: Place, admitted: str) -> None:
    async with Runtime(agents(admitted), store=place()) as runtime:
        await runtime.run("reader", "My secret", thread="bobs", principal=BOB)
        await runtime.run("writer", "go", thread="t", principal=ANN)
        await done(runtime, "bobs", 2)
        newest, first = await runtime.runs.list(thread="bobs")
        assert (newest.principal, newest.owner_id, first.owner_id) == (ANN, "bob", "bob")


async def test_admitted_message_does_not_make_its_sender_owner(place: Place) -> None:
    async with Runtime(agents("ann"), store=place()) as runtime:
        await runtime.run("reader", "My secret", thread="bobs", principal=BOB)
        await runtime.run("writer", "go", thread="t", principal=ANN)
        await done(runtime, "bobs", 2)
        await runtime.run("writer", "go", thread="t2", principal=BOB)
        await done(runtime, "bobs", 3)
        assert [run.owner_id for run in await runtime.runs.list(thread="bobs")] == ["bob"] * 3
        await runtime.run("writer", "go", thread="t3", principal=Principal("eve"))
        assert (await receipts(runtime, "t3"))[0]["error"] == "permission_denied"


async def test_new_thread_belongs_to_principal_of_message(scripted: Scripted) -> None:
    reader = agents()[1]
    model = scripted(send(to_agent("new", "reader")), "ok")
    first = Agent("writer", model=model, mail=STRANGERS)
    async with Runtime([first, reader]) as runtime:
        await runtime.run("writer", "go", thread="t", principal=ANN)
        await done(runtime, "new")
        (run,) = await runtime.runs.list(thread="new")
        assert run.owner_id == "ann"


@pytest.mark.parametrize("arriving", [None, "steer", "interrupt"])
async def test_message_of_another_principal_leaves_open_run_alone(scripted: Scripted, arriving: Any) -> None:
    """It gets a run of its own, with the rights of its sender."""

    @tool(resumable=True)
    async def nap(ctx: ToolContext) -> str:
        """Ask."""
        return str(ctx.ask("Go on?"))

    model = FunctionModel(lambda r: "read" if any(m.reply for m in r.messages) else call("nap"))
    made = agents("ann", model=model, tools=[nap], policy={"arriving": arriving})
    async with Runtime(made) as runtime:
        waiting = await runtime.run("reader", "My secret", thread="bobs", principal=BOB)
        await runtime.run("writer", "go", thread="t", principal=ANN)
        assert (await receipts(runtime, "t"))[0]["status"] == "accepted"
        assert (await runtime.runs.get(waiting.run_id)).status == "waiting"
        await soon(runtime.tickets.answer(waiting.tickets[0].id, "yes", principal=BOB))
        await done(runtime, "bobs", 2)
        assert [run.principal for run in await runtime.runs.list(thread="bobs")] == [ANN, BOB]


@pytest.mark.parametrize("durable", [False, True])
async def test_run_of_message_shows_its_sender_nothing(scripted: Scripted, durable: bool) -> None:
    """Neither the run nor a run below it is the sender's; its questions are for the thread's owner."""

    @tool(resumable=True)
    async def check(ctx: ToolContext) -> str:
        """Ask."""
        return str(ctx.ask("My secret: shall I?"))

    helper = Agent("helper", model=scripted(call("check"), "checked"), tools=[check])
    model = scripted("noted", call("agent_run_helper", prompt="My secret"), "My secret is told")
    made = agents("ann", model=model, delegates=[Delegate("helper", durable=durable)])
    async with Runtime([*made, helper]) as runtime:
        await runtime.run("reader", "My secret", thread="bobs", principal=BOB)
        handle = await runtime.start("writer", "go", thread="t", principal=ANN)
        await handle.result()
        async with asyncio.timeout(120):
            while not (tickets := await runtime.tickets.list(status="open")):
                await asyncio.sleep(0.005)
        (ticket,) = tickets
        seen = [str(event) async for event in runtime.events("t", follow=False)]
        assert "secret" not in "".join(seen)
        (receipt,) = await receipts(runtime, "t")
        assert receipt.keys() == {"message_id", "status"}
        assert (ticket.requester, ticket.assignee) == ("ann", "bob")
        below = await runtime.runs.get(ticket.run_id)
        assert (below.principal, below.owner_id) == (ANN, "bob")
        with pytest.raises(NotAllowed):
            await runtime.tickets.answer(ticket.id, "yes", principal=ANN)
        await soon(runtime.tickets.answer(ticket.id, "yes", principal=BOB))
        await done(runtime, "bobs", 2)
        assert "secret" not in "".join([message.text for message in await runtime.threads.messages("t")])
        assert {run.owner_id for run in await runtime.runs.list() if run.thread_id != "t"} == {"bob"}


def test_invalid_principals_are_refused() -> None:
    agent = Agent("reader", model=ScriptedModel([]), mail=MailPolicy(principals=("group:", "ann")))
    with pytest.raises(ConfigurationError, match=r"mail\.principals: 'group:'"):
        Runtime([agent])
