"""The process that a crash test kills: it runs the scenario, counts its commits, and dies where it is told to.

Nothing of this is in the way of a process that runs for real: what counts and kills is put around the stores here,
in the child, and nowhere else.
"""

from __future__ import annotations

import asyncio
import os
import pkgutil
import runpy
import signal
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NoReturn

import msgspec
from msgspec import Struct

from ..models import Model, ModelRequest
from ..stores import Commit, Committed
from ..types.events import RunFinish, RunStart, ToolCallSuspended
from ..types.messages import Message
from ..types.runs import Call

__all__ = [
    "Asked",
    "Begun",
    "CrashSite",
    "Entry",
    "KillPoint",
    "Killed",
    "Orders",
    "Wrote",
    "launch",
    "read_journal",
]

# Seconds after which a process ends in any case.
LONGEST = 600

KillPoint = Literal["before", "inside", "between", "after"]


class CrashSite(Struct, frozen=True):
    """Where a scenario runs. `store` is the path or URL to open a runtime on; `folder` is for files of the
    scenario's own, such as the ledger of a payment service. Both outlive the process."""

    store: str
    folder: Path


class Orders(Struct, frozen=True):
    """What a child is told: what to run, where, and at which commit to die, if at all."""

    scenario: str
    store: str
    folder: str
    journal: str
    output: str
    commit: int = 0
    point: KillPoint | None = None


class Begun(Struct, frozen=True, tag="begun"):
    """A process begins with the scenario."""

    pid: int


class Wrote(Struct, frozen=True, tag="wrote"):
    """A process is about to commit for the n-th time."""

    commit: int
    what: str


class Killed(Struct, frozen=True, tag="killed"):
    """A process kills itself at a commit."""

    commit: int
    point: KillPoint


class Asked(Struct, frozen=True, tag="asked"):
    """A model is asked: when, and the ids of the last messages it is shown."""

    at: int
    messages: tuple[str, ...]


Entry = Begun | Wrote | Killed | Asked


def read_journal(path: Path) -> list[Entry]:
    """What the processes of a site wrote down. A line that a kill cut off is left out."""
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")[:-1]
    return [msgspec.json.decode(line, type=Entry) for line in lines]


class _Journal:
    """A file that lines are appended to, each at once, whichever process writes it."""

    def __init__(self, path: str) -> None:
        self._handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, entry: Entry) -> None:
        os.write(self._handle, msgspec.json.encode(entry) + b"\n")


class _Reaper:
    """Counts the commits of this process and kills it at the one it was told."""

    def __init__(self, orders: Orders, journal: _Journal) -> None:
        self._orders = orders
        self._journal = journal
        self._count = 0
        self._doomed: Commit | None = None

    def around(self, commit_of: Callable[[Any, Commit], Awaitable[Committed]]) -> Callable[[Any, Commit], Any]:
        """A store's `commit`, counted."""

        async def commit(store: Any, commit: Commit) -> Committed:
            self._count += 1
            self._journal.write(Wrote(self._count, describe(commit)))
            doomed = self._count == self._orders.commit
            if doomed:
                self._doomed = commit
                self.die_at("before")
            committed = await commit_of(store, commit)
            if doomed:
                self.die_at("after")
            return committed

        return commit

    def dooms(self, commit: Commit) -> bool:
        """Whether this is the commit to die at."""
        return commit is self._doomed

    def die_at(self, point: KillPoint) -> None:
        """The doomed commit got to this point."""
        if point == self._orders.point:
            self.die()

    @property
    def point(self) -> KillPoint | None:
        """Where to die."""
        return self._orders.point

    def die(self) -> NoReturn:
        """End this process as `kill -9` does."""
        self._journal.write(Killed(self._orders.commit, self._orders.point or "before"))
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("a process outlived its SIGKILL")


def _watch_sqlite(reaper: _Reaper) -> None:
    from ..stores._sqlite import SqliteStore
    from ..stores._writing import Writing

    plain, write = Writing.plain, Writing.__call__

    def plain_of(writing: Writing) -> Any:
        # What is one statement is a transaction that nobody can look into: it takes the long way.
        return None if reaper.dooms(writing.commit) else plain(writing)

    def written(writing: Writing) -> Any:
        if reaper.dooms(writing.commit):
            # The whole group is written by then, and its transaction is about to be committed.
            writing.db.set_trace_callback(lambda sql: reaper.die_at("inside") if sql == "COMMIT" else None)
        return write(writing)

    Writing.plain = plain_of  # type: ignore[method-assign]
    Writing.__call__ = written  # type: ignore[method-assign]
    SqliteStore.commit = reaper.around(SqliteStore.commit)  # type: ignore[method-assign]


