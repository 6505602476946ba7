"""Where a worker's time goes: Python, Postgres, or waiting; and what it asks of Postgres for a run."""

import pstats
import re
import subprocess
from collections import Counter
from typing import TYPE_CHECKING, Any

from benchmarks._databases import PostgresServer, program
from benchmarks.workers._contenders import Contender
from benchmarks.workers._places import Queries, folder

if TYPE_CHECKING:
    from benchmarks.workers._session import Session

TOP = 25


def profile(session: "Session", contender: Contender) -> dict[str, Any]:
    """One worker at full load: once as it is, once with every statement logged, once under cProfile."""
    out: dict[str, Any] = {"contender": contender.name}
    with session.fleet(contender, 1) as fleet:
        session.throughput(fleet, contender, max(session.runs // 5, 3))
        out |= session.throughput(fleet, contender, session.runs)
        if contender.store == "postgres":
            assert session.postgres is not None
            queries = Queries(session.postgres)
            session.throughput(fleet, contender, session.runs, watch=queries)
            asked = Counter(map(_named, queries.end()))
            out["queries"] = [[name, count / session.runs] for name, count in asked.most_common(12)]
            out["bare_commits_per_s"] = {str(clients): bare(session.postgres, clients) for clients in (1, 2)}
    with folder() as home:
        with session.fleet(contender, 1, profile=home / "profile") as fleet:
            session.throughput(fleet, contender, session.runs)
            fleet.stop()
        out["functions"] = _functions(home / "profile")
    return out


def _named(text: str) -> str:
    """A statement without what differs from time to time."""
    return re.sub(r"\s+", " ", text).strip()[:70]


def bare(postgres: PostgresServer, clients: int) -> float:
    """How many transactions a second pgbench commits, each with one row: what this disk and server can do."""
    postgres.ask("DROP TABLE IF EXISTS bare")
    postgres.ask("CREATE TABLE bare (no bigserial PRIMARY KEY, payload bytea)")
    with folder() as home:
        script = home / "insert.sql"
        script.write_text("INSERT INTO bare (payload) VALUES (decode(repeat('ab', 500), 'hex'));\n")
        done = subprocess.run(
            [program("pgbench"), postgres.address, "-n", "-f", script, "-c", str(clients), "-T", "3"],
            capture_output=True,
            text=True,
            check=True,
        )
    found = re.search(r"tps = ([\d.]+)", done.stdout)
    return float(found[1]) if found else 0.0


def _functions(path: Any) -> list[list[Any]]:
    """The functions that took most time themselves, with how much of it in all; what waits is among them."""
    stats: dict[tuple[str, int, str], tuple[int, int, float, float, Any]] = pstats.Stats(str(path)).stats  # type: ignore[attr-defined]
    rows = [
        [f"{'/'.join(file.rsplit('/', 2)[-2:])}:{line} {name}" if line else name, calls, own, total]
        for (file, line, name), (_, calls, own, total, _) in stats.items()
    ]
    return sorted(rows, key=lambda row: -row[2])[:TOP]
