"""A thread's messages in the order that vendors demand: each call followed by its result, nobody twice in a row."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

import msgspec
from msgspec import Struct

from ..types.content import Content, Role, Text, Thinking, ToolCall, ToolReply, Unknown
from ..types.ids import digest_of
from ..types.messages import Message
from ..types.requests import OutputSpec

__all__ = ["Entry", "call_ids", "entries", "output_prompt"]

_NO_RESULT = (Text("There is no result: the call was never answered."),)


class Entry(Struct, frozen=True):
    """What one role says. After an entry with calls stands one of the role `tool` with a reply to each, in order."""

    role: Role
    content: tuple[Content, ...]

    @property
    def calls(self) -> list[ToolCall]:
        """The calls in it."""
        return [part for part in self.content if type(part) is ToolCall]

    @property
    def replies(self) -> list[ToolReply]:
        """The replies in it."""
        return [part for part in self.content if type(part) is ToolReply]


def entries(messages: Sequence[Message], keep: Callable[[Thinking], bool]) -> list[Entry]:
    """The messages as entries. Thinking that `keep` doesn't want is left out, as are blank texts, what a newer
    version wrote, and replies whose call isn't there."""
    replies = {
        part.call_id: part for message in messages for part in message.content if type(part) is ToolReply
    }
    found: list[Entry] = []
    for message in messages:
        if message.role == "tool":
            continue
        content = tuple([part for part in message.content if _shown(part, keep)])
        if not content:
            continue
        calls = [part for part in content if type(part) is ToolCall]
        if found and found[-1].role == message.role:
            found[-1] = Entry(message.role, (*found[-1].content, *content))
        else:
            found.append(Entry(message.role, content))
        if calls:
            found.append(Entry("tool", tuple([_reply(replies, call) for call in calls])))
    return found


def _shown(part: Content, keep: Callable[[Thinking], bool]) -> bool:
    kind = type(part)
    if kind is Text:
        return bool(part.text) and not part.text.isspace()  # pyright: ignore[reportAttributeAccessIssue]
    if kind is Thinking:
        return keep(part)  # pyright: ignore[reportArgumentType]
    return kind is not Unknown and kind is not ToolReply


def _reply(replies: dict[str, ToolReply], call: ToolCall) -> ToolReply:
    found = replies.get(call.id)
    return ToolReply(call.id, call.name, _NO_RESULT, "interrupted") if found is None else found


def call_ids(found: Iterable[Entry], fits: re.Pattern[str]) -> dict[str, str]:
    """The id under which a vendor is told of each call: the one that a vendor gave it where that fits and no other
    call has it, else ours; and where that doesn't fit either, one drawn from ours."""
    ids: dict[str, str] = {}
    taken: set[str] = set()
    for entry in found:
        for call in entry.calls:
            names = (call.vendor_id or "", call.id, digest_of(call.id.encode()), digest_of(call.id.encode())[:9])
            chosen = next((name for name in names if name not in taken and fits.fullmatch(name)), call.id)
            ids[call.id] = chosen
            taken.add(chosen)
    return ids


def output_prompt(output: OutputSpec) -> str:
    """What a model is told about the output that it must have, where its vendor has no way to enforce it."""
    schema = msgspec.json.encode(output.schema).decode()
    return f"Answer with JSON only, without any other text, that fits this JSON schema:\n{schema}"
