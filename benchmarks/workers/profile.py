"""The profile of a worker: CPU shares of Python and Postgres, and the statements of a run."""

import pstats
import re
import subprocess
from collections import Counter
from typing import TYPE_CHECKING, Any

from benchmarks.databases import PostgresServer, program
from benchmarks.workers.roster import Contender
from benchmarks.workers.servers import Queries, folder

if TYPE_CHECKING:
    from benchmarks.workers.session import Session

TOP = 25


def profile(session: "Session", contender: Contender) -> dict[str, Any]:
    """Run one worker at full load three times: unchanged, with every statement logged, and under cProfile."""
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
    """A statement without its varying parts."""
    return re.sub(r"\s+", " ", text).strip()[:70]


def bare(postgres: PostgresServer, clients: int) -> float:
    """The transactions a second of pgbench, each inserting one row: the limit of this disk and server."""
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
    """The functions with the most time of their own, including waits, with their cumulative time."""
    stats: dict[tuple[str, int, str], tuple[int, int, float, float, Any]] = pstats.Stats(str(path)).stats  # type: ignore[attr-defined]
    rows = [
        [f"{'/'.join(file.rsplit('/', 2)[-2:])}:{line} {name}" if line else name, calls, own, total]
        for (file, line, name), (_, calls, own, total, _) in stats.items()
    ]
    return sorted(rows, key=lambda row: -row[2])[:TOP]
