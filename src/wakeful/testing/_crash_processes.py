"""Processes for crash tests. Each is forked by a launcher, which has nothing but wakeful in it: a process is there
in milliseconds, and shares nothing with those before it but the files they left."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from threading import Lock

import msgspec

from ._crash_child import CrashSite, KillPoint, Orders

__all__ = ["Child", "Kill", "Launchers"]

Kill = tuple[int, KillPoint]

_COMMAND = "from wakeful.testing._crash_child import launch; launch()"


class _Launcher:
    """A process that forks one child at a time, and says its id and how it ended."""

    def __init__(self) -> None:
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        (theirs, self._orders), (self._answers, ours) = os.pipe(), os.pipe()
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-c", _COMMAND],
            env={**os.environ, "PYTHONPATH": path},
            stdin=theirs,
            stdout=ours,
        )
        os.close(theirs)
        os.close(ours)

    def start(self, orders: Orders) -> int:
        os.write(self._orders, msgspec.json.encode(orders) + b"\n")
        return self._answer()

    def code(self, timeout: float) -> int | None:
        """How the child ended; None if it hasn't."""
        ready, _, _ = select.select([self._answers], [], [], timeout)
        return self._answer() if ready else None

    def _answer(self) -> int:
        answer = b""
        while not answer.endswith(b"\n"):
            if not (more := os.read(self._answers, 1)):
                raise RuntimeError("the launcher of crash tests ended; what it said is on standard error")
            answer += more
        return int(answer)

    def close(self) -> None:
        os.close(self._orders)
        self._process.wait()
        os.close(self._answers)


class Launchers:
    """Starts processes that run a scenario; as many at once as are asked for."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._idle: list[_Launcher] = []
        self._children: set[Child] = set()

    def start(self, scenario: str, place: Path, site: CrashSite, kill: Kill | None = None) -> Child:
        """Start a process that runs the scenario at a site, and dies at a commit if it is told to."""
        commit, point = kill or (0, None)
        files = str(place / "journal"), str(place / "output")
        orders = Orders(scenario, site.store, str(site.folder), *files, commit, point)
        with self._lock:
            launcher = self._idle.pop() if self._idle else _Launcher()
        child = Child(self, launcher, orders)
        self._children.add(child)
        return child

    def ended(self, child: Child, launcher: _Launcher) -> None:
        """A child has ended: its launcher may start another."""
        with self._lock:
            self._children.discard(child)
            self._idle.append(launcher)

    def __enter__(self) -> Launchers:
        return self

    def __exit__(self, *_: object) -> None:
        for child in list(self._children):
            child.kill()
        for launcher in self._idle:
            launcher.close()


class Child:
    """A process that runs a scenario."""

    def __init__(self, launchers: Launchers, launcher: _Launcher, orders: Orders) -> None:
        self._launchers = launchers
        self._launcher = launcher
        self._output = Path(orders.output)
        self.pid = launcher.start(orders)
        self.code: int | None = None

    def ended(self, timeout: float = 0) -> bool:
        """Whether it comes to its end in that time."""
        if self.code is None:
            self.code = self._launcher.code(timeout)
            if self.code is not None:
                self._launchers.ended(self, self._launcher)
        return self.code is not None

    def send(self, number: signal.Signals) -> None:
        """Send it a signal; to one that has ended, nothing."""
        if not self.ended():
            # The launcher may have seen its end just now; nobody else has its id within so short a time.
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                pass

    def kill(self) -> None:
        """End it with SIGKILL."""
        self.send(signal.SIGKILL)
        while not self.ended(timeout=60):
            pass

    def problem(self, timeout: float) -> str | None:
        """Wait for its end; returns what was wrong with that, if it neither came to its end nor was killed."""
        if not self.ended(timeout):
            self.send(signal.SIGUSR1)
            self.ended(1)  # It says where it is stuck, if it still can.
            self.kill()
            return f"the process did not come to its end in {timeout:g} s{self._said()}"
        if self.code in (0, -signal.SIGKILL):
            return None
        return f"the process failed{self._said()}"

    def _said(self) -> str:
        lines = self._output.read_text(errors="replace").strip().splitlines()[-12:]
        return "".join(["; it said:" if lines else "", *[f"\n      {line}" for line in lines]])
