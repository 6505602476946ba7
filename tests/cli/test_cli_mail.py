"""`wakeful mail`: dead letters and pending input, from a shell."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import Result

from wakeful import Agent, MailPolicy, Runtime, ScriptedModel, call
from wakeful.messaging import DeliveryPolicy
from wakeful.stores import Commit
from wakeful.types import OutboundMessage
from wakeful.types.inbox import InputItem
from wakeful.types.messages import user_message

Wakeful = Callable[..., Result]


class Closed:
    async def deliver(self, message: OutboundMessage) -> None:
        raise ConnectionError("closed on Sundays")


async def _fill(path: Path) -> None:
    to = {"relation": "agent", "thread_id": "mail:ann"}
    turns = [call("send_message", to=to, message=f"letter {n}") for n in range(2)]
    agent = Agent("a", model=ScriptedModel([*turns, "sent"]), mail=MailPolicy(to=("outside:*",)))
    async with Runtime(
        [agent], store=path, transports={"mail": Closed()}, delivery=DeliveryPolicy(attempts=1)
    ) as runtime:
        await runtime.run("a", "go", thread="t")
        async with asyncio.timeout(120):
            while len(await runtime.mail.dead_letters()) < 2:
                await asyncio.sleep(0.005)
        items = [
            InputItem(id=f"i{n}", thread_id="q", message=user_message(f"input {n}"), agent_id="a")
            for n in range(3)
        ]
    runtime = Runtime([agent], store=path)
    await runtime.store.commit(Commit("q", inbox=items))
    await runtime.close()


@pytest.fixture
def place(wakeful: Wakeful, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    asyncio.run(_fill(tmp_path / "app.db"))
    return "app.db"


def listed(wakeful: Wakeful, *command: str) -> list[Any]:
    result = wakeful("mail", *command, "--json")
    assert result.exit_code == 0
    return [msgspec.json.decode(line) for line in result.stdout.splitlines()]


def test_dead_letters(wakeful: Wakeful, place: str) -> None:
    first, second = listed(wakeful, "dead", "list", place)
    assert (first["text"], first["to"], first["attempts"]) == ("letter 0", "mail:ann", 1)
    shown = wakeful("mail", "dead", "list", place)
    assert "closed on Sundays" in shown.stdout
    assert len(listed(wakeful, "dead", "list", place, "--limit", "1")) == 1
    assert listed(wakeful, "dead", "list", place, "--thread", "other") == []
    shown = wakeful("mail", "dead", "show", place, first["id"])
    assert "letter 0" in shown.stdout
    assert "given up after 1 attempts" in shown.stdout
    assert wakeful("mail", "dead", "replay", place, first["id"]).exit_code == 0
    assert wakeful("mail", "dead", "drop", place, second["id"]).exit_code == 0
    assert listed(wakeful, "dead", "list", place) == []
    for verb in ("show", "replay", "drop"):
        refused = wakeful("mail", "dead", verb, place, second["id"])
        assert refused.exit_code == 2
        assert "was given up" in refused.output


def test_pending_input(wakeful: Wakeful, place: str) -> None:
    assert [one["id"] for one in listed(wakeful, "pending", "list", place, "q")] == ["i0", "i1", "i2"]
    assert "input 1" in wakeful("mail", "pending", "list", place, "q").stdout
    assert wakeful("mail", "pending", "edit", place, "i0", "changed", "--revision", "0").exit_code == 0
    assert wakeful("mail", "pending", "edit", place, "i0", "again", "--revision", "0").exit_code == 1
    assert wakeful("mail", "pending", "move", place, "i2", "--before", "i1").exit_code == 0
    assert wakeful("mail", "pending", "retract", place, "i1").exit_code == 0
    found = [(one["id"], one["text"]) for one in listed(wakeful, "pending", "list", place, "q")]
    assert found == [("i0", "changed"), ("i2", "input 2")]
    refused = wakeful("mail", "pending", "retract", place, "i1")
    assert refused.exit_code == 2
    assert "it was retracted" in refused.output
