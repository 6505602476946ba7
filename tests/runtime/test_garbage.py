"""The cost of runs beside their work: cyclic garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from loop.helpers import Scripted
from wakeful import Agent, Runtime, call, tool


@tool
async def look(n: int) -> str:
    """Look."""
    return f"seen {n}"


@tool
def count(n: int) -> str:
    """Count in a thread."""
    return f"counted {n}"


@pytest.fixture
def left_over() -> Iterator[list[object]]:
    """The objects since the test's beginning that only the garbage collector could free."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def of_wakeful(found: list[object]) -> set[str]:
    gc.collect()
    return {type(one).__name__ for one in found if type(one).__module__.startswith("wakeful.")}


async def test_finished_run_leaves_no_garbage_cycles(scripted: Scripted, left_over: list[object]) -> None:
    lead = Agent(
        "lead",
        model=scripted([call("look", n=1), call("count", n=2)], call("agent_run_helper", prompt="help"), "done"),
        tools=[look, count],
        delegates=["helper"],
    )
    helper = Agent("helper", model=scripted(call("look", n=3), "helped"), tools=[look])
    async with Runtime([lead, helper]) as runtime:
        gc.collect()  # What other tests left, and something held until now.
        left_over.clear()
        assert (await runtime.run("lead", "go")).text == "done"
        assert "Activation" not in of_wakeful(left_over)
