"""Tables of a session's results."""

from typing import Any

from benchmarks.report import lines
from benchmarks.workers.roster import CONTENDERS

Row = dict[str, Any]

DISPATCH_MS = 5.0
IDLE_QUERIES = 2.0
_BY_NAME = {one.name: one for one in CONTENDERS}


def _number(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _best_peer(rows: list[Row], processes: int) -> Row | None:
    peers = [
        row
        for row in rows
        if row["processes"] == processes and "error" not in row and not _BY_NAME[row["contender"]].ours
    ]
    return max(peers, key=lambda row: row["runs_per_s"], default=None)


def _throughput(out: Row, steps: int) -> list[str]:
    rows, round_trip = out["rows"], out["nats"]["round_trip_p50_ms"]
    head = [
        "contender",
        "processes",
        "runs/s",
        "x best peer",
        "written tx/run",
        "worker ms/run",
        "Postgres ms/run",
    ]
    head += ["enqueued/s", "dispatch p50 ms", "p99", "after accepted p50", "n", "x NATS"]
    body = [
        [
            row["contender"],
            str(row["processes"]),
            _number(row["runs_per_s"]),
            _number(row["runs_per_s"] / peer["runs_per_s"], 2)
            if (peer := _best_peer(rows, row["processes"]))
            else "-",
            _number(row.get("transactions"), 2),
            _number(row["worker_ms"], 2),
            _number(row.get("postgres_ms"), 2),
            _number(row["enqueued_per_s"], 0),
            _number(row["dispatch_p50_ms"], 2),
            _number(row["dispatch_p99_ms"], 2),
            _number(row["accepted_p50_ms"], 2),
            str(row["dispatches"]),
            _number(row["dispatch_p50_ms"] / round_trip, 1),
        ]
        for row in rows
        if "error" not in row
    ]
    nats, disk = out["nats"], ", ".join(f"{name} {value}" for name, value in out["postgres"].items())
    bare = ", ".join(f"{rate:,.0f} by {clients}" for clients, rate in out["bare_commits_per_s"].items())
    return [
        f"workers: runs of 5 steps; peers record {steps} of them durably; {out['machine']}",
        f"Postgres for all but SQLite and Temporal: {disk}",
        f"bare commits of one row a second, by so many clients of pgbench: {bare}",
        f"a bare NATS request and reply: p50 {nats['round_trip_p50_ms']:.2f} ms, p99 "
        f"{nats['round_trip_p99_ms']:.2f} ms, n {nats['n']}",
        *lines([head, *body]),
        *[f"{row['contender']} with {row['processes']}  error: {row['error']}" for row in rows if "error" in row],
    ]


def _idle(rows: list[Row]) -> list[str]:
    body = [[r["contender"], _number(r["idle_queries_per_s"], 2)] for r in rows if "idle_queries_per_s" in r]
    return ["idle: statements a second of one worker with nothing to do", *lines([["contender", "/s"], *body])]


def _verdicts(out: Row) -> list[str]:
    found: list[str] = []
    for row in out["rows"]:
        if "error" in row or not _BY_NAME[row["contender"]].ours or row["contender"] == "wakeful-sqlite":
            continue
        name = f"{row['contender']} with {row['processes']}"
        if (peer := _best_peer(out["rows"], row["processes"])) is not None:
            ratio = row["runs_per_s"] / peer["runs_per_s"]
            found.append(f"{name}: runs/s {ratio:.2f} x {peer['contender']}, target > 1: {_met(ratio > 1)}")
        if _BY_NAME[row["contender"]].bus:
            p50 = row["dispatch_p50_ms"]
            found.append(f"{name}: dispatch p50 {p50:.2f} ms, target < {DISPATCH_MS:g}: {_met(p50 < DISPATCH_MS)}")
        if (idle := row.get("idle_queries_per_s")) is not None:
            found.append(
                f"{name}: idle {idle:.2f} queries/s, target <= {IDLE_QUERIES:g}: {_met(idle <= IDLE_QUERIES)}"
            )
    return found


_SETUPS = {
    "wakeful-sqlite": "SQLite",
    "wakeful-postgres": "Postgres",
    "wakeful-postgres-nats": "Postgres and NATS",
    "wakeful-postgres-notify": "Postgres and its own NOTIFY",
}


def _pasted(rows: list[Row]) -> list[str]:
    """The table of docs/scaling.md."""
    head = ("setup", "workers", "runs per second", "dispatch p50", "dispatch p99", "transactions per second")
    table = [(*head, "processors busy"), ("---",) * (len(head) + 1)]
    for row in rows:
        if "error" in row or row["contender"] not in _SETUPS:
            continue
        rate, written = row["runs_per_s"], row.get("transactions")
        table.append(
            (
                _SETUPS[row["contender"]],
                str(row["processes"]),
                _number(rate, 0),
                f"{_number(row['dispatch_p50_ms'])} ms",
                f"{_number(row['dispatch_p99_ms'])} ms",
                _number(None if written is None else written * rate, 0),
                _busy(row),
            )
        )
    return ["for docs/scaling.md", *[f"| {' | '.join(cells)} |" for cells in table]]


def _busy(row: Row) -> str:
    """The CPU shares of each worker and of Postgres."""
    shares = {"each worker": (row["worker_ms"], row["processes"]), "Postgres": (row.get("postgres_ms"), 1)}
    found = {who: ms * row["runs_per_s"] / 10 / of for who, (ms, of) in shares.items() if ms is not None}
    return ", ".join(f"{who} {share:.0f} %" for who, share in found.items())


def _met(met: bool) -> str:
    return "met" if met else "MISSED"


def _profile(found: Row) -> list[str]:
    spent = found["seconds"]
    worker, postgres = found["worker_ms"], found.get("postgres_ms")
    share = [None if one is None else one * found["runs"] / 1000 / spent * 100 for one in (worker, postgres)]
    out = [
        f"profile of {found['contender']}: one worker, {found['runs']} runs in {spent:.2f} s, "
        f"{found['runs_per_s']:.1f} runs/s",
        f"  the worker's processor: {_number(share[0], 0)} % of the time, Postgres's: {_number(share[1], 0)} %",
    ]
    if "transactions" in found:
        rate = found["transactions"] * found["runs_per_s"]
        bare = ", ".join(f"{rate:,.0f} with {n}" for n, rate in found["bare_commits_per_s"].items())
        out.append(f"  written transactions: {rate:,.0f} a second; bare inserts by so many clients: {bare}")
        out += lines([["  statement", "a run"], *[[f"  {name}", f"{n:.2f}"] for name, n in found["queries"]]])
    head = ["  function (under cProfile, which slows Python down)", "calls", "own s", "with what it calls s"]
    body = [
        [f"  {name}", f"{calls:,}", f"{own:.3f}", f"{total:.3f}"] for name, calls, own, total in found["functions"]
    ]
    return [*out, *lines([head, *body])]


def report(out: Row, steps: int) -> str:
    """All tables of a session, and the versions measured."""
    rows = out["rows"]
    seen = list(dict.fromkeys(row["contender"] for row in rows))
    parts = [_throughput(out, steps)]
    if any("idle_queries_per_s" in row for row in rows):
        parts.append(_idle(rows))
    parts.append(["what is durable", *[f"{name}: {_BY_NAME[name].durable}" for name in seen]])
    parts += [_verdicts(out), _pasted(rows)] + [_profile(found) for found in out.get("profile", [])]
    versions = {row["contender"]: row["versions"] for row in rows if "versions" in row}
    parts.append(["versions", *[f"{name}: {_pairs(found)}" for name, found in versions.items()]])
    return "\n\n".join(["\n".join(part) for part in parts if part])


def _pairs(found: dict[str, str]) -> str:
    return ", ".join(f"{package} {version}" for package, version in found.items())