def _watch_postgres(reaper: _Reaper) -> None:
    from ..stores import _groups, _postgres

    kind: Any = _groups.Groups
    wait, write, write_alone = kind._wait, kind._write, kind._write_alone
    doomed: list[Commit] = []

    def watched(groups: Any, tenant: str, packer: Any, commit: Commit) -> Any:
        if reaper.dooms(commit):
            doomed.append(commit)
        return wait(groups, tenant, packer, commit)

    def send(groups: Any, batch: list[Any]) -> None:
        if any(waiting.commit is commit for waiting in batch for commit in doomed):
            groups._connections = _LastWords(groups._connections, reaper)

    async def sent(groups: Any, batch: list[Any]) -> None:
        send(groups, batch)
        await write(groups, batch)

    async def sent_alone(groups: Any, waiting: Any) -> Any:
        send(groups, [waiting])
        return await write_alone(groups, waiting)

    kind._wait, kind._write, kind._write_alone = watched, sent, sent_alone
    _postgres.PostgresStore.commit = reaper.around(_postgres.PostgresStore.commit)  # type: ignore[method-assign]


class _LastWords:
    """Connections on which the doomed commit is sent: the server has it, and nobody here hears so."""

    def __init__(self, connections: Any, reaper: _Reaper) -> None:
        self._connections = connections
        self._reaper = reaper

    async def run(self, work: Callable[[Any], Awaitable[Any]]) -> Any:
        async def last(connection: Any) -> Any:
            if self._reaper.point == "inside":
                await connection.execute("BEGIN")
            result = await work(connection)
            self._reaper.die_at("inside")
            self._reaper.die_at("between")
            return result

        return await self._connections.run(last)


class _AskedModel:
    """A model whose requests are written down before they are made."""

    def __init__(self, model: Model, journal: _Journal) -> None:
        self._model = model
        self._journal = journal

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def stream(self, request: ModelRequest) -> Any:
        ids = tuple([message.id for message in list(request.messages)[-8:]])
        self._journal.write(Asked(time.time_ns() // 1_000_000, ids))
        return self._model.stream(request)


def _watch_models(journal: _Journal) -> None:
    from ..models import ModelRegistry

    resolve = ModelRegistry.resolve

    def watched(registry: ModelRegistry, model: str | Model) -> Any:
        return _AskedModel(resolve(registry, model), journal)

    ModelRegistry.resolve = watched  # type: ignore[method-assign]


# -- a commit in words ---------------------------------------------------------------------------------------


def describe(commit: Commit) -> str:
    """What a commit says, in a few words."""
    words: list[str] = []
    for entry in commit.log:
        match entry:
            case RunStart(trigger=trigger):
                words.append("run starts" if trigger == "new" else f"run goes on ({trigger})")
            case Message(role="user"):
                words.append("input")
            case Message(role="assistant"):
                words.append("answer")
            case ToolCallSuspended(name=name):
                words.append(f"{name} waits")
            case RunFinish(status=status):
                words.append(f"run {status}")
            case _:
                pass
    words += [word for call in commit.calls if (word := _call(call))]
    words += [f"inbox: {item.kind}" for item in commit.inbox]
    words += ["part of an answer"] * bool(commit.chunks)
    return ", ".join(dict.fromkeys(words)) or "bookkeeping"


def _call(call: Call) -> str:
    if call.state == "finished":
        return f"{call.name}: {call.outcome}"
    return f"{call.name} starts" if call.state == "started" else ""


# -- the process ---------------------------------------------------------------------------------------------


def _scenario(name: str) -> Callable[[CrashSite], Awaitable[Any]]:
    module, _, function = name.rpartition(":")
    if module.endswith(".py"):
        return runpy.run_path(module, run_name="__crash__")[function]
    return pkgutil.resolve_name(name)


def launch() -> None:
    """Fork a process for each order that comes in; say its id, and how it ended."""
    with suppress(ImportError):
        for module in ("wakeful.runtime", "wakeful.stores._sqlite", "wakeful.stores._postgres", "asyncpg"):
            import_module(module)  # So that no child has to.
    while line := sys.stdin.buffer.readline():
        orders = msgspec.json.decode(line, type=Orders)
        if (pid := os.fork()) == 0:
            _become(orders)
        _say(pid)
        _, status = os.waitpid(pid, 0)
        _say(os.waitstatus_to_exitcode(status))


def _say(number: int) -> None:
    os.write(1, b"%d\n" % number)


def _become(orders: Orders) -> NoReturn:
    """Be the process that runs the scenario."""
    output = os.open(orders.output, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    signal.alarm(LONGEST)  # Whatever happens to the test, nothing of it is left for long.
    code = 1
    try:
        _run(orders)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _run(orders: Orders) -> None:
    journal = _Journal(orders.journal)
    reaper = _Reaper(orders, journal)
    scenario = _scenario(orders.scenario)
    _watch_models(journal)
    (_watch_postgres if "://" in orders.store else _watch_sqlite)(reaper)
    journal.write(Begun(os.getpid()))
    asyncio.run(_awaited(scenario(CrashSite(orders.store, Path(orders.folder)))))


async def _awaited(work: Awaitable[Any]) -> None:
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, _show_tasks)
    await work


def _show_tasks() -> None:
    """Say what everything waits for: this process is about to be killed because it takes too long."""
    for task in asyncio.all_tasks():
        work: Any = task.get_coro()
        frames: list[str] = []
        while work is not None and (frame := getattr(work, "cr_frame", None)) is not None:
            frames.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}")
            work = work.cr_await
        print(f"waiting: {' > '.join(frames)}", file=sys.stderr)
