"""The real command as a process, whose output can be waited for."""

from __future__ import annotations

import codecs
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["HERE", "Process", "command", "environment"]

HERE = Path(__file__).parent
PATIENCE = 600  # Only a process that hangs is killed, not a slow one.

# A shell that starts tests in the background makes them ignore ctrl-C, and their children inherit that.
AS_IN_A_TERMINAL = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from wakeful.cli import main; main()"
)


class Process:
    """The real command, with pipes or a terminal, whose output can be waited for."""

    def __init__(self, arguments: Sequence[str], **streams: Any) -> None:
        command = [sys.executable, "-c", AS_IN_A_TERMINAL, *arguments]
        self._process = subprocess.Popen(command, cwd=HERE, env=environment(), **streams)
        self._watchdog = threading.Timer(PATIENCE, self._process.kill)
        self._watchdog.start()
        self.output = ""
        self._read = 0
        self._decode = codecs.getincrementaldecoder("utf-8")().decode  # A read may end within a character.

    def read_until(self, text: str, descriptor: int | None = None) -> str:
        """Read on to the end of this text and return what was passed; fail if the output ends before."""
        if descriptor is None:
            assert self._process.stdout is not None
            descriptor = self._process.stdout.fileno()
        begin = self._read
        while text not in self.output[begin:]:
            piece = _read(descriptor)
            assert piece, f"the output ended before {text!r}:\n{self.output}"
            self.output += self._decode(piece)
        self._read = self.output.index(text, begin) + len(text)
        return self.output[begin : self._read]

    def type(self, line: str) -> None:
        """Give it a line on stdin."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()

    def end_input(self) -> None:
        """Press ctrl-D."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def interrupt(self) -> None:
        """Press ctrl-C."""
        self._process.send_signal(signal.SIGINT)

    def exit_code(self) -> int:
        """Wait for the end of it."""
        if self._process.stdout is not None:
            self.output += self._process.stdout.read().decode()
        return self._process.wait()

    def ended(self, descriptor: int) -> int:
        """Wait for the end of one that draws on a terminal, and read what it draws until then."""
        while piece := _read(descriptor):
            self.output += self._decode(piece)
        return self._process.wait()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._watchdog.cancel()
        self._watchdog.join()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # The terminal's other end says so when the process is gone.
        return b""


def environment() -> dict[str, str]:
    """The environment of a user who set nothing that changes the output."""
    changing = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TERM", "PYTHONUNBUFFERED")
    kept = {k: v for k, v in os.environ.items() if k not in changing}
    return {**kept, "PYTHONIOENCODING": "utf-8"}


def command(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run `python` with these arguments to its end."""
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=PATIENCE,
        env=environment(),
        **{"cwd": HERE, **options},
    )
