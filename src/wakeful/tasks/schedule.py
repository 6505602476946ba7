"""Schedules: times at which runs start, and the policy for missed times."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, takewhile
from typing import Literal

from msgspec import Struct

from ..errors.arguments import Checked
from ..types.messages import Message
from ..types.runs import FUNCTION, Principal
from .cron import Cron

__all__ = ["GRACE_MS", "MAX_AT_ONCE", "Missed", "Schedule"]

Missed = Literal["once", "skip", "all"]

# An occurrence that is at most this late doesn't count as missed.
GRACE_MS = 60_000

# The most missed occurrences that one commit delivers.
MAX_AT_ONCE = 100


class Schedule(Struct, metaclass=Checked, frozen=True, omit_defaults=True):
    """Runs of an agent or a function that start by a `cron` expression in the time zone `tz`, or once at `at`.

    `at` and the `delay` that it was computed from are in milliseconds. `missed` is the policy for occurrences at
    which no process was running: `once` delivers the last of them, `all` each, `skip` none. Each occurrence starts
    a thread of its own, unless `thread` is set. A `paused` schedule has no next time.
    """

    name: str
    agent_id: str
    message: Message
    cron: str = ""
    tz: str = "UTC"
    missed: Missed = "once"
    thread: str | None = None
    at: int | None = None
    principal: Principal | None = None
    last_at: int | None = None
    next_at: int | None = None
    delay: int | None = None
    paused: bool = False

    @property
    def target(self) -> str:
        """The agent, or the name of the function."""
        return self.agent_id.removeprefix(FUNCTION)

    def first(self, now: int) -> int:
        """The first occurrence."""
        return self.at if self.at is not None else Cron(self.cron, self.tz).after(now)

    def upcoming(self, count: int) -> list[int]:
        """The next times, up to `count`; none if it is paused or has none."""
        if self.next_at is None or self.paused:
            return []
        if not self.cron:
            return [self.next_at]
        return [self.next_at, *islice(Cron(self.cron, self.tz).times(self.next_at), count - 1)]

    def due(self, since: int, now: int) -> tuple[Sequence[int], int | None]:
        """The occurrences to deliver, from the one at `since` on, and the next one after now."""
        if self.at is not None:
            late = self.missed == "skip" and now - self.at > GRACE_MS
            return ([] if late else [self.at]), None
        cron = Cron(self.cron, self.tz)
        if self.missed == "all":
            times = [since, *islice(takewhile(lambda at: at <= now, cron.times(since)), MAX_AT_ONCE)]
            more = times[MAX_AT_ONCE:]
            return times[:MAX_AT_ONCE], more[0] if more else cron.after(now)
        last = _last(cron, since, now)
        return ([] if self.missed == "skip" and now - last > GRACE_MS else [last]), cron.after(now)


def _last(cron: Cron, since: int, now: int) -> int:
    """The last occurrence from `since` to now. Recent times are searched first: there may be a million."""
    for days in (0.1, 2, 62, 740):
        start = max(since, now - round(days * 24 * 3600 * 1000))
        times = list(takewhile(lambda at: at <= now, cron.times(start)))
        if times or start == since:
            break
    else:
        times = list(takewhile(lambda at: at <= now, cron.times(since)))
    return times[-1] if times else since
