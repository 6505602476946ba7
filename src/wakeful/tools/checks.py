"""Checks of the values that tools and tasks pass to the runtime, before any of them is stored or shown."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from inspect import iscoroutine
from typing import Any, cast, get_args

import msgspec

from ..errors import InvalidInput, UsageError
from ..types.runs import TaskWake

__all__ = [
    "LATEST",
    "check_json",
    "check_progress",
    "check_task",
    "check_task_name",
    "close_on_error",
    "merge_arguments",
    "to_milliseconds",
    "to_seconds",
]

MAX_TASK_NAME_BYTES = 128
# The years 1 and 9999 in milliseconds: the range of a datetime.
EARLIEST, LATEST = -62_135_596_800_000, 253_402_300_799_999


def check_task_name(name: Any) -> None:
    """Refuse a task name that isn't a short text on one line; None is allowed."""
    if name is None:
        return
    if not isinstance(name, str):
        raise InvalidInput(f"a task's name is a text, not {name!r:.80}")
    if not name.strip() or not name.isprintable() or len(name.encode()) > MAX_TASK_NAME_BYTES:
        raise InvalidInput(
            f"a task's name is a text of 1 to {MAX_TASK_NAME_BYTES} bytes on one line, not {name!r:.80}"
        )


def check_task(name: Any, detached: Any, wake: Any) -> None:
    """Refuse a task name or task options of the wrong type."""
    check_task_name(name)
    if not isinstance(detached, bool):
        raise InvalidInput(f"detached is True or False, not {detached!r:.80}")
    if wake not in get_args(TaskWake):
        raise InvalidInput(f"wake is one of {', '.join(get_args(TaskWake))}, not {wake!r:.80}")


@contextmanager
def close_on_error(target: Any) -> Generator[None]:
    """Close `target` on an error if it is a coroutine: else Python warns later that it was never awaited."""
    try:
        yield
    except BaseException:
        if iscoroutine(target):
            target.close()
        raise


def merge_arguments(arguments: Any, keywords: Mapping[str, Any]) -> dict[str, Any]:
    """A function's arguments by name, from `arguments={...}` and from keywords."""
    if arguments is not None and not isinstance(arguments, Mapping):
        raise InvalidInput(f"arguments is a dict of names and values, not {arguments!r:.80}")
    given = cast(Mapping[Any, Any], arguments or {})
    if wrong := [name for name in given if not isinstance(name, str)]:
        raise InvalidInput(f"arguments have names, which are texts, not {wrong[0]!r:.80}")
    if duplicates := sorted(given.keys() & keywords.keys()):
        raise InvalidInput(f"the argument {duplicates[0]!r} is given twice: in arguments={{...}}, and by its name")
    return {**given, **keywords}


def to_seconds(value: Any, what: str, *, least: float = 0) -> float:
    """Convert a number or a timedelta to seconds; refuses times after the year 9999."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not least <= seconds <= LATEST / 1000:
        signed = "" if least < 0 else " and not negative"
        raise InvalidInput(f"{what} is in seconds{signed}, up to the year 9999, not {value!r:.80}")
    return seconds


def to_milliseconds(time: Any, what: str) -> int:
    """Convert a datetime with a time zone to milliseconds since 1970."""
    if not isinstance(time, datetime):
        raise InvalidInput(f"{what} is a datetime with its time zone, such as datetime.now(UTC), not {time!r:.80}")
    if time.tzinfo is None:
        raise InvalidInput(f"{what} has no time zone: {time}; use datetime(..., tzinfo=UTC)")
    moment = round(time.timestamp() * 1000)
    if moment < EARLIEST:
        raise InvalidInput(f"{what} is not before the year 1 in UTC, as {time} is; give a later one")
    return min(moment, LATEST)


def check_progress(fraction: Any, done: Any, total: Any) -> None:
    """Refuse progress that isn't given in numbers."""
    if fraction is not None and type(fraction) not in (int, float):
        raise UsageError(f"progress is a fraction, such as 0.5, not {fraction!r:.80}; say more with message=...")
    for name, value in (("done", done), ("total", total)):
        if value is not None and type(value) is not int:
            raise UsageError(f"{name} of a progress is a whole number, not {value!r:.80}")


def check_json(content: Any) -> None:
    """Refuse an activity that has no JSON form."""
    try:
        msgspec.json.encode(content)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise UsageError(f"an activity shows what can be JSON: {error}") from error
