"""Runs: identity, tasks, waits, outcomes and the stored record."""

from __future__ import annotations

from typing import Any, Literal, get_args

from msgspec import UNSET, Raw, UnsetType

from ..errors.arguments import Checked
from .base import Data
from .content import Artifact, Unknown
from .requests import ModelSettings, ToolSpec

__all__ = [
    "DEFAULT_RIGHTS",
    "FUNCTION",
    "PRIORITY",
    "RIGHTS",
    "SCHEDULE",
    "Author",
    "BackendEnd",
    "Blocked",
    "Cancelled",
    "EndRequested",
    "ErrorDetail",
    "Failed",
    "Identity",
    "NaturalEnd",
    "Needs",
    "Origin",
    "Outcome",
    "Principal",
    "Right",
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
    "TraceContext",
    "Usage",
    "WaitReason",
    "Waiting",
]

Origin = Literal["user", "subagent", "message", "task", "schedule", "a2a", "mcp", "internal", "unknown"]
RunStatus = Literal["created", "running", "waiting", "done"]
TaskStatus = Literal["running", "completed", "failed", "cancelled"]
TaskWake = Literal["inbox", "run"]

# Prefix of the agent ids of function tasks. Reserved: an application's agents can't use it.
FUNCTION = "task:"
# Agent id of schedules, and prefix of their thread ids. Reserved: an application's threads can't use it.
SCHEDULE = "(schedule)"

PRIORITY = 128


class Principal(Data, metaclass=Checked, omit_defaults=True):
    """The caller on whose behalf a run acts. Runs, messages and decisions carry it; tools see it in `ctx`.

    Tickets may be assigned to one of its `groups` or `roles`.
    """

    id: str
    kind: str = "user"
    claims: dict[str, Any] = {}
    groups: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()


Right = Literal["tickets:edit", "tickets:supply", "tickets:reassign", "tickets:override"]
RIGHTS: frozenset[Right] = frozenset(get_args(Right))
# The rights of a principal in the same process.
DEFAULT_RIGHTS: frozenset[Right] = RIGHTS - {"tickets:override"}


class Author(Data, metaclass=Checked, omit_defaults=True):
    """The author of decisions on tickets: a principal, its rights, and how it was authenticated.

    - `tickets:edit`: change the arguments of a call; `tickets:supply`: set its result.
    - `tickets:reassign`: give a ticket to another assignee.
    - `tickets:override`: decide on tickets of other assignees.

    `auth` names the credential, such as `key:ab12`; in the same process there is `none`.
    """

    principal: Principal
    rights: frozenset[Right] = DEFAULT_RIGHTS
    auth: str = "none"


class Identity(Data, omit_defaults=True):
    """The ids of a run and its position in its tree."""

    run_id: str
    thread_id: str
    agent_id: str
    root_run_id: str
    parent_run_id: str | None = None
    parent_thread_id: str | None = None
    parent_call_id: str | None = None
    origin: Origin = "user"
    depth: int = 0


class Usage(Data, omit_defaults=True):
    """Token counts, and the cost in micro-units of the currency.

    Cached tokens are included in the input tokens, reasoning tokens in the output tokens. `searches` are those of
    the vendor's own web search, which it bills one by one.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost: int = 0
    searches: int = 0

    @property
    def total_tokens(self) -> int:
        """The sum of input and output tokens."""
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
            self.searches + other.searches,
        )


_NO_USAGE = Usage()


class NaturalEnd(Data, omit_defaults=True, tag="natural_end"):
    """The model answered without requesting calls. `truncated`: the answer reached its token limit."""

    truncated: bool = False


class EndRequested(Data, omit_defaults=True, tag="end_requested"):
    """A tool or a plugin ended the run."""

    reason: str = ""


class Stopped(Data, omit_defaults=True, tag="stopped"):
    """A stop policy or a limit fired; the last answer is kept."""

    policy: str
    detail: str = ""


class Cancelled(Data, omit_defaults=True, tag="cancelled"):
    """The run was cancelled, or new input superseded it."""

    reason: str = ""


class Blocked(Data, tag="blocked"):
    """A gate blocked a call and ended the run, or a guardrail blocked its input or its answer."""

    reason: str


class Failed(Data, tag="error"):
    """The run failed. `error` is the name of the exception's class."""

    error: str
    message: str

    @property
    def text(self) -> str:
        """The error name and the message. A task's message already starts with the name."""
        return self.message if self.message.startswith(f"{self.error}: ") else f"{self.error}: {self.message}"


Termination = NaturalEnd | EndRequested | Stopped | Cancelled | Blocked | Failed | Unknown


class Outcome(Data, omit_defaults=True):
    """The outcome of a run, written once. `output` is the typed output as JSON."""

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


class Waiting(Data, omit_defaults=True):
    """The condition that a run waits for: the kinds of inbox items that wake it (`wakes`) or a time (`until`).

    `tasks` are the tasks that its calls wait for.
    """

    reason: WaitReason
    since: int
    wakes: tuple[str, ...] = ()
    tickets: tuple[str, ...] = ()
    detail: str = ""
    until: int | None = None
    tasks: tuple[str, ...] = ()


