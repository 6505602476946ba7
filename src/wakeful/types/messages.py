"""Messages of a thread, and the validation of input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, cast, get_args

import msgspec

from ..errors import InvalidInput
from .base import Data
from .content import Content, Role, Text, ToolCall, ToolReply, clean_text, part_problem, text_of
from .ids import new_id, now_ms
from .mail import MAX_MESSAGE_BYTES

__all__ = ["Message", "Producer", "Visibility", "newest_turn", "parse_input", "user_message"]

Visibility = Literal["all", "internal"]


class Producer(Data, omit_defaults=True):
    """The author of a message: run, step and agent.

    Mail also has the sender's thread, the root run of the sender's tree and the number of hops. `message_id` is
    the external sender's id of the message.
    """

    run_id: str | None = None
    step: int | None = None
    agent_id: str | None = None
    sender_thread_id: str | None = None
    principal_id: str | None = None
    root_run_id: str | None = None
    hops: int = 0
    message_id: str | None = None


class Message(Data, omit_defaults=True):
    """One message of a thread. `seq` is its position in the thread's log, assigned by the commit.

    Internal messages are visible to the model and hidden from people. A summary `covers` a range of log entries
    (first, last): the model reads the summary in their place, and the entries stay in the log.
    """

    id: str
    role: Role
    content: tuple[Content, ...]
    created_at: int = 0
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
        """The tool calls that an assistant message requests."""
        content = self.content
        if len(content) == 1:
            return (only,) if type(only := content[0]) is ToolCall else ()  # The common case.
        return tuple([part for part in content if type(part) is ToolCall])

    @property
    def reply(self) -> ToolReply | None:
        """The result in a tool message."""
        for part in self.content:
            if type(part) is ToolReply:
                return part
        return None


def newest_turn(messages: Sequence[Message]) -> int | None:
    """The index of the newest visible user message, else of the newest internal one."""
    of_users = [place for place, m in enumerate(messages) if m.role == "user" and m.covers is None]
    shown = [place for place in of_users if messages[place].visibility == "all"]
    return shown[-1] if shown else of_users[-1] if of_users else None


_PARTS = get_args(Content)


def parse_input(given: Any) -> str | tuple[Content, ...]:
    """Validate input: text or content parts, neither empty nor too large; raises `InvalidInput`."""
    if isinstance(given, str):
        content: str | tuple[Content, ...] = given
        size = len(given) if len(given) * 4 <= MAX_MESSAGE_BYTES else len(given.encode(errors="replace"))
    else:
        content = _parts_of(given)
        size = len(msgspec.json.encode(content))
    if not content:
        raise InvalidInput("the input is empty; give a text or content parts")
    if size > MAX_MESSAGE_BYTES:
        raise InvalidInput(f"the input has {size:,} bytes; the limit is {MAX_MESSAGE_BYTES:,}")
    return content


def _parts_of(given: Any) -> tuple[Content, ...]:
    if isinstance(given, _PARTS):
        given = (given,)
    if not isinstance(given, list | tuple):
        raise InvalidInput(f"the input is a text or a list of content parts, not {type(given).__name__}")
    parts: list[Content] = []
    for part in cast(Sequence[Any], given):
        if isinstance(part, str):
            parts.append(Text(clean_text(part)))
        elif isinstance(part, Text) and isinstance(cast(Any, part.text), str):
            parts.append(Text(clean_text(part.text)))
        elif isinstance(part, _PARTS):
            if problem := part_problem(part):
                raise InvalidInput(f"the input has a part that isn't what it says: {problem}")
            parts.append(part)
        else:
            raise InvalidInput(f"the input has a part that is neither text nor content: {part!r:.80}")
    return tuple(parts)


def user_message(
    content: str | tuple[Content, ...] | list[Content],
    *,
    visibility: Visibility = "all",
    producer: Producer | None = None,
    at: int | None = None,
) -> Message:
    """Make a user message from text or content parts."""
    parts = (Text(clean_text(content)),) if isinstance(content, str) else tuple(content)
    return Message(new_id(), "user", parts, now_ms() if at is None else at, producer, visibility)
