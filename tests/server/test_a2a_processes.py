"""`wakeful serve` as a process: its URLs, its shutdown, and its tasks after a kill."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from a2a.client import A2AClientError
from a2a.types import a2a_pb2 as pb
from a2a_serving import answer_of, connect, get, said, send, state, states, stream, text_of, until
from typer.testing import CliRunner

from wakeful import SqliteStore
from wakeful.cli.app import app

HERE = Path(__file__).parent


class Served:
    """A `wakeful serve` process, in a folder that the next one may share."""

    def __init__(self, folder: Path, *arguments: str, **environment: str) -> None:
        command = [sys.executable, "-m", "wakeful.cli", "serve", "a2a_sample:runtime", "--port", "0", *arguments]
        path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": path, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.told: list[str] = []

    @property
    def url(self) -> str:
        """Wait for the agent's URL in its output."""
        assert self.process.stdout is not None
        while not any("http://" in line for line in self.told):
            line = self.process.stdout.readline()
            assert line, "".join(self.told)
            self.told.append(line)
        return re.search(r"http://[\d.:]+", "".join(self.told))[0]  # type: ignore[index]

    def stop(self, how: signal.Signals) -> int:
        self.process.send_signal(how)
        code = self.process.wait(120)
        assert self.process.stdout is not None
        self.told.append(self.process.stdout.read())
        self.process.stdout.close()
        return code


@pytest.fixture
def processes() -> Iterator[list[Served]]:
    started: list[Served] = []
    yield started
    for served in started:
        if served.process.returncode is None:
            served.stop(signal.SIGKILL)


async def test_task_resumes_after_server_kill(tmp_path: Path, processes: list[Served]) -> None:
    first = Served(tmp_path, "--agents", "helper")
    processes.append(first)
    message = said("Go", message_id="only-once")
    async with connect(first.url) as client:
        watching = aiter(client.send_message(pb.SendMessageRequest(message=message)))
        task = (await anext(watching)).task
        await until((tmp_path / "reached").exists)
        first.stop(signal.SIGKILL)
        with pytest.raises((A2AClientError, httpx.HTTPError)):
            _ = [event async for event in watching]
    second = Served(tmp_path, "--agents", "helper")
    processes.append(second)
    async with connect(second.url) as client:
        assert state(await get(client, task.id)) == "working"
        watching = aiter(client.subscribe(pb.SubscribeToTaskRequest(id=task.id)))
        assert (await anext(watching)).task.id == task.id
        (tmp_path / "go").touch()
        seen = [event async for event in watching]
        assert (states(seen)[-1], text_of(seen)) == ("completed", "It is done: went.")
        assert answer_of(await get(client, task.id)) == "It is done: went."
        again = await stream(client, message)
        assert (again[0].task.id, states(again)) == (task.id, ["completed"])
        assert len((await client.list_tasks(pb.ListTasksRequest())).tasks) == 1
    assert second.stop(signal.SIGTERM) == 0


async def test_waiting_task_is_answered_by_next_process(tmp_path: Path, processes: list[Served]) -> None:
    first = Served(tmp_path, "--agents", "helper", "--token-env", "ann=TOKEN", TOKEN="secret")
    processes.append(first)
    headers = {"Authorization": "Bearer secret"}
    async with connect(first.url, streaming=False, headers=headers) as client:
        task = await send(client, "refund, please")
        assert state(task) == "input_required"
    assert first.stop(signal.SIGTERM) == 0
    assert "secret" not in "".join(first.told)
    second = Served(tmp_path, "--agents", "helper", "--token-env", "ann=TOKEN", TOKEN="secret")
    processes.append(second)
    async with connect(second.url, "HTTP+JSON", streaming=False, headers=headers) as client:
        done = await send(client, said("approve", task_id=task.id))
        assert (state(done), answer_of(done)) == ("completed", "It is done: refunded 7.")


async def test_server_stops_with_open_streams(tmp_path: Path, processes: list[Served]) -> None:
    served = Served(tmp_path, "--agents", "helper")
    processes.append(served)
    async with connect(served.url) as client:
        watching = aiter(client.send_message(pb.SendMessageRequest(message=said("Go"))))
        task = (await anext(watching)).task
        await until((tmp_path / "reached").exists)
        assert await asyncio.to_thread(served.stop, signal.SIGTERM) == 0
        assert "Traceback" not in "".join(served.told)
        await watching.aclose()
    store = SqliteStore(tmp_path / "app.db")
    run, dispatches = await store.run(task.id), await store.dispatches()
    await store.close()
    assert run is not None
    # It is not cancelled: the next server on the store resumes it.
    assert (run.status, run.cancel) == ("running", None)
    assert [(one.thread_id, one.claimed_by) for one in dispatches] == [(run.thread_id, None)]


def test_serve_prints_urls_and_stops_on_signal(tmp_path: Path, processes: list[Served]) -> None:
    served = Served(tmp_path)
    processes.append(served)
    url = served.url
    assert httpx.get(f"{url}/a2a/other/.well-known/agent-card.json").json()["name"] == "other"
    assert served.stop(signal.SIGINT) == 0
    told = "".join(served.told)
    assert f"helper: A2A (JSON-RPC and HTTP+JSON) at {url}/a2a/helper" in told
    assert f"card: {url}/a2a/other/.well-known/agent-card.json" in told
    assert f"console: {url}/console/" in told
    assert f"Chat Completions and Responses: {url}/openai/v1" in told
    assert "Traceback" not in told


def test_serve_prints_urls_of_chosen_protocols_only(tmp_path: Path, processes: list[Served]) -> None:
    served = Served(tmp_path, "--protocols", "agui")
    processes.append(served)
    url = served.url
    assert served.stop(signal.SIGINT) == 0
    told = "".join(served.told)
    assert f"AG-UI: {url}/agui/AGENT" in told
    assert "A2A" not in told
    assert "useChat" not in told


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--host", "0.0.0.0"], "there is no auth"),
        (["--token-env", "MISSING_TOKEN"], "'MISSING_TOKEN' is empty"),
        (["--agents", "nobody"], "no agent 'nobody'"),
    ],
)
def test_serve_refuses_invalid_arguments(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: list[str], why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["serve", "a2a_sample:runtime", *arguments])
    assert why in " ".join(result.output.split())
    assert result.exit_code in (1, 2)
