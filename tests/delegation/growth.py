"""How trees are made at random, by whatever picks: hypothesis, or dice."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from .trees import EFFECTS, Act, Child, Code, How, Node, Thing, named

T = TypeVar("T")

MAX_TICKETS = 8
MAX_NODES = 10
MAX_DEPTH = 4


class Picks(Protocol):
    """Makes choices."""

    def one_of(self, options: Sequence[T]) -> T:
        """One of these."""
        ...

    def number(self, low: int, high: int) -> int:
        """A number, both ends included."""
        ...


class Dice:
    """Chooses by a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def one_of(self, options: Sequence[T]) -> T:
        return self._random.choice(options)

    def number(self, low: int, high: int) -> int:
        return self._random.randint(low, high)


def tree(picks: Picks) -> Node:
    """A tree of agents: at most four levels below the root, and eight questions."""
    return named(_Growth(picks).node(0))


class _Growth:
    """How much of a tree may still be made."""

    def __init__(self, picks: Picks) -> None:
        self._picks = picks
        self._tickets = MAX_TICKETS
        self._nodes = MAX_NODES

    def _asks(self) -> bool:
        asks = self._tickets > 0 and self._picks.one_of([False, True])
        self._tickets -= asks
        return asks

    def node(self, depth: int) -> Node:
        self._nodes -= 1
        number = self._picks.number
        if depth and number(0, 4) == 0:
            return Node(remote=True, asks=self._asks())
        return Node([[self._thing(depth) for _ in range(number(1, 3))] for _ in range(number(1, 2))])

    def _thing(self, depth: int) -> Thing:
        kind = self._picks.one_of(["act", "act", "child", "child", "code"])
        if kind == "act" or depth >= MAX_DEPTH or self._nodes <= 0:
            return Act(self._picks.one_of(EFFECTS), self._asks())
        if kind == "child":
            return self._child(depth, "ephemeral", "durable", "background")
        count = min(self._nodes, self._picks.number(1, 3))
        children = [self._child(depth, "ephemeral", "durable") for _ in range(count) if self._nodes > 0]
        ways: Any = ["in_turn", "gather", "group"]
        return Code(children, self._picks.one_of(ways))

    def _child(self, depth: int, *ways: How) -> Child:
        return Child(self.node(depth + 1), self._picks.one_of(ways))
