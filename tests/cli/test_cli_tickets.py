"""`wakeful tickets`: what is listed, how answers are given and left, what is refused, and the exit codes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cli_process import command
from typer.testing import Result

Wakeful = Callable[..., Result]

APP = """
from wakeful import Agent, Approval, FunctionModel, Runtime, ToolContext, call, tool

@tool(approval=Approval("ann", groups=("shop",)), deadline=7 * 24 * 3600)
async def refund(order: str, amount: int = 5) -> str:
    "Refund an order."
    return f"refunded {amount} for {order}"

@tool(resumable=True)
async def size(ctx: ToolContext) -> str:
    "Ask for a size."
    return f"size {ctx.ask('Which size?', schema=int) + 1}"

@tool(approval=True, effect="pure")
async def nap(ctx: ToolContext) -> str:
    "Sleep for a day."
    await ctx.sleep(24 * 3600)
    return "slept"

def answer(request):
    last = request.messages[-1]
    if last.role == "tool":
        return f"The tool said: {last.reply.content[0].text}"
    return call(last.text) if last.text in ("size", "nap") else call("refund", order=last.text)

def make():
    return Runtime([Agent("clerk", model=FunctionModel(answer), tools=[refund, size, nap])], store="app.db")
"""

NEWER = APP.replace("order: str, amount: int = 5", "order: str, currency: str").replace(
    "refunded {amount} for {order}", "refunded {order} in {currency}"
)

GATED = """
from wakeful import Agent, FunctionModel, Plugin, Runtime, call, tool

@tool
async def refund(order: str) -> str:
    "Refund an order."
    return f"refunded {order}"

class Limit(Plugin):
    async def gate_tool(self, ctx):
        return ctx.suspend("Up to how much?", schema=int)

def answer(request):
    last = request.messages[-1]
    return last.reply.content[0].text if last.role == "tool" else call("refund", order=last.text)

def make():
    agent = Agent("clerk", model=FunctionModel(answer), tools=[refund], plugins=[Limit()])
    return Runtime([agent], store="gated.db")
"""


@pytest.fixture
def here(wakeful: Wakeful, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current directory with an application, two of whose runs wait."""
    monkeypatch.chdir(tmp_path)
    name = f"tickets_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(APP)
    target = f"{name}:make"
    (tmp_path / "target").write_text(target)
    for prompt in ("A7", "size"):
        assert wakeful("run", target, "clerk", prompt, "--thread", prompt).exit_code == 3
    return tmp_path


@pytest.fixture
def target(here: Path) -> str:
    return (here / "target").read_text()


def tickets(wakeful: Wakeful, place: str, *options: str) -> dict[str, Any]:
    """The tickets at a place, by their tool."""
    result = wakeful("tickets", "list", place, "--json", *options)
    assert result.exit_code == 0
    rows = [msgspec.json.decode(line) for line in result.stdout.splitlines()]
    return {row["tool"]: row for row in rows}


def test_tickets_are_listed_and_shown_from_store_alone(wakeful: Wakeful, here: Path, target: str) -> None:
    found = tickets(wakeful, "app.db")
    assert found.keys() == {"refund", "size"}
    assert tickets(wakeful, target) == found
    shown = wakeful("tickets", "list", "app.db").stdout
    assert found["refund"]["id"][:18] in shown
    assert shown.split()[:3] == ["TICKET", "STATUS", "ASSIGNEE"]
    assert "May refund run?" in shown
    assert "ann" in shown
    page = wakeful("tickets", "show", "app.db", found["refund"]["id"]).stdout
    assert '"order":"A7"' in page
    assert "assigned to ann" in page
    assert "it is decided: deny" in page
    assert "the answer fits" in wakeful("tickets", "show", "app.db", found["size"]["id"]).stdout


def test_ticket_lists_are_filtered(wakeful: Wakeful, here: Path) -> None:
    assert tickets(wakeful, "app.db", "--assignee", "ann").keys() == {"refund"}
    assert tickets(wakeful, "app.db", "--thread", "size").keys() == {"size"}
    assert tickets(wakeful, "app.db", "--status", "answered") == {}
    assert tickets(wakeful, "app.db", "--status", "all").keys() == {"refund", "size"}
    first = tickets(wakeful, "app.db", "--limit", "1")
    assert first.keys() == {"refund"}
    assert tickets(wakeful, "app.db", "--after", first["refund"]["id"]).keys() == {"size"}
    assert tickets(wakeful, "app.db", "--run", first["refund"]["run_id"]).keys() == {"refund"}
    assert tickets(wakeful, "app.db", "--tenant", "acme") == {}


