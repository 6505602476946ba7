"""Every error that wakeful raises, as one tree.

    WakefulError                  the root
    ├── ConfigurationError        agents, tools or plugins don't work together: fix the code
    │   ├── ShapeError            a type or signature has no JSON schema
    │   ├── WrongArguments        a constructor got an unknown argument, or lacks a required one
    │   └── InvalidConfig         a backend's configuration data is invalid
    ├── UsageError                the call is invalid; nothing was changed
    │   ├── UnknownAgent          no agent has this id
    │   ├── UnknownGrant          the tenant has no grant with this id
    │   ├── UnknownMemory         the tenant has no memory with this id
    │   ├── UnknownModel          no model or vendor has this name
    │   ├── UnknownRun            no run has this id
    │   ├── UnknownSchedule       there is no schedule of this name, or it has ended
    │   ├── UnknownTask           no task has this id
    │   ├── UnknownThread         no thread has this id
    │   ├── UnknownTicket         the run has no such ticket
    │   ├── TicketClosed          the ticket is already answered, settled, superseded or cancelled
    │   ├── InvalidDecision       the decision doesn't fit its ticket
    │   ├── StaleDecision         the ticket changed since the author of the decision saw it
    │   ├── InvalidInput          the prompt or message is invalid
    │   ├── NotAuthenticated      the request has no valid credential
    │   ├── NotAllowed            the principal may not do this; `needed` is the missing right
    │   ├── RunNotWaiting         the run can't be resumed: it isn't waiting
    │   ├── CannotResume          the present code can't continue the run; `reasons` lists why
    │   ├── RunNotFailed          the run can't be retried: it didn't fail, or its thread moved on
    │   ├── ThreadBusy            the thread has an open run and the policy is `reject`
    │   ├── InputRetracted        the input was retracted before a run took it
    │   ├── UnknownInput          no such input is pending
    │   ├── UnknownKey            the tenant has no API key with this id
    │   ├── UnknownMessage        no dead letter has this message id
    │   ├── ThreadExists          a thread with this id exists
    │   ├── HasChildren           the thread has child threads
    │   ├── InvalidExport         the import data isn't a complete thread
    │   ├── RequestReused         the request's id was used before, for another request
    │   ├── RuntimeClosed         the runtime is closed or draining
    │   ├── Overloaded            the tenant's queue of dispatches is full
    │   └── RunDeadLettered       the run's last attempt failed; its dispatch is a dead letter
    ├── RunFailed                 the run failed; `result` has its result
    ├── NoOutput                  the run has no output: it waits, or was stopped, cancelled or blocked
    ├── StateError                a state key was misused
    │   ├── UnknownStateKey       the key isn't registered with the runtime
    │   └── StateTooLarge         a value exceeds the size limit
    ├── UnknownAction             no handler for this action or notice
    ├── HookFailed                a plugin's hook, or an output validator, raised
    ├── OutputRejected            raise one in an output validator to send an answer back to the model
    ├── ModelError                the model could not answer
    │   ├── RateLimited           the vendor's rate limit or quota was reached
    │   ├── ModelOverloaded       the vendor has no capacity at the moment
    │   ├── ModelUnavailable      the vendor failed or can't be reached
    │   ├── ModelTimeout          the answer, or its next chunk, took too long
    │   ├── StreamBroken          the stream ended early or was malformed
    │   ├── ContextOverflow       the request exceeds the model's context window
    │   ├── InvalidRequest        the vendor rejects the request
    │   ├── BadCredentials        an API key is missing, wrong or lacks permission
    │   ├── ModelNotFound         the vendor has no model of this name
    │   ├── ContentFiltered       the vendor's filter refused the request or the answer
    │   ├── PoolExhausted         every member of a pool is down, or the attempt limit was reached
    │   ├── ScriptError           a scripted model ran out of turns, or has turns left over
    │   └── LiveModelForbidden    a test forbids calls to real models
    ├── BackendError              a backend could not execute an agent
    │   ├── AgentNotFound         the backend has no such agent
    │   ├── ExecutionFailed       the execution failed, or the request is unsupported
    │   ├── NoCredentials         the function that provides the secret failed
    │   └── RemoteError           the remote side failed
    ├── StoreError                the store refused or failed
    │   ├── StaleFence            the writer no longer owns the thread
    │   ├── Conflict              another writer committed to the thread first
    │   ├── InboxMoved            new items arrived before the run could finish
    │   ├── InboxFull             too many items are pending in a thread's inbox
    │   ├── DuplicateRequest      a request with this id was accepted before
    │   ├── CorruptRow            a row can't be decoded; other threads are unaffected
    │   ├── CodecFailed           the store's codec could not encode a payload
    │   ├── StoreFull             the disk is full
    │   └── StoreUnavailable      the database can't be opened, reached or written to
    │       ├── StoreLost         its file was deleted, replaced or cut off
    │       └── InvalidStore      it is damaged, not a wakeful store, or written by a newer version
    └── ToolError                 raise one in a tool to give the model an error result
        ├── InvalidArguments      the arguments don't fit the tool's schema
        ├── InDoubt               the tool doesn't know whether its request took effect
        ├── ToolDenied            the call isn't allowed
        ├── ToolNotFound          no tool of this name is offered
        ├── ToolTimeout           the tool took too long
        └── ToolCancelled         the call was cancelled

Catch `UsageError` for a caller's mistakes, `ModelError` for a vendor's failures, `StoreError` for the database's,
and `WakefulError` for all of them.
"""

