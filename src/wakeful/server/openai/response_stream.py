"""Events of a run as a response and its stream.

A frame's `sequence_number` is made of the item's place and of the offset in its text, so that it is the same
whether the frame comes live or from the log: numbers increase, and are not dense.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from ...types.events import AnyEvent, InferenceComplete, RunStart
from ...types.runs import Blocked, Cancelled, Failed, Usage
from ...types.tickets import Ticket
from ..follow import AnswerText, Followed, Settled
from ..growth import Rewritten
from .response_ids import response_id

__all__ = ["APPROVE", "ASK", "Frame", "ResponseEncoder"]

Item = dict[str, Any]

# The name of the function by which a tool's question is asked.
ASK = "wakeful_ask"
# The label of the server whose calls wait for approval.
APPROVE = "wakeful"

# A number has 17 bits for the item, one for what follows its text, and 35 for the offset.
_ITEM = 1 << 36
_AFTER_TEXT = 1 << 35
_FIRST_OFFSET = 2


class Frame(Struct, frozen=True):
    """One event of a stream. `start` is the offset of a delta's text in its item."""

    type: str
    number: int
    fields: dict[str, Any]
    start: int | None = None

    def after(self, number: int) -> Frame | None:
        """The part of it that a reader of a number lacks; None if it has all."""
        if self.number <= number:
            return None
        if self.start is None:
            return self
        has = (number & (_ITEM - 1)) - _FIRST_OFFSET - self.start if number >> 36 == self.number >> 36 else 0
        if has <= 0:
            return self
        return Frame(self.type, self.number, {**self.fields, "delta": self.fields["delta"][has:]})


