"""Plain-text tables of rows, one for each measure, with ratios to the floor and the fastest peer."""

from collections.abc import Iterable
from typing import Any

from benchmarks.envs import DATABASES, FLOORS, OURS, database
from benchmarks.measures import MEASURES, Measure, Target

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
    peers = [row for row in rows if row["contender"] not in (*FLOORS, *OURS)]
    return min(peers, key=lambda row: row["median_us"], default=None)


def lines(rows: list[list[str]]) -> list[str]:
    """The lines of a table."""
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if index == 0 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else _time(value)


def _verdict(target: Target, ours: Row, base: Row | None) -> str | None:
    """The line of a target: the result, and whether it is met."""
    value = ours.get(target.key)
    if value is None or (target.of and (base is None or base.get(target.key) is None)):
        return None
    whose = ""
    if target.of and base is not None:
        value, whose = value / base[target.key], f" x {base['contender']}"
    met = value >= target.limit if target.at_least else value <= target.limit
    sign = ">=" if target.at_least else "<="
    return (
        f"{ours['contender']}: {target.key} {value:.2f}{whose}, target {sign} {target.limit:.3g}: "
        f"{'met' if met else 'MISSED'}"
    )


def _verdicts(measure: Measure, timed: list[Row], floor: Row | None, peer: Row | None) -> list[str]:
    bases = {"": None, "floor": floor, "peer": peer}
    found = [
        _verdict(target, row, bases[target.of])
        for row in timed
        if row["contender"] in OURS
        for target in measure.targets
    ]
    return [line for line in found if line]


def table(measure: Measure, rows: list[Row], best_pace: float | None) -> str:
    """The table of one measure, the fastest first and failures last, with the targets' results."""
    timed = sorted((row for row in rows if "error" not in row), key=lambda row: row["median_us"])
    floor, peer = _floor(timed), _fastest_peer(timed)
    floor_us, peer_us = (row["median_us"] if row else None for row in (floor, peer))
    head = ["contender", measure.unit, "p10", "p90", "n", "MB", "pace", "x floor", "x fastest peer"]
    head += measure.columns.values()
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
            *[_cell(row.get(key)) for key in measure.columns],
        ]
        for row in timed
    ]
    bases = f"floor: {floor['contender'] if floor else '-'}, fastest peer: {peer['contender'] if peer else '-'}"
    shown = [f"{measure.name}: {measure.title} ({bases})", *lines([head, *body])]
    shown += [f"{row['contender']}  error: {row['error']}" for row in rows if "error" in row]
    shown += _verdicts(measure, timed, floor, peer)
    return "\n".join(shown)


def report(rows: list[Row]) -> str:
    """All tables, and the versions measured."""
    # The pace column: the time of a fixed loop relative to this report's best row.
    best_pace = min((row["pace_us"] for row in rows if "pace_us" in row), default=None)
    tables = []
    for measure in MEASURES:
        for kind in ("", *DATABASES):  # Rows are compared within one database.
            group = [row for row in rows if row["measure"] == measure.name and database(row["contender"]) == kind]
            if group:
                tables.append(table(measure, group, best_pace))
    versions = {row["contender"]: row["versions"] for row in rows if row.get("versions")}
    lines = [
        f"{name}: {', '.join(f'{package} {version}' for package, version in found.items())}"
        for name, found in versions.items()
    ]
    return "\n\n".join([*tables, "\n".join(["versions", *lines])])
