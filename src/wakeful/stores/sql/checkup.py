"""Check relations between the rows of a store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

__all__ = ["checkup"]

_RULES = (
    (
        "thread {0!r}: the log ends at {1}, but its last entry is {2}",
        """SELECT t.id, t.head, max(l.seq + l.size - 1) FROM threads t JOIN log l ON l.thread = t.no
           GROUP BY t.no, t.id, t.head HAVING max(l.seq + l.size - 1) > t.head""",
    ),
    (
        "run {0}: it is {1}, but its thread's open run is another",
        """SELECT r.id, r.status FROM runs r JOIN threads t ON t.no = r.thread
           WHERE r.status <> 'done' AND (t.open_run IS NULL OR t.open_run <> r.no)""",
    ),
    (
        "thread {0!r}: its open run {1} is done",
        "SELECT t.id, r.id FROM threads t JOIN runs r ON r.no = t.open_run WHERE r.status = 'done'",
    ),
    (
        "ticket {0}: it is open, but its run {1} is done",
        """SELECT k.id, r.id FROM tickets k JOIN runs r ON r.no = k.run
           WHERE k.status = 'open' AND r.status = 'done'""",
    ),
    (
        "run {0}: it is running and has no dispatch",
        """SELECT r.id FROM runs r JOIN threads t ON t.no = r.thread AND t.open_run = r.no
           LEFT JOIN dispatches d ON d.thread = t.no
           WHERE r.status = 'running' AND t.claim IS NULL AND d.thread IS NULL""",
    ),
    (
        "thread {0!r}: {1} items wait in its inbox, nothing runs, and it has no dispatch",
        """SELECT t.id, count(*) FROM threads t JOIN inbox i ON i.thread = t.no AND i.status = 'pending'
           LEFT JOIN dispatches d ON d.thread = t.no
           WHERE t.open_run IS NULL AND t.claim IS NULL AND d.thread IS NULL AND i.kind = 'input' GROUP BY t.id""",
    ),
    (
        "thread {0!r}: entry {1} refers to answer {2}, which isn't there",
        """SELECT t.id, l.seq, l.ref FROM log l JOIN threads t ON t.no = l.thread
           LEFT JOIN log m ON m.thread = l.thread AND m.seq = l.ref
           WHERE l.ref IS NOT NULL AND m.seq IS NULL""",
    ),
    (
        "call {0}: its run isn't there",
        "SELECT c.id FROM calls c LEFT JOIN runs r ON r.no = c.run WHERE r.no IS NULL",
    ),
)


async def checkup(query: Callable[..., Awaitable[list[tuple[Any, ...]]]]) -> list[str]:
    """Messages about rows that contradict each other."""
    problems: list[str] = []
    for text, sql in _RULES:
        problems += [text.format(*row) for row in await query(sql)]
    return problems
