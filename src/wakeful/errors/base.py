"""The root of the error tree, error formatting and logging, and the errors of runs, state and hooks."""

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

# Errors of an exception group that a message lists.
_SHOWN = 5


def explain(error: BaseException) -> str:
    """Format an error as `Name: message`. Includes the members of an exception group; never raises."""
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
    """Format the first errors of a group, and the number of the others, in one line."""
    found = [explain(error) for error in errors[:_SHOWN]]
    return "; ".join([*found, f"and {len(errors) - _SHOWN} more"] if len(errors) > _SHOWN else found)


def report(log: logging.Logger, error: BaseException, message: str, *args: object) -> None:
    """Log an error that no caller receives: a `WakefulError` as one warning line, others with traceback."""
    if isinstance(error, WakefulError):
        log.warning(f"{message}: %s", *args, explain(error))
    else:
        log.error(f"{message}: %s", *args, explain(error), exc_info=error)


class WakefulError(Exception):
    """The root of all errors that wakeful raises."""


class RunFailed(WakefulError):
    """The run did not end naturally; the message gives its termination."""


class StateError(WakefulError):
    """A state key was misused."""


class UnknownStateKey(StateError):
    """The key isn't registered with the runtime; the command was not applied."""


class StateTooLarge(StateError):
    """An encoded state value exceeds the size limit."""


class UnknownAction(WakefulError):
    """No plugin handles this action or notice; the command was not applied."""


class HookFailed(WakefulError):
    """A plugin's hook raised; the cause is chained."""
