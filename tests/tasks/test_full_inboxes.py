"""A task whose owner has a full inbox: it runs once, and its owner gets the report."""

from __future__ import annotations

from typing import Any

import pytest

from loop.helpers import soon
from wakeful import Agent, Runtime, ScriptedModel, task
from wakeful.errors import InboxFull
from wakeful.stores import Commit
from wakeful.types.inbox import InputItem, TaskItem
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


async def fill(runtime: Runtime, count: int, kind: type[Any], **fields: Any) -> None:
    items = [kind(id=f"{kind.kind}-{n}", thread_id="t", at=LATER, **fields) for n in range(count)]
    await runtime.store.commit(Commit("t", inbox=items))


async def fill_with_input(runtime: Runtime) -> None:
    await soon(runtime.run("owner", "hi", thread="t"))
    await fill(runtime, 1000, InputItem, message=user_message("later"), agent_id="owner")


async def outcomes(runtime: Runtime) -> list[TaskItem]:
    stored = await runtime.store.load("t")
    assert stored is not None
    return [item for item in stored.inbox if isinstance(item, TaskItem) and item.outcome is not None]


@pytest.mark.parametrize("target", ["helper", "work"])
async def test_task_report_fits_into_full_inbox(place: Place, target: str) -> None:
    runtime, model = runtime_of(place)
    async with runtime:
        await fill_with_input(runtime)
        with pytest.raises(InboxFull):
            await runtime.send("t", "one more")
        handle = await runtime.tasks.spawn(target, "go" if target == "helper" else None, thread="t")
        assert await soon(handle.value()) == "done"
        assert len(model.requests) == (target == "helper")
        assert [item.task_id for item in await outcomes(runtime)] == [handle.id]


async def test_task_report_waits_for_room_without_rerun(place: Place) -> None:
    time = clock()
    runtime, model = runtime_of(place, clock=time)
    async with runtime:
        await fill_with_input(runtime)
        await fill(runtime, 100, TaskItem, task_id="nobody's")
        handle = await runtime.tasks.spawn("helper", "go", thread="t")
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
        await runtime.mail.retract("input-7")
        await time.advance(1)
        (told,) = await eventually(lambda: outcomes(runtime))
        assert (told.task_id, told.outcome.text) == (handle.id, "done")
        assert len(model.requests) == 1
        assert await runtime.workers.dispatches(dead=True) == []
