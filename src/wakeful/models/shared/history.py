"""A thread's messages in the form that vendors require: alternating roles, calls followed by their results."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from ...types.base import Data
from ...types.content import (
    Audio,
    Citation,
    Content,
    Document,
    Image,
    Part,
    Role,
    ServerTool,
    Text,
    Thinking,
    ToolCall,
    ToolReply,
    Unknown,
    Video,
)
from ...types.ids import digest_of
from ...types.messages import Message, newest_turn
from ...types.requests import FOUND_TOOLS, OutputSpec

__all__ = [
    "CitedText",
    "Entry",
    "Media",
    "build_entries",
    "call_ids",
    "found_tools",
    "mark_system",
    "media_kind",
    "output_prompt",
    "placeholder_for",
    "replace_old_media",
    "reply_text",
    "take_system_text",
]

Media = Image | Audio | Video | Document
_MEDIA = (Image, Audio, Video, Document)
_ARTICLES: dict[type, str] = {Image: "an", Audio: "an"}
_NO_RESULT = (Text("There is no result: the call was never answered."),)


class CitedText(Text, tag="text"):
    """A text with the citations that support it, in their vendor's form."""

    citations: tuple[dict[str, Any], ...] = ()


class Entry(Data):
    """Consecutive content of one role. An entry of the role `tool` follows an entry with calls."""

    role: Role
    content: tuple[Content, ...]

    @property
    def calls(self) -> list[ToolCall]:
        """The calls of the entry."""
        return [part for part in self.content if type(part) is ToolCall]

    @property
    def replies(self) -> list[ToolReply]:
        """The replies of the entry."""
        return [part for part in self.content if type(part) is ToolReply]


def build_entries(
    messages: Sequence[Message],
    keep: Callable[[Thinking], bool],
    takes: Callable[[Media], bool],
    in_results: Callable[[Media], bool],
    *,
    signs_behind: bool = False,
    vendor: str | None = None,
) -> list[Entry]:
    """Group messages into entries. Server tools and citations of `vendor` are kept, those of others dropped.

    Dropped: thinking that `keep` refuses, blank texts, unknown content of a newer version, and replies without a
    call. Thinking at the end of an answer is dropped too, as vendors refuse it; with `signs_behind` it may follow
    other content.

    Vendors accept media from users, and some in results. A model's own media, and media in results for which
    `in_results` is False, move to a user entry right behind. Media that the vendor doesn't accept become a
    placeholder if they are a model's own or of an earlier turn.
    """
    messages = replace_old_media(messages, takes)
    replies = {part.call_id: part for message in messages for part in message.content if type(part) is ToolReply}
    open_tools = _open_tools(messages)
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
        given = _with_citations(message.content, vendor)
        content = [part for part in given if _is_shown(part, keep, vendor, open_tools)]
        if message.role == "assistant":
            content = _trim_thinking(_move_media(content, takes, late), signs_behind)
        add(message.role, content)
        if calls := [part for part in content if type(part) is ToolCall]:
            answers = [_find_reply(replies, call) for call in calls]
            add("tool", [_reply_for(reply, takes, in_results, late) for reply in answers])
    add("user", late)
    return found


def _open_tools(messages: Sequence[Message]) -> set[str]:
    """The ids of server tools that the vendor continues: in the answer at the end, or with a later result."""
    places: dict[str, int] = {}
    last = -1
    for place, message in enumerate(messages):
        if message.role == "assistant":
            last = place
            for part in message.content:
                if isinstance(part, ServerTool) and (not part.is_over or part.id in places):
                    places[part.id] = -1 if part.is_over else place
    is_open = all(message.role == "tool" for message in messages[last + 1 :])
    return {tool for tool, place in places.items() if place == -1 or (is_open and place == last)}


def _with_citations(content: tuple[Content, ...], vendor: str | None) -> Sequence[Content]:
    """Split the texts at the spans of the vendor's own citations, which go with their text."""
    spans: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for part in content:
        if type(part) is Citation and part.vendor == vendor and part.raw and part.start is not None:
            spans.setdefault((part.start, part.end or part.start), []).append(part.raw)
    if not spans:
        return content
    found: list[Content] = []
    place = 0
    for part in content:
        if type(part) is not Text:
            found.append(part)
            continue
        end, at = place + len(part.text), place
        for (start, stop), raws in sorted(spans.items()):
            if at <= start < stop <= end:
                found += [Text(part.text[at - place : start - place])] if start > at else []
                found.append(CitedText(part.text[start - place : stop - place], tuple(raws)))
                at = stop
        found += [Text(part.text[at - place :])] if at < end else []
        place = end
    return found


def _is_shown(
    part: Content, keep: Callable[[Thinking], bool], vendor: str | None, open_tools: Container[str]
) -> bool:
    if isinstance(part, Text):
        return bool(part.text) and not part.text.isspace()
    if isinstance(part, Thinking):
        return keep(part)
    if isinstance(part, _MEDIA):
        return not isinstance(part.source, Unknown)
    if isinstance(part, ServerTool):
        return part.vendor == vendor and bool(part.raw) and (part.is_over or part.id in open_tools)
    return isinstance(part, ToolCall)