@pytest.mark.parametrize("verb", ["approve", "deny", "reassign"])
def test_system_principal_is_refused(wakeful: Wakeful, target: str, verb: str) -> None:
    ticket = tickets(wakeful, "app.db")["refund"]["id"]
    more = ["bob"] if verb == "reassign" else []
    for place in ("app.db", target):
        for who, why in (("wakeful", "'wakeful' is who decides at a deadline"), (" ", "' ' is nobody")):
            result = wakeful("tickets", verb, place, ticket, *more, "--as", who)
            assert (result.exit_code, f"{why}; say who you are with --as WHO" in result.stderr) == (2, True)
    assert tickets(wakeful, "app.db")["refund"]["assignee"] == "ann"
    assert "left" not in tickets(wakeful, "app.db")["refund"]


def test_answer_with_target_resumes_run(wakeful: Wakeful, target: str) -> None:
    ticket = tickets(wakeful, target)["refund"]["id"]
    result = wakeful("tickets", "approve", target, ticket, "--as", "ann", "--reason", "fine")
    assert result.exit_code == 0
    assert "The tool said: refunded 5 for A7" in result.stdout
    shown = msgspec.json.decode(wakeful("tickets", "show", target, ticket, "--json").stdout)
    assert shown["ticket"]["status"] == "answered"
    (decision,) = shown["decisions"]
    assert (decision["principal_id"], decision["reason"], decision["at"] > 0) == ("ann", "fine", True)
    again = wakeful("tickets", "deny", target, ticket)
    assert again.exit_code == 2
    assert "approved by ann" in again.stderr


def test_sleeping_run_after_answer_shows_wake_time(wakeful: Wakeful, target: str) -> None:
    assert wakeful("run", target, "clerk", "nap", "--thread", "nap").exit_code == 3
    result = wakeful("tickets", "approve", target, tickets(wakeful, target)["nap"]["id"])
    assert result.exit_code == 3
    assert " is waiting: it sleeps until " in result.stdout
    assert f"a worker continues it: wakeful worker {target}" in result.stdout


def test_answer_is_parsed_by_ticket_schema(wakeful: Wakeful, target: str) -> None:
    ticket = tickets(wakeful, target)["size"]["id"]
    for wrong, told in (("large", "takes JSON of type integer"), ("1.5", "$: expected integer, got float")):
        result = wakeful("tickets", "answer", target, ticket, wrong)
        assert result.exit_code == 2
        assert told in result.stderr
    result = wakeful("tickets", "answer", target, ticket, "41", "--json")
    assert result.exit_code == 0
    assert msgspec.json.decode(result.stdout)["text"] == "The tool said: size 42"


