"""Events of a run as session updates of ACP."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

import msgspec

from ...types.content import Part, ServerTool, Thinking, ToolReply
from ...types.events import (
    AnyEvent,
    Handoff,
    MessageAdded,
    ReasoningDelta,
    ServerToolUpdate,
    StateDelta,
    TextDelta,
    ToolCallCancel,
    ToolCallReady,
    ToolCallResumed,
    ToolCallStart,
    ToolCallSuspended,
    ToolOutput,
    ToolProgress,
)
from ...types.messages import Message
from ..growth import Grown, Rewritten
from .content import Block, blocks_of, text_block

__all__ = ["PLAN", "UpdateEncoder", "plan_of"]

Update = dict[str, Any]

PLAN = "plan"
"""The state key whose value is shown as the plan: a list of `{"content", "status", "priority"}`."""

# The most characters of a running tool's output that are shown; an update replaces the one before.
TAIL = 4000

_STATUSES = ("pending", "in_progress", "completed")
_PRIORITIES = ("high", "medium", "low")


class UpdateEncoder:
    """Encodes the events of one run and of those below it: a function of the events alone.

    `kinds` are the kinds of tools by name. The client has its own prompts: messages whose sender's ids begin with
    `own`, and those in `sent`.
    An answer that begins again with another text becomes a message of its own.
    """

    def __init__(self, run_id: str, kinds: Mapping[str, str], own: str = "", sent: Collection[str] = ()) -> None:
        self._run_id = run_id
        self._kinds = kinds
        self._own = own
        self._sent_ids = sent
        self._texts: dict[str, _Streamed] = {}
        self._thoughts: dict[str, _Streamed] = {}
        # Whether each call's arguments were sent.
        self._calls: dict[str, bool] = {}
        self._outputs: dict[str, str] = {}

    def encode(self, event: AnyEvent) -> list[Update]:
        """The updates of an event."""
        if event.run.run_id != self._run_id:
            return self._child(event)
        match event:
            case TextDelta():
                return self._delta(self._texts, "agent_message_chunk", event)
            case ReasoningDelta():
                return self._delta(self._thoughts, "agent_thought_chunk", event)
            case MessageAdded(message=message):
                return self.message(message)
            case ServerToolUpdate(tool=tool):
                return [self._server_tool(tool)]
            case StateDelta(changes=changes) if PLAN in changes:
                return plan_of(changes[PLAN])
            case Handoff(to_agent=agent):
                return [{"sessionUpdate": "current_mode_update", "currentModeId": agent}]
            case _:
                return self._call(event)

    def message(self, message: Message) -> list[Update]:
        """The updates of a message of the log, apart from what was streamed of it."""
        if message.visibility != "all" or message.covers is not None:
            return []
        if message.role == "user":
            if self._is_own(message):
                return []
            return [_chunk("user_message_chunk", block, message.id) for block in blocks_of(message.content)]
        if message.reply is not None:
            return [_result(message.reply)]
        return self._answer(message) if message.role == "assistant" else []

    def _is_own(self, message: Message) -> bool:
        ident = "" if message.producer is None else message.producer.message_id or ""
        return message.id in self._sent_ids or (bool(self._own) and ident.startswith(self._own))

    def _answer(self, message: Message) -> list[Update]:
        thought = "\n\n".join([part.text for part in message.content if isinstance(part, Thinking) and part.text])
        found = self._rest(self._thoughts, "agent_thought_chunk", message.id, thought)
        found += [self._server_tool(part) for part in message.content if isinstance(part, ServerTool)]
        found += self._rest(self._texts, "agent_message_chunk", message.id, message.text)
        others = [block for block in blocks_of(message.content) if block["type"] != "text"]
        found += [_chunk("agent_message_chunk", block, message.id) for block in others]
        for call in message.calls:
            found += self._started(call.id, call.name, call.arguments)
        return found

    # -- text ------------------------------------------------------------------------------------------------

    def _delta(self, streams: dict[str, _Streamed], kind: str, event: TextDelta | ReasoningDelta) -> list[Update]:
        stream = streams.setdefault(event.message_id, _Streamed(event.message_id))
        new = stream.add(event.offset, event.delta)
        return [_chunk(kind, text_block(new), stream.id)] if new else []

    def _rest(self, streams: dict[str, _Streamed], kind: str, message_id: str, text: str) -> list[Update]:
        stream = streams.pop(message_id, None) or _Streamed(message_id)
        new = stream.complete(text)
        return [_chunk(kind, text_block(new), stream.id)] if new else []

    # -- calls -----------------------------------------------------------------------------------------------

    def _call(self, event: AnyEvent) -> list[Update]:
        match event:
            case ToolCallStart():
                return self._started(event.call_id, event.name, None)
            case ToolCallReady():
                found = self._started(event.call_id, event.name, event.arguments)
                return [*found, _call_update(event.call_id, status="in_progress")]
            case ToolCallSuspended():
                return [_call_update(event.call_id, status="pending")]
            case ToolCallResumed(decision=decision) if decision.verdict == "approve":
                return [_call_update(event.call_id, status="in_progress")]
            case ToolCallCancel():
                return [_call_update(event.call_id, status="failed", content=[_content(text_block(event.reason))])]
            case ToolOutput():
                shown = (self._outputs.get(event.call_id, "") + event.delta)[-TAIL:]
                self._outputs[event.call_id] = shown
                return [_call_update(event.call_id, content=[_content(text_block(shown))])]
            case ToolProgress() if event.call_id:
                return [_call_update(event.call_id, content=[_content(text_block(_progress(event)))])]
            case _:
                return []

    def _started(self, call_id: str, name: str, arguments: dict[str, Any] | None) -> list[Update]:
        given = {} if arguments is None else {"rawInput": arguments, **_locations(arguments)}
        if call_id in self._calls:
            is_new = bool(given) and not self._calls[call_id]
            self._calls[call_id] = self._calls[call_id] or bool(given)
            return [_call_update(call_id, **given)] if is_new else []
        self._calls[call_id] = bool(given)
        kind = self._kinds.get(name, "other")
        head = {"sessionUpdate": "tool_call", "toolCallId": call_id, "title": name, "kind": kind}
        return [{**head, "status": "pending", **given}]

    def _server_tool(self, tool: ServerTool) -> Update:
        is_new = tool.id not in self._calls
        self._calls[tool.id] = True
        status = {"running": "in_progress", "done": "completed", "failed": "failed"}[tool.status]
        fields = {"title": tool.name, "status": status, "rawInput": tool.input, "rawOutput": tool.result}
        given = {name: value for name, value in fields.items() if value is not None}
        if is_new:
            kind = "search" if tool.name == "web_search" else "other"
            return {"sessionUpdate": "tool_call", "toolCallId": tool.id, "kind": kind, **given}
        return _call_update(tool.id, **given)

    def _child(self, event: AnyEvent) -> list[Update]:
        """The last answer of a run directly below, as the content of the call that started it."""
        run = event.run
        if run.parent_run_id != self._run_id or run.parent_call_id is None:
            return []
        if not isinstance(event, MessageAdded) or event.message.role != "assistant" or not event.message.text:
            return []
        return [_call_update(run.parent_call_id, content=[_content(text_block(event.message.text))])]


class _Streamed:
    """A text as the client was sent it. One that begins again differently becomes a message of its own."""

    def __init__(self, message_id: str) -> None:
        self._message_id = message_id
        self._versions = 0
        self._grown = Grown()

    @property
    def id(self) -> str:
        return f"{self._message_id}.{self._versions}" if self._versions else self._message_id

    def add(self, offset: int, delta: str) -> str:
        try:
            return self._grown.add(offset, delta)
        except Rewritten:
            return self._restart(self._grown.text + delta[self._grown.size - offset :])

    def complete(self, text: str) -> str:
        try:
            return self._grown.complete(text)
        except Rewritten:
            return self._restart(text)

    def _restart(self, text: str) -> str:
        self._versions += 1
        self._grown = Grown(text)
        return text


def _chunk(kind: str, block: Block, message_id: str) -> Update:
    return {"sessionUpdate": kind, "content": block, "messageId": message_id}


def _content(block: Block) -> dict[str, Any]:
    return {"type": "content", "content": block}


def _call_update(call_id: str, **fields: Any) -> Update:
    return {"sessionUpdate": "tool_call_update", "toolCallId": call_id, **fields}


def _result(reply: ToolReply) -> Update:
    blocks: Sequence[Block] = blocks_of(cast(Sequence[Part], reply.content))
    data = {} if reply.data is msgspec.UNSET else {"rawOutput": msgspec.json.decode(reply.data)}
    status = "completed" if reply.error is None else "failed"
    return _call_update(reply.call_id, status=status, content=[_content(block) for block in blocks], **data)


def _locations(arguments: Mapping[str, Any]) -> dict[str, Any]:
    path, line = arguments.get("path"), arguments.get("line")
    if not isinstance(path, str) or not path.startswith("/"):
        return {}
    return {"locations": [{"path": path, **({"line": line} if type(line) is int and line >= 0 else {})}]}


def _progress(event: ToolProgress) -> str:
    parts = [event.message] if event.message else []
    if event.done is not None:
        parts.append(f"{event.done} of {event.total}" if event.total is not None else str(event.done))
    elif event.fraction is not None:
        parts.append(f"{event.fraction:.0%}")
    return ", ".join(parts)


def plan_of(value: Any) -> list[Update]:
    """The plan in a state value; values of another shape are no plan."""
    if not isinstance(value, list):
        return []
    entries: list[dict[str, Any]] = []
    for each in cast(list[Any], value):
        match each:
            case {"content": str(content), **rest}:
                status, priority = rest.get("status", "pending"), rest.get("priority", "medium")
            case _:
                return []
        if status not in _STATUSES or priority not in _PRIORITIES:
            return []
        entries.append({"content": content, "status": status, "priority": priority})
    return [{"sessionUpdate": "plan", "entries": entries}]
