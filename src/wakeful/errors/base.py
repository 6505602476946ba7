"""The root of the error tree, error formatting and logging, and the errors of runs, state and hooks."""

from __future__ import annotations

import logging
from asyncio import CancelledError
from collections.abc import Sequence
from typing import Any, TypeVar, cast

__all__ = [
    "HookFailed",
    "NoOutput",
    "RunFailed",
    "StateError",
    "StateTooLarge",
    "UnknownAction",
    "UnknownStateKey",
    "WakefulError",
    "explain",
    "hides_text",
    "outline",
    "quote",
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
    """The root of all errors that wakeful raises.

    The message is written for users. If it quotes an exception of other code, `quoted` is that exception, and
    `context` the message without the quotation.
    """

    quoted: BaseException | None = None
    context: str = ""


E = TypeVar("E", bound=WakefulError)


def quote(kind: type[E], context: str, error: BaseException, text: str | None = None) -> E:
    """An error that quotes another exception, whose text is hidden where others than operators read it.

    `text` is the quotation, if it isn't the exception's own text.
    """
    made = kind(f"{context}: {explain(error) if text is None else text}")
    made.context, made.quoted, made.__cause__ = context, error, error
    return made


def hides_text(error: BaseException) -> bool:
    """Whether the text of an error, or of one that it quotes, is for operators only: wakeful didn't write it."""
    while isinstance(error, WakefulError):
        if error.quoted is None:
            return False
        error = error.quoted
    return not isinstance(error, CancelledError)


def outline(error: BaseException, hidden: str = "") -> str:
    """Format an error as `explain` does, but with `hidden` in place of a text that is for operators only."""
    name = type(error).__name__
    if not hides_text(error):
        return explain(error)
    if not isinstance(error, WakefulError) or error.quoted is None:
        return f"{name}: {hidden}" if hidden else name
    return f"{name}: {error.context}: {outline(error.quoted, hidden)}"


class RunFailed(WakefulError):
    """A run failed. `result` is its `RunResult`. An exception of this process that caused it is chained."""

    def __init__(self, message: str, result: Any = None) -> None:
        super().__init__(message)
        self.result = result


class NoOutput(WakefulError):
    """`result.output` of a run that has none: it waits, or was stopped, cancelled or blocked."""


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