class ResponseEncoder:
    """Encodes the events of one run from one request on, and keeps the response as it is by then.

    It is a function of the events alone. Reasoning, calls of the agent's own tools and events of runs below it are
    left out.
    """

    def __init__(self, run: Followed, model: str, *, created_at: int, previous: str | None = None) -> None:
        self.id = response_id(run)
        self._run_id = run.run_id
        self._model = model
        self._created_at = created_at // 1000
        self._previous = previous
        self._answer = AnswerText()
        self._open: Item | None = None
        self._text = ""
        self.output: list[Item] = []
        self.status = "queued"
        self.error: dict[str, Any] | None = None
        self.incomplete: dict[str, Any] | None = None
        self.usage = Usage()
        self.last_seq = 0

    def begin(self) -> list[Frame]:
        """The first frames of a stream."""
        self.status = "in_progress"
        shown = {"response": self.response()}
        return [Frame("response.created", 0, shown), Frame("response.in_progress", 1, shown)]

    def encode(self, event: AnyEvent | Settled) -> list[Frame]:
        """The frames of an event."""
        if isinstance(event, Settled):
            return self._finish(event)
        if event.run.run_id != self._run_id:
            return []
        self.last_seq = event.seq
        match event:
            case RunStart():
                self.status = "in_progress"
            case InferenceComplete():
                self.usage += event.usage
            case _:
                return self._encode_text(event)
        return []

    def _encode_text(self, event: AnyEvent) -> list[Frame]:
        try:
            text = self._answer.apply(event)
        except Rewritten:
            found = self._close("incomplete")
            self._answer = AnswerText()
            return [*found, *self._encode_text(event)]
        if not text:
            return []
        item_id = f"msg_{self._answer.message_id}"
        found: list[Frame] = []
        if self._open is None or self._open["id"] != item_id:
            found = [*self._close(), *self._open_message(item_id)]
        start, place = len(self._text), len(self.output) - 1
        self._text += text
        number = (place + 1) * _ITEM + _FIRST_OFFSET + len(self._text)
        delta: Item = {
            "item_id": item_id,
            "output_index": place,
            "content_index": 0,
            "delta": text,
            "logprobs": [],
        }
        return [*found, Frame("response.output_text.delta", number, delta, start)]

    def _open_message(self, item_id: str) -> list[Frame]:
        self._open, self._text = _message(item_id, "in_progress", []), ""
        self.output.append(self._open)
        place = len(self.output) - 1
        part = {"item_id": item_id, "output_index": place, "content_index": 0, "part": _part("")}
        number = (place + 1) * _ITEM
        return [
            Frame("response.output_item.added", number, {"output_index": place, "item": self._open}),
            Frame("response.content_part.added", number + 1, part),
        ]

    def _close(self, status: str = "completed") -> list[Frame]:
        """The last frames of the message that is open, if any."""
        if self._open is None:
            return []
        item_id, place, text = self._open["id"], len(self.output) - 1, self._text
        self.output[place] = _message(item_id, status, [_part(text)])
        self._open = None
        where = {"item_id": item_id, "output_index": place, "content_index": 0}
        number = (place + 1) * _ITEM + _AFTER_TEXT
        return [
            Frame("response.output_text.done", number, {**where, "text": text, "logprobs": []}),
            Frame("response.content_part.done", number + 1, {**where, "part": _part(text)}),
            Frame("response.output_item.done", number + 2, {"output_index": place, "item": self.output[place]}),
        ]

    def _finish(self, end: Settled) -> list[Frame]:
        found = self._close()
        for ticket in end.tickets:
            found += self._ask(ticket)
        self.status, kind = "completed", "response.completed"
        match end.finish.termination:
            case Failed(_, message):
                self.status, kind = "failed", "response.failed"
                self.error = {"code": "server_error", "message": message}
            case Cancelled():
                self.status, kind = "cancelled", "response.incomplete"
            case Blocked():
                self.status, kind = "incomplete", "response.incomplete"
                self.incomplete = {"reason": "content_filter"}
            case _ if end.result is not None and end.result.truncated:
                self.status, kind = "incomplete", "response.incomplete"
                self.incomplete = {"reason": "max_output_tokens"}
            case _:
                pass
        number = (len(self.output) + 1) * _ITEM
        return [*found, Frame(kind, number, {"response": self.response(end.finish.at)})]

    def _ask(self, ticket: Ticket) -> list[Frame]:
        """The item of a ticket."""
        item, place = _item_of(ticket), len(self.output)
        self.output.append(item)
        number = (place + 1) * _ITEM
        where = {"output_index": place}
        if item["type"] != "function_call":
            added, done = Frame("response.output_item.added", number, {**where, "item": item}), number + 1
            return [added, Frame("response.output_item.done", done, {**where, "item": item})]
        started = {**item, "status": "in_progress", "arguments": ""}
        arguments, call = item["arguments"], {**where, "item_id": item["id"]}
        kind = "response.function_call_arguments"
        return [
            Frame("response.output_item.added", number, {**where, "item": started}),
            Frame(f"{kind}.delta", number + 1, {**call, "delta": arguments}),
            Frame(f"{kind}.done", number + 2, {**call, "name": item["name"], "arguments": arguments}),
            Frame("response.output_item.done", number + 3, {**where, "item": item}),
        ]

    def response(self, completed_at: int | None = None) -> dict[str, Any]:
        """The response as it is by now."""
        return {
            **_DEFAULTS,
            "id": self.id,
            "created_at": self._created_at,
            "completed_at": None if completed_at is None else completed_at // 1000,
            "status": self.status,
            "model": self._model,
            "previous_response_id": self._previous,
            "output": [*self.output],
            "error": self.error,
            "incomplete_details": self.incomplete,
            "usage": None if completed_at is None else _usage(self.usage),
        }


_DEFAULTS: dict[str, Any] = {
    "object": "response",
    "background": False,
    "frequency_penalty": 0,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "presence_penalty": 0,
    "prompt_cache_key": None,
    "reasoning": None,
    "safety_identifier": None,
    "service_tier": "default",
    "store": True,
    "temperature": 1,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1,
    "truncation": "disabled",
    "user": None,
}


def _message(item_id: str, status: str, content: Sequence[Item]) -> Item:
    return {"type": "message", "id": item_id, "status": status, "role": "assistant", "content": [*content]}


def _part(text: str) -> Item:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _item_of(ticket: Ticket) -> Item:
    """A ticket as an item. Its id is the ticket's, so that an answer names it."""
    match ticket.asked_by:
        case "client":
            return _function_call(ticket, ticket.tool, ticket.arguments)
        case "tool":
            question = {"question": ticket.message, "schema": ticket.schema, "tool": ticket.tool}
            return _function_call(ticket, ASK, question)
        case _:
            return {
                "type": "mcp_approval_request",
                "id": ticket.id,
                "server_label": APPROVE,
                "name": ticket.tool,
                "arguments": json.dumps(ticket.arguments, ensure_ascii=False),
            }


def _function_call(ticket: Ticket, name: str, arguments: dict[str, Any]) -> Item:
    return {
        "type": "function_call",
        "id": f"fc_{ticket.id}",
        "call_id": ticket.id,
        "name": name,
        "arguments": json.dumps(arguments, ensure_ascii=False),
        "status": "completed",
    }


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total_tokens,
    }
