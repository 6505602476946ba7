"""The crash matrix: kill a scenario's process at every commit, resume it in another, and check the store."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast, get_args

from msgspec import Struct

from ...errors import UsageError, explain
from ...stores import Store, open_store
from .invariants import find_violations, list_all_runs
from .journal import CommitStarted, KillPoint, ModelRequested, ProcessKilled, read_journal
from .processes import Kill, Launchers
from .sites import CrashSite, Sites, open_sites

__all__ = ["CrashFailed", "CrashReport", "CrashRow", "crash_matrix", "verify_site"]

Scenario = str | Callable[[CrashSite], Awaitable[Any]]
Check = Callable[[CrashSite, Store], Any]


class CrashFailed(AssertionError):
    """An invariant or a check failed after a kill; `report` has the details."""

    def __init__(self, message: str, report: CrashReport) -> None:
        super().__init__(message)
        self.report = report


class CrashRow(Struct, frozen=True):
    """One kill: the number and description of the commit, and the kill point around it.

    `then` is the second kill, of the process that resumed. `reached` is false if the process ended before the
    commit. `repeats` are the calls that ran again, if there was no check.
    """

    commit: int
    description: str
    point: KillPoint
    then: tuple[int, KillPoint] | None = None
    reached: bool = True
    problems: tuple[str, ...] = ()
    repeats: tuple[str, ...] = ()


class CrashReport(Struct, frozen=True):
    """The kills of a matrix and the problems found after them; `str()` of it is a table."""

    scenario: str
    store: str
    commits: tuple[str, ...]
    rows: tuple[CrashRow, ...]

    @property
    def kills(self) -> int:
        """Number of processes killed."""
        return sum(1 + (row.then is not None) for row in self.rows if row.reached)

    @property
    def problems(self) -> list[str]:
        """Each distinct problem, with up to six kills after which it was found."""
        return _join_kills(self.rows, lambda row: row.problems)

    @property
    def repeats(self) -> list[str]:
        """The calls that ran again, with up to six kills after which they did. Empty with a `check`, which decides
        whether that is right."""
        return _join_kills(self.rows, lambda row: row.repeats)

    def __str__(self) -> str:
        points = [p for p in get_args(KillPoint) if any(row.point == p for row in self.rows)]
        width = max([len(description) for description in self.commits], default=0)
        count = len({(row.commit, row.point) for row in self.rows if row.reached})
        verdict = f"{len(self.problems)} problems" if self.problems else "all held"
        lines = [
            f"{self.scenario} on {self.store}: {len(self.commits)} commits, {count} boundaries, "
            f"{self.kills} kills: {verdict}",
            f"  {'commit':<{width + 4}}  {'  '.join(f'{point:<7}' for point in points)}".rstrip(),
        ]
        for number, description in enumerate(self.commits, 1):
            marks = "  ".join(f"{self._mark(number, point):<7}" for point in points)
            lines.append(f"  {number:>2}  {description:<{width}}  {marks}".rstrip())
        return "\n".join([*lines, *[f"  {line}" for line in [*self.problems, *self.repeats]]])

    def _mark(self, commit: int, point: KillPoint) -> str:
        rows = [row for row in self.rows if (row.commit, row.point) == (commit, point)]
        if any(row.problems for row in rows):
            return "BROKEN"
        held = sum(row.reached for row in rows)
        return "-" if not held else "ok" if held == 1 else f"ok x{held}"


def crash_matrix(
    scenario: Scenario,
    *,
    store: str = "sqlite",
    check: Check | None = None,
    points: Sequence[KillPoint] = get_args(KillPoint),
    twice: bool = False,
    processes: int = 2,
    timeout: float = 60,
) -> CrashReport:
    """Kill a scenario's process at every commit, resume it in a fresh process, and check the store.

    `scenario` is an async function at the top level of a module, or its name as `"module:function"`. It takes a
    `CrashSite`, opens a runtime on `site.store` and runs to its end. Give each run it starts a `request_id`, so
    that the next process resumes the same run.

    `store` is `"sqlite"` or the URL of a Postgres server on which databases may be created; each kill gets a store
    of its own. `check(site, store)` runs at the end of each and raises if the outcome is wrong. `points` selects
    kill points. With `twice`, the process that resumes is killed at each of its commits, too. `processes` run at
    once; each has `timeout` seconds.

    Raises `CrashFailed` if an invariant or a check fails; else prints and returns the report. Without a check the
    report lists the calls that ran again, which their effects allow: see whether your tools bear it.
    """
    name = _name_of(scenario)
    for option, value, kinds in (("processes", processes, int), ("timeout", timeout, int | float)):
        if isinstance(value, bool) or not isinstance(cast(Any, value), kinds) or not value > 0:
            raise UsageError(f"{option} is a number above 0, not {value!r:.80}")
    with open_sites(store) as sites, Launchers() as launchers, ThreadPoolExecutor(processes) as pool:
        wanted = _select_points(sites.points, points)
        matrix = _Matrix(name, sites, launchers, check, timeout)
        commits = pool.submit(matrix.run_without_kill).result()
        kills: list[tuple[Kill, ...]] = [(kill,) for kill in _kills_of(len(commits), wanted)]
        cases = list(pool.map(matrix.run_case, kills))
        if twice:
            more: list[tuple[Kill, ...]] = [
                (*kill, then)
                for kill, case in zip(kills, cases, strict=True)
                if case.reached
                for then in _kills_of(case.commits_after, wanted)
            ]
            cases += list(pool.map(matrix.run_case, more))
            kills += more
    rows = [
        CrashRow(
            commit=kill[0][0],
            description=commits[kill[0][0] - 1],
            point=kill[0][1],
            then=kill[1] if len(kill) > 1 else None,
            reached=case.reached == len(kill),
            problems=tuple(case.problems),
            repeats=tuple(case.repeats),
        )
        for kill, case in zip(kills, cases, strict=True)
    ]
    report = CrashReport(name, sites.kind, tuple(commits), tuple(rows))
    if report.problems:
        raise CrashFailed(str(report), report)
    print(report)
    return report


def _select_points(available: Sequence[KillPoint], points: Sequence[KillPoint]) -> list[KillPoint]:
    """Select the store's kill points among `points`; none is an error, as such a test would always pass."""
    known = get_args(KillPoint)
    if isinstance(points, str) or any(point not in known for point in points):
        raise UsageError(f"points is a list of {', '.join(known)}, not {points!r:.80}")
    selected: list[KillPoint] = [point for point in available if point in points]
    if not selected:
        raise UsageError(f"points={points!r:.80} kills nothing on this store; it has {', '.join(available)}")
    return selected


