"""A tool of an MCP server: its question waits as a ticket, and the call continues with the answer."""

import asyncio
from typing import Annotated

from mcp.server.mcpserver import Elicit, MCPServer, Resolve
from pydantic import create_model

from wakeful import Agent, Runtime, ScriptedModel, call
from wakeful.extensions.mcp import MCP

server, When = MCPServer("travel"), create_model("When", day=(str, ...))


async def ask(city: str) -> Elicit:
    """Ask a person."""
    return Elicit(f"When to {city}?", When)


@server.tool()
async def book(city: str, when: Annotated[When, Resolve(ask)]) -> str:
    """Book a trip."""
    return f"{city} on {when.day}"


script = ScriptedModel([call("mcp__travel__book", city="Oslo"), "Your trip is booked."])


async def main() -> None:
    """Book a trip."""
    async with Runtime([Agent("agent", model=script, tools=[MCP("travel", server=server)])]) as runtime:
        result = await runtime.run("agent", "Book a trip to Oslo.")
        print(result.status, result.tickets[0].message)
        result = await runtime.resume(result.run_id, result.tickets[0].answer({"day": "Monday"}))
        print(result.status, result.text)


if __name__ == "__main__":
    asyncio.run(main())
