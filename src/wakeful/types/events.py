"""Events: the observable history of runs.

Durable events are committed before any observer sees them. `seq` numbers them within their thread, and `cursor` is
the position to resume reading from. Live events (deltas, progress) are sent immediately and not stored. They carry
the `seq` of the preceding durable event; the log later has the complete message.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import msgspec

from .base import Data
from .calls import CallOutcome
from .content import Artifact, ServerTool
from .messages import Message
from .runs import BackendEnd, Identity, Termination, Usage, Waiting
from .tickets import Decision, ResumeMode, Ticket

__all__ = [
    "ActivityDelta",
    "ActivitySnapshot",
    "AnyEvent",
    "ArtifactAdded",
    "Compacted",
    "ErrorRaised",
    "Event",
    "Handoff",
    "InferenceComplete",
    "MessageAdded",
    "MessagesSnapshot",
    "PartialOutput",
    "ReasoningDelta",
    "ReasoningEncrypted",
    "RunFinish",
    "RunStart",
    "ServerToolUpdate",
    "StateDelta",
    "StateSnapshot",
    "StepEnd",
    "StepStart",
    "StopReason",
    "StreamReset",
    "TextDelta",
    "TicketChanged",
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

_encode = msgspec.json.Encoder().encode

StopReason = Literal[
    "end_turn", "tool_use", "max_tokens", "pause_turn", "stop_sequence", "filtered", "cancelled", "unknown"
]


class Event(Data, tag_field="type"):
    """Base of all events: the run and its lineage, the position in the thread's log, the time in ms."""

    run: Identity
    seq: int
    at: int

    durable: ClassVar[bool] = True

    @property
    def run_id(self) -> str:
        """The id of the event's run."""
        return self.run.run_id

    @property
    def thread_id(self) -> str:
        """The id of the event's thread."""
        return self.run.thread_id

    @property
    def type(self) -> str:
        """The event's name, as in its JSON."""
        return str(self.__struct_config__.tag)

    @property
    def cursor(self) -> str:
        """The position in the thread's log, or in the answer streamed after it.

        Reading `after` a cursor neither skips nor repeats an event.
        """
        return str(self.seq)

    def to_json(self) -> str:
        """The event as one line of JSON; `wakeful.events.from_json` reads it back."""
        return _encode(self).decode()


class LiveEvent(Event):
    """An event outside the log; `seq` is that of the preceding durable event."""

    durable: ClassVar[bool] = False


class Delta(LiveEvent):
    """A chunk of a streamed answer; `offset` counts characters from the start of the attempt.

    Only the cursor of text has an offset: in an answer of more than text, it doesn't say what a reader has.
    """

    message_id: str
    attempt: int
    offset: int
    delta: str

    @property
    def cursor(self) -> str:
        return f"{self.seq}.{self.attempt}.0"


class _StreamEvent(LiveEvent):
    """An event between the chunks of a streamed answer."""

    @property
    def cursor(self) -> str:
        return f"{self.seq}.0.0"


class RunStart(Event, omit_defaults=True, tag="run_start"):
    """An activation of a run starts: the first, or one after a wait or a crash.

    `changed` lists the code changes since the last activation that affect the run: the agent's instructions, model
    or tools, or the parameters of a tool with an open call.
    """

    trigger: Literal["new", "resume", "wake", "recover", "retry"]
    changed: tuple[str, ...] = ()


class RunFinish(Event, omit_defaults=True, tag="run_finish"):
    """An activation ends. With status `waiting` the run continues later; with `done` it has its outcome.

    `backend` is the result of a non-local agent's backend.
    """

    status: Literal["waiting", "done"]
    termination: Termination | None = None
    waiting: Waiting | None = None
    usage: Usage = Usage()
    steps: int = 0
    backend: BackendEnd | None = None


class StepStart(Event, tag="step_start"):
    """A step starts: a model call and the tool calls it requests."""

    step: int


class StepEnd(Event, tag="step_end"):
    """Every call of the step is finished."""

    step: int


class TextDelta(Delta, tag="text_delta"):
    """A chunk of the answer's text."""

    @property
    def cursor(self) -> str:
        return f"{self.seq}.{self.attempt}.{self.offset + len(self.delta)}"


class PartialOutput(LiveEvent, tag="partial_output"):
    """The typed output of the answer in progress: as much of it as is there, and fits the schema.

    `output` is JSON of the first `offset` characters of text; each event has the whole of it so far.
    """

    message_id: str
    attempt: int
    offset: int
    output: Any

    @property
    def cursor(self) -> str:
        return f"{self.seq}.{self.attempt}.{self.offset}"


class ReasoningDelta(Delta, tag="reasoning_delta"):
    """A chunk of the model's reasoning."""


class ReasoningEncrypted(_StreamEvent, tag="reasoning_encrypted"):
    """Reasoning that the vendor encrypted."""

    message_id: str
    value: str


class ServerToolUpdate(_StreamEvent, tag="server_tool"):
    """A tool of the vendor or of a backend's agent starts, progresses or ends within the answer.

    The message has its last state.
    """

    message_id: str
    tool: ServerTool


class ArtifactAdded(_StreamEvent, tag="artifact"):
    """A backend added an artifact to the answer in progress; one with the same id replaces it."""

    message_id: str
    artifact: Artifact


