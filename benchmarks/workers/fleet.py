"""The processes of a contender: workers and a client."""

import json
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import envs
from benchmarks.workers.roster import Contender
from benchmarks.workers.servers import cpu_seconds
from benchmarks.workers.setup import Setup

__all__ = ["Fleet"]


class Fleet:
    """The processes of one contender, stopped at the end."""

    def __init__(self, contender: Contender, python: Path, setup: Setup, *, profile: Path | None = None) -> None:
        self._contender = contender
        self._python = str(python)
        self._setup = setup
        self._profile = profile
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the fleet
        self.workers: list[subprocess.Popen[str]] = []
        self._client: subprocess.Popen[str] | None = None
        self.versions: dict[str, str] = {}

    def __enter__(self) -> "Fleet":
        return self

    def __exit__(self, *_: object) -> None:
        if self._client is not None:
            self._client.communicate()
        self.stop()
        self._errors.close()

    def start(self, count: int) -> None:
        """Start workers and the client. The first worker creates the tables before the others start."""
        for _ in range(count):
            self.workers.append(self._spawn(self._worker()))
            if len(self.workers) == 1:
                self._wait_for(self.workers[0], "worker")
        for worker in self.workers[1:]:
            self._wait_for(worker, "worker")
        calls = self._contender.calls or self._setup.steps
        self._client = self._spawn(["-m", "benchmarks.workers.client", self._contender.module, str(calls)])
        self.versions = self._hear()["versions"]

    def _worker(self) -> list[str]:
        command = self._contender.worker(self._setup.concurrency)
        return command if self._profile is None else ["-m", "cProfile", "-o", str(self._profile), *command]

    def _spawn(self, arguments: list[str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [self._python, *arguments],
            env={**self._environ(), **self._setup.environ()},
            cwd=envs.ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def _environ(self) -> dict[str, str]:
        environ = envs.worker_environ()
        if self._contender.ours:  # This source tree, whichever version is installed.
            environ["PYTHONPATH"] += os.pathsep + str(envs.ROOT / "src")
        return environ

    def _wait_for(self, process: subprocess.Popen[str], word: str) -> None:
        assert process.stdout is not None
        while not (line := process.stdout.readline()).startswith(word):
            if not line:
                raise RuntimeError(f"a process ended: {self._complaint()}")

    def _complaint(self) -> str:
        self._errors.seek(0)
        return envs.last_line(self._errors.read().decode(errors="replace"))[:300]

    def tell(self, what: str, **args: Any) -> dict[str, Any]:
        """Send the client a command and wait for its reply."""
        assert self._client is not None
        assert self._client.stdin is not None
        self._client.stdin.write(json.dumps([what, args]) + "\n")
        self._client.stdin.flush()
        return self._hear()

    def _hear(self) -> dict[str, Any]:
        assert self._client is not None
        assert self._client.stdout is not None
        while line := self._client.stdout.readline():
            if line.startswith("{"):
                answer = json.loads(line)
                if "error" in answer:
                    raise RuntimeError(f"{answer['error']} {self._complaint()}")
                return answer
        raise RuntimeError(f"the client ended: {self._complaint()}")

    def signal(self, one: signal.Signals) -> None:
        """Send all workers a signal."""
        for worker in self.workers:
            os.kill(worker.pid, one)

    def cpu(self) -> float | None:
        """The CPU seconds of the workers."""
        found = [cpu_seconds(worker.pid) for worker in self.workers]
        return None if None in found else sum(filter(None, found))

    def stop(self, timeout: float = 15) -> None:
        """Stop the workers, gracefully or else by SIGKILL."""
        for worker in self.workers:
            if worker.poll() is None:
                worker.terminate()
        deadline = time.monotonic() + timeout
        for worker in self.workers:
            try:
                worker.communicate(timeout=max(deadline - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.communicate()
        self.workers.clear()
