"""Scenario for random kills: threads with every effect, an approval, queued and steering input, a counting plugin,
streamed answers and a delegate. A restarted process resumes all of them."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from wakeful import Agent, FunctionModel, ModelRequest, Plugin, Runtime, StateKey, Tool, ToolContext, call, tool
from wakeful.models import Chunk, StopChunk, TextChunk
from wakeful.plugins import AfterTool
from wakeful.stores import Store
from wakeful.testing import CrashSite
from wakeful.testing.crash import list_all_runs
from wakeful.tools import Done, NotDone

CLERKS = 2
MAIL = {"mail-1": ("one", "queue"), "mail-2": ("two", "steer"), "mail-3": ("three", "queue")}


class Books:
    """The records of the outside world: an append-only file for each kind, with idempotency keys."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def lines(self, kind: str) -> list[str]:
        file = self._folder / kind
        return file.read_text().splitlines() if file.exists() else []

    def write(self, kind: str, key: str) -> None:
        with (self._folder / kind).open("a") as file:
            file.write(f"{key}\n")


async def busy() -> None:
    """Sleep a little, so that kills hit running work."""
    await asyncio.sleep(random.uniform(0, 0.02))


def tools_of(books: Books) -> list[Tool]:
    """A tool for each effect, and one that needs approval."""

    async def check(key: str) -> Done | NotDone:
        return Done("booked before") if key in books.lines("book") else NotDone()

    @tool(effect="once")
    async def pay(ctx: ToolContext) -> str:
        """Pay."""
        await busy()
        books.write("pay", ctx.idempotency_key)
        await busy()
        return "paid"

    @tool(effect="once")
    def stamp(ctx: ToolContext) -> str:
        """Stamp, in a thread."""
        books.write("stamp", ctx.idempotency_key)
        return "stamped"

    @tool(effect="idempotent")
    async def post(ctx: ToolContext) -> str:
        """Post."""
        await busy()
        if ctx.idempotency_key not in books.lines("post"):
            books.write("post", ctx.idempotency_key)
        await busy()
        return "posted"

    @tool(effect="reconcile", check=check)
    async def book(ctx: ToolContext) -> str:
        """Book."""
        await busy()
        books.write("book", ctx.idempotency_key)
        await busy()
        return "booked"

    @tool(effect="pure")
    async def look() -> str:
        """Look."""
        await busy()
        return "seen"

    @tool(effect="once", approval=True)
    async def sign(ctx: ToolContext) -> str:
        """Sign, after approval."""
        books.write("sign", ctx.idempotency_key)
        await busy()
        return "signed"

    return [pay, stamp, post, book, look, sign]


class Finished(StateKey[int, int]):
    """The number of finished calls on a thread."""

    name, scope, merge = "finished", "thread", "commutative"
    default = 0

    def apply(self, value: int, update: int) -> int:
        return value + update


class Count(Plugin):
    """Counts calls. The hook may run again after a crash; a committed update counts once."""

    keys = (Finished,)

    async def after_tool(self, ctx: AfterTool) -> None:
        ctx.update(Finished, 1)


STEPS: list[list[str]] = [["pay", "post", "book", "look"], ["stamp", "pay", "look"]]


def clerk(request: ModelRequest) -> Any:
    """Calls the next step's tools; after the last one it streams its answer."""
    last = max((n for n, m in enumerate(request.messages) if m.role == "user" and m.producer is None), default=0)
    asked = sum(message.role == "assistant" for message in request.messages[last:])
    if asked < len(STEPS):
        return [call(name) for name in STEPS[asked]]
    return spoken("All is done now.")


async def spoken(text: str) -> AsyncIterator[Chunk]:
    for word in text.split():
        await asyncio.sleep(0.005)
        yield TextChunk(f"{word} ")
    yield StopChunk("end_turn")


def once_then_talk(name: str, **arguments: Any) -> FunctionModel:
    """A model that calls one tool and then ends."""

    def answer(request: ModelRequest) -> Any:
        return spoken("It is done.") if request.messages[-1].role == "tool" else call(name, **arguments)

    return FunctionModel(answer)


