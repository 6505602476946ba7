"""Readers that are late, reconnect or read another process's run get the same text."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from a2a.client import Client
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import TaskNotCancelableError, UnsupportedOperationError
from a2a_serving import BINDINGS, Gate, answer_of, connect, get, said, send, serve, state, states, text_of, until

from wakeful import Agent, FunctionModel, Model, ModelRequest, Runtime, ScriptedModel, call
from wakeful.models import Chunk, StopChunk, TextChunk


def halting(pieces: Sequence[str | Gate]) -> FunctionModel:
    """A model that streams these pieces and waits at each gate."""

    async def answer(request: ModelRequest) -> AsyncIterator[Chunk]:
        for piece in pieces:
            if isinstance(piece, Gate):
                await piece.wait()
            else:
                yield TextChunk(piece)
        yield StopChunk("end_turn")

    return FunctionModel(answer)


@pytest.mark.parametrize("binding", BINDINGS)
async def test_reader_gets_same_text_after_lost_connection(binding: str) -> None:
    gate = Gate()
    runtime = Runtime([Agent("assistant", model=halting(["Once ", "upon ", gate, "a ", "time."]))])
    async with serve(runtime) as url:
        async with connect(url, binding) as client:
            events = aiter(client.send_message(pb.SendMessageRequest(message=said("Tell"))))
            seen = [await anext(events) for _ in range(4)]
            assert text_of(seen) == "Once upon "
            task = seen[0].task
            await events.aclose()
        async with connect(url, binding) as client:
            watching = aiter(client.subscribe(pb.SubscribeToTaskRequest(id=task.id)))
            first = await anext(watching)
            assert (first.task.id, state(first.task)) == (task.id, "working")
            gate.opened.set()
            rest = [first, *[event async for event in watching]]
            assert (states(rest)[-1], text_of(rest)) == ("completed", "Once upon a time.")
            assert answer_of(await get(client, task.id)) == "Once upon a time."


async def test_late_reader_gets_earlier_text(tmp_path: Path) -> None:
    """Earlier text comes from the stream checkpoints, before the answer is committed."""
    gates = Gate(), Gate(), Gate()
    pieces = ["Once ", gates[0], "upon ", gates[1], "a ", gates[2], "time."]
    runtime = Runtime([Agent("assistant", model=halting(pieces))], store=tmp_path / "a.db")
    async with serve(runtime) as url, connect(url) as client, connect(url, streaming=False) as sender:
        task = await send(sender, "Tell", return_immediately=True)
        await gates[0].reached.wait()
        gates[0].opened.set()
        await gates[1].reached.wait()
        watching = aiter(client.subscribe(pb.SubscribeToTaskRequest(id=task.id)))
        seen = [await anext(watching)]
        gates[1].opened.set()
        await gates[2].reached.wait()
        gates[2].opened.set()
        seen += [event async for event in watching]
        assert text_of(seen) == "Once upon a time."


@asynccontextmanager
async def two_servers(model: Model, path: Path) -> AsyncIterator[tuple[Client, Client]]:
    """Two servers on one store: a client of the first without streams, and a client of the second."""
    runtimes = [Runtime([Agent("assistant", model=model)], store=path) for _ in range(2)]
    async with (
        serve(runtimes[0]) as url,
        serve(runtimes[1]) as other,
        connect(url, streaming=False) as sender,
        connect(other) as client,
    ):
        yield sender, client


async def test_stream_of_another_process_is_shown(tmp_path: Path) -> None:
    gate = Gate()
    model = halting(["Once ", "upon ", gate, "a time."])
    async with two_servers(model, tmp_path / "a.db") as (sender, client):
        task = await send(sender, "Tell", return_immediately=True)
        await gate.reached.wait()
        assert state(await get(client, task.id)) == "working"
        watching = aiter(client.subscribe(pb.SubscribeToTaskRequest(id=task.id)))
        seen = [await anext(watching)]
        gate.opened.set()
        seen += [event async for event in watching]
        assert (states(seen)[-1], text_of(seen)) == ("completed", "Once upon a time.")


async def test_task_of_another_process_is_cancelled(tmp_path: Path) -> None:
    gate = Gate()
    model = halting(["Once ", gate])
    async with two_servers(model, tmp_path / "a.db") as (sender, client):
        task = await send(sender, "Tell", return_immediately=True)
        await gate.reached.wait()
        assert state(await client.cancel_task(pb.CancelTaskRequest(id=task.id))) == "canceled"
        assert state(await get(sender, task.id)) == "canceled"


# -- a busy context ------------------------------------------------------------------------------------------


async def test_message_to_busy_context_is_queued(tmp_path: Path) -> None:
    gate = Gate()
    model = ScriptedModel([call("slow"), "First.", "Second."])
    runtime = Runtime([Agent("assistant", model=model, tools=[gate.slow])], store=tmp_path / "a.db")
    async with serve(runtime) as url, connect(url, streaming=False) as client, connect(url) as watcher:
        first = await send(client, said("a", context_id="c"), return_immediately=True)
        await gate.reached.wait()
        message = said("b", context_id="c")
        second = await send(client, message, return_immediately=True)
        assert (state(second), second.id != first.id) == ("submitted", True)
        assert (await send(client, message, return_immediately=True)).id == second.id
        assert state(await get(client, second.id)) == "submitted"
        watching = aiter(watcher.subscribe(pb.SubscribeToTaskRequest(id=second.id)))
        seen = [await anext(watching)]
        gate.opened.set()
        seen += [event async for event in watching]
        assert (states(seen), text_of(seen)) == (["submitted", "working", "completed"], "Second.")
        assert answer_of(await get(client, first.id)) == "First."
        assert answer_of(await get(client, second.id)) == "Second."
    assert len(model.requests) == 3


@pytest.mark.parametrize("by", ["its caller", "the runtime"])
async def test_queued_task_is_cancelled(tmp_path: Path, by: str) -> None:
    gate = Gate()
    model = ScriptedModel([call("slow"), "First."])
    runtime = Runtime([Agent("assistant", model=model, tools=[gate.slow])], store=tmp_path / "a.db")
    async with serve(runtime) as url, connect(url, streaming=False) as client, connect(url) as watcher:
        await send(client, said("a", context_id="c"), return_immediately=True)
        await gate.reached.wait()
        message = said("b", context_id="c")
        second = await send(client, message, return_immediately=True)
        waiting = asyncio.create_task(send(client, message))
        watching = aiter(watcher.subscribe(pb.SubscribeToTaskRequest(id=second.id)))
        seen = [await anext(watching)]
        if by == "its caller":
            assert state(await client.cancel_task(pb.CancelTaskRequest(id=second.id))) == "canceled"
        else:
            assert await runtime.cancel(second.id)
        async with asyncio.timeout(120):
            seen += [event async for event in watching]
            assert (states(seen), state(await waiting)) == (["submitted", "canceled"], "canceled")
        gate.opened.set()
        for task in (await get(client, second.id), await send(client, message)):
            assert (state(task), task.id) == ("canceled", second.id)
        with pytest.raises(TaskNotCancelableError, match="is over"):
            await client.cancel_task(pb.CancelTaskRequest(id=second.id))
        with pytest.raises(UnsupportedOperationError, match="is over"):
            await send(client, said("yes", task_id=second.id))
    assert len(model.requests) == 2


async def test_send_waits_for_queued_task() -> None:
    gate = Gate()
    model = ScriptedModel([call("slow"), "First.", "Second."])
    runtime = Runtime([Agent("assistant", model=model, tools=[gate.slow])])
    async with serve(runtime) as url, connect(url, streaming=False) as client, connect(url) as watcher:
        await send(client, said("a", context_id="c"), return_immediately=True)
        await gate.reached.wait()
        events = aiter(watcher.send_message(pb.SendMessageRequest(message=said("b", context_id="c"))))
        seen = [await anext(events)]
        gate.opened.set()
        seen += [event async for event in events]
        assert (states(seen), text_of(seen)) == (["submitted", "working", "completed"], "Second.")
        assert await until(lambda: len(model.requests) == 3)
