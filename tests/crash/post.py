"""Scenario: an agent sends a message to another thread and one outside the store, and the other thread answers."""

from __future__ import annotations

import asyncio

from wakeful import Agent, FunctionModel, MailPolicy, ModelRequest, Runtime, call
from wakeful.messaging import DeliveryPolicy
from wakeful.stores import Store
from wakeful.testing import CrashSite
from wakeful.types import OutboundMessage

ANYBODY = MailPolicy(to=("agent:*", "outside:mail:*"), accept=("agent:*",))


class Mailbox:
    """Records every delivery."""

    def __init__(self, site: CrashSite) -> None:
        self.file = site.folder / "mailbox"

    async def deliver(self, message: OutboundMessage) -> None:
        with self.file.open("a") as book:
            book.write(f"{message.id}\n")

    @property
    def ids(self) -> list[str]:
        return self.file.read_text().splitlines() if self.file.exists() else []


def write(request: ModelRequest) -> object:
    """Send both messages, then end; a reply is only read."""
    if request.messages[-1].role == "tool" or "agent_message" in request.messages[-1].text:
        return "sent"
    to = {"relation": "agent", "thread_id": "there", "agent_id": "reader"}
    outside = {"relation": "agent", "thread_id": "mail:ann"}
    return [call("send_message", to=to, message="hello"), call("send_message", to=outside, message="hello")]


def read(request: ModelRequest) -> object:
    """Answer the sender."""
    if request.messages[-1].role == "tool":
        return "answered"
    return call("send_message", to={"relation": "agent", "thread_id": "here"}, message="got it")


async def correspondence(site: CrashSite) -> None:
    """Run until both sides have read the other's message."""
    agents = [
        Agent("writer", model=FunctionModel(write), mail=ANYBODY),
        Agent("reader", model=FunctionModel(read), mail=ANYBODY),
    ]
    mailbox = Mailbox(site)
    # Another process takes over a delivery when its lease, twice these seconds, has ended.
    retry, transports = DeliveryPolicy(timeout=0.25), {"mail": mailbox}
    async with Runtime(agents, store=site.store, transports=transports, delivery=retry) as runtime:
        await runtime.run("writer", "go", thread="here", request_id="first")
        async with asyncio.timeout(120):
            while not await _over(runtime):
                await asyncio.sleep(0.01)


async def _over(runtime: Runtime) -> bool:
    runs = await runtime.runs.list()
    relays = await runtime.store.relays(kind="message:mail")
    return len(runs) == 3 and all(r.status == "done" for r in runs) and [r.status for r in relays] == ["done"]


async def each_was_read_once(site: CrashSite, store: Store) -> None:
    """Check that each message is in its recipient's log once, with one receipt."""
    for thread, count in (("here", 1), ("there", 1)):
        letters = [m for m in await store.messages(thread) if "agent_message" in m.text]
        assert len(letters) == count, f"{thread}: {letters}"
    assert len(set(Mailbox(site).ids)) == 1
    (relay,) = await store.relays(kind="message:mail")
    assert Mailbox(site).ids[0] == relay.id
