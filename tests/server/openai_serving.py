"""A server of the OpenAI-compatible API on loopback, and the official SDK as its client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from openai import AsyncOpenAI

from sockets import serve_app
from wakeful import Agent, Approval, Runtime, ScriptedModel, call, tool
from wakeful.identity import ApiKeys, create_key
from wakeful.server import app
from wakeful.types.ids import new_id

__all__ = ["SHOW", "bot", "serve_openai"]

SHOW: Any = {
    "type": "function",
    "function": {"name": "show", "parameters": {"type": "object", "properties": {"page": {"type": "string"}}}},
}


@tool(approval=True)
async def refund(order: str) -> str:
    """Refund an order."""
    return f"refunded {order}"


@tool(approval=Approval(requester=True))
async def pay(order: str) -> str:
    """Pay for an order."""
    return f"paid {order}"


def bot(script: Sequence[Any], **options: Any) -> Runtime:
    """A runtime with one agent, `bot`, that follows a script."""
    return Runtime([Agent("bot", model=ScriptedModel(script), tools=[refund, pay])], **options)


def ask(name: str, *orders: str) -> Any:
    """A model's answer that requests a call for each order."""
    return [call(name, order=order) for order in orders]


@asynccontextmanager
async def serve_openai(
    runtime: Runtime, principal: str | None = None, **options: Any
) -> AsyncIterator[AsyncOpenAI]:
    """Serve a runtime; yields a client of it, with an API key of the principal if one is named."""
    auth, key = (), "none"
    if principal is not None:
        auth = ApiKeys(runtime.store)
        _, key = await create_key(runtime.store, new_id(), principal=principal, scopes=["user"])
    async with (
        serve_app(app(runtime, auth=auth, **options)) as url,
        AsyncOpenAI(base_url=f"{url}/openai/v1", api_key=key, max_retries=0) as client,
    ):
        yield client
