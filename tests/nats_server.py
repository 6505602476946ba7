"""A real NATS for tests: one server for each test process, started when the first test asks for it."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from free_ports import free_port

__all__ = ["NatsServer", "server"]

# The server ends when its standard input does, and its folder with it, however the tests end. Its id is written
# before it is there.
_GUARD = """
cd "$1"; shift
sh -c 'echo $$ > pid; exec "$@"' sh "$@" & read -r _; kept=$?
kill -TERM $! 2>/dev/null; wait $!
[ $kept = 0 ] || rm -rf "$PWD"
"""


class NatsServer:
    """A server on a free port of the loopback address. `settings` are lines of its configuration file."""

    def __init__(self, *settings: str, jetstream: bool = True) -> None:
        self.folder = Path(mkdtemp(prefix="wakeful-nats-"))
        self._guard: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        stored = [f'jetstream: {{store_dir: "{self.folder}/js"}}'] if jetstream else []
        lines = [f"listen: 127.0.0.1:{self.port}", "max_payload: 1MB", *stored, *settings]
        (self.folder / "nats.conf").write_text("\n".join(lines))

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        program = Path(sys.executable).parent / "nats-server"
        with (self.folder / "log").open("ab") as log:
            self._guard = subprocess.Popen(
                ["/bin/sh", "-c", _GUARD, "sh", self.folder, program, "-c", self.folder / "nats.conf"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + 60
        while not self._greets():
            if time.monotonic() > deadline:
                raise RuntimeError((self.folder / "log").read_text())
            time.sleep(0.01)

    def _greets(self) -> bool:
        """Whether it is there, and not somebody else at its port: a NATS server speaks first."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 10) as connection:
                return connection.recv(4) == b"INFO"
        except OSError:
            return False

    def kill(self) -> None:
        """End it as a crash would."""
        guard, self._guard = self._guard, None
        if guard is None:
            return
        os.kill(int((self.folder / "pid").read_text()), signal.SIGKILL)
        guard.communicate(b"keep the folder\n")

    def close(self) -> None:
        guard, self._guard = self._guard, None
        if guard is None:
            shutil.rmtree(self.folder, ignore_errors=True)
        else:
            guard.communicate()


@cache
def server() -> NatsServer:
    """This process's server."""
    started = NatsServer()
    atexit.register(started.close)
    started.start()
    return started