class ToolCallStart(_StreamEvent, tag="tool_call_start"):
    """The model starts to stream a tool call."""

    call_id: str
    name: str


class ToolCallDelta(Delta, tag="tool_call_delta"):
    """A chunk of a call's arguments, as JSON text."""

    call_id: str


class ToolCallReady(Event, tag="tool_call_ready"):
    """The model requested a call; it is in the ledger."""

    call_id: str
    name: str
    arguments: dict[str, Any]


class ToolCallSuspended(Event, omit_defaults=True, tag="tool_call_suspended"):
    """A call waits for the answer to its ticket. `surfaces` are what the tool has shown until then."""

    call_id: str
    name: str
    ticket: Ticket
    surfaces: tuple[Artifact, ...] = ()


class ToolCallResumed(Event, tag="tool_call_resumed"):
    """A ticket was answered. Its call continues in this mode, or ends if it was denied."""

    call_id: str
    decision: Decision
    mode: ResumeMode


class TicketChanged(Event, tag="ticket_changed"):
    """An open ticket was reassigned, got a vote or a comment, or refused a decision; the decision says how."""

    call_id: str
    ticket: Ticket
    decision: Decision


class ToolCallDone(Event, omit_defaults=True, tag="tool_call_done"):
    """A call is finished; `message_id` is the tool message with its result."""

    call_id: str
    name: str
    outcome: CallOutcome
    message_id: str
    error: str | None = None


class ToolCallCancel(_StreamEvent, tag="tool_call_cancel"):
    """A partially streamed call is discarded."""

    call_id: str
    name: str
    reason: str


class ToolOutput(LiveEvent, tag="tool_output"):
    """A chunk of a running tool's streamed output."""

    call_id: str
    name: str
    delta: str


class ToolProgress(LiveEvent, omit_defaults=True, tag="tool_progress"):
    """The progress of a running tool, or of a run that isn't executed by the loop.

    Then `call_id` is a call of its own, else the call that started the run, else empty.
    """

    call_id: str
    name: str
    fraction: float | None = None
    done: int | None = None
    total: int | None = None
    message: str = ""


class StreamReset(LiveEvent, tag="stream_reset"):
    """The streamed part of this message is discarded; deltas restart with the next attempt."""

    message_id: str
    attempt: int
    reason: str


class MessageAdded(Event, tag="message"):
    """A message was added to the thread's log."""

    message: Message


class MessagesSnapshot(LiveEvent, tag="messages_snapshot"):
    """The conversation at this cursor."""

    messages: tuple[Message, ...]


class ActivitySnapshot(LiveEvent, tag="activity_snapshot"):
    """The complete content of an activity that a tool displays."""

    call_id: str
    activity: str
    content: Any


class ActivityDelta(LiveEvent, tag="activity_delta"):
    """A change to an activity, as a JSON patch."""

    call_id: str
    activity: str
    patch: list[dict[str, Any]]


class InferenceComplete(Event, omit_defaults=True, tag="inference_complete"):
    """The model answered; the answer is committed.

    `instructions` are those of the request if functions made them, after the edits of hooks; empty if they are a
    constant of the agent.
    `request_digest` is the SHA-256 of the last request for the answer, and `tools` are the names of the tools that
    it offered. A backend's answer has neither.
    """

    model: str
    message_id: str
    stop: StopReason
    usage: Usage = Usage()
    duration_ms: int = 0
    instructions: str = ""
    request_digest: str = ""
    tools: tuple[str, ...] = ()


class Compacted(Event, omit_defaults=True, tag="compacted"):
    """A compaction of the log's entries `first` to `last` by `model` is done, was skipped, or failed.

    The summary is the message `message_id`. `tokens` and `summary_tokens` are wakeful's counts of the replaced
    entries and of the summary.
    """

    outcome: Literal["done", "skipped", "failed", "unknown"]
    model: str
    first: int
    last: int
    message_id: str | None = None
    tokens: int = 0
    summary_tokens: int = 0
    usage: Usage = Usage()
    reason: str = ""


class StateSnapshot(LiveEvent, tag="state_snapshot"):
    """The values of the persistent state keys at this cursor."""

    state: dict[str, Any]


class StateDelta(Event, tag="state_delta"):
    """Changed state keys with their new values."""

    changes: dict[str, Any]


class Handoff(Event, tag="handoff"):
    """Another agent takes over the run from its next step."""

    from_agent: str
    to_agent: str


class ErrorRaised(Event, omit_defaults=True, tag="error"):
    """A model call, an action or a notice failed.

    `retry_at` is the time of a model's next attempt in ms; None for the failure that ends the run. A model's
    failure has the digest of the request, as in `InferenceComplete`, if one was sent.
    """

    error: str
    message: str
    source: str
    retry_at: int | None = None
    request_digest: str = ""


class UnknownEvent(Event, tag="unknown"):
    """An event of a kind that a newer version wrote."""

    kind: str
    raw: dict[str, Any]


AnyEvent = (
    RunStart
    | RunFinish
    | StepStart
    | StepEnd
    | TextDelta
    | PartialOutput
    | ReasoningDelta
    | ReasoningEncrypted
    | ServerToolUpdate
    | ArtifactAdded
    | ToolCallStart
    | ToolCallDelta
    | ToolCallReady
    | ToolCallSuspended
    | ToolCallResumed
    | TicketChanged
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
