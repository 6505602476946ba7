"""Helpers of the messaging tests."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from loop.helpers import replies_on, reply_text
from wakeful import Agent, Delegate, MailPolicy, Message, Runtime, ToolContext, call, tool
from wakeful.types.mail import Recipient
from wakeful.types.runs import RunStatus

STRANGERS = MailPolicy(to=("parent", "child", "agent:*"), accept=("parent", "child", "agent:*"))
PARENT = {"relation": "parent"}
KID = {"relation": "child", "name": "kid"}


def send(to: Any, message: Any = "hello") -> Any:
    """A model's call of `send_message`."""
    return call("send_message", to=to, message=message)


def to_agent(thread_id: str, agent_id: str | None = None) -> dict[str, Any]:
    """The agent of a thread, as a model names it."""
    return {"relation": "agent", "thread_id": thread_id} | ({} if agent_id is None else {"agent_id": agent_id})


def background(name: str = "kid", child: str = "child") -> Any:
    """A model's call that leaves work to a child."""
    return call(f"agent_run_{child}", prompt="work", background=True, name=name)


def lead(model: Any, *, agent_id: str = "lead", **options: Any) -> Agent:
    """An agent that leaves work to `child`."""
    return Agent(agent_id, model=model, delegates=[Delegate("child", background=True)], **options)


def letters(messages: list[Message]) -> list[dict[str, Any]]:
    """The payloads of agents' messages in a conversation, as a model reads them."""
    found = [m.text for m in messages if m.text.startswith("<agent_message>")]
    return [json.loads(text.removeprefix("<agent_message>").removesuffix("</agent_message>")) for text in found]


async def read(runtime: Runtime, thread: str) -> list[str]:
    """The payloads of agents' messages on a thread."""
    return [one["content"] for one in letters(await runtime.threads.messages(thread))]


async def receipts(runtime: Runtime, thread: str) -> list[dict[str, Any]]:
    """The receipts that a thread's model was given."""
    return [json.loads(reply_text(r)) for r in await replies_on(runtime, thread) if r.name == "send_message"]


async def done(runtime: Runtime, thread: str, runs: int = 1, *, status: RunStatus = "done") -> None:
    """Wait until so many runs of a thread are done."""
    async with asyncio.timeout(120):
        while len(await runtime.runs.list(thread=thread, status=status)) < runs:
            await asyncio.sleep(0.005)


async def waits(runtime: Runtime, thread: str) -> None:
    """Wait until a thread's run has said all it has to say before its tasks end."""
    await done(runtime, thread, status="waiting")


def sender(to: Recipient | Any, text: str = "hello", **options: Any) -> Any:
    """A tool that sends a message, and notes its receipt."""

    async def write(ctx: ToolContext) -> dict[str, Any]:
        """Write to somebody."""
        receipt = await ctx.send(to, text)
        return {"id": receipt.message_id, "status": receipt.status, "error": receipt.error}

    return tool(name="write", **options)(write)


__all__ = [
    "KID",
    "PARENT",
    "STRANGERS",
    "background",
    "done",
    "lead",
    "letters",
    "read",
    "receipts",
    "send",
    "sender",
    "to_agent",
    "waits",
]
