"""Requests of front ends, whose messages have ids: each message is taken once, and each decision, too."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import msgspec

from ..dispatch import first_item
from ..types.content import Content, Text
from ..types.inbox import Request
from ..types.tickets import Decision, Ticket
from .follow import Followed, start_of
from .operations import Call
from .operations.threads import thread_of

__all__ = ["decision_id", "followed_request", "input_of", "last_run", "open_tickets", "request_of"]


def request_of(call: Call, thread: str, message_id: str, content: Sequence[Content]) -> Request:
    """The request of a message of a client: one that is sent again starts nothing, and leads to its run.

    The same id with another content is refused.
    """
    owner = sha256(msgspec.json.encode([call.caller.id, thread, message_id])).hexdigest()
    return Request(f"message:{owner[:32]}", sha256(msgspec.json.encode(content)).hexdigest()[:32])


async def followed_request(call: Call, request: Request) -> Followed | None:
    """The run that a request started before; None if it is new. Raises `RequestReused` if it asks for more."""
    found = await first_item(call.runtime.store, request)
    if found is None:
        return None
    run_id = found.taken_by or found.run_id
    return None if run_id is None else await start_of(call.runtime, run_id, found.thread_id)


async def last_run(call: Call, thread: str, action: str | None = None) -> Followed | None:
    """The last run of a thread of the caller; None if the thread has had no run."""
    found = await thread_of(call, thread, action)
    return None if found.last_run_id is None else await start_of(call.runtime, found.last_run_id, thread)


async def open_tickets(call: Call, thread: str) -> list[Ticket]:
    """The open tickets of a thread and of the runs below it."""
    if await call.runtime.store.thread(thread) is None:
        return []
    return [*await call.runtime.tickets.list(thread=thread, status="open")]


def decision_id(protocol: str, decision: Decision) -> str:
    """An id that is the same whenever a client sends this decision."""
    given = [decision.verdict, decision.mode, decision.value, decision.reason]
    digest = sha256(msgspec.json.encode(given)).hexdigest()[:16]
    return f"{protocol}:{decision.ticket_id}:{digest}"


def input_of(parts: Sequence[Content]) -> Any:
    """A run's input: the text if there is nothing else, as agents with a typed input read it."""
    texts = [part.text for part in parts if isinstance(part, Text)]
    return "\n\n".join(texts) if len(texts) == len(parts) else list(parts)
