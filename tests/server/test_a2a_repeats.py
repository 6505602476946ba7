"""A repeated message id: the same message gets its task, another message is refused."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import InvalidParamsError
from a2a_serving import BINDINGS, answer_of, connect, said, send, serve, state, tickets_in

from wakeful import Agent, FunctionModel, Runtime, call, tool

pytestmark = pytest.mark.parametrize("binding", BINDINGS)

REUSED = "messageId 'same' was used before, for a message of other content or in another context"


@tool(approval=True)
def refund(order: str) -> str:
    return f"refunded {order}"


def shop(store: Any = None) -> Runtime:
    """An agent that refunds if told to, and else repeats what it is told."""

    def model(request: Any) -> Any:
        newest = request.messages[-1]
        return call("refund", order="7") if newest.text == "Refund" else f"Heard {newest.text}"

    return Runtime([Agent("shop", model=FunctionModel(model), tools=[refund])], store=store)


async def refused(client: Any, message: pb.Message) -> None:
    with pytest.raises(InvalidParamsError, match=REUSED):
        await send(client, message)


async def test_message_id_is_refused_for_other_content(binding: str) -> None:
    runtime = shop()
    async with serve(runtime) as url, connect(url, binding, streaming=False) as client:
        first = await send(client, said("One", message_id="same", context_id="c"))
        await refused(client, said("Two", message_id="same", context_id="c"))
        await refused(client, said("One", data={"more": 1}, message_id="same", context_id="c"))
        again = await send(client, said("One", message_id="same", context_id="c"))
        assert (again.id, answer_of(again)) == (first.id, "Heard One")
        assert [run.id for run in await runtime.runs.list()] == [first.id]


async def test_message_id_is_refused_in_another_context(binding: str) -> None:
    runtime = shop()
    async with serve(runtime) as url, connect(url, binding, streaming=False) as client:
        first = await send(client, said("One", message_id="same", context_id="c"))
        await refused(client, said("One", message_id="same", context_id="d"))
        await refused(client, said("One", message_id="same"))
        assert [run.id for run in await runtime.runs.list()] == [first.id]
        assert await runtime.store.load("d") is None


async def test_repeated_message_may_name_context_it_was_given(binding: str) -> None:
    async with serve(shop()) as url, connect(url, binding, streaming=False) as client:
        first = await send(client, said("One", message_id="same"))
        assert (await send(client, said("One", message_id="same"))).id == first.id
        assert (await send(client, said("One", message_id="same", context_id=first.context_id))).id == first.id
        await refused(client, said("One", message_id="same", context_id="d"))


async def test_answer_id_is_refused_for_other_answers(binding: str, tmp_path: Path) -> None:
    runtime = shop(tmp_path / "app.db")
    async with serve(runtime) as url, connect(url, binding, streaming=False) as client:
        first, second = await send(client, "Refund"), await send(client, "Refund")
        yes = said("approve", message_id="same", task_id=first.id)
        done = await send(client, yes)
        assert (done.id, state(done)) == (first.id, "completed")
        await refused(client, said("deny", message_id="same", task_id=first.id))
        await refused(client, said("approve", message_id="same", task_id=second.id))
        await refused(client, said("approve", message_id="same"))
        await refused(client, said("approve", message_id="same", context_id=first.context_id))
        assert (await send(client, yes)).id == first.id
        assert len(await runtime.tickets.decisions(tickets_in(first)[0]["ticketId"])) == 1
        (still,) = [ticket for ticket in await runtime.tickets.list() if ticket.status == "open"]
        assert still.run_id == second.id


async def test_message_id_of_task_is_refused_as_answer(binding: str) -> None:
    runtime = shop()
    async with serve(runtime) as url, connect(url, binding, streaming=False) as client:
        task = await send(client, said("Refund", message_id="same"))
        await refused(client, said("approve", message_id="same", task_id=task.id))
        assert len(await runtime.tickets.list()) == 1


async def test_concurrent_messages_of_one_id_start_one_task(binding: str, tmp_path: Path) -> None:
    runtime = shop(tmp_path / "app.db")
    async with serve(runtime) as url, connect(url, binding, streaming=False) as client:
        texts = [f"Number {number}" for number in range(6)]
        sent = [send(client, said(text, message_id="same", context_id="c")) for text in texts]
        results = await asyncio.gather(*sent, return_exceptions=True)
        (task,) = [result for result in results if isinstance(result, pb.Task)]
        assert {type(result) for result in results if result is not task} == {InvalidParamsError}
        (accepted,) = [text for text, result in zip(texts, results, strict=True) if result is task]
        assert answer_of(task) == f"Heard {accepted}"
        assert [run.id for run in await runtime.runs.list()] == [task.id]
