"""Runs: their identity, ledger of calls, waits, outcome and record."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Raw, Struct, UnsetType

from ..errors._arguments import Checked
from .content import Artifact, Unknown
from .requests import ModelSettings, ToolSpec
from .tickets import Decision

__all__ = [
    "FUNCTION",
    "PRIORITY",
    "SCHEDULE",
    "BackendEnd",
    "BehaviourRequested",
    "Blocked",
    "Call",
    "CallOutcome",
    "CallState",
    "Cancelled",
    "Effect",
    "Failed",
    "Identity",
    "NaturalEnd",
    "Needs",
    "Origin",
    "Outcome",
    "Principal",
    "RunOptions",
    "RunRecord",
    "RunStatus",
    "Stopped",
    "TaskEvent",
    "TaskOutcome",
    "TaskRecord",
    "TaskRef",
    "TaskStatus",
    "TaskWake",
    "Termination",
    "UnknownPolicy",
    "Usage",
    "WaitReason",
    "Waiting",
]

Origin = Literal["user", "subagent", "message", "task", "schedule", "a2a", "mcp", "internal", "unknown"]
RunStatus = Literal["created", "running", "waiting", "done"]
Effect = Literal["pure", "idempotent", "reconcile", "once"]
UnknownPolicy = Literal["tell", "ask"]
TaskStatus = Literal["running", "completed", "failed", "cancelled"]
TaskWake = Literal["inbox", "run"]

# What the ids of the agents begin with that carry out functions; no agent of an application can have such an id.
FUNCTION = "task:"
# The agent that schedules are runs of, and what the ids of their threads begin with; no application's thread does.
SCHEDULE = "(schedule)"

PRIORITY = 128


class Principal(Struct, metaclass=Checked, frozen=True, gc=False, omit_defaults=True):
    """Who asked: travels on runs, messages and decisions, and is in every tool's context."""

    id: str
    kind: str = "user"
    claims: dict[str, Any] = {}


class Identity(Struct, frozen=True, gc=False, omit_defaults=True):
    """Which run this is, and where it stands in its tree."""

    run_id: str
    thread_id: str
    agent_id: str
    root_run_id: str
    parent_run_id: str | None = None
    parent_thread_id: str | None = None
    parent_call_id: str | None = None
    origin: Origin = "user"
    depth: int = 0


class Usage(Struct, frozen=True, gc=False, omit_defaults=True):
    """Tokens and money. `cost` is in micro-units of the currency; cached and reasoning tokens are part of
    input and output."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost: int = 0

    @property
    def total_tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        if other is _NO_USAGE:
            return self
        if self is _NO_USAGE:
            return other
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            self.cost + other.cost,
        )


# What every record of a run begins with.
_NO_USAGE = Usage()


class NaturalEnd(Struct, frozen=True, gc=False, omit_defaults=True, tag="natural_end"):
    """The model answered and asked for nothing more. `truncated` says that the answer reached the output limit and
    isn't whole."""

    truncated: bool = False


class BehaviourRequested(Struct, frozen=True, gc=False, omit_defaults=True, tag="behaviour_requested"):
    """A tool or a plugin ended the run."""

    reason: str = ""


class Stopped(Struct, frozen=True, gc=False, omit_defaults=True, tag="stopped"):
    """A stop policy or a limit fired; the last answer is kept."""

    policy: str
    detail: str = ""


class Cancelled(Struct, frozen=True, gc=False, omit_defaults=True, tag="cancelled"):
    """Somebody cancelled the run, or new input superseded it."""

    reason: str = ""


class Blocked(Struct, frozen=True, gc=False, tag="blocked"):
    """A gate refused a call by a rule that ends the run."""

    reason: str


class Failed(Struct, frozen=True, gc=False, tag="error"):
    """The run could not go on. `error` is the name of the exception's class."""

    error: str
    message: str

    @property
    def text(self) -> str:
        """Both, in one text; what a task's owner is told has the name in its message already."""
        return self.message if self.message.startswith(f"{self.error}: ") else f"{self.error}: {self.message}"


