"""Recipients outside the store: retried on the clock, given up, listed, replayed and dropped one by one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from delegation.conftest import Place
from loop.helpers import Scripted, replies_on, reply_text, soon
from wakeful import Agent, ConfigurationError, MailPolicy, MemoryStore, Runtime, ScriptedModel
from wakeful import call as called
from wakeful.errors import InboxFull, UnknownMessage
from wakeful.messaging import DeliveryPolicy
from wakeful.stores import Commit
from wakeful.testing import FakeClock
from wakeful.types import OutboundMessage
from wakeful.types.inbox import InboxItem

from .helpers import STRANGERS, done, read, receipts, send, to_agent

OUTSIDE = MailPolicy(to=("outside:mail:*",))


class Office:
    """A transport that fails as often as it is told to."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.tried: list[OutboundMessage] = []
        self.got: list[OutboundMessage] = []

    async def deliver(self, message: OutboundMessage) -> None:
        self.tried.append(message)
        if len(self.tried) <= self.failures:
            raise ConnectionError("nobody there")
        self.got.append(message)


async def eventually(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(120):
        while not condition():
            await asyncio.sleep(0.002)


def writer(*turns: Any) -> Agent:
    model = ScriptedModel(list(turns) or [send(to_agent("mail:ann")), "sent"])
    return Agent("a", model=model, mail=OUTSIDE)


@asynccontextmanager
async def opened(office: Any, store: Any = None, *turns: Any, **options: Any) -> AsyncIterator[Runtime]:
    async with Runtime([writer(*turns)], store=store, transports={"mail": office}, **options) as runtime:
        yield runtime


async def test_message_is_delivered_with_its_sender(place: Place) -> None:
    office = Office()
    async with opened(office, place()) as runtime:
        result = await runtime.run("a", "go", thread="t")
        await eventually(lambda: office.got)
        (receipt,) = await receipts(runtime, "t")
        (message,) = office.got
        assert (message.id, message.to, message.text) == (receipt["message_id"], "mail:ann", "hello")
        assert (message.sender_agent_id, message.sender_run_id, message.hops) == ("a", result.run_id, 1)
        await eventually_done(runtime, message.id)


async def eventually_done(runtime: Runtime, message_id: str, status: str = "done") -> None:
    async with asyncio.timeout(120):
        while (relay := await runtime.store.relay(message_id)) is None or relay.status != status:
            await asyncio.sleep(0.002)


async def test_failed_delivery_is_retried_by_clock(place: Place) -> None:
    clock, office = FakeClock(), Office(failures=3)
    async with opened(office, place(), clock=clock) as runtime:
        await runtime.run("a", "go", thread="t")
        for count, pause in enumerate((0, 1, 2, 4), 1):
            await clock.advance(pause)
            await eventually(lambda count=count: len(office.tried) == count)
            await eventually_attempts(runtime, min(count, 3))
        assert len({message.id for message in office.tried}) == 1
        await eventually_done(runtime, office.got[0].id)


async def eventually_attempts(runtime: Runtime, count: int) -> None:
    async with asyncio.timeout(120):
        while (await runtime.store.relays())[0].attempts < count:
            await asyncio.sleep(0.002)


async def test_non_serving_runtime_delivers_nothing() -> None:
    office = Office()
    runtime = Runtime([writer()], transports={"mail": office})
    await runtime.run("a", "go", thread="t")
    assert office.tried == []
    (relay,) = await runtime.store.relays()
    assert relay.status == "live"
    await runtime.close()


async def test_pending_delivery_is_taken_over(place: Place) -> None:
    async with opened(Office(failures=9), place()) as runtime:
        await runtime.run("a", "go", thread="t")
        await eventually_attempts(runtime, 1)
    office = Office()
    async with opened(office, place()):
        await eventually(lambda: office.got)


class Stuck:
    """A transport that never ends."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()

    async def deliver(self, message: OutboundMessage) -> None:
        self.reached.set()
        await asyncio.Event().wait()


async def test_closed_runtime_gives_delivery_back(place: Place) -> None:
    stuck, clock = Stuck(), FakeClock()
    turns = [send(to_agent("mail:ann")), send(to_agent("mail:bob")), "sent"]
    async with opened(stuck, place(), *turns, clock=clock) as runtime:
        await runtime.run("a", "go", thread="t")
        await stuck.reached.wait()
        # The courier took one or both, depending on when it looked.
        assert runtime.workers.id in [relay.owner for relay in await runtime.store.relays()]
    office = Office()
    async with opened(office, place(), clock=clock):
        await eventually(lambda: len(office.got) == 2)  # The clock stands still: no lease ends.


async def test_slow_delivery_fails() -> None:
    class Silent:
        async def deliver(self, message: OutboundMessage) -> None:
            await asyncio.Event().wait()

    async with opened(Silent(), delivery=DeliveryPolicy(attempts=1, timeout=0.01)) as runtime:
        await runtime.run("a", "go", thread="t")
        (receipt,) = await receipts(runtime, "t")
        await eventually_done(runtime, receipt["message_id"], "dead")
        (letter,) = await runtime.mail.dead_letters()
        assert letter.error == "it took too long"


@asynccontextmanager
async def with_dead(
    count: int, store: Any = None, *later: Any
) -> AsyncIterator[tuple[Runtime, Office, list[str]]]:
    """A runtime with so many messages that were given up."""
    office = Office(failures=count)
    sends = [send(to_agent(f"mail:{n}"), f"message {n}") for n in range(count)]
    async with opened(office, store, *sends, "sent", *later, delivery=DeliveryPolicy(attempts=1)) as runtime:
        await runtime.run("a", "go", thread="t")
        ids = [one["message_id"] for one in await receipts(runtime, "t")]
        for message_id in ids:
            await eventually_done(runtime, message_id, "dead")
        yield runtime, office, ids


async def test_dead_letters_are_listed_replayed_and_dropped_one_by_one(place: Place) -> None:
    async with with_dead(3, place()) as (runtime, office, ids):
        found = await runtime.mail.dead_letters()
        assert [(one.id, one.to, one.text) for one in found] == [
            (ids[n], f"mail:{n}", f"message {n}") for n in range(3)
        ]
        assert {(one.attempts, one.error, one.thread_id) for one in found} == {
            (1, "ConnectionError: nobody there", "t")
        }
        assert [one.id for one in await runtime.mail.dead_letters(limit=1)] == ids[:1]
        assert [one.id for one in await runtime.mail.dead_letters(after=ids[0])] == ids[1:]
        assert await runtime.mail.dead_letters(thread="other") == []
        await runtime.mail.replay(ids[1])
        await eventually(lambda: office.got)
        assert [message.id for message in office.got] == [ids[1]]
        await runtime.mail.drop(ids[0])
        assert [one.id for one in await runtime.mail.dead_letters()] == [ids[2]]
        for gone in (ids[0], ids[1], "nothing"):
            with pytest.raises(UnknownMessage, match="was given up"):
                await runtime.mail.replay(gone)
            with pytest.raises(UnknownMessage):
                await runtime.mail.drop(gone)


async def recovered(store: Any, **arguments: Any) -> tuple[Any, Office, list[str], list[str]]:
    """Let a model handle two dead letters: its tool's result, the office, their ids, and the remaining ones."""
    turns = (called("recover_failed_messages", **arguments), "ok")
    async with with_dead(2, store, *turns) as (runtime, office, ids):
        await runtime.run("a", "look", thread="t")
        await eventually(lambda: len(office.got) >= (2 if arguments.get("action") == "replay" else 0))
        reply = (await replies_on(runtime, "t"))[-1]
        told = json.loads(reply_text(reply)) if reply.error is None else reply_text(reply)
        return told, office, ids, [one.id for one in await runtime.mail.dead_letters()]


async def test_dead_letter_tool_lists_by_default(place: Place) -> None:
    """The model is told the type of the last error; its text is for operators."""
    told, _, ids, dead = await recovered(place())
    assert (told["action"], told["count"], dead) == ("list", 2, ids)
    assert told["messages"][0] == {
        "message_id": ids[0],
        "to": "mail:0",
        "message": "message 0",
        "attempts": 1,
        "error": "ConnectionError",
    }


async def test_dead_letter_tool_replays_under_same_ids(place: Place) -> None:
    told, office, ids, dead = await recovered(place(), action="replay")
    assert (told, dead) == ({"action": "replay", "count": 2}, [])
    assert sorted(message.id for message in office.got) == sorted(ids)


async def test_dead_letter_tool_clears_all(place: Place) -> None:
    told, office, _, dead = await recovered(place(), action="clear")
    assert (told, office.got, dead) == ({"action": "clear", "count": 2}, [], [])


async def test_dead_letter_tool_sees_own_thread_only() -> None:
    turns: list[Any] = []
    async with with_dead(2) as (runtime, _, ids):
        store = runtime.store
        turns += [called("recover_failed_messages", action="clear", ids=[ids[0], "nothing"]), "ok"]
        turns += [called("recover_failed_messages"), "ok"]
        other = Runtime([writer(*turns)], store=store, transports={"mail": Office()})
        await other.run("a", "look", thread="t")
        assert json.loads(reply_text((await replies_on(other, "t"))[-1])) == {"action": "clear", "count": 1}
        await other.run("a", "look", thread="elsewhere")
        assert json.loads(reply_text((await replies_on(other, "elsewhere"))[-1]))["count"] == 0
        assert [one.id for one in await runtime.mail.dead_letters()] == [ids[1]]


async def test_dead_letter_tool_names_unknown_action(place: Place) -> None:
    told, _, ids, dead = await recovered(place(), action="shred")
    assert (told, dead) == ("unknown action 'shred': it is list, replay or clear", ids)


async def test_address_without_transport_is_not_found(scripted: Scripted) -> None:
    agent = Agent("a", model=scripted(send(to_agent("https://x.example/7", "a")), "ok"), mail=STRANGERS)
    runtime = Runtime([agent])
    await runtime.run("a", "go", thread="t")
    (receipt,) = await receipts(runtime, "t")
    assert receipt["error"] == "recipient_not_found"
    assert "no transport serves" in receipt["detail"]


async def test_mail_policy_limits_outside_addresses(scripted: Scripted) -> None:
    turns = [send(to_agent("mail:bob")), send(to_agent("mail:ann@example.com")), "ok"]
    agent = Agent("a", model=scripted(*turns), mail=MailPolicy(to=("outside:mail:*@example.com",)))
    runtime = Runtime([agent], transports={"mail": Office()})
    await runtime.run("a", "go", thread="t")
    assert [one.get("error") for one in await receipts(runtime, "t")] == ["permission_denied", None]
    await runtime.close()


@pytest.mark.parametrize("transports", [{"no colon:": Office()}, {"mail": object()}, {3: Office()}])
def test_invalid_transports_are_refused_by_runtime(transports: Any) -> None:
    with pytest.raises(ConfigurationError, match="transport"):
        Runtime([writer()], transports=transports)


async def test_relays_belong_to_tenant(place: Place) -> None:
    async with with_dead(1, place()) as (runtime, office, ids):
        acme = runtime.tenant("acme")
        assert await acme.mail.dead_letters() == []
        with pytest.raises(UnknownMessage):
            await acme.mail.drop(ids[0])
        await runtime.mail.replay(ids[0])
        await eventually(lambda: office.got)


# -- an inbox that fills up between looking and writing --------------------------------------------------------


class Crowded(MemoryStore):
    """A store where one inbox is full for the moment in which a call's result is written."""

    async def commit(self, commit: Commit) -> Any:
        mail = [i for i in commit.inbox if i.thread_id == "there" and i.kind == "input"]
        if mail and commit.calls:
            raise InboxFull("the inbox of thread 'there' has 1,000 pending items; try again later")
        return await super().commit(commit)


async def test_message_to_full_inbox_goes_by_relay() -> None:
    store = Crowded()
    agents = [
        Agent("writer", model=ScriptedModel([send(to_agent("there", "reader")), "sent"]), mail=STRANGERS),
        Agent("reader", model=ScriptedModel(["read"]), mail=STRANGERS),
    ]
    async with Runtime(agents, store=store) as runtime:
        result = await soon(runtime.run("writer", "go", thread="t"))
        assert result.text == "sent"
        await done(runtime, "there")
        assert await read(runtime, "there") == ["hello"]
        (receipt,) = await receipts(runtime, "t")
        item = await store.item(receipt["message_id"])
        assert isinstance(item, InboxItem)
