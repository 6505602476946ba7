"""`wakeful runs`, `threads`, `tasks`, `schedules`, `workers` and `agents`: tables, short ids and JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer
from typer.testing import Result

from wakeful.cli.app import app

Wakeful = Callable[..., Result]

APP = """
from wakeful import Agent, FunctionModel, Runtime, call, tool

@tool(approval=True)
async def pay(amount: int) -> str:
    "Pay an amount."
    return f"paid {amount}"

def answer(request):
    last = request.messages[-1]
    return call("pay", amount=5) if last.text == "pay" else "Hello."

def make():
    return Runtime([Agent("clerk", model=FunctionModel(answer), tools=[pay], description="Pays.")], store="app.db")
"""


@pytest.fixture
def target(wakeful: Wakeful, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An application with a finished run, a waiting one, a task and a schedule."""
    monkeypatch.chdir(tmp_path)
    name = f"nouns_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(APP)
    found = f"{name}:make"
    assert wakeful("run", found, "clerk", "hi", "--thread", "done").exit_code == 0
    assert wakeful("run", found, "clerk", "pay", "--thread", "open").exit_code == 3

    async def fill() -> None:
        from wakeful.cli.target import load_runtime

        async with load_runtime(found) as runtime:
            await (await runtime.tasks.spawn("clerk", "pay", thread="done", name="later")).result()
            await runtime.schedules.put("daily", "clerk", "hi", cron="@daily")

    asyncio.run(fill())
    return found


def values(result: Result) -> list[Any]:
    assert result.exit_code == 0, result.output
    return [msgspec.json.decode(line) for line in result.stdout.splitlines()]


def id_of(run: dict[str, Any]) -> str:
    return run["identity"]["run_id"]


def table(result: Result) -> list[list[str]]:
    assert result.exit_code == 0, result.output
    return [line.split() for line in result.stdout.splitlines()]


def test_runs_are_listed_in_a_table_with_short_ids(wakeful: Wakeful, target: str) -> None:
    header, *rows = table(wakeful("runs", "list", "app.db", "--status", "waiting"))
    assert header == ["RUN", "AGENT", "STATUS", "STEPS", "CREATED", "THREAD", "OUTCOME"]
    found = values(wakeful("runs", "list", "app.db", "--status", "waiting", "--json"))
    assert all(id_of(run).startswith(row[0]) for run, row in zip(found, rows, strict=True))
    assert all(18 <= len(row[0]) < 36 for row in rows)
    assert values(wakeful("runs", "list", "app.db", "--agent", "nobody", "--json")) == []
    assert wakeful("runs", "list", "app.db", "--agent", "nobody").stdout == "no runs\n"


def test_run_is_found_by_an_unambiguous_prefix(wakeful: Wakeful, target: str) -> None:
    *_, (short, *_) = table(wakeful("runs", "list", "app.db"))
    (shown,) = values(wakeful("runs", "show", "app.db", short, "--json"))
    assert id_of(shown["run"]).startswith(short)
    assert f"run {id_of(shown['run'])} of agent clerk, done" in wakeful("runs", "show", "app.db", short).stdout
    refused = wakeful("runs", "show", "app.db", "0")
    assert (refused.exit_code, "more than one run has an id that begins with '0'" in refused.stderr) == (2, True)
    assert "no run 'zzz' in this store" in wakeful("runs", "show", "app.db", "zzz").stderr
    (tree,) = values(wakeful("runs", "tree", "app.db", short, "--json"))
    assert tree["run"] == shown["run"]


