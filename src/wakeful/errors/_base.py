"""The root of every error, how errors are said and logged, and those of runs, state and hooks."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import cast

__all__ = [
    "HookFailed",
    "RunFailed",
    "StateError",
    "StateTooLarge",
    "UnknownAction",
    "UnknownStateKey",
    "WakefulError",
    "explain",
    "report",
]

# How many errors of a group are said.
_SHOWN = 5


def explain(error: BaseException) -> str:
    """The error in words, whatever its own `__str__` does; of a group also what is in it."""
    name = type(error).__name__
    try:
        text = str(error)
    except Exception:
        return name
    if isinstance(error, BaseExceptionGroup):
        group = cast(BaseExceptionGroup[BaseException], error)
        text = f"{text}: {_listed(group.exceptions)}"
    return f"{name}: {text}" if text else name


def _listed(errors: Sequence[BaseException]) -> str:
    """The first of some errors; a group that has hundreds of them is told in a line all the same."""
    found = [explain(error) for error in errors[:_SHOWN]]
    return "; ".join([*found, f"and {len(errors) - _SHOWN} more"] if len(errors) > _SHOWN else found)


def report(log: logging.Logger, error: BaseException, message: str, *args: object) -> None:
    """Log an error that nobody is told of: in one line if it was foreseen, else with its traceback."""
    if isinstance(error, WakefulError):
        log.warning(f"{message}: %s", *args, explain(error))
    else:
        log.error(f"{message}: %s", *args, explain(error), exc_info=error)


class WakefulError(Exception):
    """The root of every error of wakeful."""


class RunFailed(WakefulError):
    """The run did not come to its natural end; the message says how it ended."""


class StateError(WakefulError):
    """A state key was misused."""


class UnknownStateKey(StateError):
    """The key isn't registered with the runtime; nothing of the command was applied."""


class StateTooLarge(StateError):
    """A state value is over the size limit when encoded."""


class UnknownAction(WakefulError):
    """No plugin brings a handler for that action or notice; nothing of the command was applied."""


class HookFailed(WakefulError):
    """A plugin's hook raised; the cause is chained."""