class BackendEnd(Data, omit_defaults=True):
    """The result of a non-local agent's backend: its own status word, the reason, and artifacts.

    `wait` is set if the run waits; `poll_at` is then the time at which the backend is asked whether the remote
    continued by itself.
    """

    status: str
    reason: str = ""
    artifacts: tuple[Artifact, ...] = ()
    raw: Any = None
    wait: WaitReason | None = None
    poll_at: int | None = None


class TaskRecord(Data, omit_defaults=True):
    """Work that a thread owns beside its run: the run `target` of an agent or function on its own thread.

    - `run_id`: the run that the task ends with; None for a detached task.
    - `call_id`, `place`: the tool call that started it, and its ordinal among the waits of that call.
    - `epoch`: reports of an older epoch are ignored.
    - `background`: the task reports to its owner's inbox; otherwise its call waits for it.
    - `durable`: the task has its own dispatches, so any worker can run it.
    - `remote`: its agent's backend executes it.
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
        """The name of the function, if this is a function task."""
        return self.agent_id.removeprefix(FUNCTION) if self.agent_id.startswith(FUNCTION) else None


class TaskRef(Data, omit_defaults=True):
    """The task that a run executes: its id and epoch on the owner's thread.

    With `wake="run"` its end starts a run of the agent `owner` if the owner's thread is idle.
    """

    id: str
    epoch: int = 1
    background: bool = False
    durable: bool = False
    wake: TaskWake = "inbox"
    owner: str = ""


class TaskEvent(Data, omit_defaults=True):
    """A report of a running task to its owner."""

    kind: str
    payload: Any = None


class TaskOutcome(Data, omit_defaults=True):
    """The outcome of a task, as reported to its owner.

    `steps` is None if the run has a typed output: the owner then reads the run. `usage` doesn't include the runs
    that were `stopped` before they reported.
    """

    epoch: int
    status: TaskStatus
    text: str = ""
    error: str | None = None
    usage: Usage = _NO_USAGE
    steps: int | None = None
    stopped: tuple[str, ...] = ()


class ErrorDetail(Data, omit_defaults=True):
    """The text of an unexpected exception, for operators. `reference` is what the model and callers are shown.

    `source` names the code that raised it, such as `tool pay`.
    """

    reference: str
    at: int
    source: str
    text: str


class TraceContext(Data, omit_defaults=True):
    """The W3C trace context that travels with a run, or with what asks for one.

    Activations are children of the span `parent`, a `traceparent` whose flags carry the sampling decision; `state`
    is its `tracestate`. The next activation links to the spans of `links`. Without a parent a trace begins.
    """

    parent: str = ""
    state: str = ""
    links: tuple[str, ...] = ()


class RunOptions(Data, omit_defaults=True):
    """A caller's options for one run, stored with it so that a resumed run keeps them."""

    settings: ModelSettings = ModelSettings()
    client_tools: tuple[ToolSpec, ...] = ()


class Needs(Data, omit_defaults=True):
    """Digests of the code that a waiting run depends on, taken when its activation ended.

    `agent` covers the instructions, model and tools; `tools` the parameters of each tool with an open call. `keys`
    are the state keys for which the run's agent had values.
    """

    agent: dict[str, str] = {}
    tools: dict[str, str] = {}
    keys: tuple[str, ...] = ()


class RunRecord(Data, omit_defaults=True, kw_only=True):
    """The stored record of a run.

    - `waiting`: set while the run waits; `outcome` and `finished_at`: set once it is done.
    - `stage`: `between` steps, `inferring` (step started, no answer committed) or `acting` (answer
      committed, calls may be open).
    - `needs`: set once the run has waited; `backend`: set once a backend returned.
    - `task`: the task that the run executes for another run.
    - `news`: notices for the model, added when the open step is closed.
    - `apart`: descendants may run in other processes, so their usage has to be read from the store.
    - `hops`: messages in a row from agent to agent that led to the run.
    - `priority`: lower is claimed sooner.
    - `paused`: the run starts no step.
    - `errors`: the last unexpected exceptions, for operators alone: `runtime.runs.errors` returns them.
    - `stopped`: the runs of tasks that were stopped before they reported; `descendants` doesn't have their usage.
    - `owner`: the principal that owns the thread, if another one's message began the run; empty if nobody does.
    - `leaves_tasks`: the run was interrupted, and its background tasks pass to the next run.
    - `trace`: the trace of the run, if it is traced.
    """

    # Fields that change with every step come first: Postgres logs the bytes between the first and the last change.
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
    errors: tuple[ErrorDetail, ...] = ()
    stopped: tuple[str, ...] = ()
    needs: Needs | None = None
    backend: BackendEnd | None = None
    apart: bool = False
    trace: TraceContext | None = None
    identity: Identity
    principal: Principal | None = None
    owner: str | None = None
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
    def owner_id(self) -> str | None:
        """The id of the principal that may read the run: the owner of its thread, else its own."""
        if self.owner is not None:
            return self.owner or None
        return None if self.principal is None else self.principal.id

    @property
    def thread_id(self) -> str:
        """The id of the run's thread."""
        return self.identity.thread_id
