"""The merge rule: hooks that ran side by side come out as if they had run one after the other."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from wakeful.agents import Hook
from wakeful.loop.hooks import run_hooks
from wakeful.plugins import Catalog, HookContext
from wakeful.state import Command, State, StateKey
from wakeful.types.runs import Identity

ME = Identity("r", "t", "agent", "r")


class _Exclusive(StateKey[list[str], str]):
    """Of two writers, the later runs again."""

    default: list[str] = []

    def apply(self, value: list[str], update: str) -> list[str]:
        return [*value, update]


class A(_Exclusive):
    """An exclusive key."""

    name = "a"


class B(_Exclusive):
    """Another exclusive key."""

    name = "b"


class C(_Exclusive):
    """A key whose updates all count."""

    name, merge = "c", "commutative"


KEYS: dict[str, Any] = {"a": A, "b": B, "c": C}


class Writer(NamedTuple):
    """A hook that appends to keys; what it appends says what it saw of each."""

    name: str
    keys: list[str]


def act(writer: Writer, ctx: HookContext) -> None:
    """The body of a hook: its updates."""
    for key in writer.keys:
        seen = "" if KEYS[key].merge == "commutative" else "".join(ctx.state[KEYS[key]])
        ctx.update(KEYS[key], f"({writer.name}:{seen})")


class Bench:
    """A state, and hooks that run on it."""

    def __init__(self) -> None:
        self.catalog = Catalog(KEYS.values(), ())
        self.state = State(self.catalog.keys)
        self.ran: list[str] = []
        self.applied: list[Command] = []

    def context(self, hook: Hook | None = None) -> HookContext:
        """A context on the present snapshot."""
        return HookContext(ME, 1, self.state.snapshot(), None, self.catalog, None)

    def apply(self, command: Command) -> None:
        """Apply a command."""
        self.applied.append(command)
        self.state.apply(command.updates)

    async def side_by_side(self, writers: list[Writer]) -> None:
        """Run the writers as the hooks of one phase."""

        def hook(writer: Writer) -> Hook:
            async def run(ctx: HookContext) -> None:
                self.ran.append(writer.name)
                await asyncio.sleep(0)
                act(writer, ctx)

            return Hook(writer.name, run, None)

        await run_hooks("step_start", [hook(w) for w in writers], self.context, self.apply)

    def one_after_the_other(self, writers: list[Writer]) -> None:
        """Run the writers in order, each on what the one before it left."""
        for writer in writers:
            ctx = self.context()
            act(writer, ctx)
            if ctx.command is not None:
                self.apply(ctx.command)

    def values(self) -> dict[str, list[str]]:
        """The values of all keys."""
        return {name: self.state.snapshot()[key] for name, key in KEYS.items()}


WRITERS = st.lists(st.lists(st.sampled_from("abc"), unique=True, max_size=3), min_size=1, max_size=6).map(
    lambda chosen: [Writer(f"h{n}", keys) for n, keys in enumerate(chosen)]
)


def order_of(writers: list[Writer]) -> list[Writer]:
    """The order that the rule amounts to: those without a conflict first, then the others, each in its order."""
    written: set[str] = set()
    first: list[Writer] = []
    late: list[Writer] = []
    for writer in writers:
        if any(key in written and key != "c" for key in writer.keys):
            late.append(writer)
        else:
            written.update(writer.keys)
            first.append(writer)
    return [*first, *late]


@given(WRITERS)
def test_parallel_hooks_equal_sequential_hooks(writers: list[Writer]) -> None:
    together, apart = Bench(), Bench()
    asyncio.run(together.side_by_side(writers))
    apart.one_after_the_other(order_of(writers))
    assert together.values() == apart.values()


@given(WRITERS)
def test_conflicting_hooks_rerun_once(writers: list[Writer]) -> None:
    bench = Bench()
    asyncio.run(bench.side_by_side(writers))
    first = order_of(writers)[: len(writers)]
    late = [w.name for w in first if w not in _batch(writers)]
    assert bench.ran == [w.name for w in writers] + late
    assert len(bench.applied) == len([writer for writer in writers if writer.keys])


def _batch(writers: list[Writer]) -> list[Writer]:
    written: set[str] = set()
    batch: list[Writer] = []
    for writer in writers:
        if not any(key in written and key != "c" for key in writer.keys):
            written.update(writer.keys)
            batch.append(writer)
    return batch


@given(st.lists(st.just(["c"]), min_size=1, max_size=6))
def test_commutative_updates_concatenate_in_registration_order(chosen: list[list[str]]) -> None:
    writers = [Writer(f"h{n}", keys) for n, keys in enumerate(chosen)]
    bench = Bench()
    asyncio.run(bench.side_by_side(writers))
    assert bench.values()["c"] == [f"({w.name}:)" for w in writers]
    assert len(bench.ran) == len(writers)


def test_hook_may_write_one_exclusive_key_twice() -> None:
    bench = Bench()

    async def twice(ctx: HookContext) -> None:
        bench.ran.append("twice")
        ctx.update(A, "one")
        ctx.update(A, "two")

    asyncio.run(run_hooks("step_start", [Hook("Twice", twice, None)], bench.context, bench.apply))
    assert bench.values()["a"] == ["one", "two"]
    assert bench.ran == ["twice"]


def test_conflict_on_one_key_defers_whole_command() -> None:
    bench = Bench()
    writers = [Writer("h0", ["a"]), Writer("h1", ["a", "b"]), Writer("h2", ["b"])]
    asyncio.run(bench.side_by_side(writers))
    assert bench.values()["a"] == ["(h0:)", "(h1:(h0:))"]
    assert bench.values()["b"] == ["(h2:)", "(h1:(h2:))"]
