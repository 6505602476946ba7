"""The store in memory, as applications meet it. What every store promises is in tests/conformance."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from wakeful import Agent, MemoryStore, PostgresStore, Runtime, SqliteStore, call, tool
from wakeful.errors import ConfigurationError
from wakeful.stores import Commit


@tool(approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


async def test_runtimes_do_not_share_a_store_by_default(scripted: Any) -> None:
    async with Runtime([Agent("a", model=scripted("hi"))]) as one, Runtime([Agent("a", model=scripted())]) as two:
        await one.run("a", "hello", thread="t1")
        assert len(await one.threads.messages("t1")) == 2
        assert await two.threads.messages("t1") == []


@pytest.mark.parametrize("tenant", ["", 5, None])
def test_invalid_tenant_name_is_refused_by_every_store(tmp_path: Path, tenant: Any) -> None:
    for make in (
        lambda: MemoryStore(tenant=tenant),
        lambda: MemoryStore().tenant(tenant),
        lambda: SqliteStore(tmp_path / "app.db", tenant=tenant),
        lambda: PostgresStore("postgres://127.0.0.1:1/x", tenant=tenant),
    ):
        with pytest.raises(ConfigurationError, match="a tenant is named by a text"):
            make()
    assert list(tmp_path.iterdir()) == []


async def test_store_outlives_its_runtime(scripted: Any) -> None:
    store = MemoryStore()
    async with Runtime([Agent("a", model=scripted("one"))], store=store) as runtime:
        await runtime.run("a", "first", thread="t1")
    async with Runtime([Agent("a", model=scripted("two"))], store=store) as runtime:
        await runtime.run("a", "second", thread="t1")
        assert [m.text for m in await runtime.threads.messages("t1")] == ["first", "one", "second", "two"]


async def test_waiting_run_resumes_in_another_runtime(scripted: Any) -> None:
    store = MemoryStore()
    async with Runtime([Agent("a", model=scripted(call("pay", amount=5)), tools=[pay])], store=store) as runtime:
        waiting = await runtime.run("a", "pay", thread="t1")
    async with Runtime([Agent("a", model=scripted("thanks"), tools=[pay])], store=store) as runtime:
        result = await runtime.resume(waiting.run_id, waiting.tickets[0].approve())
        replies = [m.reply.content[0].text for m in await runtime.threads.messages("t1") if m.reply is not None]
    assert (result.text, replies) == ("thanks", ["paid 5"])


async def test_thread_of_dead_owner_is_taken_over(scripted: Any) -> None:
    store = MemoryStore()
    async with Runtime(
        [Agent("a", model=scripted(call("pay", amount=5), "thanks"), tools=[pay])], store=store
    ) as runtime:
        waiting = await runtime.run("a", "pay", thread="t1")
        view = await store.load("t1")
        assert view is not None
        await store.commit(Commit(thread_id="t1", version=view.thread.version, claim="another worker"))
        answer = asyncio.create_task(runtime.resume(waiting.run_id, waiting.tickets[0].approve()))
        while not (await runtime.store.load("t1")).inbox:
            await asyncio.sleep(0)
        assert not answer.done()
        await store.keep("another worker").close()
        assert (await answer).text == "thanks"
