"""The commands for stores, on the URL of a server: the same words, with the rights of a key."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import Result

from sockets import serve_in_thread
from wakeful import Agent, FunctionModel, ModelRequest, Principal, Runtime, Turn, call, tool
from wakeful.identity import ApiKeys, create_key
from wakeful.server import app

Wakeful = Callable[..., Result]


@tool(approval=True)
async def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


def answer(request: ModelRequest) -> Turn | str:
    return call("pay", amount=5) if request.messages[-1].text == "pay" else "Hello."


def served(path: Path, key: bytes | None = None) -> Any:
    runtime = Runtime([Agent("clerk", model=FunctionModel(answer), tools=[pay])], store=path / "app.db")
    return app(runtime, auth=ApiKeys(runtime.store), export_key=key)


async def fill(path: Path) -> dict[str, str]:
    """A finished run and a waiting one of ann, and a key for each of three callers."""
    async with Runtime(
        [Agent("clerk", model=FunctionModel(answer), tools=[pay])], store=path / "app.db"
    ) as runtime:
        ann = Principal("ann")
        await runtime.run("clerk", "hi", thread="done", principal=ann)
        await runtime.run("clerk", "pay", thread="open", principal=ann)
        await runtime.schedules.put("daily", "clerk", "hi", cron="@daily")
        scopes = {"ann": ["user"], "ben": ["user"], "root": ["admin"]}
        return {
            name: (await create_key(runtime.store, name, principal=name, scopes=each))[1]
            for name, each in scopes.items()
        }


@pytest.fixture
def office(tmp_path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """A server's URL, and the keys of its callers."""
    keys = asyncio.run(fill(tmp_path))
    with serve_in_thread(lambda: served(tmp_path)) as url:
        yield url, keys


def values(result: Result) -> list[Any]:
    assert result.exit_code == 0, result.output
    return [msgspec.json.decode(line) for line in result.stdout.splitlines()]


def test_lists_are_those_of_the_key(
    wakeful: Wakeful, office: tuple[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, keys = office
    counts: dict[str, tuple[int, int, int]] = {}
    for name in ("ann", "ben"):
        monkeypatch.setenv("WAKEFUL_KEY", keys[name])
        found = [wakeful(noun, "list", url, "--json") for noun in ("runs", "threads", "tickets")]
        counts[name] = tuple([len(values(each)) for each in found])  # type: ignore[assignment]
    assert counts == {
        "ann": (2, 2, 1),
        "ben": (0, 0, 1),
    }  # An approval that is assigned to nobody is for anybody but its requester.
    monkeypatch.delenv("WAKEFUL_KEY")
    refused = wakeful("runs", "list", url)
    assert refused.exit_code != 0
    assert "credential" in refused.output
    assert "the key in WAKEFUL_KEY" in refused.output


def test_ticket_is_answered_by_its_prefix(
    wakeful: Wakeful, office: tuple[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, keys = office
    monkeypatch.setenv("WAKEFUL_KEY", keys["ann"])
    (ticket,) = values(wakeful("tickets", "list", url, "--json"))
    refused = wakeful("tickets", "approve", url, ticket["id"])
    assert refused.exit_code != 0
    assert "requester" in refused.output
    monkeypatch.setenv("WAKEFUL_KEY", keys["root"])
    assert "leave --as out" in wakeful("tickets", "approve", url, ticket["id"], "--as", "ann").output
    assert wakeful("tickets", "approve", url, ticket["id"][:-4]).exit_code == 0
    (decision,) = values(wakeful("tickets", "show", url, ticket["id"], "--json"))[0]["decisions"]
    assert (decision["principal_id"], decision["auth"][:4]) == ("root", "key:")


def test_runs_threads_and_schedules_are_controlled(
    wakeful: Wakeful, office: tuple[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    url, keys = office
    monkeypatch.setenv("WAKEFUL_KEY", keys["ann"])
    found = values(wakeful("runs", "list", url, "--json"))
    waiting = next(run["identity"]["run_id"] for run in found if run["status"] == "waiting")
    (shown,) = values(wakeful("runs", "show", url, waiting[:-3], "--json"))
    assert [each["name"] for each in shown["calls"]] == ["pay"]
    assert values(wakeful("runs", "cancel", url, waiting, "--json"))[0]["cancelled"]
    assert values(wakeful("threads", "show", url, "done", "--json"))[0]["messages"][-1]["role"] == "assistant"
    file = tmp_path / "done.jsonl"
    assert wakeful("threads", "export", url, "done", str(file)).exit_code == 0
    assert wakeful("schedules", "list", url).exit_code != 0  # The role of a user has no right to.
    monkeypatch.setenv("WAKEFUL_KEY", keys["root"])
    (copy,) = values(wakeful("threads", "import", url, str(file), "--as", "copy", "--json"))
    assert copy == {"thread": "copy"}
    assert [one["name"] for one in values(wakeful("schedules", "list", url, "--json"))] == ["daily"]
    assert wakeful("schedules", "delete", url, "daily").exit_code == 0
    assert len(values(wakeful("usage", url, "--json"))) == 1


def test_keys_are_created_listed_and_revoked(
    wakeful: Wakeful, office: tuple[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, keys = office
    monkeypatch.setenv("WAKEFUL_KEY", keys["root"])
    (made,) = values(wakeful("keys", "create", url, "laptop", "--principal", "ann", "--expires", "1d", "--json"))
    listed = values(wakeful("keys", "list", url, "--json"))
    assert [each["state"] for each in listed if each["id"] == made["id"]] == ["valid"]
    monkeypatch.setenv("WAKEFUL_KEY", made["key"])
    assert len(values(wakeful("runs", "list", url, "--json"))) == 2
    monkeypatch.setenv("WAKEFUL_KEY", keys["root"])
    assert values(wakeful("keys", "revoke", url, made["id"], "--json"))[0]["revoked_at"]
    assert [each["action"] for each in values(wakeful("audit", url, "--json"))][:2] == [
        "keys.revoke",
        "keys.create",
    ]


@pytest.mark.parametrize("command", [("store", "info"), ("top",), ("runs", "list", "--tenant", "a")])
def test_server_is_refused_where_a_store_is_needed(wakeful: Wakeful, command: tuple[str, ...]) -> None:
    refused = wakeful(*command[:2], "http://127.0.0.1:1", *command[2:])
    assert refused.exit_code != 0
    assert "store itself" in refused.output or "leave --tenant out" in refused.output


def test_server_signs_exports_and_takes_its_own(
    wakeful: Wakeful, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    keys = asyncio.run(fill(tmp_path))
    monkeypatch.setenv("WAKEFUL_KEY", keys["root"])
    signed, plain = tmp_path / "signed.jsonl", tmp_path / "plain.jsonl"
    assert wakeful("threads", "export", str(tmp_path / "app.db"), "done", str(plain)).exit_code == 0
    with serve_in_thread(lambda: served(tmp_path, b"secret of exports")) as url:
        assert wakeful("threads", "export", url, "done", str(signed)).exit_code == 0
        refused = wakeful("threads", "import", url, str(plain), "--as", "copy")
        assert "signature of the export is missing" in refused.output
        assert wakeful("threads", "import", url, str(signed), "--as", "copy").exit_code == 0
    monkeypatch.setenv("EXPORT_KEY", "secret of exports")
    arguments = (
        "threads",
        "import",
        str(tmp_path / "app.db"),
        str(signed),
        "--key-env",
        "EXPORT_KEY",
        "--as",
        "two",
    )
    assert wakeful(*arguments).exit_code == 0
