"""Testing crashes: kill a scenario's process at every commit, let another go on, and look at what is left."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast, get_args

from msgspec import Struct

from ..errors import UsageError, explain
from ..stores import Store, open_store
from ._crash_child import Asked, CrashSite, Killed, KillPoint, Wrote, read_journal
from ._crash_processes import Kill, Launchers
from ._crash_rules import all_runs, broken_rules
from ._crash_sites import Sites, open_sites

__all__ = ["CrashFailed", "CrashReport", "CrashRow", "CrashSite", "crash_matrix"]

Scenario = str | Callable[[CrashSite], Awaitable[Any]]
Check = Callable[[CrashSite, Store], Any]


class CrashFailed(AssertionError):
    """A crash broke something. `report` has all of it."""

    def __init__(self, message: str, report: CrashReport) -> None:
        super().__init__(message)
        self.report = report


class CrashRow(Struct, frozen=True):
    """One boundary: the commit, by its number and in words, and where around it the process was killed. `then` is
    where the process that went on was killed too. `reached` is false if the commit never came in that run."""

    commit: int
    what: str
    point: KillPoint
    then: tuple[int, KillPoint] | None = None
    reached: bool = True
    problems: tuple[str, ...] = ()


class CrashReport(Struct, frozen=True):
    """The boundaries that were covered, and what was wrong behind them. Print it."""

    scenario: str
    store: str
    commits: tuple[str, ...]
    rows: tuple[CrashRow, ...]

    @property
    def kills(self) -> int:
        """How many processes were killed."""
        return sum(1 + (row.then is not None) for row in self.rows if row.reached)

    @property
    def problems(self) -> list[str]:
        """Everything that was wrong, each with the boundaries behind which it was found."""
        found: dict[str, list[str]] = {}
        for row in self.rows:
            for problem in row.problems:
                found.setdefault(problem, []).append(_boundary(row))
        return [f"{'; '.join(places[:6])}: {problem}" for problem, places in found.items()]

    def __str__(self) -> str:
        points = [p for p in get_args(KillPoint) if any(row.point == p for row in self.rows)]
        width = max([len(what) for what in self.commits], default=0)
        count = len({(row.commit, row.point) for row in self.rows if row.reached})
        verdict = f"{len(self.problems)} problems" if self.problems else "all held"
        lines = [
            f"{self.scenario} on {self.store}: {len(self.commits)} commits, {count} boundaries, "
            f"{self.kills} kills: {verdict}",
            f"  {'commit':<{width + 4}}  {'  '.join(f'{point:<7}' for point in points)}".rstrip(),
        ]
        for number, what in enumerate(self.commits, 1):
            marks = [self._mark(number, point) for point in points]
            lines.append(f"  {number:>2}  {what:<{width}}  {'  '.join(f'{m:<7}' for m in marks)}".rstrip())
        return "\n".join([*lines, *[f"  {problem}" for problem in self.problems]])

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
    """Kill a scenario's process at every commit, let a fresh one go on, and check what the store holds then.

    `scenario` is an async function at the top of a module, or its name as `"module:function"`. It is given a
    `CrashSite`, opens a runtime on its `store` and runs to its end; what it starts has a `request_id`, so that the
    next process finds it. `store` is `"sqlite"` or the URL of a Postgres server where databases may be made: each
    boundary has a store of its own. `check(site, store)` is called at the end of each, and raises if something of
    yours is wrong. With `twice` the process that goes on is killed at each of its commits, too.

    Raises `CrashFailed` if anything is wrong; else prints and returns the report.
    """
    name = _name_of(scenario)
    for option, value, kinds in (("processes", processes, int), ("timeout", timeout, int | float)):
        if isinstance(value, bool) or not isinstance(cast(Any, value), kinds) or not value > 0:
            raise UsageError(f"{option} is a number above 0, not {value!r:.80}")
    with open_sites(store) as sites, Launchers() as launchers, ThreadPoolExecutor(processes) as pool:
        wanted = _wanted(sites.points, points)
        matrix = _Matrix(name, sites, launchers, check, timeout)
        commits = pool.submit(matrix.undisturbed).result()
        kills: list[tuple[Kill, ...]] = [(kill,) for kill in _boundaries(len(commits), wanted)]
        cases = list(pool.map(matrix.case, kills))
        if twice:
            more: list[tuple[Kill, ...]] = [
                (*kill, then)
                for kill, case in zip(kills, cases, strict=True)
                if case.reached
                for then in _boundaries(case.commits_after, wanted)
            ]
            cases += list(pool.map(matrix.case, more))
            kills += more
    rows = [
        CrashRow(
            commit=kill[0][0],
            what=commits[kill[0][0] - 1],
            point=kill[0][1],
            then=kill[1] if len(kill) > 1 else None,
            reached=case.reached == len(kill),
            problems=tuple(case.problems),
        )
        for kill, case in zip(kills, cases, strict=True)
    ]
    report = CrashReport(name, sites.kind, tuple(commits), tuple(rows))
    if report.problems:
        raise CrashFailed(str(report), report)
    print(report)
    return report


def _wanted(there: Sequence[KillPoint], points: Sequence[KillPoint]) -> list[KillPoint]:
    """The boundaries of this store to kill at. Without any, the test would hold whatever the scenario does."""
    known = get_args(KillPoint)
    if isinstance(points, str) or any(point not in known for point in points):
        raise UsageError(f"points is a list of {', '.join(known)}, not {points!r:.80}")
    wanted: list[KillPoint] = [point for point in there if point in points]
    if not wanted:
        raise UsageError(f"with points={points!r:.80} nothing is killed here; this store has {', '.join(there)}")
    return wanted


def _boundaries(commits: int, points: Sequence[KillPoint]) -> list[Kill]:
    return [(number, point) for number in range(1, commits + 1) for point in points]


def _boundary(row: CrashRow) -> str:
    first = f"{row.point} commit {row.commit} ({row.what})"
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
            f"another process must be able to import {scenario.__qualname__}: put it at the top of a module"
        )
    if scenario.__module__ == "__main__":
        return f"{Path(inspect.getfile(scenario)).resolve()}:{scenario.__name__}"
    return f"{scenario.__module__}:{scenario.__name__}"


class _Case(Struct):
    """What came of one case: how many of its kills were reached, the commits after the last one, the problems."""

    reached: int = 0
    commits_after: int = 0
    problems: list[str] = []


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

    def undisturbed(self) -> list[str]:
        """Run the scenario without a kill, and once more; returns its commits in words."""
        with self._sites.new() as (place, site):
            problem = self._run(place, site)
            commits = [entry.what for entry in read_journal(place / "journal") if isinstance(entry, Wrote)]
            problems = [problem] if problem else verify(place, site, self._check)
            if not problems:
                problems = self._repeated(place, site)
        if problems:
            report = CrashReport(self._scenario, self._sites.kind, tuple(commits), ())
            text = "\n".join(f"  {problem}" for problem in problems)
            raise CrashFailed(f"{self._scenario}, without any kill:\n{text}", report)
        return commits

    def _repeated(self, place: Path, site: CrashSite) -> list[str]:
        before = asyncio.run(_counted(site))
        if not before:
            return ["it has no run in its store: open the runtime on site.store, and start something"]
        problem = self._run(place, site)
        if problem:
            return [f"when it is run again: {problem}"]
        if (after := asyncio.run(_counted(site))) != before:
            return [
                f"it had {before} runs, and {after} when it was run again: give what it starts a request_id, "
                "so that a second process goes on with it"
            ]
        return []

    def case(self, kills: tuple[Kill, ...]) -> _Case:
        """Kill at these boundaries, one process after the other, and let the last one come to its end."""
        case = _Case()
        with self._sites.new() as (place, site):
            for kill in (*kills, None):
                before = len(read_journal(place / "journal"))
                problem = self._run(place, site, kill)
                entries = read_journal(place / "journal")[before:]
                if problem:
                    case.problems.append(problem)
                    return case
                if kill is None:
                    case.commits_after = sum(isinstance(entry, Wrote) for entry in entries)
                elif any(isinstance(entry, Killed) for entry in entries):
                    case.reached += 1
                    self._sites.bury(site)
            case.problems += verify(place, site, self._check)
        return case

    def _run(self, place: Path, site: CrashSite, kill: Kill | None = None) -> str | None:
        return self._launchers.start(self._scenario, place, site, kill).problem(self._timeout)


def verify(place: Path, site: CrashSite, check: Check | None = None) -> list[str]:
    """What is wrong at a site where all processes have ended."""
    asked = [entry for entry in read_journal(place / "journal") if isinstance(entry, Asked)]
    return asyncio.run(_verified(site, asked, check))


async def _counted(site: CrashSite) -> int:
    store = open_store(site.store)
    try:
        return len(await all_runs(store))
    finally:
        await store.close()


async def _verified(site: CrashSite, asked: Sequence[Asked], check: Check | None) -> list[str]:
    store = open_store(site.store)
    try:
        problems = await broken_rules(store, asked)
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
