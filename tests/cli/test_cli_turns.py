"""Prompts on a thread whose run sleeps, is paused or runs elsewhere: what is said, and how to take one back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_process import Process
from sample import agents
from typer.testing import Result

from wakeful import Runtime

Wakeful = Callable[..., Result]
Start = Callable[..., Process]
RESTS = [("sleeper", "sleeps until "), ("halter", "is paused")]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where the threads are of `sample:filed`, here and in other processes."""
    monkeypatch.setenv("SAMPLE_STORE", str(tmp_path / "app.db"))
    return str(tmp_path / "app.db")


async def looked(store: str, look: Callable[[Runtime], Any]) -> Any:
    runtime = Runtime(agents(), store=store)
    try:
        return await look(runtime)
    finally:
        await runtime.close()


@pytest.mark.parametrize(("agent", "does"), RESTS)
def test_ctrl_c_withdraws_queued_chat_prompt(start: Start, agent: str, does: str) -> None:
    process = start("chat", "sample:kept", agent)
    process.type("Go")
    assert f"the run {does}" in process.read_until("; a new prompt has its turn after it\n> ")
    process.type("Hello")
    assert f" {does}" in process.read_until("; the prompt has its turn after it, ctrl-C takes it back\n")
    process.interrupt()
    process.read_until("taking the prompt back; ctrl-C again leaves at once\n")
    process.read_until("cancelled: the prompt was taken back\n> ")
    process.end_input()
    assert process.exit_code() == 0
    assert "takes its place" not in process.output
    assert "failed" not in process.output


def test_chat_on_sleeping_thread_says_so(wakeful: Wakeful) -> None:
    wakeful("run", "sample:kept", "sleeper", "Go", "--thread", "slept on")
    shown = wakeful("chat", "sample:kept", "--thread", "slept on", input="").stdout
    assert "; a new prompt has its turn after it\n> " in shown


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_ctrl_c_withdraws_run_behind_sleeping_one(
    wakeful: Wakeful, start: Start, store: str, options: tuple[str, ...]
) -> None:
    wakeful("run", "sample:filed", "sleeper", "Go", "--thread", "t")
    process = start("run", "sample:filed", "poet", "A verse!", "--thread", "t", *options)
    process.read_until("waiting: run ")
    process.read_until("sleeps until ")
    process.read_until("; the prompt has its turn after it, ctrl-C takes it back\n")
    process.interrupt()
    process.read_until("cancelled: the prompt was taken back\n")
    assert process.exit_code() == 130
    assert asyncio.run(looked(store, lambda runtime: runtime.mail.pending("t"))) == []
    (run,) = asyncio.run(looked(store, lambda runtime: runtime.runs.list(thread="t")))
    assert run.status == "waiting"


def test_queued_prompt_runs_after_earlier_run(wakeful: Wakeful, start: Start, store: str) -> None:
    wakeful("run", "sample:filed", "halter", "Go", "--thread", "t")
    process = start("run", "sample:filed", "poet", "A verse!", "--thread", "t")
    process.read_until("is paused; the prompt has its turn after it")
    (run,) = asyncio.run(looked(store, lambda runtime: runtime.runs.list(thread="t")))
    asyncio.run(looked(store, lambda runtime: runtime.runs.unpause(run.id)))
    process.read_until("\nA verse.\n")
    assert process.exit_code() == 0
    assert asyncio.run(looked(store, lambda runtime: runtime.mail.pending("t"))) == []


def test_ctrl_c_cancels_prompt_that_is_running(wakeful: Wakeful, start: Start, store: str) -> None:
    wakeful("run", "sample:filed", "halter", "Go", "--thread", "t")
    process = start("run", "sample:filed", "blocking", "Go", "--thread", "t")
    process.read_until("is paused; the prompt has its turn after it")
    (run,) = asyncio.run(looked(store, lambda runtime: runtime.runs.list(thread="t")))
    asyncio.run(looked(store, lambda runtime: runtime.runs.unpause(run.id)))
    process.read_until("→ block()\n")
    process.interrupt()
    process.read_until("cancelling the run; ctrl-C again leaves at once\n")
    process.read_until("cancelled: cancelled from the terminal\n")
    assert process.exit_code() == 130
