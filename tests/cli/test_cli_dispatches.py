"""`wakeful dispatches` and what `wakeful worker` refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from typer.testing import Result

from wakeful import SqliteStore
from wakeful.cli._dispatches import _line
from wakeful.stores import MAX_ATTEMPTS, Commit, Dispatch, Fence, InboxItem
from wakeful.types.messages import user_message

Wakeful = Callable[..., Result]


@pytest.fixture
def store(tmp_path: Path) -> str:
    """A store with a dispatch that waits and one that is a dead letter."""
    path = tmp_path / "app.db"

    async def fill() -> None:
        made = SqliteStore(path)
        for thread_id, agent in (("bad", "clerk"), ("good", "other")):
            arrived = InboxItem(
                id=thread_id, thread_id=thread_id, kind="input", message=user_message("go"), agent_id=agent
            )
            await made.commit(Commit(thread_id, inbox=[arrived]))
        for _ in range(MAX_ATTEMPTS):
            (one,) = (await made.claim("w1", agents=["clerk"], limit=9, now=10**15)).claimed
            await made.commit(Commit("bad", fence=Fence(one.epoch, "w1"), release=True, failed="no luck"))
        await made.close()

    asyncio.run(fill())
    return str(path)


def test_what_waits_and_what_is_dead_is_listed(wakeful: Wakeful, store: str) -> None:
    listed = wakeful("dispatches", "list", store).stdout
    assert "thread 'bad' of agent 'clerk', priority 128: dead after 5 attempts: no luck" in listed
    assert "thread 'good' of agent 'other', priority 128: due " in listed
    assert "good" not in wakeful("dispatches", "list", store, "--dead").stdout


def test_attempts_whose_worker_ended_with_them_are_told_as_such() -> None:
    one = Dispatch(thread_id="t", agent_id="clerk", attempts=1)
    assert _line(one).endswith("due 1970-01-01T00:00:00+00:00, after 1 attempt: its worker ended with it")
    assert _line(replace(one, attempts=2, error="no luck")).endswith("after 2 attempts: no luck")


def test_a_dead_letter_is_put_back_once(wakeful: Wakeful, store: str) -> None:
    assert "thread 'bad' is due again" in wakeful("dispatches", "retry", store, "bad").stdout
    again = wakeful("dispatches", "retry", store, "bad")
    assert (again.exit_code, "no dead letter" in again.stderr) == (2, True)
    assert wakeful("dispatches", "list", store, "--dead").stdout == "nothing waits\n"