def _kills_of(commits: int, points: Sequence[KillPoint]) -> list[Kill]:
    return [(number, point) for number in range(1, commits + 1) for point in points]


def _join_kills(rows: Sequence[CrashRow], findings: Callable[[CrashRow], Sequence[str]]) -> list[str]:
    found: dict[str, list[str]] = {}
    for row in rows:
        for finding in findings(row):
            found.setdefault(finding, []).append(_describe_kill(row))
    return [f"{'; '.join(kills[:6])}: {finding}" for finding, kills in found.items()]


def _describe_kill(row: CrashRow) -> str:
    first = f"{row.point} commit {row.commit} ({row.description})"
    return first if row.then is None else f"{first}, then {row.then[1]} commit {row.then[0]}"


def _name_of(scenario: Scenario) -> str:
    if isinstance(scenario, str):
        if ":" not in scenario:
            raise UsageError(f"a scenario is named as 'module:function', not {scenario!r:.80}")
        return scenario
    if not inspect.iscoroutinefunction(scenario):
        raise UsageError(f"a scenario is an async function that takes a CrashSite, not {scenario!r:.80}")
    if "." in scenario.__qualname__:
        raise UsageError(
            f"the scenario {scenario.__qualname__} can't be imported by another process: move it to the top level "
            "of a module"
        )
    if scenario.__module__ == "__main__":
        return f"{Path(inspect.getfile(scenario)).resolve()}:{scenario.__name__}"
    return f"{scenario.__module__}:{scenario.__name__}"


