"""The contenders: their databases, and their durable records."""

from dataclasses import dataclass
from typing import Literal

from benchmarks.workers.setup import CALLS

__all__ = ["CONTENDERS", "Contender"]


@dataclass(frozen=True)
class Contender:
    """A contender: module, environment, database, and the command of a worker process."""

    name: str
    module: str
    environment: str
    store: Literal["sqlite", "postgres", "temporal"]
    # The records that are durable before the run continues.
    durable: str
    bus: Literal["", "nats", "postgres"] = ""
    processes: tuple[int, ...] = (1, 2, 4)
    # The calls of a run, if the setup doesn't determine them.
    calls: int | None = None
    command: tuple[str, ...] = ()

    @property
    def ours(self) -> bool:
        return self.module == "wakeful"

    def worker(self, concurrency: int) -> list[str]:
        """The interpreter's arguments for a worker process."""
        own = [*self.command, "--concurrency", str(concurrency)]
        return own if self.command else ["-m", "benchmarks.workers.worker", self.module]


_OURS = "the input, the beginning with its claim, each answer with the call it starts, each result, the end: a log"
_WORKER = ("-m", "wakeful.cli", "worker", "benchmarks.workers.contenders.wakeful:runtime")


def _ours(
    name: str,
    store: Literal["sqlite", "postgres"],
    bus: Literal["", "nats", "postgres"] = "",
    processes: tuple[int, ...] = (1, 2, 4),
) -> Contender:
    return Contender(
        name, "wakeful", "wakeful-workers", store, _OURS, bus, processes, calls=CALLS, command=_WORKER
    )


CONTENDERS = (
    _ours("wakeful-sqlite", "sqlite", processes=(1,)),
    _ours("wakeful-postgres", "postgres"),
    _ours("wakeful-postgres-nats", "postgres", "nats"),
    _ours("wakeful-postgres-notify", "postgres", "postgres", (1,)),
    Contender(
        "dbos",
        "dbos",
        "dbos",
        "postgres",
        "the workflow's row, its being taken off the queue, each step's result, the end; not that a step began",
    ),
    Contender(
        "procrastinate",
        "procrastinate",
        "procrastinate",
        "postgres",
        "the job, its being fetched, a row of the application's for each step's result, the job's end",
    ),
    Contender(
        "temporal",
        "temporal",
        "temporal",
        "temporal",
        "each event of the workflow's history and each task, in the dev server's own SQLite file, not in Postgres",
    ),
)
