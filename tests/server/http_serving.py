"""A server of the HTTP API in this process, with keys of two tenants and two principals."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from wakeful import Agent, Runtime, ScriptedModel, call, tool
from wakeful.identity import ApiKeys, create_key
from wakeful.server import app, lifespan

__all__ = ["PEOPLE", "Person", "office", "serve_people"]

# Name, tenant and scopes of each caller.
PEOPLE = {
    "ann": ("default", ["user"]),
    "bob": ("default", ["user"]),
    "eve": ("elsewhere", ["admin"]),
    "nobody": ("default", ["usage:read"]),
    "operator": ("default", ["operator"]),
    "root": ("default", ["admin"]),
}

Person = httpx.AsyncClient


@tool(approval=True)
async def refund(order: str) -> str:
    """Refund an order."""
    return f"refunded {order}"


def office(**options: Any) -> Runtime:
    """A runtime with an agent that answers, and one that asks for approval."""
    desk = Agent("desk", model=ScriptedModel(["Hello!"] * 50), description="Answers.")
    model = ScriptedModel([call("refund", order="A7"), "It is refunded."] * 20)
    return Runtime([desk, Agent("refunds", model=model, tools=[refund])], **options)


@asynccontextmanager
async def serve_people(runtime: Runtime, **options: Any) -> AsyncIterator[dict[str, Person]]:
    """Serve a runtime; yields a client for each of `PEOPLE`, and one without a credential as `anonymous`."""
    served = app(runtime, auth=ApiKeys(runtime.store), **{"hosts": ["wakeful.test"], **options})
    headers: dict[str, dict[str, str]] = {"anonymous": {}}
    for name, (tenant, scopes) in PEOPLE.items():
        _, text = await create_key(runtime.store.tenant(tenant), name, principal=name, scopes=scopes)
        headers[name] = {"Authorization": f"Bearer {text}"}
    async with lifespan(served):
        transport = httpx.ASGITransport(served)
        yield {
            name: httpx.AsyncClient(transport=transport, base_url="http://wakeful.test", headers=each)
            for name, each in headers.items()
        }
