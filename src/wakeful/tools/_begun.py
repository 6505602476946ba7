"""Checks of what begins work in the background or waits for a time: nothing wrong is kept."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from inspect import iscoroutine
from typing import Any, cast, get_args

from ..errors import InvalidInput
from ..types.runs import TaskWake

__all__ = ["arguments_of", "check_task", "check_task_name", "closing", "moment_of", "seconds_of"]

MAX_TASK_NAME_BYTES = 128
# The beginning of the year 1 and the end of the year 9999 in milliseconds: nothing could show a time beyond them.
EARLIEST, LATEST = -62_135_596_800_000, 253_402_300_799_999


def check_task_name(name: Any) -> None:
    """Refuse a task's name that isn't one: it is kept with the thread, and shown in one line."""
    if name is None:
        return
    if not isinstance(name, str):
        raise InvalidInput(f"a task's name is a text, not {name!r:.80}")
    if not name.strip() or not name.isprintable() or len(name.encode()) > MAX_TASK_NAME_BYTES:
        raise InvalidInput(
            f"a task's name is a text of 1 to {MAX_TASK_NAME_BYTES} bytes on one line, not {name!r:.80}"
        )


def check_task(name: Any, detached: Any, wake: Any) -> None:
    """Refuse a task's name and options that aren't what they say: they are kept with the thread."""
    check_task_name(name)
    if not isinstance(detached, bool):
        raise InvalidInput(f"detached is True or False, not {detached!r:.80}")
    if wake not in get_args(TaskWake):
        raise InvalidInput(f"wake is one of {', '.join(get_args(TaskWake))}, not {wake!r:.80}")


@contextmanager
def closing(target: Any) -> Generator[None]:
    """Close a coroutine that won't be begun: else it warns, later and elsewhere, that nobody awaited it."""
    try:
        yield
    except BaseException:
        if iscoroutine(target):
            target.close()
        raise


def arguments_of(arguments: Any, more: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a function, by name: those in a dict and those that were given beside it."""
    if arguments is not None and not isinstance(arguments, Mapping):
        raise InvalidInput(f"arguments is a dict of names and values, not {arguments!r:.80}")
    given = cast(Mapping[Any, Any], arguments or {})
    if odd := [name for name in given if not isinstance(name, str)]:
        raise InvalidInput(f"arguments have names, which are texts, not {odd[0]!r:.80}")
    if twice := sorted(given.keys() & more.keys()):
        raise InvalidInput(f"the argument {twice[0]!r} is given twice: in arguments={{...}}, and by its name")
    return {**given, **more}


def seconds_of(value: Any, what: str, *, least: float = 0) -> float:
    """A number of seconds, or a timedelta, that ends within the times there are."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not least <= seconds <= LATEST / 1000:
        signed = "" if least < 0 else " and not negative"
        raise InvalidInput(f"{what} is in seconds{signed}, up to the year 9999, not {value!r:.80}")
    return seconds


def moment_of(time: Any, what: str) -> int:
    """A time in milliseconds."""
    if not isinstance(time, datetime):
        raise InvalidInput(f"{what} is a datetime with its time zone, such as datetime.now(UTC), not {time!r:.80}")
    if time.tzinfo is None:
        raise InvalidInput(f"{what} has no time zone: {time}; use datetime(..., tzinfo=UTC)")
    moment = round(time.timestamp() * 1000)
    if moment < EARLIEST:
        raise InvalidInput(f"{what} is not before the year 1 in UTC, as {time} is; give a later one")
    return min(moment, LATEST)
