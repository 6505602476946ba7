"""Trees that were made at random: whatever is answered when, in whichever process, every call comes to its end."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from loop.helpers import until_idle
from wakeful import MemoryStore, Runtime
from wakeful.dispatch import RunResult
from wakeful.types.tickets import Decision, Ticket

from .trees import EFFECTS, Act, Child, Code, Ledger, Node, Thing, agents_of, check, done, named

MAX_TICKETS = 8
MAX_NODES = 10
MAX_DEPTH = 4


class Growth:
    """How much of a tree may still be made."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.tickets = MAX_TICKETS
        self.nodes = MAX_NODES

    def asks(self) -> bool:
        asks = self.tickets > 0 and self.draw(st.booleans())
        self.tickets -= asks
        return asks

    def node(self, depth: int) -> Node:
        self.nodes -= 1
        if depth and self.draw(st.integers(0, 4)) == 0:
            return Node(remote=True, asks=self.asks())
        steps = self.draw(st.integers(1, 2))
        return Node([[self.thing(depth) for _ in range(self.draw(st.integers(1, 3)))] for _ in range(steps)])

    def thing(self, depth: int) -> Thing:
        kind = self.draw(st.sampled_from(["act", "act", "child", "child", "code"]))
        if kind == "act" or depth >= MAX_DEPTH or self.nodes <= 0:
            return Act(self.draw(st.sampled_from(EFFECTS)), self.asks())
        if kind == "child":
            return self.child(depth, "ephemeral", "durable", "background")
        count = min(self.nodes, self.draw(st.integers(1, 3)))
        children = [self.child(depth, "ephemeral", "durable") for _ in range(count) if self.nodes > 0]
        return Code(children, self.draw(st.sampled_from(["in_turn", "gather", "group"])))

    def child(self, depth: int, *ways: Any) -> Child:
        return Child(self.node(depth + 1), self.draw(st.sampled_from(ways)))


@st.composite
def trees(draw: Any) -> Node:
    """A tree of agents: at most four levels below the root, and eight questions."""
    return named(Growth(draw).node(0))


class People:
    """Answers tickets at random."""

    def __init__(self, draw: Any) -> None:
        self._draw = draw
        self.denied: set[str] = set()

    def decide(self, ticket: Ticket) -> Decision:
        if ticket.asked_by == "remote":
            return ticket.result("the blue one")
        if self._draw(st.booleans()):
            return ticket.approve()
        self.denied.add(ticket.arguments["label"])
        return ticket.deny("no")

    async def answer(self, runtime: Runtime, waiting: RunResult) -> RunResult:
        """Answer some of what is asked: at the root, several at once, or one by its own id."""
        tickets = self._draw(st.permutations(waiting.tickets))
        way = self._draw(st.sampled_from(["at once", "side by side", "by ticket"]))
        some = tickets[: 1 if way == "by ticket" else self._draw(st.integers(1, len(tickets)))]
        decisions = [self.decide(ticket) for ticket in some]
        if way == "at once":
            return await runtime.resume(waiting.run_id, *decisions)
        if way == "side by side":
            await asyncio.gather(*[runtime.resume(waiting.run_id, decision) for decision in decisions])
            return await runtime.wait(waiting.run_id)
        return await runtime.answer(some[0].id, decisions[0])


async def grow(root: Node, data: Any, store: Any, ledger: Ledger) -> None:
    """Run a tree to its end, with answers and restarts in between."""
    people = People(data.draw)
    before = asyncio.all_tasks()
    runtime = Runtime(agents_of(root, ledger), store=store())
    async with asyncio.timeout(20):
        result = await runtime.run(root.id, "go", thread="t")
        while result.status == "waiting":
            assert result.tickets, "it waits, and nobody is asked"
            if data.draw(st.booleans()):
                await until_idle(runtime)  # Closing cancels what works in the background.
                await runtime.close()
                runtime = Runtime(agents_of(root, ledger), store=store())
            result = await people.answer(runtime, result)
        assert (result.text, result.tickets) == (done(root), ())
        assert not runtime._dispatch.active
        await check(root, runtime._env.store, ledger, people.denied)
    await runtime.close()
    assert asyncio.all_tasks() == before


@given(root=trees(), data=st.data())
def test_every_tree_comes_to_its_end_in_memory(root: Node, data: Any) -> None:
    store = MemoryStore()
    asyncio.run(grow(root, data, lambda: store, Ledger()))


@settings(max_examples=max(1, settings.default.max_examples // 4))
@given(root=trees(), data=st.data())
def test_every_tree_comes_to_its_end_on_sqlite(root: Node, data: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(grow(root, data, lambda: str(Path(folder) / "store.db"), Ledger()))
