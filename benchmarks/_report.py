"""Turns rows into a plain-text table for each measure, with ratios to the floor and the fastest peer."""

from collections.abc import Iterable
from typing import Any

from benchmarks._envs import FLOORS, OURS
from benchmarks._measures import MEASURES, Measure

Row = dict[str, Any]


def _time(value: float) -> str:
    if value < 10:
        return f"{value:.2f}"
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def _ratio(value: float, base: float | None) -> str:
    if not base:
        return "-"
    ratio = value / base
    return f"{ratio:.2f}x" if ratio < 10 else f"{ratio:,.0f}x"


def _floor(rows: Iterable[Row]) -> Row | None:
    timed = {row["contender"]: row for row in rows}
    return next((timed[name] for name in FLOORS if name in timed), None)


def _fastest_peer(rows: Iterable[Row]) -> Row | None:
    peers = [row for row in rows if row["contender"] not in (*FLOORS, OURS)]
    return min(peers, key=lambda row: row["median_us"], default=None)


def _lines(rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if index == 0 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def table(measure: Measure, rows: list[Row], best_pace: float | None) -> str:
    """One measure's table, the fastest first and what failed last."""
    timed = sorted((row for row in rows if "error" not in row), key=lambda row: row["median_us"])
    floor, peer = _floor(timed), _fastest_peer(timed)
    floor_us, peer_us = (row["median_us"] if row else None for row in (floor, peer))
    head = ["contender", measure.unit, "p10", "p90", "n", "MB", "pace", "x floor", "x fastest peer"]
    body = [
        [
            row["contender"] + (f" ({row['variant']})" if "variant" in row else ""),
            _time(row["median_us"]),
            _time(row["p10_us"]),
            _time(row["p90_us"]),
            str(row["n"]),
            f"{row['rss_mb']:.0f}" if "rss_mb" in row else "-",
            _ratio(row["pace_us"], best_pace),
            _ratio(row["median_us"], floor_us),
            _ratio(row["median_us"], peer_us),
        ]
        for row in timed
    ]
    bases = f"floor: {floor['contender'] if floor else '-'}, fastest peer: {peer['contender'] if peer else '-'}"
    lines = [f"{measure.name}: {measure.title} ({bases})", *_lines([head, *body])]
    lines += [f"{row['contender']}  error: {row['error']}" for row in rows if "error" in row]
    return "\n".join(lines)


def report(rows: list[Row]) -> str:
    """All tables, and the versions they were measured with."""
    # The pace column: how much slower a fixed piece of work went than in this report's best row.
    best_pace = min((row["pace_us"] for row in rows if "pace_us" in row), default=None)
    tables = []
    for measure in MEASURES:
        of_measure = [row for row in rows if row["measure"] == measure.name]
        if of_measure:
            tables.append(table(measure, of_measure, best_pace))
    versions = {row["contender"]: row["versions"] for row in rows if row.get("versions")}
    lines = [
        f"{name}: {', '.join(f'{package} {version}' for package, version in found.items())}"
        for name, found in versions.items()
    ]
    return "\n\n".join([*tables, "\n".join(["versions", *lines])])
