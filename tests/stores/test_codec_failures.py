"""A codec that fails: the writer gets its error, nothing is half-written, and the store stays usable."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from conformance.store_suite import Writer, everything, item, message, record, rows_left
from loop.helpers import soon
from postgres_server import fresh_store
from wakeful import Agent, Runtime, ScriptedModel, SqliteStore, call, tool
from wakeful.errors import CodecFailed, CorruptRow
from wakeful.stores import Commit, StateWrite, Store


class Keyed:
    """Turns bytes round, unless its key is away, or they speak of a secret."""

    away = False

    def encode(self, data: bytes) -> Any:
        if self.away or b"secret" in data:
            raise PermissionError("the key is away")
        return data[::-1]

    def decode(self, data: bytes) -> Any:
        if self.away:
            raise PermissionError("the key is away")
        return data[::-1]


Opens = Callable[[Keyed], AbstractAsyncContextManager[Store]]


@pytest.fixture(params=["sqlite", "postgres"])
def opens(request: pytest.FixtureRequest, tmp_path: Path) -> Opens:
    """Opens a fresh store with a codec."""

    @asynccontextmanager
    async def sqlite(codec: Keyed) -> AsyncIterator[Store]:
        store = SqliteStore(tmp_path / "store.db", codec=codec)
        yield store
        await store.close()

    @asynccontextmanager
    async def postgres(codec: Keyed) -> AsyncIterator[Store]:
        async with fresh_store(codec=codec) as store:
            yield store

    return sqlite if request.param == "sqlite" else postgres


WORDS = r"codec couldn't encode a payload \(PermissionError: the key is away\); nothing was written.*try again"


async def test_unencodable_commit_is_refused_whole(opens: Opens) -> None:
    codec = Keyed()
    async with opens(codec) as store:
        writer = Writer(store)
        await writer.begin(log=[message("one")], inbox=[item("a")])
        before = await everything(store)
        for changes in (
            {"log": [message("two"), message("a secret")], "runs": [record(steps=1)]},
            {"log": [message("two")], "state": [StateWrite("a", b"1"), StateWrite("b", b'"a secret"')]},
            {"log": [message("two")], "inbox": [item("b"), item("c", "t2", message=message("a secret"))]},
        ):
            with pytest.raises(CodecFailed, match=WORDS):
                await writer._commit(fence=writer.fence, **changes)
            assert await everything(store) == before
            assert await store.load("t2") is None
        await writer.release(runs=[record(status="done")])
        assert [m.text for m in await store.messages("t1")] == ["one"]


async def test_unencodable_commit_of_batch_fails_alone(opens: Opens) -> None:
    async with opens(Keyed()) as store:
        writers = [Writer(store, f"t{n}") for n in range(8)]
        await asyncio.gather(*[writer.begin(f"r{n}") for n, writer in enumerate(writers)])
        for times in range(6):
            found = await soon(
                asyncio.gather(
                    *[
                        writer.write(
                            message("a secret" if n == 3 and times else "fine"),
                            runs=[record(f"r{n}", f"t{n}", steps=times)],
                            identity=record(f"r{n}", f"t{n}").identity,
                        )
                        for n, writer in enumerate(writers)
                    ],
                    return_exceptions=True,
                )
            )
            failed = [n for n, one in enumerate(found) if isinstance(one, BaseException)]
            assert failed == ([3] if times else [])
            assert all(isinstance(found[n], CodecFailed) for n in failed)
        assert len(await store.messages("t3")) == 1
        assert len(await store.messages("t4")) == 6


async def test_unencodable_following_commit_is_not_half_written(opens: Opens) -> None:
    async with opens(Keyed()) as store:
        then = Commit(
            "t2",
            identity=record("r2", "t2").identity,
            version=0,
            claim="w",
            runs=[record("r2", "t2")],
            state=[StateWrite("a", b'"a secret"')],
        )
        try:
            done = await store.commit(Commit("t1", inbox=[item("a")], then=[then]))
        except CodecFailed:
            assert await rows_left(store) == {}
        else:
            assert done.then == (None,)
            assert [i.id for i in (await Writer(store).view()).inbox] == ["a"]
        assert await store.load("t2") is None
        assert await store.run("r2") is None


@pytest.mark.parametrize("given", [None, "text"])
async def test_codec_must_return_bytes(opens: Opens, given: Any) -> None:
    codec = Keyed()
    async with opens(codec) as store:
        await Writer(store).write(message())
        codec.decode = lambda data: given
        with pytest.raises(CorruptRow, match=r"message 1 can't be read \(the codec refuses it: TypeError"):
            await store.messages("t1")
        codec.encode = lambda data: given
        with pytest.raises(CodecFailed, match="TypeError"):
            await Writer(store, "t2").write(message())
        assert await store.load("t2") is None


async def test_run_continues_when_codec_key_is_back(opens: Opens) -> None:
    codec, calls = Keyed(), list[int]()

    @tool(effect="pure")
    async def lose() -> str:
        """Lose the key, the first time."""
        calls.append(1)
        codec.away = len(calls) == 1
        return "lost"

    async with opens(codec) as store:
        model = ScriptedModel([call("lose"), "done"])
        runtime = Runtime([Agent("agent", model=model, tools=[lose])], store=store)
        with pytest.raises(CodecFailed, match=WORDS):
            await soon(runtime.run("agent", "go", thread="t"))
        with pytest.raises(CorruptRow, match="give the codec the key that it was written with, restore it"):
            await store.messages("t")
        with pytest.raises(CodecFailed, match=WORDS):
            await soon(runtime.run("agent", "go", thread="new"))
        codec.away = False
        (run,) = await runtime.runs.list()
        assert (run.thread_id, run.status) == ("t", "running")
        async with runtime:
            assert (await soon(runtime.wait(run.id))).text == "done"
