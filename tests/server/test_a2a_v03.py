"""Clients of version 0.3, by the SDK's compatibility layer."""

from __future__ import annotations

import pytest
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import MethodNotFoundError, TaskNotFoundError
from a2a_serving import BINDINGS, Gate, answer_of, connect, get, said, send, serve, state, states, stream, text_of

from wakeful import Agent, Runtime, ScriptedModel, Turn, call, tool

pytestmark = pytest.mark.parametrize("binding", BINDINGS)


def assistant(*turns: object, **fields: object) -> Runtime:
    return Runtime([Agent("assistant", model=ScriptedModel(turns), **fields)])


async def test_v03_message_is_answered(binding: str) -> None:
    async with (
        serve(assistant("Sunny.")) as url,
        connect(url, binding, version="0.3", streaming=False) as client,
    ):
        task = await send(client, "Weather?")
        assert (state(task), answer_of(task)) == ("completed", "Sunny.")
        assert answer_of(await get(client, task.id)) == "Sunny."


async def test_v03_answer_streams(binding: str) -> None:
    async with serve(assistant(Turn(text=["Sun", "ny."]))) as url, connect(url, binding, version="0.3") as client:
        events = await stream(client, "Weather?")
        assert (states(events), text_of(events)) == (["submitted", "working", "completed"], "Sunny.")


async def test_v03_task_waits_and_resumes(binding: str) -> None:
    @tool(approval=True)
    def refund() -> str:
        return "refunded"

    runtime = assistant(call("refund"), "Refunded.", tools=[refund])
    async with serve(runtime) as url, connect(url, binding, version="0.3", streaming=False) as client:
        task = await send(client, "Refund")
        assert state(task) == "input_required"
        done = await send(client, said("approve", task_id=task.id, context_id=task.context_id))
        assert (done.id, state(done), answer_of(done)) == (task.id, "completed", "Refunded.")


async def test_v03_task_can_be_subscribed_to_and_cancelled(binding: str) -> None:
    gate = Gate()
    async with (
        serve(assistant(call("slow"), tools=[gate.slow])) as url,
        connect(url, binding, version="0.3") as client,
    ):
        events = aiter(client.send_message(pb.SendMessageRequest(message=said("Go"))))
        task = (await anext(events)).task
        await gate.reached.wait()
        watching = aiter(client.subscribe(pb.SubscribeToTaskRequest(id=task.id)))
        assert (await anext(watching)).task.id == task.id
        assert state(await client.cancel_task(pb.CancelTaskRequest(id=task.id))) == "canceled"
        assert states([event async for event in watching])[-1] == "canceled"
        assert states([event async for event in events])[-1] == "canceled"
        # Over HTTP+JSON the compatibility layer has one error for everything that isn't found.
        with pytest.raises((TaskNotFoundError, MethodNotFoundError)):
            await get(client, "nope")
