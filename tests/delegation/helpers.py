"""Helpers of the delegation tests: agents that delegate, and views of the results."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from loop.helpers import assert_settled, reply_text
from wakeful import Agent, Delegate, FunctionModel, Message, ModelRequest, Runtime, ScriptedModel, call
from wakeful.types.content import ToolReply
from wakeful.types.runs import RunRecord, TaskRecord

__all__ = ["ask", "assert_quiet", "busy_until", "data_of", "lead", "run_of", "tasks_of", "told", "until_true"]


def ask(child: str = "worker", **arguments: Any) -> Any:
    """A model's call of a delegate."""
    return call(f"agent_run_{child}", **({"prompt": "do it"} | arguments))


def lead(model: Any, *delegates: Delegate | str, **options: Any) -> Agent:
    """An agent that may leave work to `worker` in the background."""
    return Agent("lead", model=model, delegates=delegates or [Delegate("worker", background=True)], **options)


def busy_until(asked: ScriptedModel, requests: int, answer: Any) -> FunctionModel:
    """A model that answers once another one has had so many requests: its run is still open by then."""

    async def wait(request: ModelRequest) -> Any:
        async with asyncio.timeout(60):
            while len(asked.requests) < requests:
                await asyncio.sleep(0.001)
        return answer

    return FunctionModel(wait)


async def tasks_of(runtime: Runtime, thread: str = "t") -> Sequence[TaskRecord]:
    """The tasks of a thread, those that are over too."""
    return await runtime.store.tasks(thread)


async def run_of(runtime: Runtime, agent: str) -> RunRecord:
    """The one run of an agent."""
    (run,) = await runtime.runs.list(agent=agent)
    return run


async def told(runtime: Runtime, thread: str = "t") -> list[str]:
    """The background task events that the model was shown."""
    messages: list[Message] = await runtime.threads.messages(thread)
    return [m.text for m in messages if "<background-task-event" in m.text]


def data_of(reply: ToolReply) -> Any:
    """The data of a tool result, or its text as JSON."""
    return msgspec.json.decode(reply_text(reply) if reply.data is msgspec.UNSET else reply.data)


async def until_true(condition: Any) -> None:
    """Wait until an async condition holds."""
    async with asyncio.timeout(120):
        while not await condition():
            await asyncio.sleep(0.002)


async def assert_quiet(runtime: Runtime) -> None:
    """Fail unless nothing is left of what ran: no open run, ticket, task, dispatch, item or asyncio task."""
    store = runtime.store
    runs = await store.runs(limit=1000)
    for thread in {run.thread_id for run in runs}:
        await assert_settled(runtime, thread)
        assert [task.id for task in await store.tasks(thread, status="running")] == []
    assert await store.due() == []
