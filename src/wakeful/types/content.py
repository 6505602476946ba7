"""What a message is made of: text, media, reasoning, tool calls and their results."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ..errors import UsageError
from ..errors._arguments import Checked

__all__ = [
    "Artifact",
    "Audio",
    "Base64",
    "Content",
    "Document",
    "Image",
    "MediaSource",
    "Part",
    "Text",
    "Thinking",
    "ToolCall",
    "ToolReply",
    "Unknown",
    "Url",
    "Video",
    "clean_text",
    "given_text",
    "part_problem",
    "text_of",
]


class Unknown(Struct, frozen=True, gc=False, tag="unknown"):
    """Something a newer version wrote. It is carried along, shown to nobody and never rewritten."""

    kind: str
    raw: dict[str, Any] = {}


class Base64(Struct, metaclass=Checked, frozen=True, gc=False, tag="base64"):
    """Media carried inside the message."""

    media_type: str
    data: str


class Url(Struct, metaclass=Checked, frozen=True, gc=False, tag="url"):
    """Media that the model's vendor fetches."""

    url: str


MediaSource = Base64 | Url | Unknown


class Text(Struct, frozen=True, gc=False, tag="text"):
    """Plain text."""

    text: str


class Image(Struct, metaclass=Checked, frozen=True, gc=False, tag="image"):
    """A picture."""

    source: MediaSource


class Audio(Struct, metaclass=Checked, frozen=True, gc=False, tag="audio"):
    """A recording."""

    source: MediaSource


class Video(Struct, metaclass=Checked, frozen=True, gc=False, tag="video"):
    """A film."""

    source: MediaSource


class Document(Struct, metaclass=Checked, frozen=True, gc=False, omit_defaults=True, tag="document"):
    """A file, such as a PDF."""

    source: MediaSource
    title: str | None = None


class Thinking(Struct, frozen=True, gc=False, omit_defaults=True, tag="thinking"):
    """A model's reasoning; `signature` and `encrypted` are the vendor's and go back unchanged, and to it only."""

    text: str = ""
    signature: str | None = None
    encrypted: str | None = None
    vendor: str | None = None


class ToolCall(Struct, frozen=True, gc=False, omit_defaults=True, tag="tool_call"):
    """A model's wish to call a tool. `id` is ours; `vendor_id` is the one the vendor gave it, and `signature` what
    the vendor wants to have back with it."""

    id: str
    name: str
    arguments: dict[str, Any] = {}
    vendor_id: str | None = None
    signature: str | None = None


Part = Text | Image | Audio | Video | Document | Unknown


class Artifact(Struct, metaclass=Checked, frozen=True, gc=False, omit_defaults=True):
    """Something a tool made for the application; the model doesn't see it."""

    content: Any
    id: str | None = None
    name: str | None = None
    media_type: str | None = None


class ToolReply(Struct, frozen=True, gc=False, omit_defaults=True, tag="tool_reply"):
    """What the model is told about a call: its result, or the kind of error that stands in for one.

    `data` is the result as JSON where a tool gave one beside the text.
    """

    call_id: str
    name: str
    content: tuple[Part, ...] = ()
    error: str | None = None
    data: Raw | UnsetType = UNSET
    metadata: dict[str, Any] = {}
    artifacts: tuple[Artifact, ...] = ()


Content = Text | Image | Audio | Video | Document | Thinking | ToolCall | ToolReply | Unknown

Role = Literal["system", "user", "assistant", "tool"]


def text_of(content: tuple[Content, ...]) -> str:
    """The text parts, joined."""
    if len(content) == 1 and type(content[0]) is Text:
        return content[0].text
    return "".join([part.text for part in content if type(part) is Text])


def clean_text(text: str) -> str:
    """The text as UTF-8 can carry it: a lone surrogate, which no encoder takes, becomes U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        # Surrogates that pair up become the character they stand for; `replace` takes the lone ones.
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def given_text(value: Any, what: str) -> str:
    """A text that somebody gave to be kept, as UTF-8 can carry it; anything else is refused by what it is for, as
    it couldn't be read again."""
    if not isinstance(value, str):
        raise UsageError(f"{what} is a text, not {value!r:.80}")
    return clean_text(value)


def part_problem(part: Part) -> str:
    """Why a part that somebody made couldn't be read again once it is kept; empty if it could."""
    try:
        msgspec.json.decode(msgspec.json.encode(part), type=type(part))
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
        return f"{type(part).__name__}: {error}"
    return ""
