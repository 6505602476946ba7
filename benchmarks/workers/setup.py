"""The settings of a contender's processes, and the ledger in which its workers record calls."""

import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from benchmarks.measures import Plan

# A run: the scripted model calls a tool four times and then ends. Five steps, each a model call and its tool call;
# nine calls.
PLAN = Plan(turns=4)
STEPS = PLAN.turns + 1
CALLS = 2 * PLAN.turns + 1

_PREFIX = "WAKEFUL_BENCH_"


@dataclass(frozen=True)
class Setup:
    """One contender's settings, passed to its processes in environment variables."""

    address: str
    ledger: str
    bus: str = ""
    # The concurrent runs of a worker process.
    concurrency: int = 32
    # The durable steps of a run, for contenders that let us choose.
    steps: int = STEPS

    @classmethod
    def here(cls) -> "Setup":
        """The settings of this process."""
        given = {key: os.environ[_PREFIX + key.upper()] for key in cls.__dataclass_fields__}
        numbers = {key: int(given[key]) for key in ("concurrency", "steps")}
        return cls(**{**given, **numbers})  # pyright: ignore[reportArgumentType]

    def environ(self) -> dict[str, str]:
        return {_PREFIX + key.upper(): str(value) for key, value in asdict(self).items()}


class Queue(Protocol):
    """The client side of a contender, without a worker."""

    async def put(self, run_id: str) -> None:
        """Enqueue a run; it is durable when this returns."""
        ...

    async def done(self) -> int:
        """The number of runs that are durably done."""
        ...


class Ledger:
    """A file with a line for each call: its run and its time."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        self._read = 0

    def mark(self, run_id: str) -> None:
        """Record a call. Such short lines are written atomically."""
        os.write(self._file, f"{run_id} {time.monotonic()}\n".encode())

    def news(self) -> Iterator[tuple[str, float]]:
        """Read the calls since the last read."""
        with self._path.open("rb") as file:
            file.seek(self._read)
            whole = file.read().rpartition(b"\n")[0]  # The last line may be incomplete.
        self._read += len(whole) + bool(whole)
        for line in whole.decode().splitlines():
            run_id, at = line.split()
            yield run_id, float(at)
