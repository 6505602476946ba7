"""Claims that a process made and doesn't know of, because a connection broke: they are given back at once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from loop.helpers import Hold, Scripted, holding, soon
from postgres_server import fresh_store, server
from stores.lossy_proxy import proxied
from stores.postgres_suite import schema_of
from wakeful import Agent, Runtime, SqliteStore, call
from wakeful.dispatch._claimed import go_on
from wakeful.errors import StoreUnavailable
from wakeful.stores import Claims, Fence
from wakeful.stores._postgres import PostgresStore


class Lossy(SqliteStore):
    """A store that once claims and doesn't say so."""

    lost: list[str] | None = None

    async def claim(self, worker_id: str, **options: Any) -> Claims:
        claims = await super().claim(worker_id, **options)
        if self.lost is None and claims.claimed:
            self.lost = [one.thread_id for one in claims.claimed]
            raise StoreUnavailable("the connection broke before the answer came")
        return claims


async def test_what_was_claimed_by_a_call_that_failed_is_given_back_and_run(
    tmp_path: Path, scripted: Scripted
) -> None:
    agent = Agent("agent", model=scripted("one", "two"))
    front = Runtime([agent], store=tmp_path / "a.db", execute=False)
    handles = [await front.start("agent", "go", thread=thread) for thread in ("t1", "t2")]
    store = Lossy(tmp_path / "a.db")
    async with Runtime([agent], store=store) as worker:
        assert {(await soon(handle.result())).text for handle in handles} == {"one", "two"}
        assert sorted(store.lost or []) == ["t1", "t2"]
        # They were given back, not taken over: no attempt was lost, and no lease had to end.
        assert worker.metrics.counts["wakeful_takeovers_total", ""] == 0
        assert worker.metrics.counts["wakeful_claims_total", ""] == 2
    await front.close()


async def test_what_is_being_run_is_no_stray(tmp_path: Path, scripted: Scripted) -> None:
    hold = Hold()
    agent = Agent("agent", model=scripted(call("wait"), "done"), tools=[holding(hold)])
    async with Runtime([agent], store=tmp_path / "a.db") as runtime:
        task = asyncio.create_task(runtime.run("agent", "go", thread="t"))
        await soon(hold.reached.wait())
        before = await runtime.store.thread("t")
        await runtime._shared.keeper._give_back_strays()
        assert await runtime.store.thread("t") == before
        assert before is not None
        assert before.owner == runtime.worker_id
        hold.released.set()
        assert (await soon(task)).text == "done"


async def test_a_claim_whose_answer_was_lost_on_its_way_from_postgres_is_given_back(scripted: Scripted) -> None:
    agent = Agent("zealous", model=scripted("done"))
    async with fresh_store() as near, proxied(server().port) as proxy:
        front = Runtime([agent], store=near, execute=False)
        handle = await front.start("zealous", "go", thread="t")
        far = PostgresStore(f"postgres://postgres@127.0.0.1:{proxy.port}/postgres", schema=schema_of(near))
        proxy.lose("reply", lambda data: b"zealous" in data)  # Whoever claims says for which agents.
        async with Runtime([agent], store=far) as worker:
            assert (await soon(handle.result())).text == "done"
            assert proxy.lost.is_set()
            assert worker.metrics.counts["wakeful_takeovers_total", ""] == 0
        thread = await near.thread("t")
        assert thread is not None
        assert thread.epoch == 2  # The claim that was lost, and the one that counted.
        await front.close()


async def test_what_is_claimed_while_the_run_before_still_leaves_is_given_back(
    tmp_path: Path, scripted: Scripted
) -> None:
    """Between the commit that gives a thread back and the end of the run that made it, it can be claimed."""
    agent = Agent("agent", model=scripted("done"))
    runtime = Runtime([agent], store=tmp_path / "a.db")
    front = Runtime([agent], store=tmp_path / "a.db", execute=False)
    await front.send("t", "go", agent="agent")
    dispatch, store = runtime._dispatch, runtime.store
    (claimed,) = (await store.claim(runtime.worker_id, agents=["agent"], limit=1)).claimed
    leaving: Any = SimpleNamespace(draft=SimpleNamespace(fence=Fence(claimed.epoch - 1, runtime.worker_id)))
    dispatch.active["t"] = leaving
    await go_on(dispatch, claimed, Fence(claimed.epoch, runtime.worker_id))
    del dispatch.active["t"]
    thread = await store.thread("t")
    assert thread is not None
    assert not thread.claimed
    async with runtime:
        while [m.text for m in await runtime.messages("t")] != ["go", "done"]:
            await asyncio.sleep(0.01)
    await front.close()


async def test_a_claim_that_is_given_twice_leaves_the_run_that_has_it_alone(
    tmp_path: Path, scripted: Scripted
) -> None:
    """A store that crashed may have forgotten a claim, and give it again while its run begins."""
    hold = Hold()
    agent = Agent("agent", model=scripted(call("wait"), "done"), tools=[holding(hold)])
    runtime = Runtime([agent], store=tmp_path / "a.db")
    front = Runtime([agent], store=tmp_path / "a.db", execute=False)
    await front.send("t", "go", agent="agent")
    dispatch = runtime._dispatch
    (claimed,) = (await runtime.store.claim(runtime.worker_id, agents=["agent"], limit=1)).claimed
    fence = Fence(claimed.epoch, runtime.worker_id)
    first = asyncio.create_task(go_on(dispatch, claimed, fence))
    await soon(hold.reached.wait())
    await go_on(dispatch, claimed, fence)
    hold.released.set()
    await soon(first)
    assert [m.text for m in await runtime.messages("t") if m.role != "tool"][-1] == "done"
    await front.close()
    await runtime.close()
