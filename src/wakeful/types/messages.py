"""Messages of a thread, and the validation of input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, cast, get_args

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from ..errors import InvalidInput
from .base import Data
from .content import (
    Citation,
    Content,
    Role,
    Text,
    ToolCall,
    ToolReply,
    clean_text,
    part_problem,
    require_text,
    text_of,
)
from .ids import new_id, now_ms
from .mail import MAX_MESSAGE_BYTES

__all__ = ["Message", "Producer", "Visibility", "newest_turn", "parse_input", "user_message"]

Visibility = Literal["all", "internal"]


class Producer(Data, omit_defaults=True):
    """The author of a message: run, step and agent.

    Mail also has the sender's thread, the root run of the sender's tree and the number of hops. `message_id` is
    the external sender's id of the message, `digest` a hash of the message as it was sent.
    """

    run_id: str | None = None
    step: int | None = None
    agent_id: str | None = None
    sender_thread_id: str | None = None
    principal_id: str | None = None
    root_run_id: str | None = None
    hops: int = 0
    message_id: str | None = None
    digest: str | None = None


class Message(Data, omit_defaults=True):
    """One message of a thread. `seq` is its position in the thread's log, assigned by the commit.

    Internal messages are visible to the model and hidden from people. A summary `covers` a range of log entries
    (first, last): the model reads the summary in their place, and the entries stay in the log. A message that
    `rewrites` a log entry has the content that the model reads in place of that entry's.
    """

    id: str
    role: Role
    content: tuple[Content, ...]
    created_at: int = 0
    producer: Producer | None = None
    visibility: Visibility = "all"
    seq: int = 0
    covers: tuple[int, int] | None = None
    rewrites: int | None = None

    @property
    def text(self) -> str:
        """The text parts, joined; in a tool message those of the result."""
        content = self.content
        if self.role == "tool" and (reply := self.reply) is not None:
            content = reply.content
        return text_of(content)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls that an assistant message requests."""
        content = self.content
        if len(content) == 1:
            return (only,) if type(only := content[0]) is ToolCall else ()  # The common case.
        return tuple([part for part in content if type(part) is ToolCall])

    @property
    def citations(self) -> tuple[Citation, ...]:
        """The sources of an answer, as far as the vendor names them."""
        return tuple([part for part in self.content if type(part) is Citation])

    @property
    def reply(self) -> ToolReply | None:
        """The result in a tool message."""
        for part in self.content:
            if type(part) is ToolReply:
                return part
        return None

    def with_text(self, text: str) -> Message:
        """A copy with another text in place of the text parts; in a tool message in place of the result's.

        Other parts stay, except citations, which are spans of the old text, and a result's `data`. So does the
        `reason` of an answer to a backend's question, if the text has it.
        """
        text = require_text(text, "the text of a message")
        if text == self.text:
            return self if self.reply is None else self._with_reply(self.reply)
        old = self.content if self.role != "tool" or self.reply is None else self.reply.content
        parts: list[Content] = [part for part in old if type(part) is not Text and type(part) is not Citation]
        # A new text stands after the reasoning and before the calls.
        kinds = [type(part) for part in old if type(part) is not Citation]
        place = kinds.index(Text) if Text in kinds else kinds.index(ToolCall) if ToolCall in kinds else len(parts)
        if text:
            parts.insert(place, Text(text))
        return self.with_parts(parts)

    def with_parts(self, parts: Sequence[str | Content]) -> Message:
        """A copy with these parts; in a tool message they are the result's, without its `data`.

        The `reason` of an answer to a backend's question stays if the text of the parts has it.
        """
        content = _parts_of(parts, "the content of a message")
        if self.role == "tool" and (reply := self.reply) is not None:
            return self._with_reply(replace(reply, content=content, data=UNSET))
        return replace(self, content=content)

    def _with_reply(self, reply: ToolReply) -> Message:
        """A copy with this result, and without a reason that its text doesn't have."""
        reason = reply.metadata.get("reason")
        if reason and str(reason) not in text_of(reply.content):
            metadata = {name: value for name, value in reply.metadata.items() if name != "reason"}
            reply = replace(reply, metadata=metadata)
        return self if reply is self.reply else replace(self, content=(reply,))


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
        content = _parts_of(given, "the input")
        size = len(msgspec.json.encode(content))
    if not content:
        raise InvalidInput("the input is empty; give a text or content parts")
    if size > MAX_MESSAGE_BYTES:
        raise InvalidInput(f"the input has {size:,} bytes; the limit is {MAX_MESSAGE_BYTES:,}")
    return content


def _parts_of(given: Any, what: str) -> tuple[Content, ...]:
    if isinstance(given, _PARTS):
        given = (given,)
    if isinstance(given, dict):
        given = [given]
    if not isinstance(given, list | tuple):
        raise InvalidInput(f"{what} is a text or a list of content parts, not {type(given).__name__}")
    parts: list[Content] = []
    for part in cast(Sequence[Any], given):
        if isinstance(part, str):
            parts.append(Text(clean_text(part)))
        elif isinstance(part, Text) and isinstance(cast(Any, part.text), str):
            parts.append(Text(clean_text(part.text)))
        elif isinstance(part, _PARTS):
            if problem := part_problem(part):
                raise InvalidInput(f"{what} has a part that isn't what it says: {problem}")
            parts.append(part)
        else:
            raise InvalidInput(f"{what} has a part that is neither text nor content: {part!r:.80}{_hint_of(part)}")
    return tuple(parts)


_FORMS = {
    "text": 'a str or Text("...")',
    "input_text": 'a str or Text("...")',
    "image_url": 'Image(Url("https://..."))',
    "input_image": 'Image(Url("https://..."))',
    "input_audio": 'Audio(Base64("audio/wav", data))',
    "file": 'Document(Base64("application/pdf", data))',
    "input_file": 'Document(Base64("application/pdf", data))',
}


def _hint_of(part: Any) -> str:
    """The form to use in place of a dict of another API."""
    if not isinstance(part, dict):
        return ""
    found = cast(dict[str, Any], part)
    if "role" in found or "messages" in found:
        return (
            "; give a message's text or parts without a role: earlier messages are in the thread (thread=...), a "
            "system message is Agent(instructions=...)"
        )
    form = _FORMS.get(str(found.get("type")))
    return "" if form is None else f"; use {form}"


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
