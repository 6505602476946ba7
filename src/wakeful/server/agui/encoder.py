"""Events of a run as events of AG-UI."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from ...types.content import ServerTool, Thinking, ToolCall
from ...types.events import (
    ActivityDelta,
    ActivitySnapshot,
    AnyEvent,
    ErrorRaised,
    Event,
    Handoff,
    InferenceComplete,
    MessageAdded,
    ReasoningDelta,
    RunFinish,
    RunStart,
    ServerToolUpdate,
    StateDelta,
    StepEnd,
    StepStart,
    TextDelta,
    ToolCallCancel,
    ToolCallDelta,
    ToolCallStart,
    ToolCallSuspended,
    ToolOutput,
    ToolProgress,
)
from ...types.messages import Message
from ...types.runs import Cancelled, Failed, Identity, Usage
from ..follow import Settled
from ..growth import Grown, Rewritten
from .activities import Activities, ActivityEvent
from .endings import ended_run
from .messages import ClientMessage, arguments_text, plain_text, shown_content
from .owner import CallTrack, Owner, TextTrack

__all__ = ["Encoder", "Rewritten"]

_encode = msgspec.json.Encoder().encode


def frame(event: Mapping[str, Any]) -> bytes:
    """One event as a frame."""
    return b"data: %s\n\n" % _encode(event)


class Encoder:
    """Encodes the events of one run from one request on.

    It is a function of the events and of the messages that the client has already: a stream that is read again
    from the log leaves the client with the same messages. Events of runs below are those of subagents.

    `is_current` says that the client speaks version 1.0; older ones refuse some of its fields.
    """

    def __init__(
        self,
        thread_id: str,
        run_id: str,
        root: str,
        *,
        version: str | None = None,
        known: Sequence[ClientMessage] = (),
    ) -> None:
        self.thread_id = thread_id
        self.run_id = run_id
        self.is_current = version is not None
        self.usage: dict[str, Usage] = {}
        self._root = Owner(None)
        self._owners = {root: self._root}
        self._tags: dict[str, int] = {}
        self._activities = Activities()
        self._has(known)

    def _has(self, messages: Sequence[ClientMessage]) -> None:
        """Take the messages that the client has."""
        self._ids = {message.id for message in messages}
        self._results = {message.tool_call_id for message in messages if message.role == "tool"}
        self._texts = {m.id: plain_text(m) for m in messages if m.role in ("assistant", "reasoning")}
        self._arguments = {
            call.id: call.function.arguments for message in messages for call in message.tool_calls or ()
        }

    # -- frames ----------------------------------------------------------------------------------------------

    def begin(self, state: Mapping[str, Any] | None = None) -> bytes:
        """The first frames of a stream, with the state of the thread."""
        started: dict[str, Any] = {"type": "RUN_STARTED", "threadId": self.thread_id, "runId": self.run_id}
        if self.is_current:
            started["protocolVersion"] = "1.0"
        return frame(started) + (frame({"type": "STATE_SNAPSHOT", "snapshot": state}) if state else b"")

    def encode(self, event: AnyEvent | Settled) -> bytes:
        """The frames of an event.

        Raises `Rewritten` if an answer began again with another text: send what `rewrite` returns, and encode the
        event again.
        """
        handler = self._handlers.get(type(event))
        if handler is not None:
            return handler(self, event)
        return self._finish(event) if isinstance(event, Settled) else b""

    def rewrite(self, messages: Sequence[Mapping[str, Any]]) -> bytes:
        """The frames that replace the client's messages. Those of the answer in progress are sent again."""
        out = self._root.close(keep_steps=True)
        self._root.forget()
        self._has(msgspec.convert(messages, list[ClientMessage]))
        return b"".join([*out, frame({"type": "MESSAGES_SNAPSHOT", "messages": messages})])

    def _finish(self, end: Settled) -> bytes:
        out: list[bytes] = []
        for run_id in [run_id for run_id, owner in self._owners.items() if owner is not self._root]:
            out += self._leave(run_id, {"type": "suspended"})
        out += self._root.close()
        tags = {run_id: self._tag(run_id) for run_id in self._tags}
        event = ended_run(end, self.thread_id, self.run_id, self.usage, tags, is_current=self.is_current)
        return b"".join([*out, frame(event)])

    # -- runs below ------------------------------------------------------------------------------------------

    def _owner(self, run: Identity, out: list[bytes]) -> Owner:
        found = self._owners.get(run.run_id)
        if found is not None:
            return found
        self._tags[run.run_id] = self._tags.get(run.run_id, 0) + 1
        tag = self._tag(run.run_id)
        started: dict[str, Any] = {"type": "SUBAGENT_STARTED", "subagentRunId": tag, "name": run.agent_id}
        if run.parent_call_id is not None:
            started["parentToolCallId"] = run.parent_call_id
        if run.parent_run_id in self._tags and run.parent_run_id in self._owners:
            started["parentSubagentRunId"] = self._tag(run.parent_run_id)
        out.append(frame(started))
        found = self._owners[run.run_id] = Owner(tag)
        return found

    def _tag(self, run_id: str) -> str:
        """The id of a run below in this stream: a run that continues is started again under another one."""
        count = self._tags[run_id]
        return run_id if count == 1 else f"{run_id}/{count}"

    def _leave(self, run_id: str, outcome: Mapping[str, Any]) -> list[bytes]:
        owner = self._owners.pop(run_id)
        ended = {"type": "SUBAGENT_FINISHED", "subagentRunId": owner.tag, "outcome": outcome}
        return [*owner.close(), frame(ended)]

    def _run_started(self, event: RunStart) -> bytes:
        out: list[bytes] = []
        self._owner(event.run, out)
        return b"".join(out)

    def _run_finished(self, event: RunFinish) -> bytes:
        run_id, out = event.run.run_id, list[bytes]()
        owner = self._owner(event.run, out)
        if owner is self._root:
            return b""  # `Settled` follows, or the run continues.
        match event.termination:
            case None:
                waits = [] if event.waiting is None else [*event.waiting.tickets]
                outcome: dict[str, Any] = {"type": "suspended"}
                return b"".join(
                    [*out, *self._leave(run_id, {**outcome, "interruptIds": waits} if waits else outcome)]
                )
            case Failed(error, message):
                return b"".join([*out, *self._fail(run_id, message, error)])
            case Cancelled(reason):
                return b"".join([*out, *self._fail(run_id, reason, "cancelled")])
            case _:
                return b"".join([*out, *self._leave(run_id, {"type": "success"})])

    def _fail(self, run_id: str, message: str, code: str) -> list[bytes]:
        owner = self._owners.pop(run_id)
        failed = {"type": "SUBAGENT_ERROR", "subagentRunId": owner.tag, "message": message, "code": code}
        return [*owner.close(), frame(failed)]

    def _step_started(self, event: StepStart) -> bytes:
        out: list[bytes] = []
        out += self._owner(event.run, out).start_step(event.step)
        return b"".join(out)

    def _step_ended(self, event: StepEnd) -> bytes:
        out: list[bytes] = []
        out += self._owner(event.run, out).end_step(event.step)
        return b"".join(out)

    # -- answers ---------------------------------------------------------------------------------------------

    def _text(self, event: TextDelta) -> bytes:
        owner = self._owners.get(event.run.run_id)
        track = None if owner is None else owner.text
        if track is not None and track.is_open and track.message_id == event.message_id and not track.lags:
            grown = track.grown
            if event.offset == grown.size:  # The usual case.
                return track.extension(grown.add(event.offset, event.delta))
        return self._grow(event, lambda owner: owner.text_of(event.message_id, self._texts))

    def _reasoning(self, event: ReasoningDelta) -> bytes:
        return self._grow(event, lambda owner: owner.reasoning_of(event.message_id, self._texts))

    def _grow(self, event: TextDelta | ReasoningDelta, find: Callable[[Owner], TextTrack]) -> bytes:
        out: list[bytes] = []
        owner = self._owner(event.run, out)
        track = find(owner)
        try:
            out += owner.show(track, track.grown.add(event.offset, event.delta))
        except Rewritten:
            if owner is self._root:
                raise
            out += owner.restart(track)
        return b"".join(out)

    def _message(self, event: MessageAdded) -> bytes:
        message, out = event.message, list[bytes]()
        if message.visibility != "all" or message.covers is not None or message.rewrites is not None:
            return b""
        owner = self._owner(event.run, out)
        match message.role:
            case "user" if owner is self._root:
                out += self._input(message)
            case "assistant":
                self._answer(owner, message, out)
            case "tool":
                out += self._result(owner, message)
            case _:
                pass
        return b"".join(out)

    def _input(self, message: Message) -> list[bytes]:
        """The frames of an input that the client didn't send itself."""
        sent_as = message.producer.message_id if message.producer is not None else None
        message_id = sent_as or message.id
        if message_id in self._ids or not message.text:
            return []
        where = {"messageId": message_id}
        return [
            frame({"type": "TEXT_MESSAGE_START", **where, "role": "user"}),
            frame({"type": "TEXT_MESSAGE_CONTENT", **where, "delta": message.text}),
            frame({"type": "TEXT_MESSAGE_END", **where}),
        ]

    def _answer(self, owner: Owner, message: Message, out: list[bytes]) -> None:
        """Complete an answer: what of it the client lacks."""
        thoughts = "".join([part.text for part in message.content if isinstance(part, Thinking)])
        for text, track in (
            (thoughts, owner.reasoning_of(message.id, self._texts)),
            (message.text, owner.text_of(message.id, self._texts)),
        ):
            try:
                out += owner.show(track, track.grown.complete(text))
            except Rewritten:
                if owner is self._root:
                    raise
                out += owner.restart(track, text)
        for part in message.content:
            if isinstance(part, ServerTool):
                out.append(self._activities.server_tool(part, owner.tagged))
        for call in message.calls:
            self._complete_call(owner, call, out)
        out += owner.end_answer(message.id)

    def _complete_call(self, owner: Owner, call: ToolCall, out: list[bytes]) -> None:
        track = owner.calls.get(call.id) or CallTrack(call.name, Grown(self._arguments.get(call.id, "")))
        whole = arguments_text(call.arguments)
        if not _is_same(track.grown.text, call.arguments):
            new = track.grown.complete(whole)
            if call.id not in self._arguments or new:
                out += owner.start_call(call.id, track)
                out.append(owner.arguments(call.id, new))
        out += owner.end_call(call.id)

    def _result(self, owner: Owner, message: Message) -> list[bytes]:
        reply = message.reply
        if reply is None:
            return []
        out = [self._activities.surfaces(reply.call_id, reply.artifacts, owner.tagged)]
        if message.id in self._ids or reply.call_id in self._results:
            return out
        if owner is not self._root and reply.call_id not in owner.started:
            # The log of a run below isn't read: its stream may begin in the middle.
            out += owner.start_call(reply.call_id, CallTrack(reply.name, Grown()))
            out += owner.end_call(reply.call_id)
        shown: Any = shown_content(reply.content) if self.is_current else message.text
        event = {"type": "TOOL_CALL_RESULT", "messageId": message.id, "toolCallId": reply.call_id}
        return [*out, frame({**event, "content": shown, "role": "tool", **owner.tagged})]

    # -- calls -----------------------------------------------------------------------------------------------

    def _call_started(self, event: ToolCallStart) -> bytes:
        out: list[bytes] = []
        owner = self._owner(event.run, out)
        track = owner.calls[event.call_id] = CallTrack(event.name, Grown(self._arguments.get(event.call_id, "")))
        if event.call_id not in self._arguments:
            out += owner.start_call(event.call_id, track)
        return b"".join(out)

    def _call_grew(self, event: ToolCallDelta) -> bytes:
        out: list[bytes] = []
        owner = self._owner(event.run, out)
        track = owner.calls.get(event.call_id)
        if track is None:
            return b"".join(out)  # Its beginning was lost; the message has it.
        try:
            new = track.grown.add(event.offset, event.delta)
        except Rewritten:
            return b"".join(out)  # Written in another way; the message tells whether it is the same.
        if new:
            out += owner.start_call(event.call_id, track)
            out.append(owner.arguments(event.call_id, new))
        return b"".join(out)

    def _call_cancelled(self, event: ToolCallCancel) -> bytes:
        owner = self._owners.get(event.run.run_id)
        track = None if owner is None else owner.calls.get(event.call_id)
        if owner is None or track is None:
            return b""
        if owner is self._root:
            raise Rewritten  # Its message is sent again without it.
        return b"".join(owner.end_call(event.call_id))

    def _activity(self, event: ActivityEvent) -> bytes:
        out: list[bytes] = []
        owner = self._owner(event.run, out)
        return b"".join([*out, self._activities.encode(event, owner.tagged)])

    # -- the rest --------------------------------------------------------------------------------------------

    def _state(self, event: StateDelta) -> bytes:
        owner = self._owners.get(event.run.run_id)
        if owner is not self._root:
            return b""  # A run below has a state of its own.
        changes = [
            {"op": "add", "path": f"/{_escape(key)}", "value": value} for key, value in event.changes.items()
        ]
        return frame({"type": "STATE_DELTA", "delta": changes})

    def _inference(self, event: InferenceComplete) -> bytes:
        self.usage[event.model] = self.usage.get(event.model, Usage()) + event.usage
        return b""

    def _handoff(self, event: Handoff) -> bytes:
        return self._custom(event, "wakeful:handoff", {"from": event.from_agent, "to": event.to_agent})

    def _error(self, event: ErrorRaised) -> bytes:
        if event.retry_at is None:
            return b""  # The end of the run says so.
        value = {"error": event.error, "message": event.message, "retryAt": event.retry_at}
        return self._custom(event, "wakeful:retry", value)

    def _custom(self, event: Event, name: str, value: Any) -> bytes:
        out: list[bytes] = []
        owner = self._owner(event.run, out)
        return b"".join([*out, frame({"type": "CUSTOM", "name": name, "value": value, **owner.tagged})])

    _handlers: ClassVar[Mapping[type[Any], Callable[[Any, Any], bytes]]] = {
        RunStart: _run_started,
        RunFinish: _run_finished,
        StepStart: _step_started,
        StepEnd: _step_ended,
        TextDelta: _text,
        ReasoningDelta: _reasoning,
        MessageAdded: _message,
        ToolCallStart: _call_started,
        ToolCallDelta: _call_grew,
        ToolCallCancel: _call_cancelled,
        ToolCallSuspended: _activity,
        ToolOutput: _activity,
        ToolProgress: _activity,
        ActivitySnapshot: _activity,
        ActivityDelta: _activity,
        ServerToolUpdate: _activity,
        StateDelta: _state,
        InferenceComplete: _inference,
        Handoff: _handoff,
        ErrorRaised: _error,
    }


def _is_same(text: str, arguments: dict[str, Any]) -> bool:
    """Whether a JSON text has these arguments, however it is written."""
    try:
        return bool(text) and msgspec.json.decode(text) == arguments
    except (msgspec.DecodeError, RecursionError):
        return False


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
