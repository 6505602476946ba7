"""The driver: time contenders in their own environments and report the medians."""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks import envs, syncs
from benchmarks.measures import MEASURES, Measure
from benchmarks.report import report


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    known = envs.contenders()
    measures = [measure.name for measure in MEASURES]
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--measure",
        type=_names,
        metavar="NAMES",
        help=f"comma-separated, of {', '.join(measures)}; default: all",
    )
    parser.add_argument(
        "--contender",
        type=_names,
        metavar="NAMES",
        help=f"comma-separated, of {', '.join(known)}; default: all",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows here")
    parser.add_argument(
        "--timeout",
        type=float,
        default=180,
        metavar="SECONDS",
        help="for each contender and measure; default: 180",
    )
    parser.add_argument(
        "--sync-delay",
        type=int,
        default=0,
        metavar="MICROSECONDS",
        help="make each fsync of a database this much slower, as on a slower disk; default: 0",
    )
    arguments = parser.parse_args(argv)
    try:
        arguments.environ = syncs.delay_environ(arguments.sync_delay) if arguments.sync_delay > 0 else {}
    except syncs.NoDelay as error:
        parser.error(str(error))
    arguments.contender = arguments.contender or known
    for name in arguments.contender:
        if name not in known:
            parser.error(f"unknown contender {name!r}; there are {', '.join(known)}")
    wanted = arguments.measure or measures
    for name in wanted:
        if not any(measure.answers_to(name) for measure in MEASURES):
            parser.error(f"unknown measure {name!r}; there are {', '.join(measures)}")
    arguments.measure = [measure for measure in MEASURES if any(measure.answers_to(name) for name in wanted)]
    arguments.contender = _select_contenders(arguments.contender, arguments.measure)
    if not arguments.contender:
        parser.error("none of these contenders takes part in these measures: databases have measures of their own")
    return arguments


def _select_contenders(contenders: list[str], measures: list[Measure]) -> dict[str, set[str]]:
    """The contenders that take part in at least one of the measures, with the names they define."""
    found = {name: envs.entries(name) for name in contenders}
    return {name: own for name, own in found.items() if any(measure.entry in own for measure in measures)}


def _run_measure(
    python: Path, contender: str, measure: Measure, timeout: float, environ: dict[str, str]
) -> dict[str, Any]:
    """The row that the contender's process printed, or an error row."""
    command = [str(python), "-m", "benchmarks.harness", contender, measure.name]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=timeout,
            env={**envs.worker_environ(), **environ},
            cwd=envs.ROOT,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"no result within {timeout:.0f} s"}
    try:
        return json.loads(envs.last_line(done.stdout))
    except ValueError:
        return {"error": f"exit status {done.returncode}: {envs.last_line(done.stderr)[:300]}"}


def _fastest(results: list[dict[str, Any]]) -> dict[str, Any]:
    """The fastest turn, with the medians of all; or the first one that failed."""
    if failed := [result for result in results if "error" in result]:
        return failed[0]
    fastest = min(results, key=lambda result: result["median_us"])
    return {**fastest, "turns_us": [result["median_us"] for result in results]}


def _environment(contender: str) -> Path | str:
    """The contender's interpreter, or an error text."""
    try:
        return envs.ensure(contender)
    except (envs.EnvError, OSError) as error:
        return f"environment: {error}"


def main(argv: list[str] | None = None) -> None:
    arguments = _arguments(argv)
    pythons = {contender: _environment(contender) for contender in arguments.contender}
    rows: list[dict[str, Any]] = []
    # Contenders alternate within a measure, so that compared rows are measured close in time.
    for measure in arguments.measure:
        taking = [name for name in pythons if measure.entry in arguments.contender[name]]
        taken: dict[str, list[dict[str, Any]]] = {name: [] for name in taking}
        for turn in range(measure.turns):
            for contender in taking:
                print(f"{measure.name} {contender}, turn {turn + 1} ...", file=sys.stderr, flush=True)
                python = pythons[contender]
                if isinstance(python, Path):
                    own = (arguments.timeout, arguments.environ)
                    taken[contender].append(_run_measure(python, contender, measure, *own))
                else:
                    taken[contender].append({"error": python})
        for contender, results in taken.items():
            named = {"contender": contender, "measure": measure.name, "unit": measure.unit}
            named |= {"sync_delay_us": arguments.sync_delay} if arguments.sync_delay else {}
            rows.append({**named, **_fastest(results)})
        if arguments.json:  # After each measure, so that an interrupted run keeps its rows.
            arguments.json.write_text(json.dumps(rows, indent=2, ensure_ascii=False) + "\n")
    print(report(rows))
    if arguments.sync_delay:
        print(f"\neach fsync was slowed down by {arguments.sync_delay:,} µs")


if __name__ == "__main__":
    main()
