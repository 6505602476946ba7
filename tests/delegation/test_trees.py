"""Random trees: in any order of answers, in any process, every call ends."""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loop.helpers import until_idle
from wakeful import MemoryStore, Runtime
from wakeful.dispatch import RunResult
from wakeful.stores import open_store
from wakeful.testing.crash import Launchers, open_sites
from wakeful.types.tickets import Decision, Ticket

from .growth import Dice, tree
from .killed import decision, denied_in, ledger_in
from .trees import Ledger, Node, agents_of, check, done, save

T = TypeVar("T")


class Drawn:
    """Lets hypothesis choose."""

    def __init__(self, draw: Any) -> None:
        self._draw = draw

    def one_of(self, options: Sequence[T]) -> T:
        return self._draw(st.sampled_from(options))

    def number(self, low: int, high: int) -> int:
        return self._draw(st.integers(low, high))


@st.composite
def trees(draw: Any) -> Node:
    """A tree of agents."""
    return tree(Drawn(draw))


class People:
    """Answers tickets at random: with dice, since which tickets are open when is also up to the machine."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self.denied: set[str] = set()

    def decide(self, ticket: Ticket) -> Decision:
        if ticket.asked_by == "remote":
            return ticket.result("the blue one")
        if self._dice.random() < 0.5:
            return ticket.approve()
        self.denied.add(ticket.arguments["label"])
        return ticket.deny("no")

    async def answer(self, runtime: Runtime, waiting: RunResult) -> RunResult:
        """Answer some of what is asked: at the root, several at once, or one by its own id."""
        way = self._dice.choice(["at once", "side by side", "by ticket"])
        count = 1 if way == "by ticket" else self._dice.randint(1, len(waiting.tickets))
        some = self._dice.sample(waiting.tickets, count)
        decisions = [self.decide(ticket) for ticket in some]
        if way == "at once":
            return await runtime.resume(waiting.run_id, *decisions)
        if way == "side by side":
            await asyncio.gather(*[runtime.resume(waiting.run_id, decision) for decision in decisions])
            return await runtime.wait(waiting.run_id)
        return await runtime.tickets.answer(some[0].id, decisions[0])


async def grow(root: Node, seed: int, store: Any, ledger: Ledger) -> None:
    """Run a tree to its end, with answers and restarts in between."""
    dice = random.Random(seed)
    people = People(dice)
    before = asyncio.all_tasks()
    runtime = Runtime(agents_of(root, ledger), store=store())
    async with asyncio.timeout(60):
        result = await runtime.run(root.id, "go", thread="t")
        while result.status == "waiting":
            assert result.tickets, "it waits, and nobody is asked"
            if dice.random() < 0.5:
                await until_idle(runtime)  # Closing cancels what works in the background.
                await runtime.close()
                runtime = Runtime(agents_of(root, ledger), store=store())
            result = await people.answer(runtime, result)
        assert (result.text, result.tickets) == (done(root), ())
        assert not runtime._scope.dispatch.active
        await check(root, runtime.store, ledger, people.denied)
    await runtime.close()
    assert asyncio.all_tasks() == before


@given(root=trees(), seed=st.integers(0, 10_000))
def test_every_tree_ends_in_memory(root: Node, seed: int) -> None:
    store = MemoryStore()
    asyncio.run(grow(root, seed, lambda: store, Ledger()))


@settings(max_examples=max(1, settings.default.max_examples // 4))
@given(root=trees(), seed=st.integers(0, 10_000))
def test_every_tree_ends_on_sqlite(root: Node, seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(grow(root, seed, lambda: str(Path(folder) / "store.db"), Ledger()))


async def share(root: Node, path: str) -> None:
    """Two runtimes on one file, both of which take what is due; either may be asked, and answered."""
    ledger, dice = Ledger(), random.Random(0)
    agents = agents_of(root, ledger)
    async with asyncio.timeout(60), Runtime(agents, store=path) as one, Runtime(agents, store=path) as other:
        handle = await one.start(root.id, "go", thread="t")
        result = await other.wait(handle.run_id)
        while result.status == "waiting":
            given = decision(dice.choice(result.tickets))
            result = await dice.choice([one, other]).resume(result.run_id, given)
        assert result.text == done(root)
        await check(root, one.store, ledger, denied_in(root))


def test_two_runtimes_share_tree(tmp_path: Path) -> None:
    for seed in range(4):
        asyncio.run(share(tree(Dice(seed)), str(tmp_path / f"{seed}.db")))


def play(seed: int) -> None:
    """Kill some processes of a tree at random moments, let the last one finish the tree, and check."""
    root, dice = tree(Dice(seed)), random.Random(seed)
    with open_sites("sqlite") as sites, Launchers() as launchers, sites.new() as (place, site):
        save(root, site.folder)
        for _ in range(dice.randint(1, 4)):
            child = launchers.start("delegation.killed:grow", place, site)
            if child.has_exited(dice.uniform(0.05, 0.6)):
                assert child.wait(0) is None, seed
            child.kill()
        last = launchers.start("delegation.killed:grow", place, site)
        assert last.wait(120) is None, seed

        async def look() -> None:
            store = open_store(site.store)
            try:
                await check(root, store, ledger_in(site.folder), denied_in(root), killed=True)
            finally:
                await store.close()

        asyncio.run(look())


def test_tree_ends_when_processes_are_killed() -> None:
    for seed in range(3):
        play(seed)


@pytest.mark.long
def test_many_trees_end_when_processes_are_killed() -> None:
    for seed in range(100, 100 + int(os.environ.get("WAKEFUL_TREES", "60"))):
        play(seed)