def _trim_thinking(content: list[Content], signs_behind: bool) -> list[Content]:
    end = len(content)
    while end and isinstance(content[end - 1], Thinking):
        end -= 1
    return content if end and signs_behind else content[:end]


def _move_media(content: list[Content], takes: Callable[[Media], bool], late: list[Content]) -> list[Content]:
    kept: list[Content] = []
    for part in content:
        if not isinstance(part, _MEDIA):
            kept.append(part)
        elif takes(part):
            late += [Text(f"[The {media_kind(part)} in the answer above:]"), part]
        else:
            kept.append(placeholder_for(part))
    return kept


def _reply_for(
    reply: ToolReply, takes: Callable[[Media], bool], in_results: Callable[[Media], bool], late: list[Content]
) -> ToolReply:
    parts: list[Part] = []
    for part in reply.content:
        if isinstance(part, _MEDIA) and not in_results(part) and takes(part):
            parts.append(Text(f"[The {media_kind(part)} is shown below.]"))
            late += [Text(f"[The {media_kind(part)} that {reply.name} returned:]"), part]
        elif not isinstance(part, Unknown) and not isinstance(getattr(part, "source", None), Unknown):
            parts.append(part)
    return ToolReply(reply.call_id, reply.name, tuple(parts), reply.error, metadata=reply.metadata)


def _find_reply(replies: dict[str, ToolReply], call: ToolCall) -> ToolReply:
    found = replies.get(call.id)
    return ToolReply(call.id, call.name, _NO_RESULT, "interrupted") if found is None else found


def call_ids(found: Iterable[Entry], fits: re.Pattern[str]) -> dict[str, str]:
    """Choose the id of each call: the vendor's if it `fits` and is unique, else ours, else a digest."""
    ids: dict[str, str] = {}
    taken: set[str] = set()
    for entry in found:
        for call in entry.calls:
            names = (call.vendor_id or "", call.id, digest_of(call.id.encode()), digest_of(call.id.encode())[:9])
            chosen = next((name for name in names if name not in taken and fits.fullmatch(name)), call.id)
            ids[call.id] = chosen
            taken.add(chosen)
    return ids


def take_system_text(system: str, found: list[Entry]) -> str:
    """Join the system messages at the start of a conversation to its system text, and remove them from `found`."""
    texts = [system] if system else []
    while len(found) > 1 and found[0].role == "system":
        texts += [part.text for part in found.pop(0).content if isinstance(part, Text)]
    return "\n\n".join(texts)


def mark_system(text: str) -> str:
    """Mark the text of a system message that is sent as a user's, to a vendor that has no other place for it."""
    return f"<system>\n{text}\n</system>"


def media_kind(part: Media) -> str:
    """The name of a part's kind, such as `image`."""
    return type(part).__name__.lower()


def placeholder_for(part: Media) -> Text:
    """Make the placeholder for a part that the model doesn't accept."""
    return Text(f"[{_ARTICLES.get(type(part), 'a')} {media_kind(part)} was here]")


def replace_old_media(messages: Sequence[Message], takes: Callable[[Media], bool]) -> Sequence[Message]:
    """Replace media of earlier turns that aren't accepted by placeholders, so that a conversation can continue.

    A model's own media are kept.
    """
    unaccepted = [
        index for index, m in enumerate(messages) if m.role != "assistant" and _has_unaccepted(m.content, takes)
    ]
    newest = (newest_turn(messages) or 0) if unaccepted else 0
    if not unaccepted or unaccepted[0] >= newest:
        return messages
    found = list(messages)
    for index in [index for index in unaccepted if index < newest]:
        found[index] = replace(found[index], content=_with_placeholders(found[index].content, takes))
    return found


def _has_unaccepted(content: Iterable[Content], takes: Callable[[Media], bool]) -> bool:
    for part in content:
        if isinstance(part, _MEDIA):
            if not isinstance(part.source, Unknown) and not takes(part):
                return True
        elif type(part) is ToolReply and _has_unaccepted(part.content, takes):
            return True
    return False


def _with_placeholders(content: Iterable[Any], takes: Callable[[Media], bool]) -> tuple[Any, ...]:
    found: list[Any] = []
    for part in content:
        if isinstance(part, _MEDIA) and not takes(part):
            found.append(placeholder_for(part))
        elif type(part) is ToolReply:
            found.append(replace(part, content=_with_placeholders(part.content, takes)))
        else:
            found.append(part)
    return tuple(found)


def reply_text(reply: ToolReply) -> str:
    """The text of a reply, with a prefix if it is an error, for vendors without an error flag."""
    text = "".join([part.text for part in reply.content if isinstance(part, Text)])
    return text if reply.error is None else f"Error ({reply.error}): {text}"


def output_prompt(output: OutputSpec) -> str:
    """Instructions for a typed output, for vendors that can't enforce a schema."""
    schema = msgspec.json.encode(output.schema).decode()
    return f"Answer with JSON only, without any other text, that fits this JSON schema:\n{schema}"


def found_tools(reply: ToolReply) -> list[str]:
    """The names of the deferred tools that a search found, if this is its result."""
    names: Any = reply.metadata.get(FOUND_TOOLS)
    if reply.error is not None or not isinstance(names, list):
        return []
    return [name for name in cast(list[Any], names) if isinstance(name, str)]
