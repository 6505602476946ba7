"""Errors of configuration and of invalid calls."""

from __future__ import annotations

from collections.abc import Sequence

from .base import WakefulError

__all__ = [
    "CannotResume",
    "ConfigurationError",
    "HasChildren",
    "InputRetracted",
    "InvalidConfig",
    "InvalidDecision",
    "InvalidExport",
    "InvalidInput",
    "NotAllowed",
    "NotAuthenticated",
    "Overloaded",
    "RequestReused",
    "RunDeadLettered",
    "RunNotFailed",
    "RunNotWaiting",
    "RuntimeClosed",
    "ShapeError",
    "StaleDecision",
    "ThreadBusy",
    "ThreadExists",
    "TicketClosed",
    "UnknownAgent",
    "UnknownGrant",
    "UnknownInput",
    "UnknownKey",
    "UnknownMemory",
    "UnknownMessage",
    "UnknownModel",
    "UnknownRun",
    "UnknownSchedule",
    "UnknownTask",
    "UnknownThread",
    "UnknownTicket",
    "UsageError",
    "WrongArguments",
]


class ConfigurationError(WakefulError):
    """Agents, tools, plugins or models don't work together; `problems` lists every problem found."""

    def __init__(self, problems: str | Sequence[str]) -> None:
        self.problems: tuple[str, ...] = (problems,) if isinstance(problems, str) else tuple(problems)
        if len(self.problems) == 1:
            text = self.problems[0]
        else:
            text = f"{len(self.problems)} problems:\n" + "\n".join(f"  - {p}" for p in self.problems)
        super().__init__(text)


class ShapeError(ConfigurationError, TypeError):
    """A type or signature has no JSON schema."""


class WrongArguments(ConfigurationError, TypeError):
    """A constructor got an unknown argument, or lacks a required one."""


class InvalidConfig(ConfigurationError):
    """The configuration data of a backend is invalid."""


class UsageError(WakefulError):
    """The call is invalid; nothing was changed."""


class RequestReused(UsageError):
    """The id of a request, `request_id`, was used before, for another request; nothing was changed."""

    def __init__(self, message: str, request_id: str | None = None) -> None:
        super().__init__(message)
        self.request_id = request_id


class UnknownAgent(UsageError):
    """No agent is registered under this id."""


class UnknownModel(UsageError):
    """No model or vendor is registered under this name."""


class UnknownRun(UsageError):
    """The store has no run with this id."""


class UnknownTask(UsageError):
    """The store has no task with this id."""


class UnknownThread(UsageError):
    """The store has no thread with this id."""


class UnknownTicket(UsageError):
    """The run has neither a ticket nor a waiting call with this id."""


class TicketClosed(UsageError):
    """The ticket is already answered, settled, superseded or cancelled."""

    def __init__(self, message: str, ticket_id: str) -> None:
        super().__init__(message)
        self.ticket_id = ticket_id


class InvalidDecision(UsageError):
    """The decision doesn't fit its ticket."""


class StaleDecision(UsageError):
    """The ticket isn't what the author of the decision saw: its arguments or its question changed."""


class InvalidInput(UsageError):
    """The prompt or message is invalid."""


class NotAuthenticated(UsageError):
    """The request has no credential, or an invalid one."""


class NotAllowed(UsageError):
    """The principal may not do this. `needed` is the missing scope or right, if one would permit it."""

    def __init__(self, message: str, needed: str = "") -> None:
        super().__init__(message)
        self.needed = needed


class RunNotWaiting(UsageError):
    """The run can't be resumed: it isn't waiting for anything."""


class CannotResume(UsageError):
    """The present code can't continue a waiting run; `reasons` lists why. Its tickets stay open."""

    def __init__(self, run_id: str, reasons: Sequence[str]) -> None:
        self.run_id = run_id
        self.reasons = tuple(reasons)
        listed = "".join(f"\n  - {reason}" for reason in self.reasons)
        super().__init__(f"run {run_id} can't go on with the present code; nothing was changed:{listed}")


class RunNotFailed(UsageError):
    """The run can't be retried: it didn't fail, or its thread has newer runs."""


class ThreadBusy(UsageError):
    """The thread has an open run, and the input policy is `reject`."""


class InputRetracted(UsageError):
    """The input was retracted before a run took it."""


class UnknownInput(UsageError):
    """No such input is pending: it was taken, retracted, or never existed."""


class UnknownKey(UsageError):
    """The tenant has no API key with this id."""


class UnknownGrant(UsageError):
    """The tenant has no grant with this id."""


class UnknownMemory(UsageError):
    """The tenant has no memory with this id."""


class UnknownMessage(UsageError):
    """No dead letter has this message id."""


class UnknownSchedule(UsageError):
    """There is no schedule of this name, or it has ended."""


class ThreadExists(UsageError):
    """A thread with this id exists."""


class HasChildren(UsageError):
    """The thread has child threads, and the call doesn't say whether to delete them."""


class InvalidExport(UsageError):
    """The import data isn't a complete thread, or a newer version exported it; nothing was written."""


class RuntimeClosed(UsageError):
    """The runtime is closed and accepts no work."""

    def __init__(self, message: str = "the runtime was closed; make a new one") -> None:
        super().__init__(message)


class Overloaded(UsageError):
    """There is too much at once: the tenant's queue of dispatches is full, or a limit of the server is reached.
    Nothing was written."""


class RunDeadLettered(UsageError):
    """The run's last attempt failed; its dispatch is a dead letter and isn't retried automatically."""