Termination = NaturalEnd | BehaviourRequested | Stopped | Cancelled | Blocked | Failed | Unknown


class Outcome(Struct, frozen=True, gc=False, omit_defaults=True):
    """How a run ended. Written once, when it is done; `output` is the typed output as JSON."""

    termination: Termination
    output: Raw | UnsetType = UNSET


WaitReason = Literal[
    "tool_permission",
    "user_input",
    "awaiting_tasks",
    "timer",
    "rate_limit",
    "manual_pause",
    "external_event",
    "unknown",
]


class Waiting(Struct, frozen=True, gc=False, omit_defaults=True):
    """What a waiting run waits for: the kinds of inbox items that wake it, and the time that does. `tasks` are
    those that its calls wait for."""

    reason: WaitReason
    since: int
    wakes: tuple[str, ...] = ()
    tickets: tuple[str, ...] = ()
    detail: str = ""
    until: int | None = None
    tasks: tuple[str, ...] = ()


class BackendEnd(Struct, frozen=True, gc=False, omit_defaults=True):
    """How the backend of a non-local agent left a run: its word for the status, why, and what it made besides
    text. `wait` is what the run waits for, if it does."""

    status: str
    reason: str = ""
    artifacts: tuple[Artifact, ...] = ()
    raw: Any = None
    wait: WaitReason | None = None


CallState = Literal["requested", "started", "suspended", "finished"]
CallOutcome = Literal["ok", "error", "blocked", "cancelled", "superseded", "unknown"]


class Call(Struct, frozen=True, gc=False, omit_defaults=True):
    """One row of the ledger of tool calls.

    `effect` and `unknown` are the tool's, written down when the call starts, so that what to do about a call
    without a result never depends on code that changed since. `edited` holds arguments that a person changed; the
    model's own stay as they are. A suspended call waits for the answer to a ticket, for the task `task_id`, or for
    the time `until`; `timers` are the times that it waited for before, by the place in its code.
    """

    id: str
    run_id: str
    step: int
    index: int
    name: str
    arguments: dict[str, Any]
    # What a result changes comes first, what the start wrote last: Postgres's log has the bytes in between.
    state: CallState = "requested"
    outcome: CallOutcome | None = None
    message_id: str | None = None
    finished_at: int | None = None
    ticket_id: str | None = None
    decisions: tuple[Decision, ...] = ()
    edited: dict[str, Any] | None = None
    problem: str | None = None
    hooks_due: bool = False
    task_id: str | None = None
    until: int | None = None
    timers: tuple[tuple[int, int], ...] = ()
    attempt: int = 0
    effect: Effect = "once"
    unknown: UnknownPolicy = "tell"
    started_at: int | None = None

    @property
    def effective_arguments(self) -> dict[str, Any]:
        """The arguments to run with: a person's edit, else the model's."""
        return self.arguments if self.edited is None else self.edited


class TaskRecord(Struct, frozen=True, gc=False, omit_defaults=True):
    """Work that a thread owns besides its run: the run `target` of an agent or a function on a thread of its own.

    `run_id` is the run that it ends with; without one it is detached, and ends with none. `call_id` is the tool
    call that began it, the `place`-th thing that the call waited for. What comes of an older `epoch` counts no
    more. A `background` task tells its owner when it is done; any other is waited for by its call. A `durable` one
    has dispatches of its own, so that any process runs it; a `remote` one is carried out by its agent's backend.
    """

    id: str
    thread_id: str
    run_id: str | None = None
    name: str | None = None
    status: TaskStatus = "running"
    agent_id: str = ""
    target: str = ""
    target_thread: str = ""
    call_id: str | None = None
    place: int = 0
    epoch: int = 1
    background: bool = False
    durable: bool = False
    remote: bool = False
    error: str | None = None
    created_at: int = 0
    finished_at: int | None = None

    @property
    def function(self) -> str | None:
        """The name of the function that the task is, if it is one."""
        return self.agent_id.removeprefix(FUNCTION) if self.agent_id.startswith(FUNCTION) else None


