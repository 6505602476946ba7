"""Claims that a process made and doesn't know of, because a connection broke, or that it couldn't give back: they
are given back as soon as the store answers. The lease of a process that is alive would keep them for ever."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from loop.helpers import Hold, Scripted, holding, soon, until
from postgres_server import fresh_store, server
from stores.lossy_proxy import proxied
from stores.postgres_suite import schema_of
from wakeful import Agent, FunctionModel, Runtime, SqliteStore, ToolContext, call, tool
from wakeful.dispatch import host
from wakeful.dispatch.claims import run_claimed
from wakeful.errors import StoreError, StoreFull, StoreUnavailable
from wakeful.stores import Claims, Commit, Committed, Fence, ThreadRecord, ThreadView
from wakeful.stores.postgres import PostgresStore


class Lossy(SqliteStore):
    """A store that once claims and doesn't say so."""

    lost: list[str] | None = None

    async def claim(self, worker_id: str, **options: Any) -> Claims:
        claims = await super().claim(worker_id, **options)
        if self.lost is None and claims.claimed:
            self.lost = [one.thread_id for one in claims.claimed]
            raise StoreUnavailable("the connection broke before the answer came")
        return claims


async def test_stray_claim_of_failed_call_is_released_and_run(tmp_path: Path, scripted: Scripted) -> None:
    agent = Agent("agent", model=scripted("one", "two"))
    front = Runtime([agent], store=tmp_path / "a.db", execute=False)
    handles = [await front.start("agent", "go", thread=thread) for thread in ("t1", "t2")]
    store = Lossy(tmp_path / "a.db")
    async with Runtime([agent], store=store) as worker:
        assert {(await soon(handle.result())).text for handle in handles} == {"one", "two"}
        assert sorted(store.lost or []) == ["t1", "t2"]
        # They were given back, not taken over: no attempt was lost, and no lease had to end.
        assert worker.workers.metrics.counts["wakeful_takeovers_total", ""] == 0
        assert worker.workers.metrics.counts["wakeful_claims_total", ""] == 2
    await front.close()


class Opening(Lossy):
    """A lossy store that takes its time for the first commit of a run."""

    hold: Hold | None = None
    looked = 0

    async def commit(self, commit: Commit) -> Committed:
        if commit.claim is not None and (hold := self.hold) is not None:
            self.hold = None
            await hold.here()
        return await super().commit(commit)

    async def thread(self, thread_id: str) -> ThreadRecord | None:
        found = await super().thread(thread_id)
        self.looked += self.lost is not None
        return found


async def test_stray_claim_is_released_for_new_run(tmp_path: Path, scripted: Scripted) -> None:
    hold, store = Hold(), Opening(tmp_path / "a.db")
    agent = Agent("agent", model=scripted("one", "two"))
    front = Runtime([agent], store=tmp_path / "a.db", execute=False)
    async with Runtime([agent], store=store) as runtime:
        store.hold = hold
        running = asyncio.create_task(runtime.run("agent", "go", thread="t"))
        await soon(hold.reached.wait())
        await front.send("t", "and go", agent="agent")
        await until(lambda: store.looked)
        hold.released.set()
        assert (await soon(running)).status == "done"
        assert store.lost == ["t"]
    await front.close()


async def test_active_run_is_no_stray_claim(tmp_path: Path, scripted: Scripted) -> None:
    hold = Hold()
    agent = Agent("agent", model=scripted(call("wait"), "done"), tools=[holding(hold)])
    async with Runtime([agent], store=tmp_path / "a.db") as runtime:
        task = asyncio.create_task(runtime.run("agent", "go", thread="t"))
        await soon(hold.reached.wait())
        before = await runtime.store.thread("t")
        await runtime._scope.shared.worker._release_strays()
        assert await runtime.store.thread("t") == before
        assert before is not None
        assert before.owner == runtime.workers.id
        hold.released.set()
        assert (await soon(task)).text == "done"


