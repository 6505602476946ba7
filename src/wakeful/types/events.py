"""Everything that observers see: one event for each thing that happened.

Durable events are committed before anybody sees them and numbered by their thread; `cursor` names the place
to go on reading after. Live events (deltas, progress) reach whoever listens at once, carry the number of the
durable event before them, and are found again in the log as the message they became.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from msgspec import Struct

from .messages import Message
from .runs import BackendEnd, CallOutcome, Identity, Termination, Usage, Waiting
from .tickets import Decision, ResumeMode, Ticket

__all__ = [
    "ActivityDelta",
    "ActivitySnapshot",
    "AnyEvent",
    "Compacted",
    "ErrorRaised",
    "Event",
    "Handoff",
    "InferenceComplete",
    "MessageAdded",
    "MessagesSnapshot",
    "ReasoningDelta",
    "ReasoningEncrypted",
    "RunFinish",
    "RunStart",
    "StateDelta",
    "StateSnapshot",
    "StepEnd",
    "StepStart",
    "StopReason",
    "StreamReset",
    "TextDelta",
    "TicketReassigned",
    "ToolCallCancel",
    "ToolCallDelta",
    "ToolCallDone",
    "ToolCallReady",
    "ToolCallResumed",
    "ToolCallStart",
    "ToolCallSuspended",
    "ToolOutput",
    "ToolProgress",
    "UnknownEvent",
]

StopReason = Literal["end_turn", "tool_use", "max_tokens", "stop_sequence", "filtered", "cancelled", "unknown"]


class Event(Struct, frozen=True, gc=False, tag_field="type"):
    """What all events carry: the run with its lineage, the place in the thread's log, and the time."""

    run: Identity
    seq: int
    at: int

    durable: ClassVar[bool] = True

    @property
    def run_id(self) -> str:
        """The run it happened in."""
        return self.run.run_id

    @property
    def thread_id(self) -> str:
        """The thread it belongs to."""
        return self.run.thread_id

    @property
    def type(self) -> str:
        """The event's name, as in its JSON."""
        return str(self.__struct_config__.tag)

    @property
    def cursor(self) -> str:
        """The place in the thread's log, or in the answer that is being streamed behind that: reading on `after`
        it misses nothing and repeats nothing."""
        return str(self.seq)


class LiveEvent(Event, frozen=True, gc=False):
    """An event that isn't in the log; `seq` is that of the durable one before it."""

    durable: ClassVar[bool] = False


class Delta(LiveEvent, frozen=True, gc=False):
    """A piece of an answer that is being streamed; `offset` counts characters from the attempt's start."""

    message_id: str
    attempt: int
    offset: int
    delta: str

    @property
    def cursor(self) -> str:
        return f"{self.seq}.{self.attempt}.{self.offset + len(self.delta)}"


class _Within(LiveEvent, frozen=True, gc=False):
    """Something between the pieces of an answer."""

    @property
    def cursor(self) -> str:
        return f"{self.seq}.0.0"


class RunStart(Event, frozen=True, gc=False, omit_defaults=True, tag="run_start"):
    """An activation of a run begins: its first, or one after a wait or a crash. `changed` says which of what the
    run needs is no longer as it was when the run was left: the agent's instructions, model or tools, or the
    arguments of a tool with an open call."""

    trigger: Literal["new", "resume", "wake", "recover", "retry"]
    changed: tuple[str, ...] = ()


class RunFinish(Event, frozen=True, gc=False, omit_defaults=True, tag="run_finish"):
    """An activation ends. With status `waiting` the run goes on later; with `done` it has its outcome. `backend`
    says how a non-local agent's backend left it."""

    status: Literal["waiting", "done"]
    termination: Termination | None = None
    waiting: Waiting | None = None
    usage: Usage = Usage()
    steps: int = 0
    backend: BackendEnd | None = None


class StepStart(Event, frozen=True, gc=False, tag="step_start"):
    """A step begins: a model call and the tool calls it will ask for."""

    step: int


class StepEnd(Event, frozen=True, gc=False, tag="step_end"):
    """Every call of the step is finished."""

    step: int


class TextDelta(Delta, frozen=True, gc=False, tag="text_delta"):
    """A piece of the answer's text."""


class ReasoningDelta(Delta, frozen=True, gc=False, tag="reasoning_delta"):
    """A piece of the model's reasoning."""


class ReasoningEncrypted(_Within, frozen=True, gc=False, tag="reasoning_encrypted"):
    """Reasoning that only the vendor can read."""

    message_id: str
    value: str


class ToolCallStart(_Within, frozen=True, gc=False, tag="tool_call_start"):
    """The model begins to write a tool call."""

    call_id: str
    name: str


class ToolCallDelta(Delta, frozen=True, gc=False, tag="tool_call_delta"):
    """A piece of a call's arguments, as JSON text."""

    call_id: str


class ToolCallReady(Event, frozen=True, gc=False, tag="tool_call_ready"):
    """The model asked for this call; it is in the ledger."""

    call_id: str
    name: str
    arguments: dict[str, Any]


