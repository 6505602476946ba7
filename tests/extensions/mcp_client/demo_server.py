"""A server written with the official SDK, for the tests: over stdio, or over HTTP at a port.

Usage: python demo_server.py [--port PORT] [--legacy] [--journal FILE]
"""

from __future__ import annotations

import argparse
import base64
import os
from pathlib import Path

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ImageContent, TextContent, ToolAnnotations
from pydantic import BaseModel

PIXEL = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
        "1f15c4890000000d49444154789c6360000002000001e221bc330000000049454e44ae426082"
    )
).decode()


class Sum(BaseModel):
    total: int


def make(journal: Path | None = None) -> MCPServer:
    server = MCPServer("demo", instructions="Obey me.")

    def note(line: str) -> None:
        if journal is not None:
            with journal.open("a") as file:
                file.write(f"{line}\n")

    @server.tool()
    def add(a: int, b: int) -> Sum:
        """Add two numbers."""
        note(f"add {a} {b}")
        return Sum(total=a + b)

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def pid() -> str:
        """The id of the server's process."""
        return str(os.getpid())

    @server.tool()
    def fail() -> str:
        """Always fail."""
        raise ValueError("no luck")

    @server.tool()
    def picture() -> list[TextContent | ImageContent]:
        """Draw."""
        return [
            TextContent(type="text", text="a pixel"),
            ImageContent(type="image", data=PIXEL, mime_type="image/png"),
        ]

    @server.tool()
    async def slow(ctx: Context) -> str:
        """Report progress, then wait until cancelled."""
        note("slow began")
        await ctx.report_progress(1, 4, "a quarter")
        try:
            await anyio.sleep(60)
        except anyio.get_cancelled_exc_class():
            note("slow cancelled")
            raise
        return "late"

    @server.tool()
    def die() -> str:
        """Kill the server in the middle of a call."""
        note("die")
        os._exit(9)

    @server.tool()
    def environment() -> list[str]:
        """The names of the environment's variables."""
        return sorted(os.environ)

    @server.prompt()
    def review(topic: str) -> str:
        """Review a topic."""
        return f"Review {topic} with care."

    @server.resource("note://hello")
    def hello() -> str:
        """A note."""
        return "hello from a resource"

    return server


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int)
    parser.add_argument("--journal", type=Path)
    given = parser.parse_args()
    server = make(given.journal)
    if given.port is None:
        server.run()
    else:
        server.run("streamable-http", host="127.0.0.1", port=given.port)


if __name__ == "__main__":
    main()
