"""Processes of a crash test. Each is forked from a launcher that has wakeful loaded, which takes milliseconds."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from threading import Lock

import msgspec

from .child import ChildOrder
from .journal import KillPoint
from .sites import CrashSite

__all__ = ["Child", "Kill", "Launchers"]

Kill = tuple[int, KillPoint]

_COMMAND = "from wakeful.testing.crash.child import launch; launch()"


class _Launcher:
    """A process that forks one child at a time and reports its pid and exit code."""

    def __init__(self) -> None:
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        (orders_in, self._orders), (self._replies, replies_out) = os.pipe(), os.pipe()
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-c", _COMMAND],
            env={**os.environ, "PYTHONPATH": path},
            stdin=orders_in,
            stdout=replies_out,
        )
        os.close(orders_in)
        os.close(replies_out)

    def start(self, order: ChildOrder) -> int:
        """Start a child and return its pid."""
        os.write(self._orders, msgspec.json.encode(order) + b"\n")
        return self._read_number()

    def wait(self, timeout: float) -> int | None:
        """Wait for the child's exit code; None on timeout."""
        ready, _, _ = select.select([self._replies], [], [], timeout)
        return self._read_number() if ready else None

    def _read_number(self) -> int:
        reply = b""
        while not reply.endswith(b"\n"):
            if not (more := os.read(self._replies, 1)):
                raise RuntimeError("the launcher of a crash test exited; its output is on standard error")
            reply += more
        return int(reply)

    def close(self) -> None:
        os.close(self._orders)
        self._process.wait()
        os.close(self._replies)


class Launchers:
    """Starts children; each that runs at the same time has a launcher of its own."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._idle: list[_Launcher] = []
        self._children: set[Child] = set()

    def start(self, scenario: str, workdir: Path, site: CrashSite, kill: Kill | None = None) -> Child:
        """Start a child that runs the scenario at a site, and that is killed at a commit if `kill` is given."""
        commit, point = kill or (0, None)
        files = str(workdir / "journal"), str(workdir / "output")
        order = ChildOrder(scenario, site.store, str(site.folder), *files, commit, point)
        with self._lock:
            launcher = self._idle.pop() if self._idle else _Launcher()
        child = Child(self, launcher, order)
        self._children.add(child)
        return child

    def release(self, child: Child, launcher: _Launcher) -> None:
        """Reuse the launcher of a child that exited."""
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
    """A process that runs a scenario. `code` is its exit code once it is known."""

    def __init__(self, launchers: Launchers, launcher: _Launcher, order: ChildOrder) -> None:
        self._launchers = launchers
        self._launcher = launcher
        self._output = Path(order.output)
        self.pid = launcher.start(order)
        self.code: int | None = None

    def has_exited(self, timeout: float = 0) -> bool:
        """Wait up to `timeout` seconds; returns whether the process has exited."""
        if self.code is None:
            self.code = self._launcher.wait(timeout)
            if self.code is not None:
                self._launchers.release(self, self._launcher)
        return self.code is not None

    def send(self, number: signal.Signals) -> None:
        """Send a signal; does nothing if the process has exited."""
        if not self.has_exited():
            # The process may exit here; its pid isn't reused within so short a time.
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                pass

    def kill(self) -> None:
        """Send SIGKILL and wait for the exit."""
        self.send(signal.SIGKILL)
        while not self.has_exited(timeout=60):
            pass

    def wait(self, timeout: float) -> str | None:
        """Wait for the exit; returns an error text unless the process succeeded or was killed by SIGKILL."""
        if not self.has_exited(timeout):
            self.send(signal.SIGUSR1)
            self.has_exited(1)  # Time to print its tasks.
            self.kill()
            return f"the process did not come to its end in {timeout:g} s{self._last_output()}"
        if self.code in (0, -signal.SIGKILL):
            return None
        return f"the process failed{self._last_output()}"

    def _last_output(self) -> str:
        lines = self._output.read_text(errors="replace").strip().splitlines()[-12:]
        return "".join(["; its output:" if lines else "", *[f"\n      {line}" for line in lines]])
