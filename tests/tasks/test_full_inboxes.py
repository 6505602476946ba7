"""A task whose owner has as much pending as an inbox takes: it is run once, and its owner hears of it."""

from __future__ import annotations

from typing import Any

import pytest

from loop.helpers import soon
from wakeful import Agent, Runtime, ScriptedModel, task
from wakeful.errors import InboxFull
from wakeful.stores import Commit, InboxItem
from wakeful.types.messages import user_message

from .conftest import Place
from .helpers import clock, eventually

LATER = 1 << 45  # Some thousand years from now.


@task
async def work() -> str:
    return "done"


def runtime_of(place: Place, **options: Any) -> tuple[Runtime, ScriptedModel]:
    model = ScriptedModel(["done"])
    agents = [Agent("owner", model=ScriptedModel(["hello"] * 9)), Agent("helper", model=model)]
    return Runtime(agents, tasks=[work], store=place(), **options), model


async def fill(runtime: Runtime, count: int, **fields: Any) -> None:
    items = [InboxItem(id=f"{fields['kind']}-{n}", thread_id="t", at=LATER, **fields) for n in range(count)]
    await runtime.store.commit(Commit("t", inbox=items))


async def fill_with_input(runtime: Runtime) -> None:
    await soon(runtime.run("owner", "hi", thread="t"))
    await fill(runtime, 1000, kind="input", message=user_message("later"), agent_id="owner")


async def outcomes(runtime: Runtime) -> list[InboxItem]:
    stored = await runtime.store.load("t")
    assert stored is not None
    return [item for item in stored.inbox if item.outcome is not None]


@pytest.mark.parametrize("target", ["helper", "work"])
async def test_the_owner_of_a_task_hears_of_it_though_its_inbox_is_full_of_input(
    place: Place, target: str
) -> None:
    runtime, model = runtime_of(place)
    async with runtime:
        await fill_with_input(runtime)
        with pytest.raises(InboxFull):
            await runtime.send("t", "one more")
        handle = await runtime.spawn(target, "go" if target == "helper" else None, thread="t")
        assert await soon(handle.value()) == "done"
        assert len(model.requests) == (target == "helper")
        assert [item.task_id for item in await outcomes(runtime)] == [handle.id]


async def test_what_came_of_a_task_waits_until_there_is_room_and_the_task_is_not_run_again(place: Place) -> None:
    time = clock()
    runtime, model = runtime_of(place, clock=time)
    async with runtime:
        await fill_with_input(runtime)
        await fill(runtime, 100, kind="task", task_id="nobody's")
        handle = await runtime.spawn("helper", "go", thread="t")
        assert await soon(handle.value()) == "done"
        for attempts in range(1, 11):  # However often it is tried, it isn't given up.

            async def tried(attempts: int = attempts) -> bool:
                (relay,) = await runtime.store.relays()
                return relay.attempts == attempts and relay.owner is None

            await eventually(tried)
            (relay,) = await runtime.store.relays()
            assert (relay.status, relay.due_at - time.now()) == ("live", min(1000 << (attempts - 1), 300_000))
            await time.advance((relay.due_at - time.now()) / 1000 - (attempts == 10))
        assert await outcomes(runtime) == []
        await runtime.retract("input-7")
        await time.advance(1)
        (told,) = await eventually(lambda: outcomes(runtime))
        assert (told.task_id, told.outcome.text) == (handle.id, "done")
        assert len(model.requests) == 1
        assert await runtime.dispatches(dead=True) == []