def test_run_is_paused_and_cancelled_from_a_shell(wakeful: Wakeful, target: str) -> None:
    (run,) = values(wakeful("runs", "list", "app.db", "--thread", "open", "--json"))
    run_id = id_of(run)
    assert values(wakeful("runs", "pause", "app.db", run_id, "--json")) == [{"run": run_id, "changed": True}]
    assert "continues" in wakeful("runs", "unpause", "app.db", run_id).stdout
    assert "is cancelled" in wakeful("runs", "cancel", "app.db", run_id, "--reason", "enough").stdout
    assert "was done" in wakeful("runs", "cancel", "app.db", run_id).stdout
    assert "cancelled: enough" in wakeful("runs", "show", "app.db", run_id).stdout
    assert wakeful("runs", "retry", target, run_id).exit_code == 2


def test_thread_is_shown_with_its_messages(wakeful: Wakeful, target: str) -> None:
    header, *_ = table(wakeful("threads", "list", "app.db"))
    assert header == ["THREAD", "UPDATED", "RUN", "TITLE"]
    (shown,) = values(wakeful("threads", "show", "app.db", "don", "--json"))
    assert (shown["thread"]["id"], [message["role"] for message in shown["messages"]]) == (
        "done",
        ["user", "assistant"],
    )
    assert "assistant Hello." in " ".join(wakeful("threads", "show", "app.db", "done").stdout.split())


def test_tasks_are_listed_and_cancelled(wakeful: Wakeful, target: str) -> None:
    header, row = table(wakeful("tasks", "list", "app.db", "done"))
    assert header == ["TASK", "TARGET", "STATUS", "KIND", "RUN", "CREATED", "NAME"]
    assert (row[1:4], row[-1]) == (["clerk", "running", "background"], "later")
    assert "is cancelled" in wakeful("tasks", "cancel", "app.db", row[0]).stdout
    assert values(wakeful("tasks", "list", "app.db", "done", "--status", "running", "--json")) == []


def test_usage_is_summed_by_its_keys(wakeful: Wakeful, target: str) -> None:
    header, row = table(wakeful("usage", "app.db", "--by", "agent,model"))
    assert header[:4] == ["AGENT", "MODEL", "REQUESTS", "ERRORS"]
    assert row[0] == "clerk"
    (whole,) = values(wakeful("usage", target, "--by", "", "--json", "--since", "2026-01-01"))
    assert str(whole["requests"]) == row[2] != "0"
    assert wakeful("usage", "app.db", "--until", "2020-01-01T00:30").stdout == "no requests\n"
    assert wakeful("usage", "app.db", "--by", "hour").exit_code == 2


def test_schedules_are_listed_and_deleted(wakeful: Wakeful, target: str) -> None:
    header, row = table(wakeful("schedules", "list", "app.db"))
    assert (header[:3], row[:4]) == (["SCHEDULE", "TARGET", "TIMES"], ["daily", "clerk", "@daily", "UTC"])
    assert wakeful("schedules", "delete", "app.db", "daily").stdout == "deleted schedule 'daily'\n"
    assert wakeful("schedules", "delete", "app.db", "daily").exit_code == 2
    assert wakeful("schedules", "list", "app.db").stdout == "no schedules\n"


def test_workers_and_agents_are_listed(wakeful: Wakeful, target: str) -> None:
    assert wakeful("workers", "list", "app.db").exit_code == 0
    header, row = table(wakeful("agents", "list", target))
    assert (header, row[0], row[-2:]) == (["AGENT", "MODEL", "TOOLS", "DESCRIPTION"], "clerk", ["pay", "Pays."])
    (found,) = values(wakeful("agents", "list", target, "--json"))
    assert (found["id"], found["tools"]) == ("clerk", ["pay"])


def test_every_command_of_a_noun_prints_json() -> None:
    """`threads export` writes JSON and nothing else."""

    def without_json(command: Any, name: str) -> list[str]:
        if hasattr(command, "commands"):
            return [
                found for noun, one in command.commands.items() for found in without_json(one, f"{name} {noun}")
            ]
        return [] if any("--json" in option.opts for option in command.params) else [name.strip()]

    nouns = [name for name in without_json(typer.main.get_command(app), "") if " " in name]
    assert nouns == ["threads export"]
