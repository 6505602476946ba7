"""The servers of the contenders: one Postgres and one NATS for all, and Temporal's own."""

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

from benchmarks.databases import PostgresServer

__all__ = ["Queries", "cpu_seconds", "nats_server", "postgres_server", "temporal_server"]

# A server stops at the end of its standard input, so that it never outlives this process.
_GUARD = '"$@" & read -r _; kill -TERM $! 2>/dev/null; wait $!'


@contextmanager
def folder() -> Iterator[Path]:
    """A temporary folder."""
    path = Path(mkdtemp(prefix="wakeful-bench-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """An empty Postgres server with default settings."""
    with folder() as path:
        server = PostgresServer(path)
        try:
            yield server
        finally:
            server.stop()


@contextmanager
def _served(command: list[str], home: Path, port: int) -> Iterator[None]:
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "sh", *command], cwd=home, stdin=subprocess.PIPE, stdout=log, stderr=log
        )
    try:
        deadline = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 10).close()
                break
            except OSError:
                if time.monotonic() > deadline or process.poll() is not None:
                    raise RuntimeError(f"{command[0]}: {(home / 'log').read_text()[-500:]}") from None
                time.sleep(0.02)
        yield
    finally:
        process.communicate()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def nats_server() -> Iterator[str]:
    """Run a NATS server with JetStream; yields its URL."""
    port = _free_port()
    with folder() as home:
        (home / "nats.conf").write_text(f'listen: 127.0.0.1:{port}\njetstream: {{store_dir: "{home}/js"}}\n')
        program = Path(sys.executable).parent / "nats-server"
        with _served([str(program), "-c", str(home / "nats.conf")], home, port):
            yield f"nats://127.0.0.1:{port}"


@contextmanager
def temporal_server(python: Path) -> Iterator[str]:
    """Run Temporal's development server on a SQLite file with full sync; yields its address."""
    port = _free_port()
    with folder() as home:
        options = ["--headless", "--ip", "127.0.0.1", "--port", str(port), "--log-level", "error"]
        stored = ["--db-filename", str(home / "temporal.db")]
        strict = ["--sqlite-pragma", "journal_mode=WAL", "--sqlite-pragma", "synchronous=FULL"]
        program = str(python.parent / "temporal")
        with _served([program, "server", "start-dev", *options, *stored, *strict], home, port):
            yield f"127.0.0.1:{port}"


class Queries:
    """The statements that a Postgres server executes, counted in its log."""

    _LINE = re.compile(
        rb"^\[([^\]]*)\] LOG: +duration: [\d.]+ ms +(?:execute [^:]*|statement): (.*(?:\n\t.*)*)", re.MULTILINE
    )

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._from = 0

    def begin(self) -> None:
        """Start counting."""
        self._set("'[%a] '", "0")
        self._from = self._server.log.stat().st_size

    def end(self) -> list[str]:
        """The statements since then, without those of psql, which this program uses."""
        with self._server.log.open("rb") as log:
            log.seek(self._from)
            found = self._LINE.findall(log.read())
        self._set("'%m [%p] '", "-1")
        return [text.decode(errors="replace") for who, text in found if who != b"psql"]

    def _set(self, prefix: str, duration: str) -> None:
        self._server.ask(f"ALTER SYSTEM SET log_line_prefix = {prefix}")
        self._server.ask(f"ALTER SYSTEM SET log_min_duration_statement = {duration}")
        self._server.ask("SELECT pg_reload_conf()")
        time.sleep(0.5)  # Backends read it when they next wait for a statement.


_TICK = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int, *, children: bool = False) -> float | None:
    """The CPU seconds of a process, or of it and its children; 0 without /proc."""
    try:
        own = _stat(pid)
        if not children:
            return sum(map(int, own[11:13])) / _TICK
        ticks = sum(map(int, own[11:15]))  # Including ended children.
        for path in Path("/proc").glob("[0-9]*"):
            try:
                one = _stat(int(path.name))
            except OSError:
                continue  # It has just ended.
            ticks += sum(map(int, one[11:13])) if int(one[1]) == pid else 0
        return ticks / _TICK
    except OSError:
        return None


def _stat(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat after the name: state, parent, …, user and system time."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
