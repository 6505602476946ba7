"""Cron expressions in a time zone."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

from ..errors import ConfigurationError

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

__all__ = ["Cron"]

_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_FIELDS: tuple[tuple[str, int, int, dict[str, int]], ...] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of month", 1, 31, {}),
    ("month", 1, 12, {name: number for number, name in enumerate(_MONTHS, 1)}),
    ("day of week", 0, 7, {name: number for number, name in enumerate(_DAYS)}),
)
_NAMED = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
# More than the longest gap between two 29ths of February, in days.
_FAR = 366 * 9


class Cron:
    """Five fields: minute, hour, day of month, month, day of week; with lists, ranges, steps and names.

    If both days are restricted, either one matches. At a daylight-saving change a skipped time occurs right after
    the gap, and a repeated time occurs once, the first time.
    """

    def __init__(self, expression: str, tz: str = "UTC") -> None:
        if not isinstance(cast(Any, expression), str):
            raise ConfigurationError(f"cron is a text such as '0 9 * * MON-FRI', not {expression!r:.80}")
        if expression.strip().startswith("@") and expression.strip().lower() not in _NAMED:
            raise ConfigurationError(
                f"cron {expression!r:.80} is none of {', '.join(_NAMED)}; give one of these, or five fields: "
                "minute, hour, day of month, month, day of week"
            )
        fields = _NAMED.get(expression.strip().lower(), expression).split()
        if len(fields) != 5:
            raise ConfigurationError(
                f"cron {expression!r} has {len(fields)} fields; it takes five: minute, hour, day of month, month, "
                "day of week"
            )
        self._zone = _zone(tz)
        sets = [_values(text, *field) for text, field in zip(fields, _FIELDS, strict=True)]
        self._minutes, self._hours = sorted(sets[0]), sorted(sets[1])
        self._days, self._months, weekdays = sets[2], sets[3], sets[4]
        self._weekdays = {day % 7 for day in weekdays}
        self._any_day, self._any_weekday = fields[2].startswith("*"), fields[4].startswith("*")
        longest = max(monthrange(2024, month)[1] for month in self._months)
        if self._any_weekday and min(self._days) > longest:
            raise ConfigurationError(f"cron {expression!r} names a day that none of its months has")

    def after(self, moment: int) -> int:
        """The first time after this one, both in milliseconds since the epoch."""
        return next(self.times(moment))

    def times(self, moment: int) -> Iterator[int]:
        """The times after this one, in order."""
        local = datetime.fromtimestamp(moment / 1000, self._zone).replace(tzinfo=None)
        last = moment
        for wall in self._walls(local):
            at = self._moment(wall)
            if at > last:
                last = at
                yield at

    def _walls(self, after: datetime) -> Iterator[datetime]:
        """The wall-clock times after this one."""
        day, far = after.date(), _FAR
        while far:
            far -= 1
            if self._on(day):
                far = _FAR
                for hour in self._hours:
                    for minute in self._minutes:
                        wall = datetime(day.year, day.month, day.day, hour, minute)
                        if wall > after:
                            yield wall
            day += timedelta(days=1)

    def _on(self, day: date) -> bool:
        if day.month not in self._months:
            return False
        by_date, by_weekday = day.day in self._days, day.isoweekday() % 7 in self._weekdays
        if self._any_day or self._any_weekday:
            return by_date and by_weekday
        return by_date or by_weekday

    def _moment(self, wall: datetime) -> int:
        """The first moment of a wall-clock time; the end of the gap if the clocks skip it."""
        aware = wall.replace(tzinfo=self._zone)
        at = aware.astimezone(UTC)
        if at.astimezone(self._zone).replace(tzinfo=None) != wall:
            # In a gap the two readings differ by the length of the jump, and the jump is between them.
            low, high = sorted([at, aware.replace(fold=1).astimezone(UTC)])
            before = low.astimezone(self._zone).utcoffset()
            while high - low > timedelta(seconds=1):
                middle = low + (high - low) / 2
                if middle.astimezone(self._zone).utcoffset() == before:
                    low = middle
                else:
                    high = middle
            at = high.replace(microsecond=0)
        return round(at.timestamp() * 1000)


def _zone(name: str) -> ZoneInfo:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    if not isinstance(cast(Any, name), str):
        raise ConfigurationError(f"a time zone is a name such as 'UTC' or 'Europe/Berlin', not {name!r:.80}")
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ConfigurationError(f"no time zone {name!r}; give one such as 'Europe/Berlin'") from error


def _values(text: str, what: str, low: int, high: int, names: dict[str, int]) -> set[int]:
    """The numbers that a field matches."""
    found: set[int] = set()
    for part in text.split(","):
        span, slash, step = part.partition("/")
        if slash and not (step.isdecimal() and int(step) > 0):
            raise ConfigurationError(f"cron: {part!r} in the {what} has a step that isn't a positive number")
        if span == "*":
            first, last = low, 6 if what == "day of week" else high
        else:
            first, dash, last = span.partition("-")
            first = _number(first, what, low, high, names)
            last = _number(last, what, low, high, names) if dash else high if slash else first
        if first > last:
            raise ConfigurationError(f"cron: {part!r} in the {what} ends before it begins")
        found.update(range(first, last + 1, int(step) if slash else 1))
    return found


def _number(text: str, what: str, low: int, high: int, names: dict[str, int]) -> int:
    number = names.get(text.upper(), int(text) if text.isascii() and text.isdecimal() else -1)
    if not low <= number <= high:
        words = f", or a name such as {next(iter(names))}" if names else ""
        raise ConfigurationError(f"cron: {text!r} is not a {what}; it is {low} to {high}{words}")
    return number
