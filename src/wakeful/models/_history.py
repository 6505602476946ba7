"""A thread's messages in the order that vendors demand: each call and then its result, nobody twice in a row."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..types.content import (
    Audio,
    Content,
    Document,
    Image,
    Part,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolReply,
    Unknown,
    Video,
)
from ..types.ids import digest_of
from ..types.messages import Message, newest_turn
from ..types.requests import OutputSpec

__all__ = [
    "Entry",
    "Media",
    "call_ids",
    "entries",
    "kind_of",
    "note_of",
    "output_prompt",
    "reply_text",
    "without_old",
]

Media = Image | Audio | Video | Document
_MEDIA = (Image, Audio, Video, Document)
_ARTICLES: dict[type, str] = {Image: "an", Audio: "an"}
_NO_RESULT = (Text("There is no result: the call was never answered."),)


class Entry(Struct, frozen=True):
    """What one role says. After an entry with calls stands one of the role `tool` with a reply to each."""

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


def entries(
    messages: Sequence[Message],
    keep: Callable[[Thinking], bool],
    takes: Callable[[Media], bool],
    in_results: Callable[[Media], bool],
    *,
    signs_behind: bool = False,
) -> list[Entry]:
    """The messages as entries.

    Thinking that `keep` doesn't want is left out, as are blank texts, what a newer version wrote, and replies
    whose call isn't there. So is thinking that led to nothing, as in an answer that broke off, which vendors
    refuse; with `signs_behind` it may stand behind what it led to. Vendors take media from users, and some in
    results: a model's own, and those in results for which `in_results` is False, are told by a user right behind
    it. What the vendor doesn't take of a model's own, because another vendor's model made it, becomes a note; and
    so does what it doesn't take of earlier turns.
    """
    messages = without_old(messages, takes)
    replies = {part.call_id: part for message in messages for part in message.content if type(part) is ToolReply}
    found: list[Entry] = []
    late: list[Content] = []

    def add(role: Role, content: Iterable[Content]) -> None:
        if not (parts := tuple(content)):
            return
        if found and found[-1].role == role:
            found[-1] = Entry(role, (*found[-1].content, *parts))
        else:
            found.append(Entry(role, parts))

    for message in messages:
        if message.role == "tool":
            continue
        add("user", late)
        late = []
        content = [part for part in message.content if _shown(part, keep)]
        if message.role == "assistant":
            content = _led_somewhere(_without_media(content, takes, late), signs_behind)
        add(message.role, content)
        if calls := [part for part in content if type(part) is ToolCall]:
            answers = [_reply(replies, call) for call in calls]
            add("tool", [_told(reply, takes, in_results, late) for reply in answers])
    add("user", late)
    return found


def _shown(part: Content, keep: Callable[[Thinking], bool]) -> bool:
    if isinstance(part, Text):
        return bool(part.text) and not part.text.isspace()
    if isinstance(part, Thinking):
        return keep(part)
    if isinstance(part, _MEDIA):
        return not isinstance(part.source, Unknown)
    return isinstance(part, ToolCall)


def _led_somewhere(content: list[Content], signs_behind: bool) -> list[Content]:
    end = len(content)
    while end and isinstance(content[end - 1], Thinking):
        end -= 1
    return content if end and signs_behind else content[:end]


def _without_media(content: list[Content], takes: Callable[[Media], bool], late: list[Content]) -> list[Content]:
    kept: list[Content] = []
    for part in content:
        if not isinstance(part, _MEDIA):
            kept.append(part)
        elif takes(part):
            late += [Text(f"[The {kind_of(part)} in the answer above:]"), part]
        else:
            kept.append(note_of(part))
    return kept


def _told(
    reply: ToolReply, takes: Callable[[Media], bool], in_results: Callable[[Media], bool], late: list[Content]
) -> ToolReply:
    parts: list[Part] = []
    for part in reply.content:
        if isinstance(part, _MEDIA) and not in_results(part) and takes(part):
            parts.append(Text(f"[The {kind_of(part)} is shown below.]"))
            late += [Text(f"[The {kind_of(part)} that {reply.name} returned:]"), part]
        elif not isinstance(part, Unknown) and not isinstance(getattr(part, "source", None), Unknown):
            parts.append(part)
    return ToolReply(reply.call_id, reply.name, tuple(parts), reply.error)


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


def kind_of(part: Media) -> str:
    """What a user calls a part of this kind."""
    return type(part).__name__.lower()


def note_of(part: Media) -> Text:
    """What stands in the place of a part that a model can't take."""
    return Text(f"[{_ARTICLES.get(type(part), 'a')} {kind_of(part)} was here]")


def without_old(messages: Sequence[Message], takes: Callable[[Media], bool]) -> Sequence[Message]:
    """The messages, with a note in place of each medium of earlier turns that isn't taken: what was said of it is
    there still, and a conversation goes on. A model's own stay as they are."""
    foreign = [
        place for place, m in enumerate(messages) if m.role != "assistant" and _has_foreign(m.content, takes)
    ]
    newest = (newest_turn(messages) or 0) if foreign else 0
    if not foreign or foreign[0] >= newest:
        return messages
    found = list(messages)
    for place in [place for place in foreign if place < newest]:
        found[place] = replace(found[place], content=_noted(found[place].content, takes))
    return found


def _has_foreign(content: Iterable[Content], takes: Callable[[Media], bool]) -> bool:
    for part in content:
        if isinstance(part, _MEDIA):
            if not isinstance(part.source, Unknown) and not takes(part):
                return True
        elif type(part) is ToolReply and _has_foreign(part.content, takes):
            return True
    return False


def _noted(content: Iterable[Any], takes: Callable[[Media], bool]) -> tuple[Any, ...]:
    found: list[Any] = []
    for part in content:
        if isinstance(part, _MEDIA) and not takes(part):
            found.append(note_of(part))
        elif type(part) is ToolReply:
            found.append(replace(part, content=_noted(part.content, takes)))
        else:
            found.append(part)
    return tuple(found)


def reply_text(reply: ToolReply) -> str:
    """A reply's text for vendors that have no mark for errors: then it says that it is one."""
    text = "".join([part.text for part in reply.content if isinstance(part, Text)])
    return text if reply.error is None else f"Error ({reply.error}): {text}"


def output_prompt(output: OutputSpec) -> str:
    """What a model is told about the output that it must have, where its vendor has no way to enforce it."""
    schema = msgspec.json.encode(output.schema).decode()
    return f"Answer with JSON only, without any other text, that fits this JSON schema:\n{schema}"
