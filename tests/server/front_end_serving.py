"""Agents that front ends talk to in tests, and a server of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct

from sockets import serve_app
from wakeful import Agent, Approval, ModelRequest, Runtime, ScriptedModel, ToolContext, call, tool, ui
from wakeful.identity import ApiKeys, create_key
from wakeful.models import Chunk, StopChunk, TextChunk
from wakeful.server import app
from wakeful.types.ids import new_id

__all__ = ["SHOW", "Halves", "Served", "bot", "outcomes", "pays", "serve_bot", "support", "watched"]

# The schema of a tool that the client has.
SHOW: Any = {"type": "object", "properties": {"page": {"type": "string"}}}


@tool(approval=True)
async def refund(order: str) -> str:
    """Refund an order."""
    return f"refunded {order}"


@tool(approval=Approval(requester=True))
async def pay(order: str) -> str:
    """Pay for an order."""
    return f"paid {order}"


@tool
async def look(place: str, ctx: ToolContext) -> str:
    """Look at a place, once somebody watches."""
    while not ctx._services.watched():
        await asyncio.sleep(0.001)
    ctx.stream("looking")
    ctx.progress(0.5, message="half")
    ctx.activity("plan", {"steps": ["look"]})
    ctx.activity_delta("plan", [{"op": "add", "path": "/steps/-", "value": "tell"}])
    return f"{place} is fine"


@tool(resumable=True)
async def form(ctx: ToolContext) -> str:
    """Show a form, and ask."""
    ctx.ui(
        ui.Surface("form", root="title", components={"title": ui.Text(ui.Bound("/title"))}, data={"title": "Hi"})
    )
    return f"the user says {ctx.ask('Where to?', schema=str)}"


@tool
async def delegate(to: str, ctx: ToolContext) -> str:
    """Delegate to another agent."""
    return (await ctx.run_agent(to, "Go on")).text


@tool(resumable=True)
async def poll(question: str, ctx: ToolContext) -> str:
    """Ask the user."""
    return f"the user says {ctx.ask(question, schema=str)}"


def bot(script: Any, *, below: Sequence[Any] = (), **options: Any) -> Runtime:
    """A runtime with an agent `bot` that has a model or follows a script, and one `below` for it."""
    tools = [refund, pay, look, delegate, poll, form]
    agents = [
        Agent("bot", model=ScriptedModel(script) if isinstance(script, list) else script, tools=tools),
        Agent("below", model=ScriptedModel(below), tools=tools),
    ]
    return Runtime(agents, **options)


def support() -> Runtime:
    """The runtime of the examples: an agent `support` that refunds an order once the user approves."""
    refunds = tool(name="refund", approval=Approval(requester=True))(lambda order: f"refunded {order}")
    model = ScriptedModel([call("refund", order="A7"), "It is refunded."])
    return Runtime([Agent("support", model=model, tools=[refunds])])


def pays(*orders: str) -> Any:
    """A model's answer that pays for orders."""
    return [call("pay", order=order) for order in orders]


async def watched(runtime: Runtime, thread: str, *, until: bool = True) -> None:
    """Wait until somebody reads the live events of a thread, or nobody does."""
    while bool(runtime._scope.bus.readers_of((thread,))) is not until:
        await asyncio.sleep(0.001)


async def outcomes(runtime: Runtime) -> list[str | None]:
    """The outcomes of all calls, in order."""
    runs = await runtime.runs.list()
    return [each.outcome for run in reversed(runs) for each in await runtime.runs.calls(run.id)]


class Halves:
    """A model whose answer stops in the middle until it is released."""

    name = "halves"
    live = False

    def __init__(self, first: str, second: str) -> None:
        self._pieces = (first, second)
        self.may_go_on = asyncio.Event()

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Stream the answer."""
        yield TextChunk(self._pieces[0])
        await self.may_go_on.wait()
        yield TextChunk(self._pieces[1])
        yield StopChunk("end_turn")


class Served(Struct, frozen=True):
    """The address of a server, and the headers of its caller."""

    url: str
    headers: dict[str, str]


@asynccontextmanager
async def serve_bot(
    runtime: Runtime, principal: str | None = None, *, key: str | None = None, **options: Any
) -> AsyncIterator[Served]:
    """Serve a runtime, with an API key of the principal if one is named."""
    auth, headers = (), dict[str, str]()
    if principal is not None:
        auth = ApiKeys(runtime.store)
        _, made = await create_key(runtime.store, new_id(), principal=principal, scopes=["user"])
        headers = {"Authorization": f"Bearer {key or made}"}
    async with serve_app(app(runtime, auth=auth, **options)) as url:
        yield Served(url, headers)
