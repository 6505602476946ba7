"""The child process of a crash test: it runs the scenario and kills itself at the commit of its order."""

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
from typing import Any, NoReturn

import msgspec
from msgspec import Struct

from ...models import Model, ModelRequest
from .journal import Journal, KillPoint, ModelRequested, ProcessStarted
from .kills import Killer, patch_postgres, patch_sqlite
from .sites import CrashSite

__all__ = ["ChildOrder", "launch"]

# The child ends itself after this time even if the test process is gone.
MAX_LIFETIME_SECONDS = 600


class ChildOrder(Struct, frozen=True):
    """The scenario of a child, its store, and the commit at which it kills itself, if any."""

    scenario: str
    store: str
    folder: str
    journal: str
    output: str
    commit: int = 0
    point: KillPoint | None = None


def launch() -> None:
    """Fork a child for each order read from stdin; print its pid and, when it ends, its exit code."""
    with suppress(ImportError):
        for module in ("wakeful.runtime", "wakeful.stores.sqlite", "wakeful.stores.postgres", "asyncpg"):
            import_module(module)  # Imported once here instead of in every child.
    while line := sys.stdin.buffer.readline():
        order = msgspec.json.decode(line, type=ChildOrder)
        if (pid := os.fork()) == 0:
            _run_child(order)
        _print_number(pid)
        _, status = os.waitpid(pid, 0)
        _print_number(os.waitstatus_to_exitcode(status))


def _print_number(number: int) -> None:
    os.write(1, b"%d\n" % number)


def _run_child(order: ChildOrder) -> NoReturn:
    output = os.open(order.output, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    signal.alarm(MAX_LIFETIME_SECONDS)
    code = 1
    try:
        _run_scenario(order)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _run_scenario(order: ChildOrder) -> None:
    journal = Journal(order.journal)
    killer = Killer(journal, order.commit, order.point)
    scenario = _load_scenario(order.scenario)
    _patch_models(journal)
    patch_store = patch_postgres if "://" in order.store else patch_sqlite
    patch_store(killer)
    journal.write(ProcessStarted(os.getpid()))
    asyncio.run(_run_with_dump(scenario(CrashSite(order.store, Path(order.folder)))))


def _load_scenario(name: str) -> Callable[[CrashSite], Awaitable[Any]]:
    module, _, function = name.rpartition(":")
    if module.endswith(".py"):
        return runpy.run_path(module, run_name="__crash__")[function]
    return pkgutil.resolve_name(name)


class _JournaledModel:
    """A model whose requests are recorded in the journal before they are sent."""

    def __init__(self, model: Model, journal: Journal) -> None:
        self._model = model
        self._journal = journal

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def stream(self, request: ModelRequest) -> Any:
        ids = tuple([message.id for message in list(request.messages)[-8:]])
        self._journal.write(ModelRequested(time.time_ns() // 1_000_000, ids))
        return self._model.stream(request)


def _patch_models(journal: Journal) -> None:
    from ...models import ModelRegistry

    resolve = ModelRegistry.resolve

    def resolve_journaled(registry: ModelRegistry, model: str | Model) -> Any:
        return _JournaledModel(resolve(registry, model), journal)

    ModelRegistry.resolve = resolve_journaled  # type: ignore[method-assign]


async def _run_with_dump(work: Awaitable[Any]) -> None:
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, _dump_tasks)
    await work


def _dump_tasks() -> None:
    """Print the await chain of every task, before a child that takes too long is killed."""
    for task in asyncio.all_tasks():
        work: Any = task.get_coro()
        frames: list[str] = []
        while work is not None and (frame := getattr(work, "cr_frame", None)) is not None:
            frames.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}")
            work = work.cr_await
        print(f"waiting: {' > '.join(frames)}", file=sys.stderr)
