"""Transitions of a thread's dispatch: pure functions from one `DispatchRow` to the next."""

from __future__ import annotations

from msgspec.structs import replace

from ..types.runs import PRIORITY
from .heads import DispatchRow, RunRow
from .records import MAX_ATTEMPTS

__all__ = [
    "FIRST_PAUSE",
    "LONGEST_PAUSE",
    "MAX_ATTEMPTS",
    "PROGRESS",
    "backoff",
    "count_death",
    "fail",
    "hold",
    "make",
    "reap",
    "revive",
    "schedule_sooner",
]

FIRST_PAUSE = 250
LONGEST_PAUSE = 30_000

# A run made progress if it began this many steps since it was claimed: it finished one of them.
PROGRESS = 2


def make(run: RunRow | None, now: int) -> DispatchRow:
    """The dispatch of a claimed thread whose claim made none."""
    if run is None:
        return DispatchRow("", PRIORITY, now, held=True)
    return DispatchRow(run.agent, run.priority, now, held=True, mark=run.steps)


def hold(
    dispatch: DispatchRow | None, run: RunRow | None, *, agent: str, step: int, is_takeover: bool, now: int
) -> DispatchRow | None:
    """The dispatch after a commit claimed its thread. A takeover from a dead owner counts as an attempt."""
    if dispatch is None and is_takeover:
        dispatch = make(run, now)
    if dispatch is None:
        return None
    attempts = dispatch.attempts
    if is_takeover and dispatch.held:
        attempts = count_death(attempts, dispatch.mark, step)
    return DispatchRow(agent or dispatch.agent, dispatch.priority, now, attempts, True, step)


def schedule_sooner(dispatch: DispatchRow | None, *, agent: str, priority: int, due_at: int) -> DispatchRow:
    """The dispatch after an item arrived that wakes its thread: due no later than before, for the first agent."""
    if dispatch is None:
        return DispatchRow(agent, priority, due_at)
    return DispatchRow(
        dispatch.agent or agent,
        min(dispatch.priority, priority),
        due_at if dispatch.dead_at is not None else min(dispatch.due_at, due_at),
        dispatch.attempts,
        mark=dispatch.mark,
    )


def revive(dispatch: DispatchRow, now: int) -> DispatchRow:
    """A dead letter that is due again, with all its attempts."""
    return DispatchRow(dispatch.agent, dispatch.priority, now, mark=dispatch.mark)


def fail(dispatch: DispatchRow, error: str, now: int) -> DispatchRow:
    """The dispatch after its owner gave up: due after a backoff, or a dead letter after the last attempt."""
    attempts = dispatch.attempts + 1
    return replace(
        dispatch,
        due_at=now + backoff(attempts),
        attempts=attempts,
        held=False,
        dead_at=now if attempts >= MAX_ATTEMPTS else None,
        error=error,
    )


def reap(dispatch: DispatchRow, step: int, now: int) -> DispatchRow:
    """The dispatch after its owner died: due again, or a dead letter after the last attempt."""
    attempts = count_death(dispatch.attempts, dispatch.mark, step)
    if attempts < MAX_ATTEMPTS:
        return replace(dispatch, attempts=attempts, held=False, mark=step, error=None)
    error = (
        f"the process that ran it ended {attempts} times without getting further; look at what its open step "
        "does, then retry or cancel the run"
    )
    return replace(dispatch, attempts=attempts, held=False, dead_at=now, error=error)


def count_death(attempts: int, mark: int, step: int) -> int:
    """The attempts after an owner died whose run was at step `mark` when it was claimed."""
    return 1 if step - mark >= PROGRESS else attempts + 1


def backoff(attempts: int) -> int:
    """The pause after this many attempts, in milliseconds."""
    return min(FIRST_PAUSE * 2 ** max(attempts - 1, 0), LONGEST_PAUSE)
