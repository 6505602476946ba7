"""The agents of the demo. Their models are scripted; the tools and the runtime are real."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from wakeful import Agent, FunctionModel, ModelRequest, Runtime, ScriptedModel, ToolContext, call, tool

__all__ = ["Bank", "make_runtime"]


@tool(effect="pure")
async def count_words(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())


@tool(effect="pure")
async def timer(name: str, seconds: float, ctx: ToolContext) -> str:
    """Wait for some seconds."""
    for done in range(1, 4):
        await asyncio.sleep(seconds / 3)
        ctx.progress(done=done, total=3, message=name)
    return f"{name} is ready"


class Bank:
    """The outside world: a bank and a post office with files of their own."""

    def __init__(self, folder: Path) -> None:
        self.charges = folder / "bank.txt"
        self.letters = folder / "post.txt"
        self.parcels = folder / "parcels.txt"

    @tool(effect="once")
    async def charge(self, order: int, amount: float) -> str:
        """Charge the customer, at most once."""
        _write(self.charges, f"order {order}: {amount:.2f}")
        return f"charged {amount:.2f}"

    @tool(effect="once")
    async def send_letter(self, order: int) -> str:
        """Send the customer a letter."""
        await asyncio.sleep(0.3)
        _write(self.letters, f"order {order}")
        await asyncio.sleep(60)  # The post office takes its time to confirm.
        return "sent"

    @tool(effect="pure")
    async def look_up_stock(self, order: int) -> str:
        """Look up the stock; harmless, so it may run again."""
        await asyncio.sleep(1)
        return "in stock"

    @tool(effect="once", approval=True)
    async def ship(self, order: int) -> str:
        """Ship the order, after a person's approval."""
        _write(self.parcels, f"order {order}")
        return "shipped"


def _write(file: Path, line: str) -> None:
    with file.open("a") as book:
        book.write(f"{line}\n")


def shop(request: ModelRequest) -> Any:
    """Answer from the conversation alone, so that any process can continue."""
    replies = {m.reply.name: m.reply for m in request.messages if m.reply is not None}
    if not replies:
        return [call("charge", order=7, amount=20), call("send_letter", order=7), call("look_up_stock", order=7)]
    if "ship" not in replies:
        return [call("ship", order=7)]
    doubt = replies["send_letter"].error == "interrupted"
    letter = "please check whether your letter came" if doubt else "the letter is on its way"
    return f"Charged and shipped; {letter}."


def make_runtime(folder: Path, *, execute: bool = True) -> Runtime:
    """Make a runtime of all agents on a SQLite file in the folder."""
    bank = Bank(folder)
    counter = ScriptedModel([call("count_words", text="to be or not to be"), "That is 6 words."])
    timers = [call("timer", name="tea", seconds=0.9), call("timer", name="eggs", seconds=0.6)]
    cook = ScriptedModel([[*timers, call("timer", name="toast", seconds=0.3)], "Breakfast is ready."])
    desk = ScriptedModel([call("handoff_to_poet", reason="verse is wanted")])
    poet = ScriptedModel(["You asked for verse, and verse is what I do."])
    tools = [bank.charge, bank.send_letter, bank.look_up_stock, bank.ship]
    return Runtime(
        [
            Agent("counter", model=counter, tools=[count_words]),
            Agent("cook", model=cook, tools=[timer]),
            Agent("shop", model=FunctionModel(shop, name="shop"), tools=tools),
            Agent("desk", model=desk, handoffs=["poet"]),
            Agent("poet", model=poet, description="Writes verse."),
        ],
        store=folder / "demo.db",
        execute=execute,
    )