async def test_stray_claim_is_released_when_reply_is_lost(scripted: Scripted) -> None:
    agent = Agent("zealous", model=scripted("done"))
    async with fresh_store() as near, proxied(server().port) as proxy:
        front = Runtime([agent], store=near, execute=False)
        handle = await front.start("zealous", "go", thread="t")
        far = PostgresStore(f"postgres://postgres@127.0.0.1:{proxy.port}/postgres", schema=schema_of(near))
        worker = Runtime([agent], store=far)
        owner = worker.workers.id.encode()
        # The statement that takes dispatches has the worker and an array of thread numbers, but no agents.
        bigints = b"\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x14"
        proxy.lose("reply", lambda data: owner in data and bigints in data and b"zealous" not in data)
        async with worker:
            assert (await soon(handle.result())).text == "done"
            assert proxy.lost.is_set()
            assert worker.workers.metrics.counts["wakeful_takeovers_total", ""] == 0
        thread = await near.thread("t")
        assert thread is not None
        assert thread.epoch == 2  # The claim that was lost, and the one that counted.
        await front.close()


async def test_claim_during_release_of_last_run_is_released(tmp_path: Path, scripted: Scripted) -> None:
    """Between the commit that gives a thread back and the end of the run that made it, it can be claimed."""
    agent = Agent("agent", model=scripted("done"))
    runtime = Runtime([agent], store=tmp_path / "a.db")
    front = Runtime([agent], store=tmp_path / "a.db", execute=False)
    await front.send("t", "go", agent="agent")
    dispatch, store = runtime._scope.dispatch, runtime.store
    (claimed,) = (await store.claim(runtime.workers.id, agents=["agent"], limit=1)).claimed
    leaving: Any = SimpleNamespace(draft=SimpleNamespace(fence=Fence(claimed.epoch - 1, runtime.workers.id)))
    dispatch.active["t"] = leaving
    await run_claimed(dispatch, claimed, Fence(claimed.epoch, runtime.workers.id))
    del dispatch.active["t"]
    thread = await store.thread("t")
    assert thread is not None
    assert not thread.claimed
    async with runtime:
        while [m.text for m in await runtime.threads.messages("t")] != ["go", "done"]:
            await asyncio.sleep(0.01)
    await front.close()


async def test_duplicate_claim_leaves_running_owner_alone(tmp_path: Path, scripted: Scripted) -> None:
    """A store that crashed may have forgotten a claim, and give it again while its run begins."""
    hold = Hold()
    agent = Agent("agent", model=scripted(call("wait"), "done"), tools=[holding(hold)])
    runtime = Runtime([agent], store=tmp_path / "a.db")
    front = Runtime([agent], store=tmp_path / "a.db", execute=False)
    await front.send("t", "go", agent="agent")
    dispatch = runtime._scope.dispatch
    (claimed,) = (await runtime.store.claim(runtime.workers.id, agents=["agent"], limit=1)).claimed
    fence = Fence(claimed.epoch, runtime.workers.id)
    first = asyncio.create_task(run_claimed(dispatch, claimed, fence))
    await soon(hold.reached.wait())
    await run_claimed(dispatch, claimed, fence)
    hold.released.set()
    await soon(first)
    assert [m.text for m in await runtime.threads.messages("t") if m.role != "tool"][-1] == "done"
    await front.close()
    await runtime.close()


BROKEN = "the connection broke"


class Ailing(SqliteStore):
    """A store that doesn't answer so many times: when something was claimed to be read, or is to be given back."""

    losses = 0

    async def claim(self, worker_id: str, **options: Any) -> Claims:
        claims = await super().claim(worker_id, **options)
        if any(one.agent_id == "napping" for one in claims.claimed) and not self.losses:
            self.losses = 3
        return claims

    def _lose(self) -> None:
        if self.losses > 1:
            self.losses -= 1
            raise StoreUnavailable(BROKEN)

    async def load(self, thread_id: str) -> ThreadView | None:
        self._lose()
        return await super().load(thread_id)

    async def commit(self, commit: Commit) -> Committed:
        if commit.release and commit.failed:
            self._lose()
        return await super().commit(commit)


@tool(resumable=True)
async def nap(ctx: ToolContext) -> str:
    """Sleep."""
    await ctx.sleep(0.5)  # Long enough that it isn't over before its run waits for it.
    return "slept"