from __future__ import annotations

from .base import (
    HookFailed,
    NoOutput,
    RunFailed,
    StateError,
    StateTooLarge,
    UnknownAction,
    UnknownStateKey,
    WakefulError,
    explain,
    hides_text,
    outline,
    quote,
    report,
)
from .execution import (
    AgentNotFound,
    BackendError,
    ExecutionFailed,
    InDoubt,
    InvalidArguments,
    NoCredentials,
    OutputRejected,
    RemoteError,
    ToolCancelled,
    ToolDenied,
    ToolError,
    ToolNotFound,
    ToolTimeout,
)
from .models import (
    BadCredentials,
    ContentFiltered,
    ContextOverflow,
    InvalidRequest,
    LiveModelForbidden,
    ModelError,
    ModelNotFound,
    ModelOverloaded,
    ModelTimeout,
    ModelUnavailable,
    PoolExhausted,
    RateLimited,
    ScriptError,
    StreamBroken,
)
from .stores import (
    CodecFailed,
    Conflict,
    CorruptRow,
    DuplicateRequest,
    InboxFull,
    InboxMoved,
    InvalidStore,
    StaleFence,
    StoreError,
    StoreFull,
    StoreLost,
    StoreUnavailable,
)
from .usage import (
    CannotResume,
    ConfigurationError,
    HasChildren,
    InputRetracted,
    InvalidConfig,
    InvalidDecision,
    InvalidExport,
    InvalidInput,
    NotAllowed,
    NotAuthenticated,
    Overloaded,
    RequestReused,
    RunDeadLettered,
    RunNotFailed,
    RunNotWaiting,
    RuntimeClosed,
    ShapeError,
    StaleDecision,
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
    WrongArguments,
)

__all__ = [
    "AgentNotFound",
    "BackendError",
    "BadCredentials",
    "CannotResume",
    "CodecFailed",
    "ConfigurationError",
    "Conflict",
    "ContentFiltered",
    "ContextOverflow",
    "CorruptRow",
    "DuplicateRequest",
    "ExecutionFailed",
    "HasChildren",
    "HookFailed",
    "InDoubt",
    "InboxFull",
    "InboxMoved",
    "InputRetracted",
    "InvalidArguments",
    "InvalidConfig",
    "InvalidDecision",
    "InvalidExport",
    "InvalidInput",
    "InvalidRequest",
    "InvalidStore",
    "LiveModelForbidden",
    "ModelError",
    "ModelNotFound",
    "ModelOverloaded",
    "ModelTimeout",
    "ModelUnavailable",
    "NoCredentials",
    "NoOutput",
    "NotAllowed",
    "NotAuthenticated",
    "OutputRejected",
    "Overloaded",
    "PoolExhausted",
    "RateLimited",
    "RemoteError",
    "RequestReused",
    "RunDeadLettered",
    "RunFailed",
    "RunNotFailed",
    "RunNotWaiting",
    "RuntimeClosed",
    "ScriptError",
    "ShapeError",
    "StaleDecision",
    "StaleFence",
    "StateError",
    "StateTooLarge",
    "StoreError",
    "StoreFull",
    "StoreLost",
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
    "UnknownGrant",
    "UnknownInput",
    "UnknownKey",
    "UnknownMemory",
    "UnknownMessage",
    "UnknownModel",
    "UnknownRun",
    "UnknownSchedule",
    "UnknownStateKey",
    "UnknownTask",
    "UnknownThread",
    "UnknownTicket",
    "UsageError",
    "WakefulError",
    "WrongArguments",
    "explain",
    "hides_text",
    "outline",
    "quote",
    "report",
]

# Tracebacks, pickles and logs show one public path for every error.
for _name in __all__:
    globals()[_name].__module__ = __name__
