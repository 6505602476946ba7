"""A server in a process of its own, for tests that kill it: its agent answers as far as a file says.

Usage: python -m console.slow_server PORT STORE FOLDER
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from sockets import serve_app
from wakeful import Agent, ModelRequest, Runtime, tool
from wakeful.models import CallChunk, Chunk, StopChunk, TextChunk
from wakeful.server import app

# A fox counts as one character, and as two units of a text in JavaScript.
WORDS = [f"word{number}🦊 " for number in range(200)]
LATER = "later"
BLOCK = "block"
"""Files in the folder: the second half of an answer may be sent; the tool may not return."""


class SlowModel:
    """Streams the words, stops in the middle until it may go on; calls a tool if it is asked to work."""

    name = "slow"
    live = False

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        last = request.messages[-1]
        if last.role == "user" and last.text == "Work":
            yield CallChunk("work", {})
            yield StopChunk("tool_use")
            return
        if last.role == "tool":
            yield TextChunk("The work is done.")
            yield StopChunk("end_turn")
            return
        for number, word in enumerate(WORDS):
            while number == len(WORDS) // 2 and not (self._folder / LATER).exists():
                await asyncio.sleep(0.01)  # The test writes the file.
            yield TextChunk(word)
        yield StopChunk("end_turn")


async def main(port: int, store: str, folder: Path) -> None:
    @tool(effect="pure", timeout=None)
    async def work() -> str:
        """Work until the test says that it is enough."""
        (folder / "started").touch()
        while (folder / BLOCK).exists():
            await asyncio.sleep(0.01)
        return "worked"

    runtime = Runtime([Agent("slow", model=SlowModel(folder), tools=[work])], store=store)
    async with serve_app(app(runtime), port=port):
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])))