class ToolCallSuspended(Event, frozen=True, gc=False, tag="tool_call_suspended"):
    """A call waits for an answer to its ticket."""

    call_id: str
    name: str
    ticket: Ticket


class ToolCallResumed(Event, frozen=True, gc=False, tag="tool_call_resumed"):
    """A ticket was answered and its call goes on in this mode, or ends if it was denied."""

    call_id: str
    decision: Decision
    mode: ResumeMode


class TicketReassigned(Event, frozen=True, gc=False, tag="ticket_reassigned"):
    """Somebody else has to answer a ticket from now on; the decision says who wanted that, and why."""

    call_id: str
    ticket: Ticket
    decision: Decision


class ToolCallDone(Event, frozen=True, gc=False, omit_defaults=True, tag="tool_call_done"):
    """A call is finished; `message_id` is the tool message that tells the model."""

    call_id: str
    name: str
    outcome: CallOutcome
    message_id: str
    error: str | None = None


class ToolCallCancel(_Within, frozen=True, gc=False, tag="tool_call_cancel"):
    """A call that the model had begun to write is withdrawn."""

    call_id: str
    name: str
    reason: str


class ToolOutput(LiveEvent, frozen=True, gc=False, tag="tool_output"):
    """A piece of output that a running tool streams."""

    call_id: str
    name: str
    delta: str


class ToolProgress(LiveEvent, frozen=True, gc=False, omit_defaults=True, tag="tool_progress"):
    """How far a running tool has come."""

    call_id: str
    name: str
    fraction: float | None = None
    done: int | None = None
    total: int | None = None
    message: str = ""


class StreamReset(LiveEvent, frozen=True, gc=False, tag="stream_reset"):
    """What was streamed of this message is withdrawn; deltas begin again with the next attempt."""

    message_id: str
    attempt: int
    reason: str


class MessageAdded(Event, frozen=True, gc=False, tag="message"):
    """A message joined the thread's log."""

    message: Message


class MessagesSnapshot(LiveEvent, frozen=True, gc=False, tag="messages_snapshot"):
    """The conversation as it stands at this cursor."""

    messages: tuple[Message, ...]


class ActivitySnapshot(LiveEvent, frozen=True, gc=False, tag="activity_snapshot"):
    """A tool shows something of its own, whole."""

    call_id: str
    activity: str
    content: Any


class ActivityDelta(LiveEvent, frozen=True, gc=False, tag="activity_delta"):
    """A change to what a tool shows, as a JSON patch."""

    call_id: str
    activity: str
    patch: list[dict[str, Any]]


class InferenceComplete(Event, frozen=True, gc=False, omit_defaults=True, tag="inference_complete"):
    """The model answered; the answer is committed."""

    model: str
    message_id: str
    stop: StopReason
    usage: Usage = Usage()
    duration_ms: int = 0


class Compacted(Event, frozen=True, gc=False, omit_defaults=True, tag="compacted"):
    """A summary of the log's entries `first` to `last` was written by `model`, and is the message `message_id`; or
    it was skipped or failed, for this reason. Tokens are those of what it stands for, and its own, as we count."""

    outcome: Literal["done", "skipped", "failed", "unknown"]
    model: str
    first: int
    last: int
    message_id: str | None = None
    tokens: int = 0
    summary_tokens: int = 0
    usage: Usage = Usage()
    reason: str = ""


class StateSnapshot(LiveEvent, frozen=True, gc=False, tag="state_snapshot"):
    """The state's persistent keys as they stand at this cursor."""

    state: dict[str, Any]


class StateDelta(Event, frozen=True, gc=False, tag="state_delta"):
    """Keys that changed, with their new values."""

    changes: dict[str, Any]


class Handoff(Event, frozen=True, gc=False, tag="handoff"):
    """Another agent takes over the run from its next step."""

    from_agent: str
    to_agent: str


class ErrorRaised(Event, frozen=True, gc=False, omit_defaults=True, tag="error"):
    """Something failed: a model call, an action, a notice. `retry_at` is when a model is asked again, in
    milliseconds; the last failure of a model, which ends the run, has none."""

    error: str
    message: str
    source: str
    retry_at: int | None = None


class UnknownEvent(Event, frozen=True, gc=False, tag="unknown"):
    """An event that a newer version wrote."""

    kind: str
    raw: dict[str, Any]


AnyEvent = (
    RunStart
    | RunFinish
    | StepStart
    | StepEnd
    | TextDelta
    | ReasoningDelta
    | ReasoningEncrypted
    | ToolCallStart
    | ToolCallDelta
    | ToolCallReady
    | ToolCallSuspended
    | ToolCallResumed
    | TicketReassigned
    | ToolCallDone
    | ToolCallCancel
    | ToolOutput
    | ToolProgress
    | StreamReset
    | MessageAdded
    | MessagesSnapshot
    | ActivitySnapshot
    | ActivityDelta
    | InferenceComplete
    | Compacted
    | StateSnapshot
    | StateDelta
    | Handoff
    | ErrorRaised
    | UnknownEvent
)
