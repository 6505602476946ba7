"""Two wakeful processes over A2A: either may be killed, no call runs twice, and the result arrives."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from free_ports import free_port

HERE = Path(__file__).parent


class Shops:
    """Both sides in one folder; the server can be restarted at the same address."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.started: list[subprocess.Popen[str]] = []
        self.server = self.serve()

    def _start(self, *command: str) -> subprocess.Popen[str]:
        path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
        analyst = f"http://127.0.0.1:{self.port}"
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": path, "SHOP": str(self.folder), "ANALYST": analyst},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def serve(self) -> subprocess.Popen[str]:
        process = self._start("-m", "wakeful.cli", "serve", "two_shops:served", "--port", str(self.port))
        assert process.stdout is not None
        while not re.search(r"http://", line := process.stdout.readline()):
            assert line, process.stderr.read() if process.stderr else ""
        return process

    def ask(self, *arguments: str) -> subprocess.Popen[str]:
        return self._start(str(HERE / "two_shops.py"), *arguments)

    def told(self, *arguments: str) -> list[Any]:
        return self.end(self.ask(*arguments))

    def end(self, process: subprocess.Popen[str]) -> list[Any]:
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        return json.loads(out.splitlines()[-1])

    def kill(self, process: subprocess.Popen[str]) -> None:
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=120)

    def lines(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    def until(self, condition: Callable[[], Any]) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline, "it never came true"
            time.sleep(0.02)

    def tickets_of_remote(self) -> str:
        listed = self._start("-m", "wakeful.cli", "tickets", "list", "served.db", "--json")
        out, err = listed.communicate(timeout=60)
        assert listed.returncode == 0, err
        return out

    def touch(self, *names: str) -> None:
        for name in names:
            (self.folder / name).touch()

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate(timeout=120)


@pytest.fixture
def shops(tmp_path: Path) -> Iterator[Shops]:
    made = Shops(tmp_path)
    yield made
    made.close()


def test_a2a_delegate_answers_like_local_one(shops: Shops) -> None:
    _, status, text, tickets, error = shops.told("run", "lead", "ship 7")
    assert (status, text) == ("done", "The lead says: The analyst says: shipped 7")
    assert (shops.lines("shipped"), tickets, error) == (["7"], [], None)


def test_a2a_delegate_streams_through_parent(shops: Shops) -> None:
    out, err = shops.ask("stream", "lead", "hello there").communicate(timeout=60)
    events = [json.loads(line) for line in out.splitlines()]
    deltas = "".join(delta for kind, depth, delta in events if kind == "TextDelta" and depth == 1)
    assert deltas == "I say hello there", err
    assert events[-1][:2] == ["RunFinish", 0]


def test_a2a_question_is_answered_at_root_after_restarts(shops: Shops) -> None:
    run_id, status, _, tickets, _ = shops.told("run", "top", "refund 7")
    ((ticket_id, message, asked_by),) = tickets
    assert (status, asked_by) == ("waiting", "remote")
    assert "refund" in message
    shops.kill(shops.server)
    shops.serve()
    again, status, text, tickets, _ = shops.told("answer", ticket_id, "true")
    assert (again, status, tickets) == (run_id, "done", [])
    assert text == "The top says: The lead says: The analyst says: refunded 7"
    assert shops.lines("refunded") == ["7"]


@pytest.mark.parametrize("verb", ["ship", "pack"])
def test_a2a_run_survives_server_kill(shops: Shops, verb: str) -> None:
    shops.touch("slow")
    asking = shops.ask("run", "lead", f"{verb} 7")
    record = "shipped" if verb == "ship" else "packed"
    shops.until(lambda: shops.lines(record))
    shops.kill(shops.server)
    shops.touch("go")
    shops.serve()
    _, status, text, _, _ = shops.end(asking)
    assert status == "done"
    if verb == "ship":
        assert shops.lines("shipped") == ["7"]
        assert "outcome is unknown" in text
    else:
        assert len(set(shops.lines("packed"))) == 1
        assert text == "The lead says: The analyst says: packed 7"


def test_a2a_run_survives_client_kill(shops: Shops) -> None:
    shops.touch("slow")
    asking = shops.ask("run", "lead", "ship 7")
    shops.until(lambda: shops.lines("shipped"))
    shops.kill(asking)
    shops.touch("go")
    _, status, text, _, _ = shops.told("wait")
    assert (status, text) == ("done", "The lead says: The analyst says: shipped 7")
    assert shops.lines("shipped") == ["7"]


def test_a2a_cancellation_reaches_remote(shops: Shops) -> None:
    _, status, _, _, _ = shops.told("run", "top", "refund 7")
    assert status == "waiting"
    _, status, _, tickets, error = shops.told("cancel")
    assert (status, tickets, error) == ("done", [], "cancelled: enough")
    shops.until(lambda: shops.tickets_of_remote() == "")


def test_a2a_denial_reaches_remote(shops: Shops) -> None:
    _, status, _, ((ticket_id, _, _),), _ = shops.told("run", "lead", "refund 7")
    assert status == "waiting"
    _, status, text, _, _ = shops.told("deny", ticket_id, "too late")
    assert status == "done"
    assert "denied" in text
    assert "too late" in text
    assert shops.lines("refunded") == []
