"""Schedules: what begins at which times, and which of those that nobody was there for still count."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, takewhile
from typing import Literal

from msgspec import Struct

from ..errors._arguments import Checked
from ..types.messages import Message
from ..types.runs import FUNCTION, Principal
from ._cron import Cron

__all__ = ["GRACE_MS", "MAX_AT_ONCE", "Missed", "Schedule"]

Missed = Literal["once", "skip", "all"]

# An occurrence that is this late wasn't missed.
GRACE_MS = 60_000

# How many missed occurrences one commit makes up for.
MAX_AT_ONCE = 100


class Schedule(Struct, metaclass=Checked, frozen=True, omit_defaults=True):
    """Runs of an agent, or tasks of a function, that begin at times of a `cron` expression in the time zone `tz`,
    or once at the time `at`; where that was given as a `delay` it is kept beside it, both in milliseconds.

    `missed` says what becomes of occurrences that no process was there for: `once` makes up for the last of them,
    `all` for each, `skip` for none. Each begins a thread of its own, unless they all are for one `thread`.
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

    @property
    def target(self) -> str:
        """The agent, or the name of the function."""
        return self.agent_id.removeprefix(FUNCTION)

    def first(self, now: int) -> int:
        """When it happens first."""
        return self.at if self.at is not None else Cron(self.cron, self.tz).after(now)

    def due(self, since: int, now: int) -> tuple[Sequence[int], int | None]:
        """The occurrences to make up for, from the one at `since` on, and when it happens next."""
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
    """The last of the times from `since` on. The nearer past is looked at first: there may be a million of
    them."""
    for days in (0.1, 2, 62, 740):
        start = max(since, now - round(days * 24 * 3600 * 1000))
        times = list(takewhile(lambda at: at <= now, cron.times(start)))
        if times or start == since:
            break
    else:
        times = list(takewhile(lambda at: at <= now, cron.times(since)))
    return times[-1] if times else since
