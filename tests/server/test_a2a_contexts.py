"""Whose a context is, with two servers on one store."""

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
from wakeful.server import Auth

AUTH = Auth(tokens={"alices-token": "alice", "bobs-token": "bob"})
ALICE = {"Authorization": "Bearer alices-token"}
BOB = {"Authorization": "Bearer bobs-token"}
CONTEXTS = 12


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "app.db") if request.param == "sqlite" else fresh_database()


def heard(request: Any) -> str:
    return ", ".join([message.text for message in request.messages if message.role == "user"])


def assistant(store: str, **options: Any) -> Runtime:
    """An agent that tells all that was said to it in the conversation."""
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
    """For each of many new contexts, the one task that both callers at once came to, and whose it is."""

    async def race(context_id: str) -> tuple[pb.Task, int]:
        both = [send(client, said("Hi", context_id=context_id), **configuration) for client in clients]
        results = await asyncio.gather(*both, return_exceptions=True)
        assert sorted([type(result).__name__ for result in results]) == ["InvalidParamsError", "Task"]
        return next((task, n) for n, task in enumerate(results) if isinstance(task, pb.Task))

    return await asyncio.gather(*[race(f"context-{n}") for n in range(CONTEXTS)])


async def test_of_two_who_come_at_once_to_a_new_context_one_gets_in(store: str) -> None:
    async with two_servers(store) as clients:
        for task, owner in await owners(clients):
            assert state(task) == "completed"
            assert [message.parts[0].text for message in task.history] == ["Hi", "Hi"]
            # It stays the first one's, and goes on with what that one said.
            again = await send(clients[owner], said("Again", context_id=task.context_id))
            assert again.history[-1].parts[0].text == "Hi, Again"
            with pytest.raises(InvalidParamsError, match="can't be used here"):
                await send(clients[1 - owner], said("Hi", context_id=task.context_id))


async def test_a_context_whose_first_message_waits_for_a_worker_is_its_senders(store: str) -> None:
    async with two_servers(store, execute=False) as clients:
        found = await owners(clients, return_immediately=True)
        assert {state(task) for task, _ in found} == {"submitted"}
        # Also one that the server named itself.
        task = await send(clients[0], "Hi", return_immediately=True)
        with pytest.raises(InvalidParamsError, match="can't be used here"):
            await send(clients[1], said("Hi", context_id=task.context_id))


async def test_a_context_is_its_makers_when_its_runs_are_pruned(store: str) -> None:
    async with two_servers(store) as clients, assistant(store) as runtime:
        named = await send(clients[0], said("Hi", context_id="named"))
        ours = await send(clients[0], "Hi")
        await runtime.prune(Retention(runs=0))
        assert await runtime.list_runs() == []
        for task in (named, ours):
            with pytest.raises(InvalidParamsError, match="can't be used here"):
                await send(clients[1], said("Hi", context_id=task.context_id))
            again = await send(clients[0], said("Again", context_id=task.context_id))
            assert again.history[-1].parts[0].text == "Hi, Again"


async def test_a_message_that_cannot_be_taken_in_makes_no_context_its_senders(store: str) -> None:
    async with two_servers(store) as (alice, bob), assistant(store) as runtime:
        for wrong in (pb.Message(parts=[pb.Part()]), pb.Message(parts=[pb.Part(text="x" * 2**20)])):
            wrong.message_id, wrong.context_id = "m", "context"
            with pytest.raises(InvalidParamsError):
                await send(alice, wrong)
        with pytest.raises(InvalidParamsError, match="128 bytes"):
            await send(alice, said("Hi", context_id="c" * 129))
        assert await runtime.threads() == []
        assert state(await send(bob, said("Hi", context_id="context"))) == "completed"
