"""`wakeful tickets --as`: a principal with its rights, quorums, what was seen, and comments."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import Result

from wakeful import Principal, Ticket

Wakeful = Callable[..., Result]

APP = """
from wakeful import Agent, Approval, FunctionModel, Runtime, call, tool

@tool(approval=Approval("group:finance", quorum=2))
async def pay(amount: int) -> str:
    "Pay an amount."
    return f"paid {amount}"

def answer(request):
    last = request.messages[-1]
    return last.reply.content[0].text if last.reply else call("pay", amount=5)

def make():
    return Runtime([Agent("bank", model=FunctionModel(answer), tools=[pay])], store="bank.db")
"""


@pytest.fixture
def ticket(wakeful: Wakeful, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Ticket]:
    """The ticket of a run that eve began, and the application."""
    from wakeful.cli.target import load_runtime

    monkeypatch.chdir(tmp_path)
    target = f"bank_{tmp_path.name.replace('-', '_')}:make"
    Path(target.replace(":make", ".py")).write_text(APP)

    async def begin() -> Ticket:
        runtime = load_runtime(target)
        result = await runtime.run("bank", "go", thread="t", principal=Principal("eve", groups=("finance",)))
        await runtime.close()
        return result.tickets[0]

    return target, asyncio.run(begin())


def shown(wakeful: Wakeful, ticket: Ticket) -> Any:
    return msgspec.json.decode(wakeful("tickets", "show", "bank.db", ticket.id, "--json").stdout)


def test_principal_without_right_is_refused(wakeful: Wakeful, ticket: tuple[str, Ticket]) -> None:
    target, asked = ticket
    for place in ("bank.db", target):
        for who, why in (("eve,group:finance", "it is the requester"), ("ann", "the ticket is for group:finance")):
            for verb in ("approve", "deny"):
                result = wakeful("tickets", verb, place, asked.id, "--as", who)
                assert (result.exit_code, why in result.stderr) == (2, True)
            assert wakeful("tickets", "reassign", place, asked.id, "ann", "--as", who).exit_code == 2
    assert shown(wakeful, asked)["decisions"] == []


def test_quorum_counts_different_principals(wakeful: Wakeful, ticket: tuple[str, Ticket]) -> None:
    target, asked = ticket
    for place in ("bank.db", "bank.db", target):
        result = wakeful("tickets", "approve", place, asked.id, "--as", "ann,group:finance", "--json")
        assert result.exit_code == (3 if place == target else 0)
    page = wakeful("tickets", "show", "bank.db", asked.id).stdout
    assert "1 of 2 approvals (ann); 1 missing" in page
    result = wakeful("tickets", "approve", target, asked.id, "--as", "bob,group:finance")
    assert (result.exit_code, "paid 5" in result.stdout) == (0, True)
    decisions = shown(wakeful, asked)["decisions"]
    assert [(one["principal_id"], one["auth"]) for one in decisions] == [("ann", "shell"), ("bob", "shell")]


def test_edit_makes_what_was_seen_stale(wakeful: Wakeful, ticket: tuple[str, Ticket]) -> None:
    target, asked = ticket
    seen = shown(wakeful, asked)["ticket"]["digest"]
    assert seen == asked.digest
    edit = ("tickets", "edit", target, asked.id, '{"amount": 1}', "--as", "ann,group:finance", "--seen", seen)
    assert wakeful(*edit).exit_code == 3
    result = wakeful("tickets", "approve", target, asked.id, "--as", "bob,group:finance", "--seen", seen)
    assert (result.exit_code, "isn't what the author of the decision saw" in result.stderr) == (2, True)
    result = wakeful("tickets", "approve", target, asked.id, "--as", "bob,group:finance")
    assert "paid 1" in result.stdout


def test_user_of_shell_overrides_visibly(wakeful: Wakeful, ticket: tuple[str, Ticket]) -> None:
    target, asked = ticket
    result = wakeful("tickets", "approve", target, asked.id)
    assert (result.exit_code, "paid 5" in result.stdout) == (0, True)
    (decision,) = shown(wakeful, asked)["decisions"]
    assert decision["override"] is True
    assert " (override)" in wakeful("tickets", "show", "bank.db", asked.id).stdout


def test_comment_is_shown(wakeful: Wakeful, ticket: tuple[str, Ticket]) -> None:
    _, asked = ticket
    result = wakeful("tickets", "comment", "bank.db", asked.id, "Who is that?", "--as", "dee")
    assert (result.exit_code, "is kept" in result.stdout) == (0, True)
    assert " comment by dee: Who is that?" in wakeful("tickets", "show", "bank.db", asked.id).stdout


@pytest.mark.parametrize("who", ["ann,finance", "ann,team:finance", "ann,group:"])
def test_malformed_principal_is_refused(wakeful: Wakeful, ticket: tuple[str, Ticket], who: str) -> None:
    result = wakeful("tickets", "approve", "bank.db", ticket[1].id, "--as", who)
    assert (result.exit_code, "group:<name> and role:<name> after commas" in result.stderr) == (2, True)
