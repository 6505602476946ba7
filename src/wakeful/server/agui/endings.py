"""The end of a run as an event of AG-UI: its outcome, or its interrupts."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from ...errors import WakefulError
from ...types.runs import Blocked, Cancelled, Failed, Usage
from ...types.tickets import Ticket
from ..follow import Settled
from .errors import run_error

__all__ = ["ended_run", "interrupt_of"]

_REASONS = {
    "tool": "input_required",
    "remote": "input_required",
    "unknown": "confirmation",
    "guardrail": "confirmation",
}


def ended_run(
    end: Settled,
    thread_id: str,
    run_id: str,
    usage: Mapping[str, Usage],
    tags: Mapping[str, str],
    *,
    is_current: bool,
) -> dict[str, Any]:
    """The last event of a run. `tags` are the subagents by their runs."""
    counted = {"usage": [_usage(model, each) for model, each in usage.items()]} if usage and is_current else {}
    match end.finish.termination:
        case Failed(error, message):
            return {**run_error(message, error), **counted}
        case Blocked(reason):
            return {**run_error(reason, "blocked"), **counted}
        case termination:
            pass
    finished: dict[str, Any] = {"type": "RUN_FINISHED", "threadId": thread_id, "runId": run_id, **counted}
    asked = [ticket for ticket in end.tickets if ticket.asked_by != "client"]
    if asked:
        interrupts = [interrupt_of(ticket, tags) for ticket in asked]
        return {**finished, "outcome": {"type": "interrupt", "interrupts": interrupts}}
    if (output := _output(end)) is not None:
        finished["result"] = output
    if not is_current:
        return finished  # Versions before 1.0 refuse other outcomes, and fields of this one.
    if isinstance(termination, Cancelled):
        return {**finished, "outcome": {"type": "cancelled"}}
    outcome: dict[str, Any] = {"type": "success"}
    if pending := [ticket.call_id for ticket in end.tickets]:
        outcome["pendingToolCallIds"] = pending
    return {**finished, "outcome": outcome}


def _output(end: Settled) -> Any:
    """The typed output of a run; None if it has none, or a text."""
    if end.result is None:
        return None
    try:
        output = end.result.output
    except WakefulError:
        return None
    return None if isinstance(output, str) else msgspec.to_builtins(output, enc_hook=_dump)


def _dump(value: Any) -> Any:
    return value.model_dump(mode="json", by_alias=True)


def interrupt_of(ticket: Ticket, tags: Mapping[str, str]) -> dict[str, Any]:
    """A ticket as an interrupt of the same id."""
    found: dict[str, Any] = {
        "id": ticket.id,
        "reason": _REASONS.get(ticket.asked_by, "tool_call"),
        "message": ticket.message or f"May {ticket.tool} be called?",
        "toolCallId": ticket.call_id,
        "responseSchema": _schema(ticket),
    }
    if ticket.deadline is not None:
        found["expiresAt"] = datetime.fromtimestamp(ticket.deadline / 1000, UTC).isoformat().replace("+00:00", "Z")
    if ticket.run_id in tags:
        found["subagentRunId"] = tags[ticket.run_id]
    return found


def _schema(ticket: Ticket) -> dict[str, Any]:
    """The schema of a resume's payload."""
    if ticket.asks_value:
        return ticket.schema or {}
    fields: dict[str, Any] = {"approved": {"type": "boolean"}, "reason": {"type": "string"}}
    if "arguments" in ticket.accepts:
        fields["arguments"] = {"type": "object"}
    return {"type": "object", "properties": fields, "required": ["approved"]}


def _usage(model: str, usage: Usage) -> dict[str, Any]:
    return {
        "model": model,
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "totalTokens": usage.total_tokens,
        "reasoningTokens": usage.reasoning_tokens,
        "cachedInputTokens": usage.cached_tokens,
        "cacheWriteInputTokens": usage.cache_write_tokens,
    }