class TaskRef(Struct, frozen=True, gc=False, omit_defaults=True):
    """The task that a run is: its id and epoch on the owner's thread. With `wake="run"` its end begins a run of
    the agent `owner` there if the thread is idle."""

    id: str
    epoch: int = 1
    background: bool = False
    durable: bool = False
    wake: TaskWake = "inbox"
    owner: str = ""


class TaskEvent(Struct, frozen=True, gc=False, omit_defaults=True):
    """Something that a task tells its owner while it runs."""

    kind: str
    payload: Any = None


class TaskOutcome(Struct, frozen=True, gc=False, omit_defaults=True):
    """What a task came to, as its owner is told. `steps` is there unless its run has a typed output, which its
    owner looks up."""

    epoch: int
    status: TaskStatus
    text: str = ""
    error: str | None = None
    usage: Usage = _NO_USAGE
    steps: int | None = None


class RunOptions(Struct, frozen=True, gc=False, omit_defaults=True):
    """What a caller set for one run; kept with it, so that a resumed run has the same."""

    settings: ModelSettings = ModelSettings()
    client_tools: tuple[ToolSpec, ...] = ()


class Needs(Struct, frozen=True, gc=False, omit_defaults=True):
    """What a run needs of the code to go on after a wait, as digests of how that was when the run was left.

    `agent` has one for its instructions, its model and its tools, `tools` one for the arguments of each tool that
    has an open call; `keys` are the state keys that the run's agent had values of.
    """

    agent: dict[str, str] = {}
    tools: dict[str, str] = {}
    keys: tuple[str, ...] = ()


class RunRecord(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A run as the store keeps it. `waiting` is there iff it waits, `outcome` and `finished_at` iff it is done.

    `stage` says where the current step stands: `between` steps, `inferring` (begun, no answer committed),
    or `acting` (answered, with calls that may be open). `needs` is there once the run has waited, `backend` once
    a backend came back. A run that another one waits for, or that works in the background for one, is its `task`.
    `news` is what the model is to be told once the open step is closed; `apart` says that runs below it may run
    elsewhere, so that what they use has to be read. `hops` is over how many messages in a row from agent to agent
    it came about. The lower its `priority`, the sooner it is claimed. One that is `paused` begins no step. One
    that `leaves_tasks` was interrupted: what works for it in the background is the next run's.
    """

    # What every step changes comes first, and what never changes last: Postgres's log has the bytes in between.
    stage: Literal["between", "inferring", "acting"] = "between"
    steps: int = 0
    updated_at: int = 0
    answer_id: str | None = None
    calls: int = 0
    tree_calls: int = 0
    usage: Usage = _NO_USAGE
    descendants: Usage = _NO_USAGE
    signatures: tuple[str, ...] = ()
    failures: int = 0
    handoffs: int = 0
    continuations: int = 0
    repairs: int = 0
    news: tuple[str, ...] = ()
    status: RunStatus = "created"
    agent_id: str
    ending: Termination | None = None
    next_agent: str | None = None
    waiting: Waiting | None = None
    outcome: Outcome | None = None
    cancel: str | None = None
    leaves_tasks: bool = False
    paused: bool = False
    finished_at: int | None = None
    needs: Needs | None = None
    backend: BackendEnd | None = None
    apart: bool = False
    identity: Identity
    principal: Principal | None = None
    options: RunOptions | None = None
    task: TaskRef | None = None
    first_seq: int = 0
    hops: int = 0
    priority: int = PRIORITY
    created_at: int
    started_at: int | None = None

    @property
    def id(self) -> str:
        """The run's id."""
        return self.identity.run_id

    @property
    def thread_id(self) -> str:
        """The thread it runs on."""
        return self.identity.thread_id
