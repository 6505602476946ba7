"""Dispatches in memory: what is due, who takes it, and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from ..types.ids import now_ms
from ..types.runs import PRIORITY, RunRecord
from ._claiming import PROGRESS, SUSPECT, Asked, Ready, after_death, backoff, died, in_turns
from ._journal import Thread
from ._protocol import MAX_ATTEMPTS, Claimed, Claims, Commit, Dispatch, Due, InboxItem
from ._rules import due_time, wakes_of, woken

__all__ = ["Entry", "arrive", "claim", "due", "hold", "queued", "revive", "seen", "settle"]


class Entry(Struct, gc=False):
    """A thread's dispatch. `held` is set by a claim and outlives its owner's death until that is counted; `mark`
    is the step that the run had when it was claimed. One that a claim made is `bare`, and has nothing of its own:
    it shows the thread's open run, until somebody else may have to take that over."""

    agent: str
    due_at: int
    priority: int = PRIORITY
    held: bool = False
    mark: int = 0
    attempts: int = 0
    dead_at: int | None = None
    error: str = ""
    bare: bool = False


Entries = dict[Thread, Entry]


def hold(entries: Entries, thread: Thread, run: RunRecord | None, now: int, lost: bool) -> None:
    """The thread is claimed by a commit; `lost` says that its owner before died, which counts unless it was."""
    agent, step = ("", 0) if run is None else (run.agent_id, run.steps)
    before = entries.get(thread)
    if before is None:
        entries[thread] = Entry("", now, PRIORITY, True, step, bare=True)
        return
    _fill(thread, before, now)
    attempts = after_death(before.attempts, before.mark, step) if lost and before.held else before.attempts
    entries[thread] = Entry(agent or before.agent, now, before.priority, True, step, attempts)


def _fill(thread: Thread, entry: Entry, now: int) -> None:
    """Give a bare dispatch what it shows."""
    if entry.bare:
        entry.agent, entry.priority = _shown(thread, entry)
        entry.due_at, entry.bare = now, False


def _shown(thread: Thread, entry: Entry) -> tuple[str, int]:
    """Whose dispatch it is, and its priority."""
    if not entry.bare:
        return entry.agent, entry.priority
    run = thread.open
    return ("", PRIORITY) if run is None else (run.agent_id, run.priority)


def _shown_due(thread: Thread, entry: Entry) -> int:
    return thread.updated_at if entry.bare else entry.due_at


def arrive(entries: Entries, thread: Thread, item: InboxItem) -> None:
    """Something came for a thread that nobody owns."""
    now = now_ms()
    if woken(wakes_of(thread.open), [item.wake]):
        at, run, before = max(now, item.at or 0), thread.open, entries.get(thread)
        agent, priority = (item.agent_id or "", item.priority) if run is None else (run.agent_id, run.priority)
        if before is None:
            entries[thread] = Entry(agent, at, priority)
        else:  # Who was first comes first.
            at = min(at, before.due_at) if before.dead_at is None else at
            rank = min(priority, before.priority)
            entries[thread] = Entry(before.agent or agent, at, rank, attempts=before.attempts)
    elif item.kind == "cancel":
        revive(entries, thread)  # There is nothing to run any more that could go wrong.


def settle(entries: Entries, thread: Thread, commit: Commit) -> None:
    """Nobody owns the thread. It is due if something in its inbox may wake it, if its run waits for a time, or if
    its run was left in the middle; else nothing is due."""
    run = thread.open
    if run is None and not thread.inbox and commit.failed is None:
        entries.pop(thread, None)
        return
    entry, now = entries.get(thread), now_ms()
    if commit.failed is not None:
        if entry is not None:
            _fill(thread, entry, now)
            _fail(entry, commit.failed, now)
        return
    pending = [item for item in thread.inbox.values() if woken(wakes_of(run), [item.wake])] if thread.inbox else []
    times = [max(now, item.at or 0) for item in pending]
    written = run is not None and any(record is run for record in commit.runs)
    if run is not None and written and (time := due_time(run, now)) is not None:
        times.append(time)
    if run is not None and not written and (commit.later is not None or not times):
        if entry is not None:  # Its record isn't part of this commit: what was due is due.
            _fill(thread, entry, now)
            entry.held, entry.due_at = False, entry.due_at if commit.later is None else commit.later
    elif not times:
        entries.pop(thread, None)
    else:
        if run is not None:
            agent, priority = run.agent_id, run.priority
        else:
            agent, priority = pending[0].agent_id or "", min(item.priority for item in pending)
        agent = agent or ("" if entry is None else entry.agent)
        if not agent and (commit.fence is not None or commit.claim is not None):
            agent = _last_agent(thread)
        entries[thread] = Entry(agent, min(times) if commit.later is None else commit.later, priority)


def _last_agent(thread: Thread) -> str:
    last = thread.index().runs.get(thread.last_run_id or "")
    return "" if last is None else last.record.agent_id


def _fail(entry: Entry, error: str, now: int) -> None:
    entry.held, entry.attempts, entry.error = False, entry.attempts + 1, error
    entry.due_at = now + backoff(entry.attempts)
    if entry.attempts >= MAX_ATTEMPTS:
        entry.dead_at = now