async def test_wait_ends_when_stray_claim_cannot_be_released(
    tmp_path: Path,
) -> None:
    model = FunctionModel(lambda request: call("nap") if len(request.messages) == 1 else "woke")
    store = Ailing(tmp_path / "a.db")
    async with Runtime([Agent("napping", model=model, tools=[nap])], store=store) as runtime:
        await runtime.start("napping", "go", thread="t")
        await soon(_done(runtime))  # Who waits for the run itself would look after its thread, too.
        assert store.losses == 1
        assert runtime.workers.metrics.counts["wakeful_takeovers_total", ""] == 0


async def _done(runtime: Runtime) -> None:
    while [run.status for run in await runtime.runs.list(thread="t")] != ["done"]:
        await asyncio.sleep(0.01)


class Deaf(Lossy):
    """A store that once claims and doesn't say so, nor then what was claimed."""

    asked = 0

    async def claims(self, worker_id: str) -> list[tuple[str, str, int]]:
        if self.lost is not None:
            self.asked += 1
            if self.asked == 1:
                raise StoreUnavailable(BROKEN)
        return await super().claims(worker_id)


async def test_stray_lookup_is_retried(tmp_path: Path, scripted: Scripted) -> None:
    agent = Agent("agent", model=scripted("done"))
    front = Runtime([agent], store=tmp_path / "a.db", execute=False)
    handle = await front.start("agent", "go", thread="t")
    store = Deaf(tmp_path / "a.db")
    async with Runtime([agent], store=store):
        assert (await soon(handle.result())).text == "done"
    assert store.lost == ["t"]
    assert store.asked > 1
    await front.close()


class Silent(SqliteStore):
    """A store that makes a thread's first commit and doesn't say so."""

    silent = "t"

    async def commit(self, commit: Commit) -> Committed:
        committed = await super().commit(commit)
        if commit.thread_id == self.silent and commit.claim is not None:
            self.silent = ""
            raise StoreUnavailable(BROKEN)
        return committed


async def test_run_continues_when_first_commit_reply_is_lost(tmp_path: Path, scripted: Scripted) -> None:
    agent = Agent("agent", model=scripted("done"))
    async with Runtime([agent], store=Silent(tmp_path / "a.db")) as runtime:
        with pytest.raises(StoreUnavailable):
            await runtime.run("agent", "go", thread="t")
        (run,) = await runtime.runs.list(thread="t")
        assert (await soon(runtime.wait(run.id))).text == "done"


async def test_non_serving_runtime_releases_its_strays(tmp_path: Path, scripted: Scripted) -> None:
    hold = Hold()
    busy = Agent("busy", model=scripted(call("wait"), "done"), tools=[holding(hold)])
    agent = Agent("agent", model=scripted("done"))
    bare = Runtime([agent, busy], store=Silent(tmp_path / "a.db"))
    with pytest.raises(StoreUnavailable):
        await bare.run("agent", "go", thread="t")
    running = asyncio.create_task(bare.run("busy", "go", thread="other"))
    await soon(hold.reached.wait())
    async with Runtime([agent], store=tmp_path / "a.db") as worker:
        (run,) = await worker.runs.list(thread="t")
        assert (await soon(worker.wait(run.id))).text == "done"
    hold.released.set()
    await soon(running)
    await bare.close()


class Stuck(SqliteStore):
    """A store that for a while has no room for what a run writes, nor for giving its thread back."""

    losses = 0
    error: type[StoreError] = StoreUnavailable

    async def commit(self, commit: Commit) -> Committed:
        if self.losses and commit.fence is not None:
            self.losses -= 1
            raise self.error(BROKEN)
        return await super().commit(commit)


@pytest.mark.parametrize("error", [StoreUnavailable, StoreFull, StoreError])
async def test_stray_release_is_retried_until_it_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[StoreError]
) -> None:
    monkeypatch.setattr(host, "RELEASE_BACKOFF", (0, 0))
    store, hold = Stuck(tmp_path / "a.db"), Hold()
    store.error = error
    model = FunctionModel(lambda request: call("wait") if len(request.messages) == 1 else "done")
    agent = Agent("agent", model=model, tools=[holding(hold, effect="pure")])
    async with Runtime([agent], store=store) as runtime:
        handle = await runtime.start("agent", "go", thread="t")
        await soon(hold.reached.wait())
        store.losses = 3  # The call's result, and both tries.
        hold.released.set()
        assert (await soon(handle.result())).text == "done"
        assert store.losses == 0
