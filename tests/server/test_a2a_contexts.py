"""Owners of contexts, with two servers on one store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from a2a.client import Client
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import InvalidParamsError
from a2a_serving import connect, said, send, serve, state

from postgres_server import fresh_database
from wakeful import Agent, FunctionModel, Retention, Runtime
from wakeful.identity import Tokens

AUTH = Tokens(tokens={"alices-token": "alice", "bobs-token": "bob"})
ALICE = {"Authorization": "Bearer alices-token"}
BOB = {"Authorization": "Bearer bobs-token"}
CONTEXTS = 12


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "app.db") if request.param == "sqlite" else fresh_database()


def heard(request: Any) -> str:
    return ", ".join([message.text for message in request.messages if message.role == "user"])


def assistant(store: str, **options: Any) -> Runtime:
    """An agent that answers with all input of the conversation."""
    return Runtime([Agent("assistant", model=FunctionModel(heard))], store=store, **options)


@asynccontextmanager
async def two_servers(store: str, **options: Any) -> AsyncIterator[tuple[Client, Client]]:
    """Alice at one server, Bob at the other."""
    async with AsyncExitStack() as open_:
        urls = [await open_.enter_async_context(serve(assistant(store, **options), auth=AUTH)) for _ in range(2)]
        clients = [
            await open_.enter_async_context(connect(url, streaming=False, headers=headers))
            for url, headers in zip(urls, (ALICE, BOB), strict=True)
        ]
        yield clients[0], clients[1]


async def owners(clients: Sequence[Client], **configuration: Any) -> list[tuple[pb.Task, int]]:
    """Let both callers enter many new contexts at once; returns each context's only task and its owner."""

    async def race(context_id: str) -> tuple[pb.Task, int]:
        both = [send(client, said("Hi", context_id=context_id), **configuration) for client in clients]
        results = await asyncio.gather(*both, return_exceptions=True)
        assert sorted([type(result).__name__ for result in results]) == ["InvalidParamsError", "Task"]
        return next((task, n) for n, task in enumerate(results) if isinstance(task, pb.Task))

    return await asyncio.gather(*[race(f"context-{n}") for n in range(CONTEXTS)])


async def test_new_context_admits_one_of_two_concurrent_callers(store: str) -> None:
    async with two_servers(store) as clients:
        for task, owner in await owners(clients):
            assert state(task) == "completed"
            assert [message.parts[0].text for message in task.history] == ["Hi", "Hi"]
            # The context stays the first caller's and continues its conversation.
            again = await send(clients[owner], said("Again", context_id=task.context_id))
            assert again.history[-1].parts[0].text == "Hi, Again"
            with pytest.raises(InvalidParamsError, match="can't be used here"):
                await send(clients[1 - owner], said("Hi", context_id=task.context_id))


async def test_context_belongs_to_sender_when_message_is_queued(store: str) -> None:
    async with two_servers(store, execute=False) as clients:
        found = await owners(clients, return_immediately=True)
        assert {state(task) for task, _ in found} == {"submitted"}
        # Also a context that the server named.
        task = await send(clients[0], "Hi", return_immediately=True)
        with pytest.raises(InvalidParamsError, match="can't be used here"):
            await send(clients[1], said("Hi", context_id=task.context_id))


async def test_context_belongs_to_creator_when_runs_are_pruned(store: str) -> None:
    async with two_servers(store) as clients, assistant(store) as runtime:
        named = await send(clients[0], said("Hi", context_id="named"))
        ours = await send(clients[0], "Hi")
        await runtime.threads.prune(Retention(runs=0))
        assert await runtime.runs.list() == []
        for task in (named, ours):
            with pytest.raises(InvalidParamsError, match="can't be used here"):
                await send(clients[1], said("Hi", context_id=task.context_id))
            again = await send(clients[0], said("Again", context_id=task.context_id))
            assert again.history[-1].parts[0].text == "Hi, Again"


async def test_invalid_message_does_not_claim_context(store: str) -> None:
    async with two_servers(store) as (alice, bob), assistant(store) as runtime:
        for wrong in (pb.Message(parts=[pb.Part()]), pb.Message(parts=[pb.Part(text="x" * 2**20)])):
            wrong.message_id, wrong.context_id = "m", "context"
            with pytest.raises(InvalidParamsError):
                await send(alice, wrong)
        with pytest.raises(InvalidParamsError, match="128 bytes"):
            await send(alice, said("Hi", context_id="c" * 129))
        assert await runtime.threads.list() == []
        assert state(await send(bob, said("Hi", context_id="context"))) == "completed"
