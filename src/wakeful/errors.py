"""Every error that wakeful raises, as one tree.

    WakefulError                  anything of ours
    ├── ConfigurationError        agents, tools or plugins that can't work together: fix the code
    │   ├── ShapeError            a type or signature that has no JSON schema
    │   └── InvalidConfig         data from which no backend can be built
    ├── UsageError                a call that can't be carried out as it was made
    │   ├── UnknownAgent          no agent of that id
    │   ├── UnknownModel          no model or vendor of that name
    │   ├── UnknownRun            no run of that id
    │   ├── UnknownTask           no task of that id
    │   ├── UnknownThread         no thread of that id
    │   ├── UnknownTicket         no such ticket in that run
    │   ├── TicketClosed          the ticket was answered, superseded or cancelled before
    │   ├── InvalidDecision       the answer doesn't fit its ticket
    │   ├── InvalidInput          a prompt or message that can't be taken
    │   ├── RunNotWaiting         the run can't be resumed: it isn't waiting
    │   ├── CannotResume          the present code can't go on with the run; the reasons are listed
    │   ├── RunNotFailed          the run can't be retried: it hasn't failed, or its thread went on
    │   ├── ThreadBusy            the thread has an open run and the policy is `reject`
    │   ├── InputRetracted        somebody retracted the input before a run took it in
    │   ├── UnknownInput          no such input is pending
    │   ├── UnknownMessage        no message of that id was given up
    │   ├── ThreadExists          a thread of that id is there already
    │   ├── HasChildren           the thread has child threads that would be left behind
    │   ├── InvalidExport         what should be imported isn't a whole thread
    │   ├── RuntimeClosed         the runtime was closed, or is being drained
    │   ├── Overloaded            as much waits for a worker as the tenant may have waiting
    │   └── RunGivenUp            the run's last attempt failed; it waits for somebody to look
    ├── RunFailed                 what `result.raise_for_failure()` raises
    ├── StateError                a state key misused
    │   ├── UnknownStateKey       the key isn't registered with the runtime
    │   └── StateTooLarge         a value over the size limit
    ├── UnknownAction             no handler for that action or notice
    ├── HookFailed                a plugin's hook raised
    ├── ModelError                the model could not answer
    │   ├── RateLimited           the vendor's limit was reached; it may say when to come back
    │   ├── ModelOverloaded       the vendor has no capacity at the moment
    │   ├── ModelUnavailable      the vendor failed or can't be reached
    │   ├── ModelTimeout          the answer, or its next piece, took too long
    │   ├── StreamBroken          the answer broke off, or came in pieces that make no sense
    │   ├── ContextOverflow       the request is longer than the model can read
    │   ├── InvalidRequest        the vendor refuses the request as it is
    │   ├── BadCredentials        a key is missing, wrong or not allowed to do this
    │   ├── ModelNotFound         the vendor has no model of that name
    │   ├── ContentFiltered       the vendor's filter refused the request or the answer
    │   ├── NoModelLeft           every member of a pool is down, or too many were tried
    │   ├── ScriptError           a scripted model ran out of turns, or kept some
    │   └── LiveModelForbidden    a test forbids calls to real models
    ├── BackendError              a backend could not carry out what it was asked
    │   ├── AgentNotFound         it knows no such agent
    │   ├── ExecutionFailed       it could not, or can't do what was asked for
    │   └── RemoteError           what it talks to failed
    ├── StoreError                the store refused or failed
    │   ├── StaleFence            the writer no longer owns the thread
    │   ├── Conflict              somebody else wrote to the thread first
    │   ├── InboxMoved            new items arrived before the run could finish
    │   ├── InboxFull             too many items are pending in a thread's inbox
    │   ├── Repeated              a request of that id was made before
    │   ├── CorruptRow            a row that can't be read; other threads are unaffected
    │   ├── StoreFull             there is no room left on the disk
    │   └── StoreUnavailable      the database can't be opened, reached or written to
    │       └── StoreRefused      it isn't a store of ours, or it is from a newer version
    └── ToolError                 raise one in a tool to tell the model what went wrong
        ├── InvalidArguments      arguments that don't fit the tool's schema
        ├── ToolDenied            the call isn't allowed
        ├── ToolNotFound          no tool of that name is offered
        ├── ToolTimeout           the tool took too long
        └── ToolCancelled         the call was told to stop

Catch `UsageError` around what a caller typed, `ModelError` around a vendor's trouble, `StoreError` around the
database's, and `WakefulError` for all of them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

__all__ = [
    "AgentNotFound",
    "BackendError",
    "BadCredentials",
    "CannotResume",
    "ConfigurationError",
    "Conflict",
    "ContentFiltered",
    "ContextOverflow",
    "CorruptRow",
    "ExecutionFailed",
    "HasChildren",
    "HookFailed",
    "InboxFull",
    "InboxMoved",
    "InputRetracted",
    "InvalidArguments",
    "InvalidConfig",
    "InvalidDecision",
    "InvalidExport",
    "InvalidInput",
    "InvalidRequest",
    "LiveModelForbidden",
    "ModelError",
    "ModelNotFound",
    "ModelOverloaded",
    "ModelTimeout",
    "ModelUnavailable",
    "NoModelLeft",
    "Overloaded",
    "RateLimited",
    "RemoteError",
    "Repeated",
    "RunFailed",
    "RunGivenUp",
    "RunNotFailed",
    "RunNotWaiting",
    "RuntimeClosed",
    "ScriptError",
    "ShapeError",
    "StaleFence",
    "StateError",
    "StateTooLarge",
    "StoreError",
    "StoreFull",
    "StoreRefused",
    "StoreUnavailable",
    "StreamBroken",
    "ThreadBusy",
    "ThreadExists",
    "TicketClosed",
    "ToolCancelled",
    "ToolDenied",
    "ToolError",
    "ToolNotFound",
    "ToolTimeout",
    "UnknownAction",
    "UnknownAgent",
    "UnknownInput",
    "UnknownMessage",
    "UnknownModel",
    "UnknownRun",
    "UnknownStateKey",
    "UnknownTask",
    "UnknownThread",
    "UnknownTicket",
    "UsageError",
    "WakefulError",
    "explain",
    "report",
]


def explain(error: BaseException) -> str:
    """The error in words, whatever its own `__str__` does."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def report(log: logging.Logger, error: BaseException, message: str, *args: object) -> None:
    """Log an error that nobody is told of: in one line if it was foreseen, else with its traceback."""
    if isinstance(error, WakefulError):
        log.warning(f"{message}: %s", *args, explain(error))
    else:
        log.error(f"{message}: %s", *args, explain(error), exc_info=error)


