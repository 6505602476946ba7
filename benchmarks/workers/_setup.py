"""What a contender's processes are told, and the file in which its workers write down what they did."""

import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from benchmarks._measures import Plan

# A run: the scripted model asks for a tool four times, and then says that it is done. Five steps, each a model
# call and the tool call that it asked for; nine calls.
PLAN = Plan(turns=4)
STEPS = PLAN.turns + 1
CALLS = 2 * PLAN.turns + 1

_PREFIX = "WAKEFUL_BENCH_"


@dataclass(frozen=True)
class Setup:
    """One contender's setup; its workers and its client find it in their environment."""

    address: str
    ledger: str
    bus: str = ""
    # How many runs a worker process has at once.
    concurrency: int = 32
    # How many durable steps a run has, where it is ours to say.
    steps: int = STEPS

    @classmethod
    def here(cls) -> "Setup":
        """The setup of this process."""
        given = {key: os.environ[_PREFIX + key.upper()] for key in cls.__dataclass_fields__}
        numbers = {key: int(given[key]) for key in ("concurrency", "steps")}
        return cls(**{**given, **numbers})  # pyright: ignore[reportArgumentType]

    def environ(self) -> dict[str, str]:
        return {_PREFIX + key.upper(): str(value) for key, value in asdict(self).items()}


class Queue(Protocol):
    """A client's side of a contender: it has no worker in it."""

    async def put(self, run_id: str) -> None:
        """Enqueue a run; it is durable when this returns."""
        ...

    async def done(self) -> int:
        """How many runs are durably done."""
        ...


class Ledger:
    """A file with a line for each call that was made: of which run, and when by the machine's clock."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        self._read = 0

    def mark(self, run_id: str) -> None:
        """A call is made. Lines this short are written whole, whoever else writes."""
        os.write(self._file, f"{run_id} {time.monotonic()}\n".encode())

    def news(self) -> Iterator[tuple[str, float]]:
        """What was written since this was asked last."""
        with self._path.open("rb") as file:
            file.seek(self._read)
            whole = file.read().rpartition(b"\n")[0]  # A line over the end of a page may be half there.
        self._read += len(whole) + bool(whole)
        for line in whole.decode().splitlines():
            run_id, at = line.split()
            yield run_id, float(at)
