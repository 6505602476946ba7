"""The workers' agents: tools of every effect, delegates of every kind, and messages between them."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from wakeful import (
    Agent,
    Delegate,
    FunctionModel,
    MailPolicy,
    ModelRequest,
    Runtime,
    ToolContext,
    Turn,
    call,
    tool,
)
from wakeful.stores import Claims, Commit, Committed
from wakeful.stores.postgres import PostgresStore
from wakeful.tools import Done, NotDone

from .bank import ask, ask_sync

__all__ = ["EFFECTS", "KINDS", "READERS", "agents", "runtime"]

# The id of this process, in its answers.
WORKER = uuid4().hex[:12]
BANK = int(os.environ.get("CHAOS_BANK", "0"))
LEASE = int(os.environ.get("CHAOS_LEASE", "4000"))
# The maximum seconds that a tool sleeps before and after its effect, so that kills hit running work.
BUSY = float(os.environ.get("CHAOS_BUSY", "0.1"))
READERS = 20
# The agents that are started from outside, with the agents that each delegates to.
KINDS = {"clerk": (), "boss": (), "lead": ("helper",), "chief": ("helper",), "host": ("helper",)}
EFFECTS = {"pay": "once", "stamp": "once", "sign": "once", "post": "idempotent", "book": "reconcile"}


class ShortStore(PostgresStore):
    """A store with short leases."""

    def keep(self, worker_id: str, lease: int = LEASE) -> Any:
        return super().keep(worker_id, lease)

    async def commit(self, commit: Commit) -> Committed:
        commit.lease = LEASE
        return await super().commit(commit)

    async def claim(self, worker_id: str, **options: Any) -> Claims:
        return await super().claim(worker_id, **{**options, "lease": LEASE})


async def busy() -> None:
    await asyncio.sleep(random.uniform(0, BUSY))


def order(how: str, ctx: ToolContext) -> dict[str, Any]:
    at = {"thread": ctx.run.thread_id, "worker": WORKER}
    return {"how": how, "kind": ctx.name, "key": ctx.idempotency_key, "fence": ctx.fence, **at}


@tool(effect="once")
async def pay(ctx: ToolContext) -> str:
    """Pay."""
    await busy()
    await ask(BANK, **order("once", ctx))
    await busy()
    return "paid"


@tool(effect="once")
def stamp(ctx: ToolContext) -> str:
    """Stamp, in a thread."""
    ask_sync(BANK, **order("once", ctx))
    return "stamped"


@tool(effect="once", approval=True, unknown="ask")
async def sign(ctx: ToolContext) -> str:
    """Sign, after approval."""
    await busy()
    await ask(BANK, **order("once", ctx))
    await busy()
    return "signed"


@tool(effect="idempotent")
async def post(ctx: ToolContext) -> str:
    """Post."""
    await busy()
    await ask(BANK, **order("idempotent", ctx))
    await busy()
    return "posted"


async def booked(key: str, fence: int) -> Done | NotDone:
    asked = {"how": "check", "kind": "book", "key": key, "fence": fence, "thread": "", "worker": WORKER}
    return Done("booked before") if await ask(BANK, **asked) else NotDone()


@tool(effect="reconcile", check=booked)
async def book(ctx: ToolContext) -> str:
    """Book."""
    await busy()
    await ask(BANK, **order("reconcile", ctx))
    await busy()
    return "booked"


@tool(effect="pure")
async def look() -> str:
    """Look."""
    await busy()
    return "seen"


def letter(subject: str) -> Any:
    number = sum(subject.encode()) % READERS
    to = {"relation": "agent", "thread_id": f"reader-{number}", "agent_id": "reader"}
    return call("send_message", to=to, message=f"A letter about {subject}.")


def saying(*steps: Callable[[str], list[Any]]) -> FunctionModel:
    """Makes the calls of each step, then ends.

    The last word of the input identifies the work. Each answer names its process, by which the log is checked.
    """

    async def answer(request: ModelRequest) -> Any:
        await busy()
        subject = next(m.text for m in request.messages if m.role == "user").split()[-1]
        asked = sum(bool(message.calls) for message in request.messages)
        if asked < len(steps):
            return Turn(text=f"by {WORKER}", calls=steps[asked](subject))
        return f"by {WORKER}: done"

    return FunctionModel(answer)


def handing(**options: Any) -> FunctionModel:
    return saying(lambda subject: [call("agent_run_helper", prompt=f"help {subject}-child", **options)])


def first(subject: str) -> list[Any]:
    return [call(name) for name in ("pay", "post", "book", "look")]


_TOOLS = [pay, stamp, sign, post, book, look]
_MAIL = MailPolicy(to=("agent:*",), accept=("agent:*",))
_HELP = saying(lambda subject: [call("pay"), call("book")], lambda subject: [letter(subject)])

agents = [
    Agent("clerk", saying(first, lambda s: [call("stamp"), letter(s)]), tools=_TOOLS, mail=_MAIL),
    Agent("boss", saying(lambda s: [call("sign"), call("post")]), tools=_TOOLS),
    Agent("lead", handing(), delegates=[Delegate("helper")]),
    Agent("chief", handing(), delegates=[Delegate("helper", durable=True)]),
    Agent("host", handing(background=True), delegates=[Delegate("helper", background=True)]),
    Agent("helper", _HELP, tools=_TOOLS, mail=_MAIL),
    Agent("reader", saying(), mail=_MAIL),
]


def runtime() -> Runtime:
    """The runtime of `wakeful worker`."""
    return Runtime(agents, store=ShortStore(os.environ["CHAOS_STORE"]))
