"""`wakeful workers` and what `wakeful worker` refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_process import Process
from msgspec.structs import replace
from typer.testing import Result

from wakeful import SqliteStore
from wakeful.cli.workers import _state_of
from wakeful.stores import MAX_ATTEMPTS, Commit, Dispatch, Fence
from wakeful.types.inbox import InputItem
from wakeful.types.messages import user_message

Wakeful = Callable[..., Result]


@pytest.fixture
def store(tmp_path: Path) -> str:
    """A store with a dispatch that waits and one that is a dead letter."""
    path = tmp_path / "app.db"

    async def fill() -> None:
        made = SqliteStore(path)
        for thread_id, agent in (("bad", "clerk"), ("good", "other")):
            arrived = InputItem(id=thread_id, thread_id=thread_id, message=user_message("go"), agent_id=agent)
            await made.commit(Commit(thread_id, inbox=[arrived]))
        for _ in range(MAX_ATTEMPTS):
            (one,) = (await made.claim("w1", agents=["clerk"], limit=9, now=10**15)).claimed
            await made.commit(Commit("bad", fence=Fence(one.epoch, "w1"), release=True, failed="no luck"))
        await made.close()

    asyncio.run(fill())
    return str(path)


def test_what_waits_and_what_is_dead_is_listed(wakeful: Wakeful, store: str) -> None:
    listed = wakeful("workers", "dispatches", store).stdout
    header, *rows = [line.split(maxsplit=5) for line in listed.splitlines()]
    assert header == ["THREAD", "RUN", "AGENT", "PRIORITY", "ATTEMPTS", "STATE"]
    assert ["bad", "-", "clerk", "128", "5", "dead: no luck"] in rows
    assert [row[:5] for row in rows if row[5].startswith("due ")] == [["good", "-", "other", "128", "0"]]
    assert "good" not in wakeful("workers", "dispatches", store, "--dead").stdout


def test_attempts_whose_worker_ended_with_them_are_told_as_such() -> None:
    one = Dispatch(thread_id="t", agent_id="clerk", attempts=1)
    assert _state_of(one) == "due 1970-01-01 00:00:00Z: its worker ended during the run"
    assert _state_of(replace(one, attempts=2, error="no luck")).endswith("Z: no luck")


def test_dead_letter_is_put_back_once(wakeful: Wakeful, store: str) -> None:
    assert "thread 'bad' is due again" in wakeful("workers", "revive", store, "bad").stdout
    again = wakeful("workers", "revive", store, "bad")
    assert (again.exit_code, "isn't dead" in again.stderr) == (2, True)
    assert wakeful("workers", "dispatches", store, "--dead").stdout == "no dispatches\n"


@pytest.mark.parametrize("words", [["worker"], ["serve", "--port", "0"]], ids=["worker", "serve"])
def test_process_says_what_it_recovered(start: Callable[..., Process], tmp_path: Path, words: list[str]) -> None:
    path = tmp_path / "app.db"

    async def claim_and_end() -> None:
        made = SqliteStore(path)
        arrived = InputItem(id="i", thread_id="t", message=user_message("go"), agent_id="ended")
        await made.commit(Commit("t", inbox=[arrived]))
        lease = made.keep("ended-worker")
        assert (await made.claim("ended-worker", agents=["ended"], limit=1)).claimed
        await lease.close()
        await made.close()

    asyncio.run(claim_and_end())
    verb, *options = words
    process = start(verb, "sample:runtime", *options, "--store", str(path))
    process.read_until("recovered 1 thread of workers that ended: 't' (ended)\n")
