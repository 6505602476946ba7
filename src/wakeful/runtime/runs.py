"""Runs: their records, calls and trees, and what operators do with them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ..dispatch import (
    ParkedProblem,
    RunResult,
    check_parked,
    check_result,
    retry,
    set_paused,
    stored_result,
)
from ..errors import UnknownRun
from ..errors.arguments import checked_methods
from ..stores import OutcomeKind, Store, Tally
from ..types.calls import Call
from ..types.copies import copy_mutable
from ..types.inbox import Request
from ..types.runs import ErrorDetail, RunRecord, RunStatus, TaskRecord, WaitReason
from .arguments import check_count, check_id, check_ids, check_request_id
from .filters import run_filters
from .scope import Scope

__all__ = ["MAX_COUNT", "Ledger", "RunTree", "Runs", "find_run", "shown"]

# The most runs that a tree shows.
MAX_TREE = 10_000
# The most rows that a count looks at.
MAX_COUNT = 10_000


class Ledger(Struct, frozen=True):
    """A run's tool calls by state."""

    finished: tuple[Call, ...] = ()
    waiting: tuple[Call, ...] = ()
    running: tuple[Call, ...] = ()
    never_started: tuple[Call, ...] = ()
    unknown: tuple[Call, ...] = ()


class RunTree(Struct, frozen=True):
    """A run, the task it was started as, and the runs below it, oldest first."""

    run: RunRecord
    task: TaskRecord | None = None
    children: tuple[RunTree, ...] = ()


@checked_methods("runtime.runs")
class Runs:
    """`runtime.runs`: the runs of one tenant."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    async def get(self, run_id: str) -> RunRecord:
        """A run's record; raises `UnknownRun`."""
        return shown(await find_run(self._scope.store, run_id))

    async def list(
        self,
        *,
        thread: str | None = None,
        status: RunStatus | None = None,
        agent: str | Collection[str] | None = None,
        principal: str | None = None,
        root: str | None = None,
        parent: str | None = None,
        outcome: OutcomeKind | None = None,
        waits_for: WaitReason | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> Sequence[RunRecord]:
        """Run records, newest first.

        - `agent`: one agent or several; `principal`: the id of the principal that owns the runs.
        - `root`: the runs below this one; `parent`: those directly below it.
        - `outcome`: why they ended, such as `error`; `waits_for`: why they wait, such as `tool_permission`.
        - `since`, `until`: they were created from this time on, and before that one.

        Pass the last run's id as `before` for the next page.
        """
        where = run_filters(
            thread=thread,
            status=status,
            agent=agent,
            principal=principal,
            root=root,
            parent=parent,
            outcome=outcome,
            waits_for=waits_for,
            since=since,
            until=until,
        )
        check_ids(run=before)
        most = check_count(limit, "limit") or 100
        return [shown(run) for run in await self._scope.store.runs(before=before, limit=most, **where)]

    async def count(
        self,
        *,
        thread: str | None = None,
        status: RunStatus | None = None,
        agent: str | Collection[str] | None = None,
        principal: str | None = None,
        root: str | None = None,
        parent: str | None = None,
        outcome: OutcomeKind | None = None,
        waits_for: WaitReason | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Tally:
        """The number of runs, counted up to 10,000; the filters are those of `list`."""
        where = run_filters(
            thread=thread,
            status=status,
            agent=agent,
            principal=principal,
            root=root,
            parent=parent,
            outcome=outcome,
            waits_for=waits_for,
            since=since,
            until=until,
        )
        return await self._scope.store.count_runs(MAX_COUNT, **where)

    async def errors(self, run_id: str) -> Sequence[ErrorDetail]:
        """The texts of a run's unexpected exceptions, at most the last 16, for operators.

        The model, events, exports and remote callers have only their references.
        """
        return (await find_run(self._scope.store, run_id)).errors

    async def result(self, run_id: str) -> RunResult[Any]:
        """A run's result so far, without waiting for more; of a failed run, too."""
        self._scope.shared.check_open()
        return await stored_result(self._scope.dispatch, check_id(run_id, "run"))

    async def calls(self, run_id: str) -> Sequence[Call]:
        """A run's tool calls, in order."""
        store = self._scope.store
        await find_run(store, run_id)
        return copy_mutable(await store.calls(run_id))

    async def ledger(self, run_id: str) -> Ledger:
        """A run's tool calls by state: finished, waiting, running, never started or unknown."""
        groups: dict[str, list[Call]] = {name: [] for name in Ledger.__struct_fields__}
        for call in await self.calls(run_id):
            groups[_group_of(call)].append(call)
        return Ledger(*[tuple(calls) for calls in groups.values()])

    async def tree(self, run_id: str) -> RunTree:
        """A run with all runs below it: delegates, handoffs and background tasks, at most 10,000."""
        store = self._scope.store
        top = await find_run(store, run_id)
        order: dict[str, tuple[RunRecord, TaskRecord | None, str | None]] = {top.id: (top, None, None)}
        queue = [top]
        while queue and len(order) < MAX_TREE:
            above = queue.pop(0)
            for task in await store.tasks(above.thread_id):
                if task.run_id != above.id or task.target in order:
                    continue
                if (run := await store.run(task.target)) is not None:
                    order[run.id] = (run, task, above.id)
                    queue.append(run)
        children: dict[str | None, list[RunTree]] = {}
        for run, task, above_id in reversed(order.values()):
            below = tuple(reversed(children.pop(run.id, ())))
            children.setdefault(above_id, []).append(RunTree(shown(run), task, below))
        return children[None][0]

    async def retry(
        self, run_id: str, *, request_id: str | Request | None = None, check: bool = True
    ) -> RunResult[Any]:
        """Continue a failed run from its last committed step; also puts a dead dispatch back.

        Repeating a `request_id` retries nothing, and returns the run's result. Raises `RunFailed` if it fails
        again; with `check=False` the result says so.
        """
        self._scope.bind()
        result = await retry(self._scope.dispatch, check_id(run_id, "run"), check_request_id(request_id))
        return await check_result(self._scope.dispatch, result, check=check)

    async def pause(self, run_id: str) -> bool:
        """Pause a run at its next step, whichever process executes it. It waits, and holds nothing, until
        `unpause`. False if it is done."""
        self._scope.bind()
        return await set_paused(self._scope.dispatch, check_id(run_id, "run"), "pause")

    async def unpause(self, run_id: str) -> bool:
        """Continue a paused run; False if it is done."""
        self._scope.bind()
        return await set_paused(self._scope.dispatch, check_id(run_id, "run"), "unpause")

    async def check_parked(self, store: Store | None = None) -> Sequence[ParkedProblem]:
        """The waiting runs that this runtime's code can't continue, and why; of its store or of another one."""
        return await check_parked(self._scope.env.registry, self._scope.store if store is None else store)


def shown(run: RunRecord) -> RunRecord:
    """A copy of a record without the texts that are for operators."""
    return copy_mutable(replace(run, errors=()) if run.errors else run)


async def find_run(store: Store, run_id: str) -> RunRecord:
    """The stored record of a run; raises `UnknownRun`."""
    run = await store.run(check_id(run_id, "run"))
    if run is None:
        raise UnknownRun(f"no run {run_id!r} in this store")
    return run


def _group_of(call: Call) -> str:
    if call.state == "finished":
        if call.outcome == "unknown":
            return "unknown"
        return "finished" if call.attempt or call.outcome in ("ok", "error") else "never_started"
    return {"started": "running", "suspended": "waiting"}.get(call.state, "never_started")
