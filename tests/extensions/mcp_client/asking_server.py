"""A server whose tools ask people, by the means of whichever protocol its client speaks.

Usage: python asking_server.py [--port PORT] [--journal FILE] [--key KEY]
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Annotated, Any, cast

import anyio
from mcp.server.mcpserver import (
    AcceptedElicitation,
    Context,
    Elicit,
    ElicitationResult,
    MCPServer,
    RequestStateSecurity,
    Resolve,
)
from pydantic import BaseModel


class When(BaseModel):
    day: str


class Class(BaseModel):
    first: bool


async def ask_day(city: str) -> Elicit[When]:
    return Elicit(f"When to {city}?", When)


async def ask_class(city: str) -> Elicit[Class]:
    return Elicit("First class?", Class)


def make(journal: Path | None = None, key: str | None = None) -> MCPServer:
    security = None if key is None else RequestStateSecurity(keys=[key.encode()])
    server = MCPServer("travel", request_state_security=security)

    def note(line: str) -> None:
        if journal is not None:
            with journal.open("a") as file:
                file.write(f"{line}\n")

    @server.tool()
    async def book(city: str, when: Annotated[ElicitationResult[When], Resolve(ask_day)]) -> str:
        """Book a trip."""
        if not isinstance(when, AcceptedElicitation):
            return f"no trip to {city}: {when.action}"
        note(f"booked {city} on {when.data.day}")
        return f"{city} on {when.data.day}"

    @server.tool()
    async def book_class(
        city: str,
        when: Annotated[When, Resolve(ask_day)],
        seat: Annotated[Class, Resolve(ask_class)],
    ) -> str:
        """Book a trip in a class."""
        return f"{city} on {when.day}, {'first' if seat.first else 'second'} class"

    @server.tool()
    async def pay(ctx: Context) -> str:
        """Pay on a page of the bank."""
        answer = await ctx.elicit_url("Please pay.", "https://bank.example/pay?n=1", "e1")
        return f"paid: {answer.action}"

    @server.tool()
    async def meet(name: str, ctx: Context) -> str:
        """Ask in the middle of a call, as tools for 2025-11-25 do."""
        note(f"meet {name}")
        await anyio.sleep(0.05)
        answer = cast(Any, await ctx.elicit(f"When to meet {name}?", When))
        return f"{name} on {answer.data.day}"

    return server


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int)
    parser.add_argument("--journal", type=Path)
    parser.add_argument("--key")
    given = parser.parse_args()
    server = make(given.journal, given.key)
    if given.port is None:
        server.run()
    else:
        server.run("streamable-http", host="127.0.0.1", port=given.port)


if __name__ == "__main__":
    main()
