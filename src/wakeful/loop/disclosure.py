"""Errors of user code: the text that the model and callers are shown, and the one that operators are shown."""

from __future__ import annotations

import logging
from traceback import format_exception

from ..errors import explain, hides_text, outline
from ..types.content import clean_text
from ..types.events import ErrorRaised
from ..types.ids import new_id
from ..types.runs import ErrorDetail
from .activation import Activation

__all__ = ["disclose", "note_error"]

_log = logging.getLogger("wakeful")

# The most exceptions that a run's record keeps, and the most characters of each.
ERRORS_KEPT = 16
ERROR_CHARACTERS = 2_000


def disclose(act: Activation, error: BaseException, source: str) -> str:
    """An error as `Name: message`, for the model, events and callers.

    The text of an unexpected exception is for operators: it goes to the log and to the run's record, and a
    reference takes its place.
    """
    if not hides_text(error):
        return clean_text(explain(error))
    text = clean_text(explain(error))
    if act.agent.agent.expose_errors:
        _log_exception(logging.DEBUG, error, f"{source} of run {act.identity.run_id} failed")
        return text
    reference = new_id()
    _log_exception(logging.WARNING, error, f"{source} of run {act.identity.run_id} failed ({reference})")
    detail = ErrorDetail(reference, act.now, source, text[:ERROR_CHARACTERS])
    act.set_run(errors=(*act.view.run.errors, detail)[-ERRORS_KEPT:])
    return clean_text(outline(error, f"unexpected error, reference {reference}"))


def note_error(act: Activation, error: BaseException | str, source: str) -> None:
    """Log an error after which the run continues."""
    kind = "error" if isinstance(error, str) else type(error).__name__
    text = error if isinstance(error, str) else disclose(act, error, source).partition(": ")[2]
    act.log(ErrorRaised(act.identity, 0, act.now, kind, clean_text(text), source))


def _log_exception(level: int, error: BaseException, message: str) -> None:
    """Log an exception with its traceback; lone surrogates, which no handler can encode, are replaced."""
    text = explain(error)
    if clean_text(text) == text:
        _log.log(level, "%s", message, exc_info=error)
    elif _log.isEnabledFor(level):
        _log.log(level, "%s\n%s", message, clean_text("".join(format_exception(error))))
