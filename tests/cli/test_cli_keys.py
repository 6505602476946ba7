"""`wakeful keys` and `wakeful audit` on a store's file."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import Result

from wakeful import SqliteStore
from wakeful.errors import NotAuthenticated
from wakeful.identity import ApiKeys


@pytest.fixture
def store(tmp_path: Path) -> str:
    path = tmp_path / "app.db"
    asyncio.run(_make(path))
    return str(path)


async def _make(path: Path) -> None:
    store = SqliteStore(path)
    await store.counts()
    await store.close()


async def _caller(path: str, text: str) -> tuple[str | None, frozenset[str]]:
    store = SqliteStore(path)
    try:
        caller = await ApiKeys(store)(SimpleNamespace(headers={"authorization": f"Bearer {text}"}))
        assert caller is not None
        return caller.id, caller.scopes
    finally:
        await store.close()


def test_created_key_is_accepted_until_revoked(wakeful: Callable[..., Result], store: str) -> None:
    made = json.loads(wakeful("keys", "create", store, "laptop", "--principal", "ann", "--json").stdout)
    who, scopes = asyncio.run(_caller(store, made["key"]))
    assert (who, "runs:create" in scopes, "keys:admin" in scopes) == ("ann", True, False)
    lines = wakeful("keys", "list", store, "--json").stdout.splitlines()
    listed = [json.loads(line) for line in lines]
    assert [(key["id"], key["state"], "hash" in key) for key in listed] == [(made["id"], "valid", False)]
    wakeful("keys", "revoke", store, made["id"])
    with pytest.raises(NotAuthenticated, match="revoked"):
        asyncio.run(_caller(store, made["key"]))
    assert "revoked" in wakeful("keys", "list", store).stdout
    entries = [json.loads(line) for line in wakeful("audit", store, "--json").stdout.splitlines()]
    found = [(entry["action"], entry["auth"], entry["resource_id"]) for entry in entries]
    assert found == [("keys.revoke", "shell", made["id"]), ("keys.create", "shell", made["id"])]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--scope", "runs:fly"), "unknown scope"),
        (("--expires", "soon"), "no time"),
        (("--principal", "wakeful"), "principal"),
    ],
)
def test_wrong_key_is_refused_with_the_reason(
    wakeful: Callable[..., Result], store: str, options: tuple[str, ...], why: str
) -> None:
    result = wakeful("keys", "create", store, "k", *options)
    assert (result.exit_code, why in result.stderr) == (2, True)


def test_audit_of_a_new_store_is_empty(wakeful: Callable[..., Result], store: str) -> None:
    assert "no entries" in wakeful("audit", store).stdout + wakeful("audit", store).stderr
