"""One entry of a thread's conversation."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from .content import Content, Role, Text, ToolCall, ToolReply, clean_text, text_of
from .ids import new_id, now_ms

__all__ = ["Message", "Producer", "Visibility", "user_message"]

Visibility = Literal["all", "internal"]


class Producer(Struct, frozen=True, gc=False, omit_defaults=True):
    """Who wrote a message: the run and step, the agent, and for mail the thread it came from, the root of the
    sender's tree, and over how many messages it came."""

    run_id: str | None = None
    step: int | None = None
    agent_id: str | None = None
    sender_thread_id: str | None = None
    principal_id: str | None = None
    root_run_id: str | None = None
    hops: int = 0


class Message(Struct, frozen=True, gc=False, omit_defaults=True):
    """One message of a thread. `seq` is its place in the thread's log, given by the store's commit.

    Internal messages are part of what the model reads and not of what a person is shown. A summary `covers` the
    entries of the log from its first number to its second: the model reads it in their place, and they stay.
    """

    id: str
    role: Role
    content: tuple[Content, ...]
    created_at: int
    producer: Producer | None = None
    visibility: Visibility = "all"
    seq: int = 0
    covers: tuple[int, int] | None = None

    @property
    def text(self) -> str:
        """The text parts, joined."""
        return text_of(self.content)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls that an assistant message asks for."""
        return tuple([part for part in self.content if type(part) is ToolCall])

    @property
    def reply(self) -> ToolReply | None:
        """The result that a tool message carries."""
        for part in self.content:
            if type(part) is ToolReply:
                return part
        return None


def user_message(
    content: str | tuple[Content, ...] | list[Content],
    *,
    visibility: Visibility = "all",
    producer: Producer | None = None,
    at: int | None = None,
) -> Message:
    """A user message from text or from content parts."""
    parts = (Text(clean_text(content)),) if isinstance(content, str) else tuple(content)
    return Message(new_id(), "user", parts, now_ms() if at is None else at, producer, visibility)