def test_gate_question_with_schema_takes_value(
    wakeful: Wakeful, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gated.py").write_text(GATED)
    shown = wakeful("run", "gated:make", "clerk", "A7").stdout
    ticket = tickets(wakeful, "gated.db")["refund"]["id"]
    assert f"wakeful tickets answer gated:make {ticket} VALUE" in shown
    assert wakeful("tickets", "answer", "gated:make", ticket, "many").exit_code == 2
    result = wakeful("tickets", "answer", "gated:make", ticket, "5")
    assert (result.exit_code, "refunded A7" in result.stdout) == (0, True)


def test_answer_takes_arguments_or_result(wakeful: Wakeful, target: str) -> None:
    ticket = tickets(wakeful, target)["refund"]["id"]
    assert "JSON object" in wakeful("tickets", "edit", target, ticket, "many").stderr
    result = wakeful("tickets", "edit", target, ticket, '{"order": "A7", "amount": 1}')
    assert "refunded 1 for A7" in result.stdout
    wakeful("run", target, "clerk", "B2", "--thread", "B2")
    ticket = tickets(wakeful, target)["refund"]["id"]
    assert "The tool said: by hand" in wakeful("tickets", "result", target, ticket, "by hand").stdout


def test_answer_with_store_alone_is_submitted(wakeful: Wakeful, here: Path, target: str) -> None:
    ticket = tickets(wakeful, "app.db")["refund"]["id"]
    result = wakeful("tickets", "deny", "app.db", ticket, "--as", "ann", "--reason", "no")
    assert result.exit_code == 0
    assert "waits for a worker that has refund" in result.stdout
    assert tickets(wakeful, "app.db")["refund"]["left"]["verdict"] == "deny"
    second = wakeful("tickets", "approve", "app.db", ticket)
    assert second.exit_code == 2
    assert "denied by ann" in second.stderr

    async def go_on() -> str:
        from wakeful.cli.target import load_runtime

        async with load_runtime(target) as runtime:
            while await runtime.runs.list(thread="A7", status="waiting"):
                await asyncio.sleep(0.01)
            return (await runtime.wait((await runtime.runs.list(thread="A7"))[0].id)).text

    assert "refund was denied: no" in asyncio.run(go_on())
    assert tickets(wakeful, "app.db").keys() == {"size"}


def test_invalid_new_arguments_keep_ticket_open(wakeful: Wakeful, here: Path, target: str) -> None:
    ticket = tickets(wakeful, "app.db")["refund"]["id"]
    assert wakeful("tickets", "edit", "app.db", ticket, '{"order": "A7", "amount": "x"}').exit_code == 0

    async def take_in() -> None:
        from wakeful.cli.target import load_runtime

        async with load_runtime(target) as runtime:
            while (stored := await runtime.store.load("A7")) is None or stored.inbox or stored.thread.claimed:
                await asyncio.sleep(0.01)

    asyncio.run(take_in())
    told = "The answer was refused: $.amount: expected int, got str"
    assert tickets(wakeful, "app.db")["refund"]["message"] == f"{told}\nMay refund run?"
    assert told in wakeful("tickets", "list", "app.db").stdout
    assert "refunded 5 for A7" in wakeful("tickets", "approve", target, ticket).stdout


LEFT = [
    ("refund", ("approve",), {"mode": "proceed"}, "approve by ann"),
    ("refund", ("deny",), {"verdict": "deny"}, "deny by ann"),
    ("refund", ("edit", '{"order":"B2"}'), {"value": {"order": "B2"}}, 'edit {"order":"B2"} by ann'),
    ("refund", ("result", "by hand"), {"value": "by hand"}, 'result "by hand" by ann'),
    ("size", ("answer", "7"), {"value": 7}, "answer 7 by ann"),
]


@pytest.mark.parametrize(("tool", "given", "kept", "told"), LEFT)
def test_submitted_answer_is_shown_until_applied(
    wakeful: Wakeful, here: Path, tool: str, given: tuple[str, ...], kept: dict[str, Any], told: str
) -> None:
    ticket = tickets(wakeful, "app.db")[tool]["id"]
    wakeful("tickets", given[0], "app.db", ticket, *given[1:], "--as", "ann", "--reason", "fine")
    rows = wakeful("tickets", "list", "app.db", "--status", "all").stdout.splitlines()
    (row,) = [row for row in rows if row.startswith(ticket[:18])]
    assert f" {told}: fine)" in row
    left = tickets(wakeful, "app.db", "--status", "all")[tool]["left"]
    assert {name: left[name] for name in kept} == kept
    assert left["at"] > 0
    page = wakeful("tickets", "show", "app.db", ticket).stdout
    assert f" {told}: fine; waits for a worker that has {tool}\n" in page
    assert msgspec.json.decode(wakeful("tickets", "show", "app.db", ticket, "--json").stdout)["left"] == left


def test_submitted_answer_is_replaced_and_withdrawn(wakeful: Wakeful, here: Path) -> None:
    ticket = tickets(wakeful, "app.db")["refund"]["id"]
    wakeful("tickets", "approve", "app.db", ticket, "--as", "ann")
    result = wakeful("tickets", "deny", "app.db", ticket, "--as", "bob,group:shop")
    assert (result.exit_code, "no run has taken that answer yet" in result.stderr) == (2, True)
    assert wakeful("tickets", "deny", "app.db", ticket, "--as", "bob,group:shop", "--replace").exit_code == 0
    (row,) = [row for row in wakeful("tickets", "list", "app.db").stdout.splitlines() if " refund " in row]
    assert row.split()[1] == "left"
    assert " deny by bob" in row
    result = wakeful("tickets", "withdraw", "app.db", ticket, "--as", "cy,group:shop", "--reason", "too soon")
    assert (result.exit_code, "is withdrawn; the ticket is open" in result.stdout) == (0, True)
    page = wakeful("tickets", "show", "app.db", ticket).stdout
    assert re.search(r"approve by ann \(replaced .+ by bob\)", page)
    assert re.search(r"deny by bob \(withdrawn .+ by cy: too soon\)", page)
    assert "left" not in tickets(wakeful, "app.db")["refund"]
    assert wakeful("tickets", "withdraw", "app.db", ticket).exit_code == 2


def test_list_says_why_left_answer_cannot_be_taken(wakeful: Wakeful, here: Path, target: str) -> None:
    """A deploy adds a required parameter after the answer was left."""
    ticket = tickets(wakeful, "app.db")["refund"]["id"]
    wakeful("tickets", "approve", "app.db", ticket, "--as", "ann")
    newer = target.replace(":", "_newer:")
    (here / newer.replace(":make", ".py")).write_text(NEWER)
    (row,) = [row for row in wakeful("tickets", "list", newer).stdout.splitlines() if " refund " in row]
    assert "approve by ann; can't be taken: " in row
    assert "missing required argument 'currency'" in row
    arguments = '{"order": "A7", "currency": "EUR"}'
    result = wakeful("tickets", "edit", newer, ticket, arguments, "--as", "bob,group:shop")
    assert "refunded A7 in EUR" in result.stdout


def test_submitted_ticket_cannot_be_reassigned(wakeful: Wakeful, here: Path) -> None:
    ticket = tickets(wakeful, "app.db")["refund"]["id"]
    wakeful("tickets", "approve", "app.db", ticket, "--as", "ann")
    result = wakeful("tickets", "reassign", "app.db", ticket, "bob")
    assert result.exit_code == 2
    assert "was answered before (approved by ann at " in result.stderr
    assert tickets(wakeful, "app.db", "--status", "all")["refund"]["assignee"] == "ann"


def test_ticket_is_reassigned(wakeful: Wakeful, here: Path) -> None:
    ticket = tickets(wakeful, "app.db")["refund"]["id"]
    result = wakeful("tickets", "reassign", "app.db", ticket, "bob", "--as", "ann", "--reason", "holiday")
    assert result.exit_code == 0
    assert "is with bob now" in result.stdout
    assert tickets(wakeful, "app.db", "--assignee", "bob").keys() == {"refund"}
    assert "reassign to bob by ann: holiday" in wakeful("tickets", "show", "app.db", ticket).stdout


def test_wrong_usage_exits_with_code_2(wakeful: Wakeful, here: Path, target: str) -> None:
    for arguments, told in (
        (("approve", target, "nope"), "no ticket 'nope'"),
        (("approve", "app.db", "nope"), "no ticket 'nope'"),
        (("show", "app.db", "nope"), "no ticket 'nope'"),
        (("reassign", "app.db", "nope", "bob"), "no ticket 'nope'"),
        (("list", "gone.db"), "there is no file 'gone.db'"),
        (("list", "nowhere:make"), "no module named 'nowhere'"),
        (("list", "app.db", "--run", "nope"), "no run 'nope'"),
        (("list", "app.db", "--status", "odd"), "odd"),
    ):
        result = wakeful("tickets", *arguments)
        assert result.exit_code == 2, arguments
        assert told in result.stderr, arguments
    ticket = tickets(wakeful, "app.db")["refund"]["id"]
    other_tenant = wakeful("tickets", "approve", target, ticket, "--tenant", "acme")
    assert (other_tenant.exit_code, "no ticket" in other_tenant.stderr) == (2, True)


def test_incompatible_code_error_lists_reasons(wakeful: Wakeful, here: Path, target: str) -> None:
    (here / "changed.py").write_text(APP.replace("refund", "repay"))
    ticket = tickets(wakeful, "app.db")["refund"]["id"]
    result = command("-m", "wakeful.cli", "tickets", "approve", "changed:make", ticket, cwd=here)
    assert result.returncode == 2
    assert "tool 'refund' of call" in result.stderr
    assert "refund" in tickets(wakeful, "app.db", "--status", "open")


def test_tickets_help_is_complete(wakeful: Wakeful) -> None:
    shown = wakeful("tickets", "--help").stdout
    for name in ("list", "show", "approve", "deny", "answer", "result", "edit", "reassign"):
        assert name in shown
