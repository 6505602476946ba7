"""Memories over HTTP, by the client and the command line: the same verbs, each for its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from wakeful import Agent, Principal, Runtime, ScriptedModel, SqliteStore
from wakeful.cli.app import app as command
from wakeful.client import Client
from wakeful.errors import NotAllowed, UnknownMemory, UsageError
from wakeful.identity import ApiKeys, create_key
from wakeful.server import app


def runtime_on(store: SqliteStore | None = None) -> Runtime:
    return Runtime([Agent("a", model=ScriptedModel(["Hi."]))], store=store)


@asynccontextmanager
async def served(runtime: Runtime) -> AsyncIterator[httpx.AsyncBaseTransport]:
    application = app(runtime, auth=ApiKeys(runtime.store))
    async with application.router.lifespan_context(application):
        yield httpx.ASGITransport(application)


async def client_of(runtime: Runtime, transport: httpx.AsyncBaseTransport, name: str, *scopes: str) -> Client:
    _, text = await create_key(runtime.store, name, principal=name, scopes=scopes or ("user",))
    return Client("http://localhost", text, transport=transport)


async def test_person_reaches_memories_about_itself() -> None:
    runtime = runtime_on()
    async with served(runtime) as transport, await client_of(runtime, transport, "ann") as ann:
        diet = await ann.memories.put("user", "ann", "diet", "vegan")
        await ann.memories.put("user", "ann", "home", "lives in Oslo")
        assert [note.key for note in await ann.memories.list("user", "ann")] == ["home", "diet"]
        assert len(await ann.memories.list("user", "ann", limit=1)) == 1
        assert [note.key for note in await ann.memories.search("user", "ann", "oslo?")] == ["home"]
        edited = await ann.memories.edit(diet.id, "eats fish")
        assert (edited.text, edited.edited_by) == ("eats fish", "ann")
        assert await ann.memories.get(diet.id) == edited == await runtime.memories.get(diet.id)
        assert await ann.memories.delete(diet.id)
        assert not await ann.memories.delete(diet.id)
        assert await ann.memories.erase("user", "ann") == 1


async def test_memories_of_others_are_out_of_reach() -> None:
    runtime = runtime_on()
    note = await runtime.memories.put("user", "ann", "diet", "vegan")
    await runtime.memories.put("agent", "a", "way", "SI units")
    async with served(runtime) as transport, await client_of(runtime, transport, "bob") as bob:
        for scope, owner in (("user", "ann"), ("agent", "a"), ("thread", "nowhere")):
            with pytest.raises((UnknownMemory, NotAllowed)):
                await bob.memories.list(scope, owner)  # type: ignore[arg-type]
        with pytest.raises(UnknownMemory, match="for this caller"):
            await bob.memories.get(note.id)
        with pytest.raises(UnknownMemory, match="for this caller"):
            await bob.memories.edit(note.id, "mine now")
        with pytest.raises((UnknownMemory, NotAllowed)):
            await bob.memories.erase("user", "ann")
        assert not await bob.memories.delete(note.id)
        assert (await runtime.memories.get(note.id)).text == "vegan"


async def test_thread_memories_belong_to_the_owner_of_the_thread() -> None:
    runtime = runtime_on()
    await runtime.run("a", "Hi.", thread="anns", principal=Principal("ann"))
    await runtime.memories.put("thread", "anns", "plan", "Rome")
    async with served(runtime) as transport:
        async with await client_of(runtime, transport, "ann") as ann:
            assert [note.text for note in await ann.memories.list("thread", "anns")] == ["Rome"]
        async with await client_of(runtime, transport, "bob") as bob:
            with pytest.raises((UnknownMemory, NotAllowed)):
                await bob.memories.list("thread", "anns")


async def test_reader_may_not_write_and_operator_may_all() -> None:
    runtime = runtime_on()
    async with served(runtime) as transport:
        async with await client_of(runtime, transport, "ann", "memories:read") as ann:
            assert await ann.memories.list("user", "ann") == []
            with pytest.raises(NotAllowed):
                await ann.memories.put("user", "ann", "diet", "vegan")
        async with await client_of(runtime, transport, "op", "operator") as operator:
            await operator.memories.put("agent", "a", "way", "SI units")
            assert len(await operator.memories.list("agent", "a")) == 1


async def test_bad_requests_are_refused() -> None:
    runtime = runtime_on()
    async with served(runtime) as transport, await client_of(runtime, transport, "ann") as ann:
        with pytest.raises(UsageError):
            await ann.memories.put("user", "ann", "k" * 129, "x")
        with pytest.raises(UsageError):
            await ann.memories.put("team", "ann", "k", "x")  # type: ignore[arg-type]
        with pytest.raises(UsageError):
            await ann.memories.search("user", "ann", "x", limit=0)


def test_command_line_lists_edits_and_erases(tmp_path: Path) -> None:
    store = str(tmp_path / "t.db")

    async def make() -> None:
        async with runtime_on(SqliteStore(store)) as runtime:
            await runtime.run("a", "Hi.")

    asyncio.run(make())

    def wakeful(*arguments: str) -> str:
        done = CliRunner().invoke(command, ["memories", *arguments])
        assert done.exit_code == 0, done.output
        return done.output

    note = json.loads(wakeful("put", store, "user", "ann", "diet", "vegan", "--json"))
    assert "vegan" in wakeful("list", store, "user", "ann")
    assert "diet" in wakeful("search", store, "user", "ann", "VEGAN")
    wakeful("edit", store, note["id"], "eats fish")
    assert json.loads(wakeful("list", store, "user", "ann", "--json"))["text"] == "eats fish"
    wakeful("delete", store, note["id"])
    wakeful("put", store, "user", "ann", "home", "Oslo")
    assert "erased 1 memories" in wakeful("erase", store, "user", "ann")
    assert "no memories" in wakeful("list", store, "user", "ann")
