"""Events of a run as chunks of Chat Completions."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from ...types.events import AnyEvent, InferenceComplete
from ...types.runs import Blocked, Cancelled, Failed, Usage
from ...types.tickets import Ticket
from ..follow import AnswerText, Settled
from ..growth import Rewritten

__all__ = ["ChatEncoder", "ChatFailed", "completion_of"]


class ChatFailed(Exception):
    """A run failed, or its answer can't be continued on a stream that has another beginning."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class ChatEncoder:
    """Encodes the events of one run from one request on.

    It is a function of the events alone, so that a stream read from the log has the same text. Answers of several
    steps are joined by an empty line. Events of runs below it are left out.
    """

    def __init__(self, run_id: str, model: str) -> None:
        self.head = {"id": f"chatcmpl-{run_id}", "created": int(time.time()), "model": model}
        self.text = ""
        self.calls: list[dict[str, Any]] = []
        self.finish_reason = "stop"
        self.usage = Usage()
        self.waits: dict[str, Any] = {}
        self._answer = AnswerText()
        self._run_id = run_id
        self._last_message = ""

    def encode(self, event: AnyEvent | Settled) -> list[dict[str, Any]]:
        """The chunks of an event; raises `ChatFailed` for a run that failed."""
        if isinstance(event, Settled):
            return self._finish(event)
        if event.run.run_id != self._run_id:
            return []
        if isinstance(event, InferenceComplete):
            self.usage += event.usage
        try:
            text = self._answer.apply(event)
        except Rewritten:
            raise ChatFailed(
                "the answer began again with another text; ask again with the same Idempotency-Key to read it",
                "answer_rewritten",
            ) from None
        if not text:
            return []
        if self.text and self._answer.message_id != self._last_message:
            text = f"\n\n{text}"
        self._last_message = self._answer.message_id
        return self._say(text)

    def _say(self, text: str) -> list[dict[str, Any]]:
        first = {} if self.text else {"role": "assistant"}
        self.text += text
        return [self._chunk({**first, "content": text})]

    def _finish(self, end: Settled) -> list[dict[str, Any]]:
        match end.finish.termination:
            case Failed(error, message):
                raise ChatFailed(f"the run failed: {message}", error)
            case Cancelled(reason):
                raise ChatFailed(f"the run was cancelled: {reason}", "cancelled")
            case Blocked():
                self.finish_reason = "content_filter"
            case _:
                self.finish_reason = "length" if end.result is not None and end.result.truncated else "stop"
        asked = [ticket for ticket in end.tickets if ticket.asked_by == "client"]
        found: list[dict[str, Any]] = []
        if asked:
            self.calls = [_call(place, ticket) for place, ticket in enumerate(asked)]
            self.finish_reason = "tool_calls"
            first = {} if self.text else {"role": "assistant", "content": None}
            found.append(self._chunk({**first, "tool_calls": self.calls}))
        elif end.tickets:
            self.waits = {"run": self._run_id, "tickets": [ticket.id for ticket in end.tickets]}
            note = _waiting(end.tickets)
            found += self._say(f"\n\n{note}" if self.text else note)
        elif not self.text:
            found += [self._chunk({"role": "assistant", "content": ""})]
        last = self._chunk({}, self.finish_reason)
        return [*found, {**last, "wakeful": self.waits} if self.waits else last]

    def _chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return {**self.head, "object": "chat.completion.chunk", "choices": [choice]}

    def usage_chunk(self) -> dict[str, Any]:
        """The last chunk, with the usage alone."""
        return {**self.head, "object": "chat.completion.chunk", "choices": [], "usage": _usage(self.usage)}


def completion_of(encoder: ChatEncoder) -> dict[str, Any]:
    """The whole answer of a run whose events were encoded."""
    message: dict[str, Any] = {"role": "assistant", "content": encoder.text or None, "refusal": None}
    if encoder.calls:
        message["tool_calls"] = [
            {name: value for name, value in call.items() if name != "index"} for call in encoder.calls
        ]
    elif message["content"] is None:
        message["content"] = ""
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": encoder.finish_reason}
    found = {**encoder.head, "object": "chat.completion", "choices": [choice], "usage": _usage(encoder.usage)}
    return {**found, "wakeful": encoder.waits} if encoder.waits else found


def _call(place: int, ticket: Ticket) -> dict[str, Any]:
    """A call of a client's tool. Its id is that of the ticket, so that its result is the answer."""
    function = {"name": ticket.tool, "arguments": json.dumps(ticket.arguments, ensure_ascii=False)}
    return {"index": place, "id": ticket.id, "type": "function", "function": function}


def _waiting(tickets: Sequence[Ticket]) -> str:
    """A sentence about questions that this API can't carry."""
    asked = "; ".join([ticket.message or f"may {ticket.tool} be called?" for ticket in tickets])
    ids = ", ".join([ticket.id for ticket in tickets])
    return f"Waiting for a person: {asked} (ticket {ids})"


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
