"""One session of all measurements on the same servers, inside wakeful's environment."""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import quantiles
from typing import Any

from benchmarks.databases import PostgresServer
from benchmarks.workers import profile
from benchmarks.workers.echo import round_trips
from benchmarks.workers.fleet import Fleet
from benchmarks.workers.roster import CONTENDERS, Contender
from benchmarks.workers.servers import (
    Queries,
    cpu_seconds,
    folder,
    nats_server,
    postgres_server,
    temporal_server,
)
from benchmarks.workers.setup import Setup

Row = dict[str, Any]

SETTLE_SECONDS = 120.0


class Session:
    """The servers and options of one session."""

    def __init__(self, wanted: dict[str, Any], postgres: PostgresServer | None, nats: str) -> None:
        self.runs: int = wanted["runs"]
        self.dispatches: int = wanted["dispatches"]
        self.seconds: float = wanted["seconds"]
        self.idle: float = wanted["idle"]
        self.concurrency: int = wanted["concurrency"]
        self.steps: int = wanted["steps"]
        self.pythons = {name: Path(path) for name, path in wanted["pythons"].items()}
        self.postgres = postgres
        self.nats = nats
        self._made = 0

    @contextmanager
    def fleet(self, contender: Contender, processes: int, *, profile: Path | None = None) -> Iterator[Fleet]:
        """Run workers of a contender and a client on a fresh database."""
        python = self.pythons[contender.environment]
        with ExitStack() as stack:
            home = stack.enter_context(folder())
            if contender.store == "sqlite":
                address = str(home / "bench.db")
            elif contender.store == "temporal":
                address = stack.enter_context(temporal_server(python))
            else:
                assert self.postgres is not None
                self._made += 1
                self.postgres.ask(f"CREATE DATABASE bench_{self._made}")
                address = self.postgres.url(f"bench_{self._made}")
            bus = {"": "", "nats": self.nats, "postgres": address}[contender.bus]
            setup = Setup(address, str(home / "ledger"), bus, self.concurrency, self.steps)
            fleet = stack.enter_context(Fleet(contender, python, setup, profile=profile))
            fleet.start(processes)
            yield fleet

    def measure(self, contender: Contender, processes: int) -> Row:
        """Measure dispatch latency and throughput; with one worker also its idle statements.

        A slow contender gets fewer runs: as many as it does in the session's seconds.
        """
        row: Row = {"contender": contender.name, "processes": processes}
        try:
            with self.fleet(contender, processes) as fleet:
                row["versions"] = fleet.versions
                few = max(self.runs // 10, 3)
                warm = self.throughput(fleet, contender, few)
                row |= self._latency(fleet)
                many = min(self.runs, max(few, int(warm["runs_per_s"] * self.seconds)))
                row |= self.throughput(fleet, contender, many)
                if processes == 1 and contender.store == "postgres" and self.idle:
                    row["idle_queries_per_s"] = self._idle()
        except Exception as error:
            row["error"] = f"{type(error).__name__}: {error}"[:400]
        return row

    def _latency(self, fleet: Fleet) -> Row:
        found = fleet.tell("latency", count=self.dispatches, seconds=self.seconds)
        spreads = {**spread("dispatch", found["latencies"]), **spread("accepted", found["accepted"])}
        return {**spreads, "dispatches": len(found["latencies"])}

    def throughput(self, fleet: Fleet, contender: Contender, runs: int, *, watch: Queries | None = None) -> Row:
        """Time runs that were enqueued while the workers were stopped.

        On SQLite the workers aren't stopped, as one may hold the file's lock.
        """
        stopped = contender.store != "sqlite"
        if stopped:
            fleet.signal(signal.SIGSTOP)
        before = self._books(fleet)
        try:
            put = fleet.tell("put", count=runs)
            if watch is not None:
                watch.begin()
            if stopped:  # Enqueueing doesn't count for the workers.
                before = self._books(fleet)
        finally:
            if stopped:
                fleet.signal(signal.SIGCONT)
        end = fleet.tell("settle", timeout=SETTLE_SECONDS)
        after = self._books(fleet)
        spent = end["at"] - end["began"]  # Dispatch latency is measured separately.
        used = {key: after[key] - before[key] for key in before if key in after}
        row: Row = {"runs": runs, "seconds": spent, "runs_per_s": runs / spent, "lag": end["lag"]}
        row["enqueued_per_s"] = runs / put["seconds"]
        row["worker_ms"] = None if "workers" not in used else used["workers"] / runs * 1000
        if contender.store == "postgres":
            row["transactions"] = used["transactions"] / runs
            row["postgres_ms"] = None if "postgres" not in used else used["postgres"] / runs * 1000
        return row

    def _books(self, fleet: Fleet) -> dict[str, float]:
        found: dict[str, float | None] = {"workers": fleet.cpu()}
        if self.postgres is not None:
            # Only writing transactions get an id.
            found["transactions"] = int(self.postgres.ask("SELECT pg_snapshot_xmax(pg_current_snapshot())"))
            found["postgres"] = cpu_seconds(self.postgres.pid, children=True)
        return {key: value for key, value in found.items() if value is not None}

    def _idle(self) -> float:
        """The statements a second of an idle worker."""
        assert self.postgres is not None
        queries = Queries(self.postgres)
        queries.begin()
        time.sleep(self.idle)
        return len(queries.end()) / self.idle


def spread(name: str, seconds: list[float]) -> Row:
    """The median and the 99th percentile of times, in milliseconds."""
    cuts = quantiles(seconds, n=100, method="inclusive") if len(seconds) > 1 else seconds * 99
    return {f"{name}_p50_ms": cuts[49] * 1000, f"{name}_p99_ms": cuts[98] * 1000}


def _processor() -> str:
    found = subprocess.run(["nproc"], capture_output=True, text=True, check=False).stdout.strip()
    return f"{found or '?'} processors"


def main() -> None:
    wanted = json.loads(sys.stdin.readline())
    out: Row = {"machine": _processor(), "rows": []}
    with postgres_server() as postgres, nats_server() as nats:
        session = Session(wanted, postgres, nats)
        names = ("server_version", "fsync", "synchronous_commit", "wal_sync_method")
        out["postgres"] = {name: postgres.ask(f"SHOW {name}") for name in names}
        round_trip = asyncio.run(round_trips(nats, wanted["round_trips"]))
        out["nats"] = {**spread("round_trip", round_trip), "n": len(round_trip)}
        out["bare_commits_per_s"] = {str(clients): profile.bare(postgres, clients) for clients in (1, 4)}
        chosen = [one for one in CONTENDERS if one.name in wanted["contenders"]]
        for processes in wanted["processes"]:  # Compared contenders are measured close in time.
            for contender in chosen:
                if processes in contender.processes:
                    print(f"{contender.name} with {processes} ...", file=sys.stderr, flush=True)
                    out["rows"].append(session.measure(contender, processes))
        if wanted["profile"]:
            out["profile"] = [profile.profile(session, one) for one in chosen if one.ours]
    print("\n" + json.dumps(out), flush=True)


if __name__ == "__main__":
    main()
