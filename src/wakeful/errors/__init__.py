"""Every error that wakeful raises, as one tree.

    WakefulError                  anything of ours
    ├── ConfigurationError        agents, tools or plugins that can't work together: fix the code
    │   ├── ShapeError            a type or signature that has no JSON schema
    │   ├── WrongArguments        a constructor was given arguments that it doesn't have, or lacks one
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
    │   ├── NoCredentials         the function that its secret comes from failed
    │   └── RemoteError           what it talks to failed
    ├── StoreError                the store refused or failed
    │   ├── StaleFence            the writer no longer owns the thread
    │   ├── Conflict              somebody else wrote to the thread first
    │   ├── InboxMoved            new items arrived before the run could finish
    │   ├── InboxFull             too many items are pending in a thread's inbox
    │   ├── Repeated              a request of that id was made before
    │   ├── CorruptRow            a row that can't be read; other threads are unaffected
    │   ├── CodecFailed           the store's codec couldn't encode what was to be written
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

from ._base import (
    HookFailed,
    RunFailed,
    StateError,
    StateTooLarge,
    UnknownAction,
    UnknownStateKey,
    WakefulError,
    explain,
    report,
)
from ._execution import (
    AgentNotFound,
    BackendError,
    ExecutionFailed,
    InvalidArguments,
    NoCredentials,
    RemoteError,
    ToolCancelled,
    ToolDenied,
    ToolError,
    ToolNotFound,
    ToolTimeout,
)
from ._models import (
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
    NoModelLeft,
    RateLimited,
    ScriptError,
    StreamBroken,
)
from ._stores import (
    CodecFailed,
    Conflict,
    CorruptRow,
    InboxFull,
    InboxMoved,
    Repeated,
    StaleFence,
    StoreError,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
)
from ._usage import (
    CannotResume,
    ConfigurationError,
    HasChildren,
    InputRetracted,
    InvalidConfig,
    InvalidDecision,
    InvalidExport,
    InvalidInput,
    Overloaded,
    RunGivenUp,
    RunNotFailed,
    RunNotWaiting,
    RuntimeClosed,
    ShapeError,
    ThreadBusy,
    ThreadExists,
    TicketClosed,
    UnknownAgent,
    UnknownInput,
    UnknownMessage,
    UnknownModel,
    UnknownRun,
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
    "NoCredentials",
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
    "WrongArguments",
    "explain",
    "report",
]

# They are known by one name, wherever they are written down.
for _name in __all__:
    globals()[_name].__module__ = __name__
