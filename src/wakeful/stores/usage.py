"""The usage log: one entry for each request to a model, and sums over its entries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from typing import Any, Literal

from ..types.base import Data
from ..types.runs import Usage

__all__ = ["UsageEntry", "UsageKey", "UsageRow", "usage_of_rows", "usage_rows", "usage_sql"]

UsageKey = Literal["agent", "model", "day"]
"""The keys of a sum. A day is one in UTC."""

_DAY_MS = 24 * 3600 * 1000
_COLUMNS = {"agent": "agent", "model": "model", "day": f"at / {_DAY_MS}"}
_SUMS = ("input", "output", "cached", "cache_write", "reasoning", "cost", "searches")


class UsageEntry(Data):
    """One request to a model: when it ended, how long it took, what it used, and whether it failed."""

    agent_id: str
    model: str
    at: int
    duration_ms: int
    usage: Usage = Usage()
    failed: bool = False


class UsageRow(Data, kw_only=True):
    """The sums of a group of requests. A key that they aren't summed by is None.

    `latency_ms` is the sum of their durations, `p50_ms` and `p95_ms` are percentiles (nearest rank). `errors` are
    the requests that failed, which count as requests, too.
    """

    agent: str | None = None
    model: str | None = None
    day: date | None = None
    requests: int
    errors: int
    usage: Usage
    latency_ms: int
    p50_ms: int
    p95_ms: int


def usage_rows(
    entries: Iterable[UsageEntry], since: int | None, until: int | None, by: Sequence[UsageKey]
) -> list[UsageRow]:
    """Sum the entries from `since` on and before `until`."""
    groups: dict[tuple[Any, ...], list[UsageEntry]] = defaultdict(list)
    for one in entries:
        if (since is None or one.at >= since) and (until is None or one.at < until):
            values = {"agent": one.agent_id, "model": one.model, "day": one.at // _DAY_MS}
            groups[tuple([values[key] for key in by])].append(one)
    return [_sum(keys, groups[keys], by) for keys in sorted(groups)]


def _sum(keys: tuple[Any, ...], entries: list[UsageEntry], by: Sequence[UsageKey]) -> UsageRow:
    usage = sum([one.usage for one in entries], Usage())
    times, count = sorted([one.duration_ms for one in entries]), len(entries)
    ranks = [times[(count * percent + 99) // 100 - 1] for percent in (50, 95)]
    return _row(keys, count, sum(one.failed for one in entries), usage, sum(times), ranks, by)


def usage_sql(by: Sequence[UsageKey], where: str) -> str:
    """The query of the same sums, in SQL that SQLite and Postgres share."""
    named = "".join([f"{_COLUMNS[key]} AS k{n}, " for n, key in enumerate(by)])
    names = [f"k{n}" for n in range(len(by))]
    part = f"PARTITION BY {', '.join([_COLUMNS[key] for key in by])}" if by else ""
    ranks = [f"max(CASE WHEN place = (size * {percent} + 99) / 100 THEN duration END)" for percent in (50, 95)]
    sums = [f"sum({name})" for name in ("failed", *_SUMS, "duration")]
    tail = f" GROUP BY {', '.join(names)} ORDER BY {', '.join(names)}" if by else " HAVING count(*) > 0"
    return f"""WITH r AS (SELECT {named}failed, duration, {", ".join(_SUMS)},
        row_number() OVER ({part} ORDER BY duration) AS place, count(*) OVER ({part}) AS size
        FROM usage_log WHERE {where})
    SELECT {", ".join([*names, "count(*)", *sums, *ranks])} FROM r{tail}"""


def usage_of_rows(rows: Iterable[Sequence[Any]], by: Sequence[UsageKey]) -> list[UsageRow]:
    """The rows of `usage_sql`. A sum of Postgres is a decimal number."""
    found: list[UsageRow] = []
    for row in rows:
        count, errors, *sums = [int(value) for value in row[len(by) :]]
        keys = tuple(row[: len(by)])
        found.append(_row(keys, count, errors, Usage(*sums[:7]), sums[7], sums[8:], by))
    return found


def _row(
    keys: tuple[Any, ...],
    count: int,
    errors: int,
    usage: Usage,
    latency: int,
    ranks: Sequence[int],
    by: Sequence[UsageKey],
) -> UsageRow:
    group: dict[str, Any] = dict(zip(by, keys, strict=True))
    if "day" in group:
        group["day"] = datetime.fromtimestamp(int(group["day"]) * _DAY_MS / 1000, UTC).date()
    return UsageRow(
        requests=count,
        errors=errors,
        usage=usage,
        latency_ms=latency,
        p50_ms=ranks[0],
        p95_ms=ranks[1],
        **group,
    )