class _Case(Struct):
    """The outcome of one case: kills reached, commits after the last kill, problems, calls that ran again."""

    reached: int = 0
    commits_after: int = 0
    problems: list[str] = []
    repeats: list[str] = []


class _Matrix:
    """One scenario on one kind of store."""

    def __init__(
        self, scenario: str, sites: Sites, launchers: Launchers, check: Check | None, timeout: float
    ) -> None:
        self._scenario = scenario
        self._sites = sites
        self._launchers = launchers
        self._check = check
        self._timeout = timeout

    def run_without_kill(self) -> list[str]:
        """Run the scenario and repeat it, without a kill; returns the descriptions of its commits."""
        with self._sites.new() as (workdir, site):
            problem = self._run(workdir, site)
            entries = read_journal(workdir / "journal")
            commits = [entry.description for entry in entries if isinstance(entry, CommitStarted)]
            problems = [problem] if problem else verify_site(workdir, site, self._check)
            if not problems:
                problems = self._repeat(workdir, site)
        if problems:
            report = CrashReport(self._scenario, self._sites.kind, tuple(commits), ())
            text = "\n".join(f"  {problem}" for problem in problems)
            raise CrashFailed(f"{self._scenario}, without any kill:\n{text}", report)
        return commits

    def _repeat(self, workdir: Path, site: CrashSite) -> list[str]:
        before = asyncio.run(_count_runs(site))
        if not before:
            return ["its store has no run: open the runtime on site.store and start a run"]
        problem = self._run(workdir, site)
        if problem:
            return [f"when it is run again: {problem}"]
        if (after := asyncio.run(_count_runs(site))) != before:
            return [
                f"its store had {before} runs, and {after} when it was run again: give each run a request_id, so "
                "that a second process resumes it"
            ]
        return []

    def run_case(self, kills: tuple[Kill, ...]) -> _Case:
        """Kill one process after the other at these commits, and let the last process run to its end."""
        case = _Case()
        with self._sites.new() as (workdir, site):
            for kill in (*kills, None):
                before = len(read_journal(workdir / "journal"))
                problem = self._run(workdir, site, kill)
                entries = read_journal(workdir / "journal")[before:]
                if problem:
                    case.problems.append(problem)
                    return case
                if kill is None:
                    case.commits_after = sum(isinstance(entry, CommitStarted) for entry in entries)
                elif any(isinstance(entry, ProcessKilled) for entry in entries):
                    case.reached += 1
                    self._sites.expire_leases(site)
            case.problems += verify_site(workdir, site, self._check)
            if self._check is None:
                case.repeats += asyncio.run(_list_repeats(site))
        return case

    def _run(self, workdir: Path, site: CrashSite, kill: Kill | None = None) -> str | None:
        return self._launchers.start(self._scenario, workdir, site, kill).wait(self._timeout)


def verify_site(workdir: Path, site: CrashSite, check: Check | None = None) -> list[str]:
    """Describe the problems of a site whose processes have all exited."""
    requests = [entry for entry in read_journal(workdir / "journal") if isinstance(entry, ModelRequested)]
    return asyncio.run(_find_problems(site, requests, check))


async def _count_runs(site: CrashSite) -> int:
    store = open_store(site.store)
    try:
        return len(await list_all_runs(store))
    finally:
        await store.close()


async def _list_repeats(site: CrashSite) -> list[str]:
    """Describe the calls that were started more often than decisions explain."""
    store = open_store(site.store)
    try:
        calls = [call for run in await list_all_runs(store) for call in await store.calls(run.id)]
        repeated = sorted({(call.name, call.effect) for call in calls if call.attempt > 1 + len(call.decisions)})
        return [f"a call of {name} ran again (its effect is {effect})" for name, effect in repeated]
    finally:
        await store.close()


async def _find_problems(site: CrashSite, requests: Sequence[ModelRequested], check: Check | None) -> list[str]:
    store = open_store(site.store)
    try:
        problems = await find_violations(store, requests)
        if check is not None:
            try:
                found = check(site, store)
                if inspect.isawaitable(found):
                    await found
            except Exception as error:
                problems.append(f"your check: {explain(error)}")
        return problems
    finally:
        await store.close()
