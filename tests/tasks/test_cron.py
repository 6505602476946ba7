"""Cron expressions against a look at every single minute."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful import ConfigurationError
from wakeful.tasks import Cron

ZONES = ["UTC", "Europe/Berlin", "Australia/Lord_Howe"]


def ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def at(text: str, tz: str = "UTC") -> int:
    return ms(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(tz)))


def shown(moment: int, tz: str = "UTC") -> str:
    return datetime.fromtimestamp(moment / 1000, ZoneInfo(tz)).isoformat(timespec="minutes")[:16]


@pytest.mark.parametrize(
    ("cron", "after", "expected"),
    [
        ("0 9 * * MON", "2026-01-01T00:00", "2026-01-05T09:00"),
        ("*/15 * * * *", "2026-01-01T00:00", "2026-01-01T00:15"),
        ("5,10-12 * * * *", "2026-01-01T00:10", "2026-01-01T00:11"),
        ("0 0 29 2 *", "2026-01-01T00:00", "2028-02-29T00:00"),
        ("0 0 13 * FRI", "2026-01-01T00:00", "2026-01-02T00:00"),  # Either day is enough.
        ("0 0 * * 7", "2026-01-01T00:00", "2026-01-04T00:00"),
        ("0 0 1 jan,JUL *", "2026-01-01T00:00", "2026-07-01T00:00"),
        ("30/10 * * * *", "2026-01-01T00:45", "2026-01-01T00:50"),
        ("@daily", "2026-01-01T00:00", "2026-01-02T00:00"),
    ],
)
def test_cron_next_time(cron: str, after: str, expected: str) -> None:
    assert shown(Cron(cron).after(at(after))) == expected


@pytest.mark.parametrize(
    ("cron", "said"),
    [
        ("* * * *", "has 4 fields"),
        ("60 * * * *", "'60' is not a minute"),
        ("* * 0 * *", "'0' is not a day of month"),
        ("* * * FOO *", "or a name such as JAN"),
        ("5-1 * * * *", "ends before it begins"),
        ("*/0 * * * *", "isn't a positive number"),
        ("0 0 30 2 *", "none of its months"),
    ],
)
def test_invalid_cron_expression_is_refused(cron: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Cron(cron)


def test_unknown_time_zone_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no time zone 'Mars/Olympus'"):
        Cron("* * * * *", "Mars/Olympus")


def test_skipped_local_time_moves_to_next_one() -> None:
    berlin = Cron("30 2 * * *", "Europe/Berlin")
    first = berlin.after(at("2026-03-28T12:00", "Europe/Berlin"))
    assert shown(first, "Europe/Berlin") == "2026-03-29T03:00"
    assert shown(berlin.after(first), "Europe/Berlin") == "2026-03-30T02:30"


def test_repeated_local_time_counts_once() -> None:
    berlin = Cron("30 2 * * *", "Europe/Berlin")
    first = berlin.after(at("2026-10-24T12:00", "Europe/Berlin"))
    assert datetime.fromtimestamp(first / 1000, UTC).isoformat() == "2026-10-25T00:30:00+00:00"
    assert shown(berlin.after(first), "Europe/Berlin") == "2026-10-26T02:30"


@st.composite
def crons(draw: st.DrawFn) -> tuple[str, tuple[set[int], ...]]:
    """An expression, and the numbers that each of its fields stands for."""
    texts: list[str] = []
    sets: list[set[int]] = []
    for low, high in ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6)):
        kind = draw(st.sampled_from(["any", "step", "list", "range"]))
        if kind == "any":
            texts.append("*")
            sets.append(set(range(low, high + 1)))
        elif kind == "step":
            step = draw(st.integers(1, high))
            texts.append(f"*/{step}")
            sets.append(set(range(low, high + 1, step)))
        elif kind == "list":
            some = draw(st.sets(st.integers(low, min(high, 28)), min_size=1, max_size=4))
            texts.append(",".join(map(str, sorted(some))))
            sets.append(some)
        else:
            first = draw(st.integers(low, min(high, 28)))
            last = draw(st.integers(first, high))
            texts.append(f"{first}-{last}")
            sets.append(set(range(first, last + 1)))
    return " ".join(texts), tuple(sets)


@given(
    crons(), st.integers(0, 2 * 366 * 24 * 60), st.sampled_from(["UTC", "Europe/Berlin", "Australia/Lord_Howe"])
)
def test_cron_next_time_is_first_matching_minute(
    cron: tuple[str, tuple[set[int], ...]], minutes: int, tz: str
) -> None:
    text, (minute, hour, day, month, weekday) = cron
    begin = datetime(2025, 1, 1, tzinfo=UTC) + timedelta(minutes=minutes)
    zone, parts = ZoneInfo(tz), text.split()
    either = not parts[2].startswith("*") and not parts[4].startswith("*")

    def matches(wall: datetime) -> bool:
        days = wall.day in day, wall.isoweekday() % 7 in weekday
        by_day = any(days) if either else all(days)
        return wall.minute in minute and wall.hour in hour and wall.month in month and by_day

    found = Cron(text, tz).after(ms(begin))
    moment, horizon = begin, begin + timedelta(days=3)
    before = begin.astimezone(zone).replace(tzinfo=None)
    while (moment := moment + timedelta(minutes=1)) <= horizon:
        wall = moment.astimezone(zone)
        naive = wall.replace(tzinfo=None)
        skipped = [before + timedelta(minutes=n) for n in range(1, int((naive - before) / timedelta(minutes=1)))]
        before = naive
        if (wall.fold == 0 and matches(naive)) or any(matches(one) for one in skipped):
            assert found == ms(moment)
            return
    assert found > ms(horizon)
