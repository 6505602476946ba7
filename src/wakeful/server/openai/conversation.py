"""Conversations of Chat Completions: which thread a request continues, and what of its messages is new.

A request has the whole conversation. The thread that it continues has an id made of the agent, the caller and the
messages up to one of its answers, so that any server finds it again; its log is compared with the request.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Literal

import msgspec
from msgspec import Struct

from ...errors import UsageError
from ...types.content import Content, Text
from ...types.messages import Message
from ..operations import Call
from .content import parts_of, plain_text

__all__ = ["ChatMessage", "Conversation", "continued_thread", "split"]

# How many answers before the last one are tried as the beginning of a known thread.
TRIED = 8


class ChatMessage(Struct, frozen=True, kw_only=True):
    """One message of a request."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[dict[str, Any]] | None = None
    tool_call_id: str | None = None


class Conversation(Struct, frozen=True):
    """A request's messages: those up to the last answer, the input after it, and results of client tools."""

    past: Sequence[ChatMessage]
    input: tuple[Content, ...]
    notes: Sequence[ChatMessage]
    replies: Sequence[ChatMessage]

    @property
    def history(self) -> list[Message]:
        """The past as messages of a thread. Calls and their results are left out: nothing could resume them."""
        return [
            Message("", "system" if each.role in ("system", "developer") else each.role, parts)
            for each in (*self.past, *self.notes)
            if each.role != "tool" and (parts := parts_of(each.content))
        ]


def split(messages: Sequence[ChatMessage]) -> Conversation:
    """Split a request's messages at the last answer."""
    last = max((place for place, each in enumerate(messages) if each.role == "assistant"), default=-1)
    past, new = messages[: last + 1], messages[last + 1 :]
    turns = [each for each in new if each.role == "user"]
    parts = tuple([part for each in turns for part in parts_of(each.content)])
    replies = [each for each in new if each.role == "tool"]
    if not parts and not replies:
        raise UsageError("the last message is from the user, or a tool's result; there is nothing to answer")
    notes = [each for each in new if each.role in ("system", "developer")]
    return Conversation(past, parts, notes, replies)


async def continued_thread(call: Call, agent: str, past: Sequence[ChatMessage]) -> tuple[str | None, bool]:
    """The id of the thread for a request with this past, and whether that thread has it already.

    None stands for a new thread with any id: the conversation begins, or its thread has gone on without it.
    """
    turns = _turns([(each.role, plain_text(each.content)) for each in past])
    ends = [place + 1 for place, (role, _) in enumerate(turns) if role == "assistant"]
    if not ends:
        return None, False
    ids = {end: _thread_id(call, agent, turns[:end]) for end in {ends[0], *ends[-TRIED:]}}
    for end in sorted(ids, reverse=True):
        if await _has(call, ids[end], turns):
            return ids[end], True
    newest = ids[ends[-1]]
    return (None if await call.runtime.store.thread(newest) is not None else newest), False


async def _has(call: Call, thread: str, turns: Sequence[tuple[str, str]]) -> bool:
    """Whether a thread is the caller's and has just this conversation."""
    found = await call.runtime.store.thread(thread)
    if found is None or found.principal != call.caller.id:
        return False
    messages = await call.runtime.threads.messages(thread)
    shown = [(m.role, m.text) for m in messages if m.visibility == "all" and m.covers is None]
    return _turns(shown) == turns


def _turns(messages: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Texts by role, with the texts of one turn joined as the API joins them. Tools' messages are left out."""
    found: list[tuple[str, str]] = []
    for role, text in messages:
        kind = "system" if role == "developer" else role
        if kind == "tool" or not text:
            continue
        if found and found[-1][0] == kind:
            found[-1] = (kind, f"{found[-1][1]}\n\n{text}")
        else:
            found.append((kind, text))
    return found


def _thread_id(call: Call, agent: str, turns: Sequence[tuple[str, str]]) -> str:
    digest = sha256(msgspec.json.encode([call.caller.id, agent, turns])).hexdigest()
    return f"chat-{digest[:32]}"


def input_of(parts: tuple[Content, ...]) -> Any:
    """A run's input: the text if there is nothing else, as agents with a typed input read it."""
    if all(isinstance(part, Text) for part in parts):
        return "\n\n".join([part.text for part in parts if isinstance(part, Text)])
    return list(parts)