def revive(entries: Entries, thread: Thread) -> bool:
    """Make a dead letter due again."""
    entry = entries.get(thread)
    if entry is None or entry.dead_at is None:
        return False
    entries[thread] = Entry(entry.agent, now_ms(), entry.priority)
    return True


def queued(entries: Entries, tenant: str, limit: int) -> int:
    """How many of a tenant's wait for a worker."""
    now = now_ms()
    count = sum(
        thread.tenant == tenant and not entry.held and entry.dead_at is None and entry.due_at <= now
        for thread, entry in entries.items()
    )
    return min(count, limit)


def due(entries: Entries, alive: Callable[[str], bool]) -> list[Due]:
    """What nobody alive has claimed, the first due first."""
    found = [
        (_shown_due(thread, entry), thread.no, thread, entry)
        for thread, entry in entries.items()
        if entry.dead_at is None and (thread.claim is None or not alive(thread.claim))
    ]
    return [
        Due(thread.tenant, thread.id, _shown(thread, entry)[0], at)
        for at, _, thread, entry in sorted(found, key=lambda one: one[:2])
    ]


def seen(thread: Thread, entry: Entry, alive: Callable[[str], bool]) -> Dispatch:
    """A dispatch as an operator sees it."""
    agent, priority = _shown(thread, entry)
    return Dispatch(
        thread_id=thread.id,
        run_id=None if thread.open is None else thread.open.id,
        agent_id=agent,
        priority=priority,
        due_at=_shown_due(thread, entry),
        attempts=entry.attempts,
        claimed_by=thread.claim if thread.claim is not None and alive(thread.claim) else None,
        dead_at=entry.dead_at,
        error=entry.error,
    )


# -- claiming --------------------------------------------------------------------------------------------------


def claim(entries: Entries, turns: dict[str, int], workers: dict[str, float], asked: Asked) -> Claims:
    """Take what is due and free."""
    clock = now_ms()
    due = clock if asked.now is None else asked.now
    _free_the_dead(entries, workers, clock)
    ready, waits = list[Ready](), list[int]()
    threads: dict[int, Thread] = {}
    for thread, entry in entries.items():
        if not entry.held and thread.claim is not None and workers.get(thread.claim, 0) > clock:
            entry.held = True  # Its owner came back in time.
        if entry.held or entry.dead_at is not None or not asked.knows(entry.agent):
            continue
        if entry.due_at > due:
            waits.append(entry.due_at - due)
        else:
            threads[thread.no] = thread
            ready.append(
                Ready(entry.priority, entry.due_at, thread.no, thread.tenant, entry.agent, _suspect(entry))
            )
    claimed: list[Claimed] = []
    if ready and asked.limit > 0:
        workers[asked.worker_id] = max(workers.get(asked.worker_id, 0), clock + asked.lease)
        suspect = any(
            thread.claim == asked.worker_id and _suspect(entry) and _steps(thread) - entry.mark < PROGRESS
            for thread, entry in entries.items()
        )
        picked = in_turns(ready, turns, _live(entries, workers, clock), asked, suspect=suspect)
        last = max(turns.values(), default=0)
        for place, one in enumerate(picked, 1):
            turns[one.tenant] = last + place
            claimed.append(_take(entries, threads[one.thread], asked.worker_id, clock))
    waits += [
        round(until - clock)
        for worker, until in workers.items()
        if clock < until < float("inf") and worker != asked.worker_id and any(t.claim == worker for t in entries)
    ]
    return Claims(tuple(claimed), min(waits, default=None))


def _free_the_dead(entries: Entries, workers: dict[str, float], clock: int) -> None:
    """Make due what workers left that died, each an attempt; one too many is a dead letter."""
    for thread, entry in entries.items():
        if not entry.held or thread.claim is None or workers.get(thread.claim, 0) > clock:
            continue
        _fill(thread, entry, clock)
        step = _steps(thread)
        entry.held, entry.attempts = False, after_death(entry.attempts, entry.mark, step)
        entry.mark, entry.error = step, ""
        if entry.attempts >= MAX_ATTEMPTS:
            entry.dead_at, entry.error, thread.claim = clock, died(entry.attempts), None


def _suspect(entry: Entry) -> bool:
    """Whether it may be what ends its workers; one that failed has said why."""
    return entry.attempts >= SUSPECT and not entry.error


def _steps(thread: Thread) -> int:
    return 0 if thread.open is None else thread.open.steps


def _live(entries: Entries, workers: dict[str, float], clock: int) -> dict[tuple[str, str], int]:
    live: dict[tuple[str, str], int] = {}
    for thread, entry in entries.items():
        if thread.claim is not None and workers.get(thread.claim, 0) > clock:
            whose = thread.tenant, _shown(thread, entry)[0]
            live[whose] = live.get(whose, 0) + 1
    return live


def _take(entries: Entries, thread: Thread, worker_id: str, clock: int) -> Claimed:
    entry, lost = entries[thread], thread.claim is not None
    thread.claim = worker_id
    thread.epoch += 1
    entry.held, entry.mark = True, _steps(thread)
    waited = max(clock - entry.due_at, 0)
    return Claimed(thread.tenant, thread.id, entry.agent, thread.epoch, entry.due_at, waited, entry.attempts, lost)
