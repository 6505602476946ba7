"""Events of a run as chunks of a UI message stream."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from ...types.content import Artifact, Base64, Citation, Image, Thinking, ToolReply
from ...types.events import (
    ActivityDelta,
    ActivitySnapshot,
    AnyEvent,
    Handoff,
    InferenceComplete,
    MessageAdded,
    ReasoningDelta,
    RunFinish,
    RunStart,
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
from ...types.runs import Blocked, Cancelled, Failed, Usage
from ...types.tickets import Ticket
from ...ui import ACTIVITY, MEDIA_TYPE
from ..follow import Settled
from ..growth import Grown, Rewritten
from ..json_patch import PatchError, apply_patch
from .messages import APPROVAL, QUESTION, output_of
from .track import Track, data_frame

__all__ = ["Encoder"]

_encode = msgspec.json.Encoder().encode

# A run below is shown again when its text has grown by so many characters.
GROWTH = 80


def _shown_activity(call_id: str, name: str, content: Any) -> bytes:
    """An activity of a call, whole; a surface is data of its own kind."""
    kind = f"data-{ACTIVITY}" if name.startswith(f"{ACTIVITY}:") else "data-activity"
    data = {"toolCallId": call_id, "name": name, "content": content}
    return data_frame({"type": kind, "id": f"{call_id}:{name}", "data": data})


def _shown_surfaces(call_id: str, artifacts: Sequence[Artifact]) -> bytes:
    found = [one for one in artifacts if one.media_type == MEDIA_TYPE]
    return b"".join([_shown_activity(call_id, one.name or "", one.content) for one in found])


class Encoder:
    """Encodes the events of one run from one request on, for a major version of the AI SDK.

    It is a function of the events and of the message that the client continues: `shown` are the calls in it,
    `results` those with a result, `asked` its requests for approval. Runs below are data of their own.
    """

    def __init__(
        self,
        run_id: str,
        version: int,
        *,
        message_id: str = "",
        client_tools: Collection[str] = (),
        shown: Collection[str] = (),
        results: Collection[str] = (),
        asked: Collection[str] = (),
    ) -> None:
        self.run_id = run_id
        self.version = version
        self.usage = Usage()
        self._client_tools = client_tools
        self._message_id = message_id or run_id
        self._shown = {*shown}
        self._results = results
        self._asked = asked
        self._text: Track | None = None
        self._reasoning: Track | None = None
        self._calls: dict[str, tuple[str, Grown]] = {}
        self._steps: set[int] = set()
        self._outputs: dict[str, str] = {}
        self._activities: dict[str, Any] = {}
        self._below: dict[str, dict[str, Any]] = {}
        self._below_shown: dict[str, int] = {}

    def begin(self, thread_id: str) -> bytes:
        """The first frame of a stream."""
        about = {"run": self.run_id, "thread": thread_id}
        return data_frame({"type": "start", "messageId": self._message_id, "messageMetadata": about})

    def encode(self, event: AnyEvent | Settled) -> bytes:
        """The frames of an event."""
        if isinstance(event, Settled):
            return self._finish(event)
        if event.run.run_id != self.run_id:
            return self._encode_below(event)
        handler = self._handlers.get(type(event))
        return b"" if handler is None else handler(self, event)

    # -- answers ---------------------------------------------------------------------------------------------

    def _text_grew(self, event: TextDelta) -> bytes:
        track = self._text
        if track is not None and track.is_open and track.message_id == event.message_id and not track.lags:
            grown = track.grown
            if event.offset == grown.size:  # The usual case.
                return b"%s%s}\n\n" % (track.head, _encode(grown.add(event.offset, event.delta)))
        return self._grow(self._text_of(event.message_id), event)

    def _reasoning_grew(self, event: ReasoningDelta) -> bytes:
        return self._grow(self._reasoning_of(event.message_id), event)

    def _text_of(self, message_id: str) -> Track:
        if self._text is None or self._text.message_id != message_id:
            self._text = Track(message_id, "text")
        return self._text

    def _reasoning_of(self, message_id: str) -> Track:
        if self._reasoning is None or self._reasoning.message_id != message_id:
            self._reasoning = Track(message_id, "reasoning")
        return self._reasoning

    def _grow(self, track: Track, event: TextDelta | ReasoningDelta) -> bytes:
        try:
            return self._show(track, track.grown.add(event.offset, event.delta))
        except Rewritten:
            reset = self._reset()
            return reset + self._show(track, track.grown.add(event.offset, event.delta))

    def _show(self, track: Track, new: str) -> bytes:
        if track.lags:
            track.lags, new = False, track.grown.text
        if not new:
            return b""
        first = b""
        if not track.is_open:
            other = self._reasoning if track is self._text else self._text
            first = (b"" if other is None else other.end()) + track.start()
        return b"%s%s%s}\n\n" % (first, track.head, _encode(new))

    def _reset(self) -> bytes:
        """Take back what was sent of the answer in progress; what is still right of it is sent again."""
        out = b""
        for track in (self._reasoning, self._text):
            if track is not None and track.starts:
                out += track.end()
                if self.version < 7:
                    out += data_frame({"type": "data-reset", "data": {"part": track.id}, "transient": True})
                track.lags = True
        self._calls = {}
        return out + data_frame({"type": "reset-step"}) if self.version >= 7 else out

    def _message(self, event: MessageAdded) -> bytes:
        message = event.message
        if message.visibility != "all" or message.covers is not None or message.rewrites is not None:
            return b""
        if message.role == "assistant":
            return self._answer(message)
        return self._result(message) if message.role == "tool" else b""

    def _answer(self, message: Message) -> bytes:
        thoughts = "".join([part.text for part in message.content if isinstance(part, Thinking)])
        wanted = [(self._reasoning_of(message.id), thoughts), (self._text_of(message.id), message.text)]
        try:
            out = [self._show(track, track.grown.complete(text)) for track, text in wanted]
        except Rewritten:
            out = [self._reset(), *[self._show(track, track.grown.complete(text)) for track, text in wanted]]
        out += [track.end() for track, _ in wanted]
        self._text = self._reasoning = None
        out += self._attachments(message)
        for call in message.calls:
            out.append(self._start_call(call.id, call.name) if call.id not in self._calls else b"")
            chunk = {"type": "tool-input-available", "toolCallId": call.id, "toolName": call.name}
            out.append(data_frame({**chunk, "input": call.arguments, **self._kind_of(call.name)}))
        self._calls = {}
        return b"".join(out)

    def _attachments(self, message: Message) -> list[bytes]:
        out: list[bytes] = []
        for place, part in enumerate(message.content):
            match part:
                case Citation(url=str(url)):
                    source = {"type": "source-url", "sourceId": f"{message.id}:{place}", "url": url}
                    out.append(data_frame({**source, "title": part.title} if part.title else source))
                case Image(Base64(media_type, data)):
                    url = f"data:{media_type};base64,{data}"
                    out.append(data_frame({"type": "file", "url": url, "mediaType": media_type}))
                case _:
                    pass
        return out

    # -- calls -----------------------------------------------------------------------------------------------

    def _kind_of(self, name: str) -> dict[str, bool]:
        """Fields that keep the client from running a tool that isn't its own."""
        return {} if name in self._client_tools else {"dynamic": True, "providerExecuted": True}

    def _start_call(self, call_id: str, name: str) -> bytes:
        self._shown.add(call_id)
        ended = [track.end() for track in (self._reasoning, self._text) if track is not None]
        chunk = {"type": "tool-input-start", "toolCallId": call_id, "toolName": name, **self._kind_of(name)}
        return b"".join([*ended, data_frame(chunk)])

    def _call_started(self, event: ToolCallStart) -> bytes:
        self._calls[event.call_id] = (event.name, Grown())
        return self._start_call(event.call_id, event.name)

    def _call_grew(self, event: ToolCallDelta) -> bytes:
        found = self._calls.get(event.call_id)
        if found is None:
            return b""  # Its beginning was lost; the message has it.
        try:
            new = found[1].add(event.offset, event.delta)
        except Rewritten:
            return b""  # The message has the input in any case.
        if not new:
            return b""
        return data_frame({"type": "tool-input-delta", "toolCallId": event.call_id, "inputTextDelta": new})

    def _call_cancelled(self, event: ToolCallCancel) -> bytes:
        if self._calls.pop(event.call_id, None) is None:
            return b""
        chunk: dict[str, Any] = {"type": "tool-input-error", "toolCallId": event.call_id, "toolName": event.name}
        return data_frame({**chunk, "input": {}, "errorText": event.reason, **self._kind_of(event.name)})

    def _result(self, message: Message) -> bytes:
        reply = message.reply
        if reply is None:
            return b""
        surfaces = _shown_surfaces(reply.call_id, reply.artifacts)
        return surfaces + self._result_of(reply, message)

    def _call_suspended(self, event: ToolCallSuspended) -> bytes:
        return _shown_surfaces(event.call_id, event.surfaces)

    def _result_of(self, reply: ToolReply, message: Message) -> bytes:
        if reply.call_id in self._results or reply.call_id not in self._shown:
            return b""  # A client that begins another message has no part for the result of an earlier call.
        self._outputs.pop(reply.call_id, None)
        own = {"toolCallId": reply.call_id, **self._kind_of(reply.name)}
        if reply.error is None:
            return data_frame({"type": "tool-output-available", **own, "output": output_of(reply, message)})
        if reply.error == "denied" and self.version >= 6:
            return data_frame({"type": "tool-output-denied", "toolCallId": reply.call_id})
        return data_frame({"type": "tool-output-error", **own, "errorText": message.text})

    def _output(self, event: ToolOutput) -> bytes:
        text = self._outputs[event.call_id] = self._outputs.get(event.call_id, "") + event.delta
        own = {"toolCallId": event.call_id, **self._kind_of(event.name)}
        return data_frame({"type": "tool-output-available", **own, "output": text, "preliminary": True})

    def _progress(self, event: ToolProgress) -> bytes:
        given = {"fraction": event.fraction, "done": event.done, "total": event.total, "message": event.message}
        content = {name: value for name, value in given.items() if value not in (None, "")}
        data = {**content, "toolCallId": event.call_id, "toolName": event.name}
        return data_frame({"type": "data-progress", "id": f"{event.call_id}:progress", "data": data})

    def _activity(self, event: ActivitySnapshot) -> bytes:
        shown_as = f"{event.call_id}:{event.activity}"
        content = self._activities[shown_as] = event.content
        return _shown_activity(event.call_id, event.activity, content)

    def _activity_changed(self, event: ActivityDelta) -> bytes:
        shown_as = f"{event.call_id}:{event.activity}"
        if shown_as not in self._activities:
            return b""
        try:
            content = apply_patch(self._activities[shown_as], event.patch)
        except PatchError:
            return b""
        return self._activity(
            ActivitySnapshot(event.run, event.seq, event.at, event.call_id, event.activity, content)
        )

    # -- steps, state ----------------------------------------------------------------------------------------

    def _step_started(self, event: StepStart) -> bytes:
        if event.step in self._steps:
            return b""
        self._steps.add(event.step)
        return data_frame({"type": "start-step"})

    def _step_ended(self, event: StepEnd) -> bytes:
        if event.step not in self._steps:
            return b""
        self._steps.discard(event.step)
        return data_frame({"type": "finish-step"})

    def _state(self, event: StateDelta) -> bytes:
        return data_frame({"type": "data-state", "data": event.changes})

    def _inference(self, event: InferenceComplete) -> bytes:
        self.usage += event.usage
        return b""

    def _handoff(self, event: Handoff) -> bytes:
        return data_frame({"type": "data-handoff", "data": {"from": event.from_agent, "to": event.to_agent}})

    # -- runs below ------------------------------------------------------------------------------------------

    def _encode_below(self, event: AnyEvent) -> bytes:
        """A run below as data with its text so far, which replaces what was shown of it."""
        run = event.run
        found = self._below.get(run.run_id)
        if found is None:
            found = {"run": run.run_id, "agent": run.agent_id, "status": "running", "text": ""}
            if run.parent_call_id is not None:
                found["toolCallId"] = run.parent_call_id
            self._below[run.run_id] = found
        match event:
            case RunStart():
                found["status"] = "running"
            case TextDelta() if event.offset <= len(found["text"]):
                found["text"] = found["text"][: event.offset] + event.delta
                if len(found["text"]) - self._below_shown.get(run.run_id, 0) < GROWTH and event.offset:
                    return b""
            case MessageAdded(message=message) if message.role == "assistant" and message.text:
                found["text"] = message.text
            case RunFinish():
                ended = event.termination
                failed = isinstance(ended, Failed | Cancelled | Blocked)
                found["status"] = "waiting" if ended is None else "failed" if failed else "done"
            case _:
                return b""
        self._below_shown[run.run_id] = len(found["text"])
        return data_frame({"type": "data-subagent", "id": run.run_id, "data": found})

    # -- the end ---------------------------------------------------------------------------------------------

    def _finish(self, end: Settled) -> bytes:
        out = [track.end() for track in (self._reasoning, self._text) if track is not None]
        out += [self._ask(ticket) for ticket in end.tickets if ticket.id not in self._asked]
        out += [data_frame({"type": "finish-step"}) for _ in self._steps]
        match end.finish.termination:
            case Failed(_, message):
                out.append(data_frame({"type": "error", "errorText": message}))
                return b"".join(out)
            case Cancelled(reason):
                out.append(
                    data_frame({"type": "abort", "reason": reason} if self.version >= 6 else {"type": "abort"})
                )
                return b"".join(out)
            case Blocked():
                reason = "content-filter"
            case None:
                reason = "tool-calls"
            case _:
                reason = "length" if end.result is not None and end.result.truncated else "stop"
        used = {"inputTokens": self.usage.input_tokens, "outputTokens": self.usage.output_tokens}
        out.append(data_frame({"type": "finish", "finishReason": reason, "messageMetadata": {"usage": used}}))
        return b"".join(out)

    def _ask(self, ticket: Ticket) -> bytes:
        """The chunk of an open ticket; none for a client tool, whose call is one."""
        if ticket.asked_by == "client":
            return b""
        is_own = ticket.call_id in self._shown
        if self.version >= 6 and is_own and not ticket.asks_value:
            return data_frame(
                {"type": "tool-approval-request", "approvalId": ticket.id, "toolCallId": ticket.call_id}
            )
        data = {
            "ticket": ticket.id,
            "toolCallId": ticket.call_id,
            "tool": ticket.tool,
            "message": ticket.message,
            "arguments": ticket.arguments,
            "schema": ticket.schema,
        }
        return data_frame({"type": QUESTION if ticket.asks_value else APPROVAL, "id": ticket.id, "data": data})

    _handlers: ClassVar[Mapping[type[Any], Callable[[Any, Any], bytes]]] = {
        TextDelta: _text_grew,
        ReasoningDelta: _reasoning_grew,
        MessageAdded: _message,
        ToolCallStart: _call_started,
        ToolCallDelta: _call_grew,
        ToolCallCancel: _call_cancelled,
        ToolCallSuspended: _call_suspended,
        ToolOutput: _output,
        ToolProgress: _progress,
        ActivitySnapshot: _activity,
        ActivityDelta: _activity_changed,
        StepStart: _step_started,
        StepEnd: _step_ended,
        StateDelta: _state,
        InferenceComplete: _inference,
        Handoff: _handoff,
    }
