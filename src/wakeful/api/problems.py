"""Problems (RFC 9457): errors as JSON, and JSON as the same errors again."""

from __future__ import annotations

from functools import cache
from typing import Any, cast

import msgspec
from msgspec import Struct

from .. import errors
from ..errors import (
    CannotResume,
    ConfigurationError,
    Conflict,
    DuplicateRequest,
    HasChildren,
    InboxFull,
    InboxMoved,
    InputRetracted,
    InvalidDecision,
    InvalidExport,
    NotAllowed,
    NotAuthenticated,
    Overloaded,
    RequestReused,
    RunNotFailed,
    RunNotWaiting,
    RuntimeClosed,
    StaleDecision,
    StaleFence,
    StateError,
    StateTooLarge,
    StoreError,
    ThreadBusy,
    ThreadExists,
    TicketClosed,
    UnknownAgent,
    UnknownGrant,
    UnknownInput,
    UnknownKey,
    UnknownMemory,
    UnknownMessage,
    UnknownModel,
    UnknownRun,
    UnknownSchedule,
    UnknownTask,
    UnknownThread,
    UnknownTicket,
    UsageError,
    WakefulError,
)

__all__ = ["MEDIA_TYPE", "Detail", "Problem", "code_of", "data_of", "error_of", "status_of"]

MEDIA_TYPE = "application/problem+json"

_UNKNOWN = (
    UnknownAgent,
    UnknownGrant,
    UnknownInput,
    UnknownKey,
    UnknownMemory,
    UnknownMessage,
    UnknownModel,
    UnknownRun,
    UnknownSchedule,
    UnknownTask,
    UnknownThread,
    UnknownTicket,
)
_CONFLICTS = (
    CannotResume,
    Conflict,
    DuplicateRequest,
    HasChildren,
    InboxMoved,
    InputRetracted,
    RunNotFailed,
    RunNotWaiting,
    StaleDecision,
    StaleFence,
    ThreadBusy,
    ThreadExists,
    TicketClosed,
)

# The first class that an error belongs to decides.
_STATUSES: tuple[tuple[type[WakefulError] | tuple[type[WakefulError], ...], int], ...] = (
    (NotAuthenticated, 401),
    (NotAllowed, 403),
    (_UNKNOWN, 404),
    (_CONFLICTS, 409),
    ((InvalidDecision, InvalidExport, RequestReused, StateTooLarge), 422),
    ((InboxFull, Overloaded), 429),
    ((RuntimeClosed, StoreError), 503),
    ((ConfigurationError, StateError, UsageError), 400),
)


class Detail(Struct, frozen=True, omit_defaults=True):
    """One thing that is wrong: where (a JSON pointer into the body, or a parameter's name), and what."""

    pointer: str
    detail: str


class Problem(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """An error as JSON. `code` is for programs; `instance` is the id of the request, as in the server's log.

    `errors` lists what is wrong with a request; `data` has what else the error says, such as a ticket's id.
    """

    type: str = "about:blank"
    title: str
    status: int
    detail: str = ""
    instance: str = ""
    code: str
    errors: tuple[Detail, ...] = ()
    data: dict[str, Any] = {}


def status_of(kind: type[WakefulError]) -> int:
    """The HTTP status of a class of errors."""
    return next((status for kinds, status in _STATUSES if issubclass(kind, kinds)), 500)


def code_of(kind: type[WakefulError]) -> str:
    """The code of a class of errors: its name in lower case with hyphens."""
    return "".join([f"-{c.lower()}" if c.isupper() else c for c in kind.__name__]).lstrip("-")


@cache
def _kinds() -> dict[str, type[WakefulError]]:
    found = [getattr(errors, name) for name in errors.__all__]
    return {code_of(kind): kind for kind in found if isinstance(kind, type) and issubclass(kind, WakefulError)}


def error_of(problem: Problem) -> WakefulError:
    """The error that a problem was made of, with the same attributes.

    A code without a class of ours becomes the class for its status.
    """
    kind = _kinds().get(problem.code)
    if kind is None:
        kind = next((_first(kinds) for kinds, status in _STATUSES if status == problem.status), WakefulError)
    text = problem.detail or problem.title
    for each in problem.errors:
        text += f"\n  - {each.pointer}: {each.detail}"
    error = kind.__new__(kind, text)
    # Constructors differ. The attributes and the text are all that an error has.
    Exception.__init__(error, text)
    for name, value in problem.data.items():
        if not name.startswith("_"):
            setattr(error, name, tuple(cast(list[Any], value)) if isinstance(value, list) else value)
    return error


def _first(kinds: type[WakefulError] | tuple[type[WakefulError], ...]) -> type[WakefulError]:
    if isinstance(kinds, tuple):
        return UsageError
    return kinds


def data_of(error: WakefulError) -> dict[str, Any]:
    """The attributes of an error that can travel as JSON."""
    found: dict[str, Any] = {}
    for name, value in vars(error).items():
        if name in ("quoted", "context", "result") or name.startswith("_"):
            continue
        try:
            found[name] = msgspec.to_builtins(value)
        except (TypeError, ValueError):
            continue
    return found
