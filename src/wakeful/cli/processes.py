"""The processes of a cluster on one machine: start, watch, restart and stop them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from re import Pattern
from typing import Any, NamedTuple

from msgspec import Struct

from ..errors import WakefulError

__all__ = ["Guard", "Part", "PartFailed", "Spec", "Stopping", "User", "as_user", "output_text"]

START_SECONDS = 60.0
# Backoff in seconds before a part is restarted; reset once it lived for a while.
FIRST_PAUSE, LONGEST_PAUSE, STEADY = 0.5, 30.0, 10.0
PROBE_EVERY = 0.05
SHOWN_LINES = 20

# Ends all parts when `wakeful up` ends in any way: each line of input lists the running processes, and the end of
# input is the end of `wakeful up`. The lock on the folder is held until the last process has ended.
_GUARD = """
while read -r line; do pids=$line; done
[ -n "$pids" ] || exit 0
kill -TERM $pids
for _ in $(seq 600); do kill -0 $pids 2>/dev/null || exit 0; sleep 0.1; done
kill -KILL $pids
"""


class PartFailed(WakefulError):
    """A part of the cluster doesn't start."""


class User(NamedTuple):
    """The user that a part runs as, if not the present one."""

    uid: int
    gid: int


class Spec(Struct, frozen=True, kw_only=True):
    """How to start a part, how to tell that it is ready, and how to stop it.

    `{port}` in the command is 0 at the first start, and later the port that the part got then. A part is ready
    when it prints a line that matches `ready_line`, or answers the `probe`. Its output goes to the file `log`, or
    else to the terminal. It is stopped by the signal `stop`, and by `kill` after `grace` seconds.
    """

    name: str
    command: Sequence[str]
    ready_line: Pattern[str] | None = None
    probe: Callable[[], Awaitable[bool]] | None = None
    shows: Pattern[str] | None = None
    env: Mapping[str, str] = {}
    log: Path | None = None
    stop: signal.Signals = signal.SIGTERM
    kill: signal.Signals = signal.SIGKILL
    grace: float = 10.0
    user: User | None = None


class _Running(Struct, frozen=True, eq=False):
    """A running process, and the task that reads its output."""

    process: asyncio.subprocess.Process
    ended: asyncio.Task[int]

    def send(self, number: signal.Signals) -> None:
        try:
            self.process.send_signal(number)
        except ProcessLookupError:
            pass

    def how(self) -> str:
        code = self.ended.result()
        return f"by {signal.Signals(-code).name}" if code < 0 else f"with code {code}"