class WakefulError(Exception):
    """The root of every error of wakeful."""


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


class ModelError(WakefulError):
    """The model could not answer. `transient` says whether asking again may help, `retry_after` in how many
    seconds at the earliest where the vendor says so; `status` and `request_id` are the vendor's."""

    transient: bool = False

    def __init__(
        self,
        message: str,
        *,
        transient: bool | None = None,
        retry_after: float | None = None,
        status: int | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message)
        if transient is not None:
            self.transient = transient
        self.retry_after = retry_after
        self.status = status
        self.request_id = request_id


class RateLimited(ModelError):
    """The vendor's limit on requests or tokens was reached, or its quota used up."""

    transient = True


class ModelOverloaded(ModelError):
    """The vendor has no capacity at the moment."""

    transient = True


class ModelUnavailable(ModelError):
    """The vendor failed on its side, or can't be reached."""

    transient = True


class ModelTimeout(ModelError):
    """The answer, or the next piece of it, took too long."""

    transient = True


class StreamBroken(ModelError):
    """The answer broke off before its end, or came in pieces that make no sense."""

    transient = True


class ContextOverflow(ModelError):
    """The request is longer than the model can read."""


class InvalidRequest(ModelError):
    """The vendor refuses the request as it is; asking again would be refused again."""


class BadCredentials(ModelError):
    """A key is missing, wrong, or not allowed to do this."""


class ModelNotFound(ModelError):
    """The vendor has no model of that name, or not for this key."""


class ContentFiltered(ModelError):
    """The vendor's filter refused the request or the answer."""


class NoModelLeft(ModelError):
    """Every member of a pool is down, or as many were tried as it allows."""


class ScriptError(ModelError):
    """A scripted model was asked for more turns than it has, or kept some unused."""


class LiveModelForbidden(ModelError):
    """A call to a real model where tests forbid them."""


class BackendError(WakefulError):
    """A backend could not carry out what it was asked. `detail` is what went wrong, without the kind."""

    kind: str = "backend error"

    def __init__(self, detail: str) -> None:
        super().__init__(f"{self.kind}: {detail}")
        self.detail = detail


class AgentNotFound(BackendError):
    """The backend knows no such agent."""

    kind = "agent not found"


class ExecutionFailed(BackendError):
    """The backend could not carry it out, or can't do what was asked for."""

    kind = "execution failed"


class RemoteError(BackendError):
    """What the backend talks to failed."""

    kind = "remote error"


class StoreError(WakefulError):
    """The store refused the operation or failed to carry it out."""


class StaleFence(StoreError):
    """The writer no longer owns the thread; nothing was written."""


class Conflict(StoreError):
    """Somebody else wrote to the thread first; nothing was written."""


class InboxMoved(StoreError):
    """New items arrived in the inbox before the run could finish; nothing was written."""


class InboxFull(StoreError):
    """Too many items are pending in the thread's inbox; nothing was written."""


class Repeated(StoreError):
    """A request of that id was made before; `run_id` is the run that it led to, once there is one."""

    def __init__(self, message: str, run_id: str | None) -> None:
        super().__init__(message)
        self.run_id = run_id


class CorruptRow(StoreError):
    """A row that can't be read. Other threads are unaffected."""


class StoreFull(StoreError):
    """There is no room left on the disk; nothing was written."""


class StoreUnavailable(StoreError):
    """The database can't be opened, reached or written to."""


class StoreRefused(StoreUnavailable):
    """The database isn't a store of wakeful's, or a newer version wrote it; it was left as it is."""


class ToolError(WakefulError):
    """Raise this, or a subclass, in a tool to give the model an error result. `kind` names it there."""

    kind: str = "failed"


class InvalidArguments(ToolError):
    """The arguments don't fit the tool's schema; the message names the path."""

    kind = "invalid_arguments"


class ToolDenied(ToolError):
    """The call isn't allowed."""

    kind = "denied"


class ToolNotFound(ToolError):
    """No tool of that name is offered to the model."""

    kind = "not_found"


class ToolTimeout(ToolError):
    """The tool took longer than it may."""

    kind = "timeout"


class ToolCancelled(ToolError):
    """The call was told to stop."""

    kind = "cancelled"
