"""What is wrong with a configuration, or with a call as it was made."""

from __future__ import annotations

from collections.abc import Sequence

from ._base import WakefulError

__all__ = [
    "CannotResume",
    "ConfigurationError",
    "HasChildren",
    "InputRetracted",
    "InvalidConfig",
    "InvalidDecision",
    "InvalidExport",
    "InvalidInput",
    "Overloaded",
    "RunGivenUp",
    "RunNotFailed",
    "RunNotWaiting",
    "RuntimeClosed",
    "ShapeError",
    "ThreadBusy",
    "ThreadExists",
    "TicketClosed",
    "UnknownAgent",
    "UnknownInput",
    "UnknownMessage",
    "UnknownModel",
    "UnknownRun",
    "UnknownTask",
    "UnknownThread",
    "UnknownTicket",
    "UsageError",
    "WrongArguments",
]


class ConfigurationError(WakefulError):
    """Agents, tools, plugins or models that can't work together; `problems` lists all that was found."""

    def __init__(self, problems: str | Sequence[str]) -> None:
        self.problems: tuple[str, ...] = (problems,) if isinstance(problems, str) else tuple(problems)
        if len(self.problems) == 1:
            text = self.problems[0]
        else:
            text = f"{len(self.problems)} problems:\n" + "\n".join(f"  - {p}" for p in self.problems)
        super().__init__(text)


class ShapeError(ConfigurationError, TypeError):
    """A type or signature from which no JSON schema can be drawn."""


class WrongArguments(ConfigurationError, TypeError):
    """A constructor was given arguments that it doesn't have, or lacks one."""


class InvalidConfig(ConfigurationError):
    """Data from which no backend can be built; the message is all there is."""


class UsageError(WakefulError):
    """A call that can't be carried out as it was made; nothing was changed."""


class UnknownAgent(UsageError):
    """No agent of that id is registered."""


class UnknownModel(UsageError):
    """No model or vendor of that name is registered."""


class UnknownRun(UsageError):
    """The store holds no run of that id."""


class UnknownTask(UsageError):
    """No task of that id."""


class UnknownThread(UsageError):
    """The store has no thread of that id."""


class UnknownTicket(UsageError):
    """The run has no ticket of that id, and no call of that id that waits."""


class TicketClosed(UsageError):
    """The ticket was answered, superseded or cancelled before."""

    def __init__(self, message: str, ticket_id: str) -> None:
        super().__init__(message)
        self.ticket_id = ticket_id


class InvalidDecision(UsageError):
    """The decision doesn't fit its ticket."""


class InvalidInput(UsageError):
    """A prompt or message that can't be taken."""


class RunNotWaiting(UsageError):
    """The run can't be resumed: it isn't waiting for anything."""


class CannotResume(UsageError):
    """The present code can't go on with a run that waits; `reasons` lists why. Its tickets are as they were."""

    def __init__(self, run_id: str, reasons: Sequence[str]) -> None:
        self.run_id = run_id
        self.reasons = tuple(reasons)
        listed = "".join(f"\n  - {reason}" for reason in self.reasons)
        super().__init__(f"run {run_id} can't go on with the present code; nothing was changed:{listed}")


class RunNotFailed(UsageError):
    """The run can't be retried: it hasn't failed, or its thread went on without it."""


class ThreadBusy(UsageError):
    """The thread has an open run, and the caller asked to be rejected in that case."""


class InputRetracted(UsageError):
    """Somebody retracted the input before a run took it in."""


class UnknownInput(UsageError):
    """No such input is pending: it was taken in, retracted, or never there."""


class UnknownMessage(UsageError):
    """No message of that id was given up."""


class ThreadExists(UsageError):
    """A thread of that id is there already."""


class HasChildren(UsageError):
    """The thread has child threads, and it wasn't said what becomes of them."""


class InvalidExport(UsageError):
    """What should be imported isn't a whole thread, or a newer version exported it; nothing was written."""


class RuntimeClosed(UsageError):
    """The runtime was closed and takes no more work."""

    def __init__(self, message: str = "the runtime was closed; make a new one") -> None:
        super().__init__(message)


class Overloaded(UsageError):
    """As many dispatches of the tenant wait for a worker as may; nothing was written."""


class RunGivenUp(UsageError):
    """The run's dispatch is a dead letter: its last attempt failed, and nobody tries again by himself."""
