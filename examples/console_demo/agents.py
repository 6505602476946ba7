"""The agents of the console's demo: a shop whose models are scripts, so that no network and no key is needed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Literal

from msgspec import Struct

from wakeful import (
    Agent,
    Approval,
    FunctionModel,
    ModelError,
    ModelRequest,
    Plugin,
    Runtime,
    ToolContext,
    Turn,
    Usage,
    call,
    tool,
)
from wakeful.models import Chunk, StopChunk, TextChunk, UsageChunk

__all__ = ["make_runtime"]

USAGE = Usage(input_tokens=1_240, output_tokens=180, cached_tokens=900, cost=4_300)
STORY = "Once there was a lamp that nobody had ordered. It stood in the warehouse, and waited for its order. "


Reason = Literal["damaged", "late", "other"]


class Line(Struct):
    """A line of an order."""

    item: str
    pieces: int = 1


@tool(approval=Approval(groups=("finance",), requester=True), deadline=4 * 3600)
async def refund(
    order: str,
    amount: float,
    reason: Reason,
    lines: list[Line],
    note: str | None = None,
) -> str:
    """Pay an order back.

    Args:
        order: The number of the order.
        amount: How much to pay back, in euros.
        reason: Why the customer gets it.
        lines: The lines of the order that are paid back.
        note: A line for the customer.
    """
    return f"Paid {amount:.2f} back for {order} ({reason})."


@tool(effect="pure")
async def look_up(order: str) -> str:
    """Look an order up."""
    return f"Order {order}: two lamps, sent on Monday, 129.00 EUR."


@tool(effect="pure")
async def pack(ctx: ToolContext, order: str, pieces: int = 5) -> str:
    """Pack an order, piece by piece."""
    for piece in range(pieces):
        ctx.progress(done=piece, total=pieces, message=f"piece {piece + 1} of {order}")
        await asyncio.sleep(0.02)
    return f"Packed {pieces} pieces of {order}."


@tool(resumable=True)
async def ask_customer(ctx: ToolContext, question: str) -> str:
    """Ask the customer something."""
    schema = {
        "type": "object",
        "required": ["delivery"],
        "properties": {
            "delivery": {"enum": ["to my door", "to a shop"], "description": "Where the parcel goes."},
            "phone": {"type": "string", "description": "A number for the driver."},
        },
    }
    answer = ctx.ask(question, schema=schema, deadline=900)
    return f"The customer says: {answer}"


@tool(effect="pure")
async def wait_for_stock(ctx: ToolContext, item: str) -> str:
    """Wait until an item is in stock again."""
    await ctx.sleep(6 * 3600)
    return f"{item} is in stock."


@tool(unknown="ask")
async def charge(card: str, amount: float) -> str:
    """Charge a card. In the demo the process dies in the middle of it."""
    if os.environ.get("CONSOLE_DEMO_CRASH"):
        os._exit(1)
    return f"Charged {amount:.2f}."


@tool
async def send_letter(order: str) -> str:
    """Send a letter. The post office is closed."""
    raise RuntimeError(f"the post office is closed, so that the letter about {order} can't be sent")


def by_turn(*turns: Callable[[ModelRequest], Any] | Any) -> FunctionModel:
    """A model whose answer depends on how many answers the run has already, for any number of runs at once."""

    def answer(request: ModelRequest) -> Any:
        past = 0
        for message in reversed(request.messages):
            if message.role == "user":
                break
            past += message.role == "assistant"
        turn = turns[min(past, len(turns) - 1)]
        if isinstance(turn, BaseException):
            return turn
        if isinstance(turn, str):
            return Turn(text=turn, usage=USAGE)
        if isinstance(turn, Turn):
            return turn
        return Turn(calls=turn if isinstance(turn, Sequence) else [turn], usage=USAGE)

    return FunctionModel(answer, name="scripted")


async def tell(request: ModelRequest) -> AsyncIterator[Chunk]:
    """A long answer, word by word, at the pace of a model."""
    for word in (STORY * 40).split():
        yield TextChunk(f"{word} ")
        await asyncio.sleep(0.04)
    yield UsageChunk(USAGE)
    yield StopChunk("end_turn")


ANSWER = """Order **A7** is on its way.

| item | pieces |
|------|--------|
| lamp | 2      |

1. Packed on Monday
2. With the carrier since

```python
track("A7")
```
See [the carrier](https://carrier.example/A7)."""

LINES = [{"item": "lamp", "pieces": 2}]


def make_runtime(store: str, *, plugins: Sequence[Plugin] = ()) -> Runtime:
    """The shop's runtime on a store."""
    money = {"order": "A7", "amount": 129.0, "reason": "damaged", "lines": LINES}
    both = [call("look_up", order="A7"), call("pack", order="A7")]
    return Runtime(
        [
            Agent(
                "desk",
                model=by_turn(Turn(thinking="They ask about A7. I look it up.", calls=both, usage=USAGE), ANSWER),
                tools=[look_up, pack],
                instructions="You answer customers of a lamp shop.",
                description="Answers customers.",
                handoffs=["refunds"],
            ),
            Agent(
                "refunds",
                model=by_turn([call("look_up", order="A7"), call("refund", **money)], "The refund is settled."),
                tools=[look_up, refund],
                description="Pays money back, once a person approved it.",
            ),
            Agent(
                "delivery",
                model=by_turn(call("ask_customer", question="Where may the parcel go?"), "It is noted."),
                tools=[ask_customer],
                description="Asks customers about deliveries.",
            ),
            Agent(
                "manager",
                model=by_turn(
                    [
                        call("agent_run_desk", prompt="Where is A7?"),
                        call("agent_run_refunds", prompt="Pay A7 back."),
                        call("agent_run_stock", prompt="When are there lamps?"),
                    ],
                    "Everything is seen to.",
                ),
                delegates=["desk", "refunds", "stock"],
                description="Splits the work between the others.",
            ),
            Agent(
                "stock",
                model=by_turn(call("wait_for_stock", item="lamp"), "There are lamps again."),
                tools=[wait_for_stock],
                description="Waits until an item is in stock.",
            ),
            Agent(
                "cashier",
                model=by_turn(call("charge", card="4711", amount=20.0), "It is charged."),
                tools=[charge],
                description="Charges cards.",
            ),
            Agent("writer", model=FunctionModel(tell, name="storyteller"), description="Tells long stories."),
            Agent(
                "broken",
                model=by_turn(call("send_letter", order="A7"), ModelError("the model's vendor is down")),
                tools=[send_letter],
                description="Fails, so that there is something to retry.",
            ),
        ],
        store=store,
        plugins=plugins,
    )