class Stopping:
    """Whether the cluster stops, and whether at once."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.at_once = asyncio.Event()

    def signalled(self) -> None:
        """Handle a signal: the first stops in order, the second at once."""
        (self.at_once if self.asked.is_set() else self.asked).set()


class Guard:
    """A process that ends the rest when this process is gone."""

    def __init__(self, lock: int) -> None:
        self._pids: set[int] = set()
        theirs, self._pipe = os.pipe()
        self._process = subprocess.Popen(  # noqa: S603
            ["/bin/sh", "-c", _GUARD], stdin=theirs, pass_fds=[lock], start_new_session=True
        )
        os.close(theirs)

    def add(self, pid: int) -> None:
        self._pids.add(pid)
        self._tell()

    def remove(self, pid: int) -> None:
        self._pids.discard(pid)
        self._tell()

    def _tell(self) -> None:
        os.write(self._pipe, f"{' '.join(map(str, self._pids))}\n".encode())

    def close(self) -> None:
        os.close(self._pipe)
        self._process.wait()


class Part:
    """One part of the cluster, with its restarts."""

    def __init__(self, spec: Spec, stopping: Stopping, guard: Guard, say: Callable[[str, str], None]) -> None:
        self.spec = spec
        self.address = ""
        self._port = "0"
        self._stopping = stopping
        self._guard = guard
        self._say = say
        self._output: deque[str] = deque(maxlen=SHOWN_LINES)
        self._running: _Running | None = None
        self._ready = asyncio.Event()

    async def start(self) -> None:
        """Start the part, until it is ready or the cluster stops; raises `PartFailed`."""
        self._ready.clear()
        self._output.clear()
        name = self.spec.name
        running = self._running = await self._begin()
        seen = asyncio.create_task(self._seen())
        try:
            await first([self._stopping.asked.wait()], [seen, running.ended], START_SECONDS)
        finally:
            seen.cancel()
            await asyncio.wait([seen])
        if self._stopping.asked.is_set() or (self._ready.is_set() and not running.ended.done()):
            return
        if running.ended.done():
            raise PartFailed(f"{name} didn't start: it ended {running.how()}{self._log()}")
        running.send(self.spec.kill)
        await asyncio.wait([running.ended])
        refused = None if seen.cancelled() else seen.exception()
        why = f"wasn't ready after {START_SECONDS:g} s" if refused is None else f"can't be used: {refused}"
        raise PartFailed(f"{name} {why}{self._log()}")

    async def _begin(self) -> _Running:
        spec = self.spec
        log = (
            subprocess.PIPE
            if spec.log is None
            else os.open(spec.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        )
        try:
            process = await asyncio.create_subprocess_exec(
                *[word.replace("{port}", self._port) for word in spec.command],
                env={**os.environ, **spec.env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C must reach only this process.
                **as_user(spec.user),
            )
        except OSError as error:
            raise PartFailed(f"{spec.name} can't be started: {spec.command[0]}: {error.strerror}") from error
        finally:
            if spec.log is not None:
                os.close(log)
        self._guard.add(process.pid)
        return _Running(process, asyncio.create_task(self._listen(process)))

    async def keep(self) -> None:
        """Restart the part whenever it ends, until the cluster stops."""
        loop, pause, begin = asyncio.get_running_loop(), FIRST_PAUSE, -STEADY
        while self._running is not None:
            await first([self._stopping.asked.wait()], [self._running.ended])
            if self._stopping.asked.is_set():
                return
            pause = FIRST_PAUSE if loop.time() - begin > STEADY else min(pause * 2, LONGEST_PAUSE)
            how = self._running.how()
            self._say("", f"{self.spec.name} ended {how}; it is started again in {pause:g} s")
            await first([self._stopping.asked.wait()], [], pause)
            if self._stopping.asked.is_set():
                return
            begin = loop.time()
            try:
                await self.start()
            except PartFailed as error:
                self._say("", str(error))
            else:
                if not self._stopping.asked.is_set():
                    self._say("", f"{self.spec.name} is back")

    async def stop(self) -> None:
        """Stop the part: in order if there is time."""
        running = self._running
        if running is None or running.ended.done():
            return
        if not self._stopping.at_once.is_set():
            running.send(self.spec.stop)
            await first([self._stopping.at_once.wait()], [running.ended], self.spec.grace)
        if not running.ended.done():
            running.send(self.spec.kill)
            await asyncio.wait([running.ended])

    # -- what it says ----------------------------------------------------------------------------------------

    async def _listen(self, process: asyncio.subprocess.Process) -> int:
        if process.stdout is not None:
            rest = b""
            while piece := await process.stdout.read(65536):
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    self._read_line(line.decode(errors="replace").rstrip())
            if rest:
                self._read_line(rest.decode(errors="replace").rstrip())
        code = await process.wait()
        self._guard.remove(process.pid)
        return code

    def _read_line(self, line: str) -> None:
        self._output.append(line)
        self._say(self.spec.name, line)
        if self.spec.shows is not None and (found := self.spec.shows.search(line)):
            self.address, self._port = found[1], found[1].rpartition(":")[2]
        if self.spec.ready_line is not None and self.spec.ready_line.search(line):
            self._ready.set()

    async def _seen(self) -> None:
        """Wait until the part is ready."""
        if self.spec.probe is None:
            await self._ready.wait()
            return
        while not await self.spec.probe():  # noqa: ASYNC110
            await asyncio.sleep(PROBE_EVERY)
        self._ready.set()

    def _log(self) -> str:
        """The end of the part's log, for an error."""
        lines = list(self._output)
        if self.spec.log is not None:
            lines = self.spec.log.read_text(errors="replace").splitlines()[-SHOWN_LINES:]
        return output_text(lines)


def output_text(lines: Sequence[str]) -> str:
    """A process's output, for an error."""
    return "".join(["; it said:" if lines else "", *[f"\n  {line}" for line in lines]])


def as_user(user: User | None) -> dict[str, Any]:
    """The arguments that start a process as a user, without our groups."""
    return {} if user is None else {"user": user.uid, "group": user.gid, "extra_groups": []}


async def first(
    works: Sequence[Awaitable[Any]], tasks: Sequence[asyncio.Task[Any]], timeout: float | None = None
) -> None:
    """Wait for the first of these; coroutines are cancelled then, tasks are not."""
    begun = [asyncio.ensure_future(work) for work in works]
    await asyncio.wait([*begun, *tasks], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    for one in begun:
        one.cancel()
    await asyncio.gather(*begun, return_exceptions=True)
