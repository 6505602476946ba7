"""A cluster in one command: real engines, a server and workers, which go as they came."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryFile, mkdtemp

import pytest
from cli_process import AS_IN_A_TERMINAL, command, environment

from wakeful import Agent, FunctionModel, ModelRequest, Runtime, call
from wakeful.stores import open_store

PATIENCE = 90.0

MODULE = """
import asyncio, os
from pathlib import Path
from wakeful import Agent, FunctionModel, Runtime, call, tool

@tool(effect="pure")
async def who() -> int:
    "Which process runs this."
    while Path("hold").exists():
        Path("held").touch()
        await asyncio.sleep(0.01)
    return os.getpid()

def answer(request):
    last = request.messages[-1]
    return last.reply.content[0].text if last.role == "tool" else call("who")

runtime = Runtime([Agent("clerk", model=FunctionModel(answer), tools=[who])], store="its_own.db")
"""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    # As root Postgres runs as somebody else, who must reach the folder.
    path = Path(mkdtemp(prefix="wakeful-up-"))
    path.chmod(0o755)
    (path / "office.py").write_text(MODULE)
    yield path
    rmtree(path)


class Cluster:
    """`wakeful up`, its output, and what it started."""

    def __init__(self, folder: Path, *options: str, target: str = "office:runtime") -> None:
        self._log = TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                AS_IN_A_TERMINAL,
                "up",
                target,
                "--workers",
                "2",
                "--port",
                "0",
                *options,
            ],
            cwd=folder,
            env=environment(),
            stdout=self._log,
            stderr=self._log,
        )

    @property
    def output(self) -> str:
        self._log.seek(0)
        return self._log.read()

    def says(self, text: str) -> None:
        self.until(lambda: text in self.output)

    def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, self.output
            time.sleep(0.02)

    def place(self, name: str) -> str:
        found = re.search(rf"^  {name} +(\S+?),?( |$)", self.output, re.MULTILINE)
        assert found, self.output
        return found[1]

    def parts(self) -> set[int]:
        """The processes that the cluster started, directly or not."""
        listed = subprocess.run(
            ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True
        ).stdout
        parents = {int(pid): int(parent) for pid, parent in map(str.split, listed.splitlines())}
        found = {self.process.pid}
        while more := {pid for pid, parent in parents.items() if parent in found} - found:
            found |= more
        return found - {self.process.pid}

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._log.close()


@pytest.fixture
def up(folder: Path) -> Iterator[Callable[..., Cluster]]:
    started: list[Cluster] = []

    def start(*options: str, **named: str) -> Cluster:
        started.append(Cluster(folder, *options, **named))
        return started[-1]

    yield start
    for cluster in started:
        cluster.close()


def run(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout


def read(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=120) as answer:
        return answer.read()


def alive(pids: set[int]) -> set[int]:
    found: set[int] = set()
    for pid in pids:
        state = run("ps", "-o", "stat=", "-p", str(pid))
        if state.strip() and not state.startswith("Z"):
            found.add(pid)
    return found


def answers(address: str) -> bool:
    host, port = address.rpartition("@")[2].rpartition("//")[2].partition("/")[0].split(":")
    try:
        socket.create_connection((host, int(port)), 5).close()
    except OSError:
        return False
    return True


async def who(cluster: Cluster, thread: str) -> int:
    """Which worker did a run that somebody else handed in."""

    def never(request: ModelRequest) -> object:
        return call("nothing")

    agents = [Agent("clerk", model=FunctionModel(never))]
    store, bus = cluster.place("store"), cluster.place("bus")
    async with Runtime(agents, store=store, bus=bus, execute=False) as outside:
        result = await outside.run("clerk", "who?", thread=thread)
        return int(result.text)


async def test_up_replaces_dead_worker_and_leaves_nothing(
    up: Callable[..., Cluster],
) -> None:
    cluster = up("--fresh")
    cluster.says("ctrl-C takes it down")
    parts = cluster.parts()
    assert await who(cluster, "first") in parts
    assert b"clerk" in read(f"{cluster.place('server')}/.well-known/agent-card.json")
    assert read(cluster.place("worker-1")) == b"alive\n"
    psql = re.search(r"^  psql +(.*)$", cluster.output, re.MULTILINE)
    assert psql
    assert run(*psql[1].split(), "-Atc", "SELECT count(*) FROM wakeful.runs") == "1\n"

    killed = await who(cluster, "second")
    os.kill(killed, signal.SIGKILL)
    cluster.says("ended by SIGKILL; it is started again in 0.5 s")
    cluster.says("is back")
    assert await who(cluster, "third") != killed
    # A part that was started again has the port that it had.
    workers = re.findall(r"^  (worker-\d) ", cluster.output, re.MULTILINE)
    assert workers
    assert [read(cluster.place(name)) for name in workers] == [b"alive\n"] * len(workers)

    parts |= cluster.parts()
    places = [cluster.place(name) for name in ("store", "bus", "server")]
    cluster.process.send_signal(signal.SIGINT)
    assert cluster.process.wait(timeout=PATIENCE) == 0
    assert "drained" in cluster.output
    assert alive(parts) == set()
    assert [place for place in places if answers(place)] == []

    # The next one finds what this one did, where it was.
    again = up()
    again.says("ctrl-C takes it down")
    assert [again.place("store"), again.place("bus")] == places[:2]
    second = up()
    assert second.process.wait(timeout=PATIENCE) == 2
    assert "another `wakeful up` has its data in" in second.output
    store = open_store(again.place("store"))
    assert {found.thread_id for found in await store.runs()} == {"first", "second", "third"}
    await store.close()

    # Nothing survives it, even if it is killed.
    parts = again.parts()
    again.process.kill()
    again.process.wait()
    again.until(lambda: not alive(parts))
    assert not answers(again.place("store"))


@pytest.mark.long
async def test_second_ctrl_c_stops_cluster_at_once(up: Callable[..., Cluster], folder: Path) -> None:
    cluster = up("--grace", "600")
    cluster.says("ctrl-C takes it down")
    parts = cluster.parts()
    (folder / "hold").touch()
    working = asyncio.create_task(who(cluster, "held"))
    while not (folder / "held").exists():
        await asyncio.sleep(0.01)
    working.cancel()
    await asyncio.wait([working])
    cluster.process.send_signal(signal.SIGINT)
    cluster.says("draining")
    cluster.process.send_signal(signal.SIGINT)
    cluster.process.wait(timeout=PATIENCE)  # Far less than its grace.
    (folder / "hold").unlink()
    assert alive(parts) == set()


def test_failed_process_is_named_and_cluster_stops(up: Callable[..., Cluster], folder: Path) -> None:
    (folder / "picky.py").write_text(
        f"{MODULE}\nimport sys\nif 'serve' in sys.argv: sys.exit('no server today')\n"
    )
    cluster = up(target="picky:runtime")
    pids: set[int] = set()
    cluster.until(lambda: pids.update(cluster.parts()) or cluster.process.poll() is not None)
    assert cluster.process.returncode == 1
    assert "error: server didn't start" in cluster.output
    assert "no server today" in cluster.output
    assert alive(pids) == set()


def test_taken_port_is_refused_before_start(folder: Path, tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "data"))
    ended = command("-m", "wakeful.cli", "up", "office:runtime", *data, "--port", "99999", cwd=folder)
    assert ended.returncode == 2
    assert "65535" in ended.stderr
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = command("-m", "wakeful.cli", "up", "office:runtime", *data, "--port", port, cwd=folder)
    assert ended.returncode == 2
    assert f"can't listen on port {port} (Address already in use): give another --port" in ended.stderr
    assert not (tmp_path / "data").exists()


def test_worker_of_no_agents_is_refused(folder: Path) -> None:
    for names in ("", " , "):
        ended = command("-m", "wakeful.cli", "worker", "office:runtime", "--agents", names, cwd=folder)
        assert ended.returncode == 2
        assert "a worker of no agents would claim nothing" in ended.stderr


@pytest.mark.long
def test_unreachable_engine_is_named(up: Callable[..., Cluster], folder: Path) -> None:
    first = up("--fresh")
    first.says("ctrl-C takes it down")
    first.close()
    (folder / ".wakeful" / "cluster.json").unlink()  # Nobody knows the password any more.
    cluster = up()
    assert cluster.process.wait(timeout=PATIENCE) == 1
    assert "error: postgres can't be used: password authentication failed" in cluster.output


def test_broken_module_is_refused_before_start(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("from wakeful import Runtime\nruntime = Runtime(5)\n")
    ended = command("-m", "wakeful.cli", "up", "broken:runtime", cwd=tmp_path)
    assert ended.returncode == 2
    assert "module 'broken' can't be imported" in ended.stderr
    assert [path.name for path in tmp_path.iterdir() if path.name != "__pycache__"] == ["broken.py"]


def test_foreign_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    ended = command("-m", "wakeful.cli", "up", "office:runtime", "--fresh", "--data", str(tmp_path), cwd=folder)
    assert (ended.returncode, (tmp_path / "thesis.txt").exists()) == (2, True)
    assert "isn't empty, and not a folder of `wakeful up`" in ended.stderr


def test_missing_up_extra_names_install_command(folder: Path) -> None:
    without = (
        "import sys; sys.modules['asyncpg'] = sys.modules['nats'] = None; from wakeful.cli import main; main()"
    )
    ended = command("-c", without, "up", "office:runtime", cwd=folder)
    assert ended.returncode == 2
    assert "(asyncpg, nats): pip install 'wakeful[up,postgres,nats,server]'" in ended.stderr
