"""A task's history, with the message ids of callers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import InvalidParamsError, TaskNotFoundError
from a2a_serving import BINDINGS, Gate, connect, get, said, send, serve, state, stream, tickets_in
from google.protobuf.json_format import MessageToDict
from msgspec import Struct

from wakeful import Agent, Delegate, Retention, Runtime, ScriptedModel, call, tool
from wakeful.server.a2a.tasks import task_of

pytestmark = pytest.mark.parametrize("binding", BINDINGS)


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "app.db" if request.param == "sqlite" else None


def assistant(store: Path | None, *turns: Any, **fields: Any) -> Runtime:
    return Runtime([Agent("assistant", model=ScriptedModel(turns), **fields)], store=store)


def sent(task: pb.Task) -> list[tuple[str, str]]:
    """The caller's messages, by id."""
    return [(m.message_id, m.parts[0].text) for m in task.history if m.role == pb.ROLE_USER]


async def test_history_has_message_under_sender_id(binding: str, store: Path | None) -> None:
    runtime = assistant(store, "One.", "Two.")
    async with (
        serve(runtime) as url,
        connect(url, binding) as watcher,
        connect(url, binding, streaming=False) as client,
    ):
        first = await send(client, said("a", message_id="mine-1"))
        assert sent(first) == [("mine-1", "a")]
        assert sent(await get(client, first.id)) == [("mine-1", "a")]
        events = await stream(watcher, said("b", message_id="mine-2", context_id=first.context_id))
        second = await get(client, events[0].task.id)
        assert sent(second) == sent(events[0].task) == [("mine-2", "b")]
        listed = await client.list_tasks(pb.ListTasksRequest(history_length=9))
        assert [sent(task) for task in listed.tasks] == [[("mine-2", "b")], [("mine-1", "a")]]
        answers = [m.message_id for task in listed.tasks for m in task.history if m.role == pb.ROLE_AGENT]
        assert len({*answers, "mine-1", "mine-2"}) == 4


async def test_queued_task_has_its_first_message(binding: str, store: Path | None) -> None:
    gate = Gate()
    runtime = assistant(store, call("slow"), "First.", "Second.", tools=[gate.slow])
    async with serve(runtime) as url, connect(url, binding, streaming=False) as client:
        await send(client, said("a", context_id="c"), return_immediately=True)
        await gate.reached.wait()
        message = said("b", message_id="mine", context_id="c")
        second = await send(client, message, return_immediately=True)
        assert (state(second), sent(second)) == ("submitted", [("mine", "b")])
        assert not (await get(client, second.id, history_length=0)).history
        gate.opened.set()
        done = await send(client, message)
        assert (state(done), sent(done)) == ("completed", [("mine", "b")])


async def test_text_beside_answer_has_message_id_of_answer(binding: str, store: Path | None) -> None:
    @tool(approval=True)
    def refund(order: str) -> str:
        return f"refunded {order}"

    runtime = assistant(store, call("refund", order="7"), "Done.", tools=[refund])
    async with serve(runtime) as url, connect(url, binding, streaming=False) as client:
        task = await send(client, said("Go", message_id="mine-1"))
        decision = {"ticketId": tickets_in(task)[0]["ticketId"], "verdict": "approve"}
        done = await send(client, said("Hurry", data=decision, task_id=task.id, message_id="mine-2"))
        assert sent(done) == [("mine-1", "Go"), ("mine-2", "Hurry")]
        assert MessageToDict(done.history[-2].parts[1].data) == decision


async def test_history_has_answers_in_their_order(binding: str, store: Path | None) -> None:
    @tool(approval=True)
    def refund(order: str) -> str:
        return f"refunded {order}"

    calls = [call("refund", order="7"), call("refund", order="8")]
    runtime = assistant(store, *calls, "Done.", tools=[refund])
    async with serve(runtime) as url, connect(url, binding, streaming=False) as client:
        task = await send(client, said("Go", message_id="mine-1"))
        yes = said("approve", message_id="mine-2", task_id=task.id)
        await send(client, yes)
        await send(client, yes)
        no = said("deny: too late", message_id="mine-3", task_id=task.id)
        assert sent(await send(client, no)) == [
            ("mine-1", "Go"),
            ("mine-2", "approve"),
            ("mine-3", "deny: too late"),
        ]
        done = await get(client, task.id)
        assert [m.parts[0].text for m in done.history] == ["Go", "approve", "deny: too late", "Done."]
        assert (await get(client, task.id, history_length=2)).history[0].message_id == "mine-3"


@pytest.mark.parametrize("durable", [True, False])
async def test_history_has_answers_to_delegates(binding: str, store: Path | None, durable: bool) -> None:
    @tool(approval=True)
    def refund(order: str) -> str:
        return f"refunded {order}"

    lead = ScriptedModel([call("agent_run_payer", prompt="Refund 7"), "Done."])
    payer = ScriptedModel([call("refund", order="7"), "Refunded."])
    agents = [
        Agent("lead", lead, delegates=[Delegate("payer", durable=durable)]),
        Agent("payer", payer, tools=[refund]),
    ]
    async with (
        serve(Runtime(agents, store=store), agents=["lead"]) as url,
        connect(url, binding, streaming=False) as client,
    ):
        task = await send(client, said("Go", message_id="mine-1"))
        done = await send(client, said("approve", message_id="mine-2", task_id=task.id))
        assert sent(done) == [("mine-1", "Go"), ("mine-2", "approve")]
        assert [m.parts[0].text for m in done.history] == ["Go", "approve", "Done."]


async def test_message_id_is_refused_when_too_long(binding: str, store: Path | None) -> None:
    runtime = assistant(store, "ok")
    async with serve(runtime) as url, connect(url, binding, streaming=False) as client:
        with pytest.raises(InvalidParamsError, match="at most 256 characters"):
            await send(client, said("a", message_id="m" * 257))
        assert sent(await send(client, said("a", message_id="m" * 256))) == [("m" * 256, "a")]


async def test_repeated_message_fails_when_task_was_deleted(binding: str, store: Path | None) -> None:
    runtime = assistant(store, "ok", "again")
    async with serve(runtime) as url, connect(url, binding, streaming=False) as client:
        message = said("a")
        await send(client, message)
        await runtime.threads.prune(Retention(runs=0))
        async with asyncio.timeout(120):
            with pytest.raises(TaskNotFoundError, match="with a new id"):
                await send(client, message)
        assert state(await send(client, said("a"))) == "completed"


async def test_task_is_complete_when_run_record_is_stale(binding: str, store: Path | None) -> None:
    class Size(Struct):
        number: int

    gate = Gate()
    runtime = assistant(store, call("slow"), '{"number": 7}', tools=[gate.slow], output=Size)
    async with serve(runtime) as url, connect(url, binding, streaming=False) as client:
        begun = await send(client, "a", return_immediately=True)
        await gate.reached.wait()
        before = await runtime.runs.get(begun.id)
        gate.opened.set()
        await runtime.wait(begun.id)
        # As in a request that read the run just before it was done.
        assert await task_of(runtime, before, 9) == await get(client, begun.id)


async def test_stream_starts_with_requested_history(binding: str, store: Path | None) -> None:
    runtime = assistant(store, "One.", "Two.")
    async with serve(runtime) as url, connect(url, binding) as client:
        assert not (await stream(client, said("a"), history_length=0))[0].task.history
        assert sent((await stream(client, said("a", message_id="mine"), history_length=1))[0].task) == [
            ("mine", "a")
        ]