def reader(request: ModelRequest) -> Any:
    return spoken("I have read it.")


def office(site: CrashSite) -> Runtime:
    tools, plugins = tools_of(Books(site.folder)), [Count()]
    agents = [
        Agent("clerk", model=FunctionModel(clerk), tools=tools, plugins=plugins),
        Agent("boss", model=once_then_talk("sign"), tools=tools, plugins=plugins),
        Agent("reader", model=FunctionModel(reader)),
        Agent("lead", model=once_then_talk("agent_run_helper", prompt="Look"), delegates=["helper"]),
        Agent("helper", model=once_then_talk("look"), tools=tools),
    ]
    return Runtime(agents, store=site.store)


async def work(site: CrashSite) -> None:
    """Run everything, or resume it."""
    async with office(site) as runtime:
        clerks = [runtime.run("clerk", "Go", thread=f"clerk-{n}", request_id=f"clerk-{n}") for n in range(CLERKS)]
        await asyncio.gather(*clerks, signed(runtime), mailed(runtime), lead(runtime))
        while await runtime.runs.list(status="running"):
            await asyncio.sleep(0.02)


async def paperwork(site: CrashSite) -> None:
    """Run an approval, then three inputs."""
    runtime = office(site)
    await signed(runtime)
    for request_id, (text, _) in MAIL.items():
        await runtime.run("reader", text, thread="mail", request_id=request_id)
    await runtime.close()


async def signed(runtime: Runtime) -> None:
    result = await runtime.run("boss", "Sign", thread="boss", request_id="boss")
    if result.status == "waiting":
        (ticket,) = result.tickets
        await runtime.resume(result.run_id, ticket.approve(), request_id="boss-says-yes")


async def mailed(runtime: Runtime) -> None:
    for request_id, (text, policy) in MAIL.items():
        await runtime.send("mail", text, agent="reader", policy=policy, request_id=request_id)  # type: ignore[arg-type]
    while Counter(await texts(runtime)) != Counter([text for text, _ in MAIL.values()]):
        await asyncio.sleep(0.02)


async def texts(runtime: Runtime) -> list[str]:
    return [message.text for message in await runtime.threads.messages("mail") if message.role == "user"]


async def lead(runtime: Runtime) -> None:
    await runtime.run("lead", "Go", thread="lead", request_id="lead")


# -- checks --------------------------------------------------------------------------------------------------

FILES = {"pay": "once", "stamp": "once", "sign": "once", "post": "idempotent", "book": "reconcile"}


async def check(site: CrashSite, store: Store) -> None:
    """Check every effect's guarantee, and that every input and call counted once."""
    books, runs = Books(site.folder), await list_all_runs(store)
    calls = [call for run in runs for call in await store.calls(run.id)]
    for kind, effect in FILES.items():
        made = Counter(books.lines(kind))
        for each in [c for c in calls if c.name == kind]:
            times = made.pop(f"{each.run_id}:{each.id}", 0)
            allowed = (0, 1) if each.outcome == "unknown" and effect == "once" else (1,)
            assert each.outcome in (("ok", "unknown") if effect == "once" else ("ok",)), (kind, each)
            assert times in allowed, f"{kind}: {times} times in effect, and {each.outcome} in the ledger"
        assert not made, f"{kind}: in effect, but not in the ledger: {made}"
    for each in calls:
        assert each.outcome == "ok" or each.effect == "once", each
    said = [message.text for message in await store.messages("mail") if message.role == "user"]
    assert sorted(said) == sorted(text for text, _ in MAIL.values()), said
    for thread in [f"clerk-{n}" for n in range(CLERKS)] + ["boss"]:
        view = await store.load(thread)
        assert view is not None
        on_thread = [c for run in runs if run.thread_id == thread for c in calls if c.run_id == run.id]
        assert view.state["finished"] == str(len(on_thread)).encode(), (view.state, len(on_thread))
