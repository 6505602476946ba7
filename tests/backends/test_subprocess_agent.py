"""The agent in a subprocess of docs/writing-a-backend.md: it is found again after the crash of its runtime."""

from __future__ import annotations

import asyncio
import os
import re
import runpy
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loop.helpers import soon
from wakeful import Agent, Runtime, Ticket
from wakeful.types.events import RunStart
from wakeful.types.runs import Cancelled

PAGE = Path(__file__).parents[2] / "docs" / "writing-a-backend.md"

WORKER = """
import asyncio
from pathlib import Path
from wakeful import Agent, Runtime
from backend import Notes, ProcessBackend

async def main():
    agent = Agent("painter", backend=ProcessBackend(Path("jobs")), plugins=[Notes()])
    await Runtime([agent], store="a.db").run("painter", "Paint the fence", thread="t")

asyncio.run(main())
"""


@pytest.fixture
def docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The names of the page's blocks, in a folder of their own."""
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    wanted = ("class JobBackend", 'Path("agent.py")', "class ProcessBackend")
    (tmp_path / "backend.py").write_text("\n".join(b for b in blocks if any(w in b for w in wanted)))
    (tmp_path / "worker.py").write_text(WORKER)
    names = runpy.run_path("backend.py")
    yield names
    for job in Path("jobs").glob("*"):
        if (pid := names["find"](job)) is not None:
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def worker(docs: dict[str, Any]) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that runs the agent."""
    with subprocess.Popen([sys.executable, "worker.py"], stderr=subprocess.DEVNULL) as process:
        yield process
        process.kill()


def only_job() -> Path:
    (job,) = Path("jobs").iterdir()
    return job


def opened(docs: dict[str, Any]) -> Runtime:
    agent = Agent("painter", backend=docs["ProcessBackend"](Path("jobs")), plugins=[docs["Notes"]()])
    return Runtime([agent], store="a.db", cancel_grace=1.0)


async def ticket_of(runtime: Runtime) -> Ticket:
    async with asyncio.timeout(60):
        while not (found := await runtime.tickets.list(status="open")):
            await asyncio.sleep(0.02)
    return found[0]


async def test_subprocess_agent_is_found_again_after_crash(
    docs: dict[str, Any], worker: subprocess.Popen[bytes]
) -> None:
    runtime = opened(docs)
    ticket = await ticket_of(runtime)
    worker.kill()
    worker.wait()
    job = only_job()
    agent = docs["find"](job)
    assert agent is not None  # It outlived its runtime.
    await runtime.send("t", "with a brush", policy="steer")
    result = await soon(runtime.tickets.answer(ticket.id, "red"))
    assert result.text == "I painted the fence red, with a brush."
    assert [path.name for path in job.glob("pid.*")] == [f"pid.{agent}"]  # No second process was started.
    events = [event async for event in runtime.events("t", follow=False)]
    assert [event.trigger for event in events if isinstance(event, RunStart)] == ["new", "recover"]
    assert await runtime.threads.state("t") == {"note": "painted red"}
    assert result.usage.total_tokens == 12
    await runtime.close()


async def test_subprocess_agent_stops_with_its_run(docs: dict[str, Any]) -> None:
    runtime = opened(docs)
    handle = await runtime.start("painter", "Paint the fence", thread="t")
    await ticket_of(runtime)
    job = only_job()
    assert docs["find"](job) is not None
    await handle.cancel()
    assert isinstance((await soon(handle.result())).termination, Cancelled)
    assert docs["find"](job) is None
    await runtime.close()


def test_subprocess_agent_is_not_another_process_of_its_id(docs: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "pid").write_text(f"{os.getpid()} Thu Jan  1 00:00:00 1970")
    assert docs["find"](tmp_path) is None
