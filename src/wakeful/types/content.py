"""The content of messages: text, media, reasoning, citations, tool calls and their results."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from ..errors import UsageError
from ..errors.arguments import Checked
from .base import Data

__all__ = [
    "Artifact",
    "Audio",
    "Base64",
    "Citation",
    "Content",
    "Document",
    "Image",
    "Logprob",
    "Logprobs",
    "MediaSource",
    "Part",
    "ServerTool",
    "Text",
    "Thinking",
    "ToolCall",
    "ToolReply",
    "Unknown",
    "Url",
    "Video",
    "clean_text",
    "part_problem",
    "require_text",
    "text_of",
]


class Unknown(Data, tag="unknown"):
    """A value that a newer version wrote. It is kept unchanged and hidden from models and people."""

    kind: str
    raw: dict[str, Any] = {}


class Base64(Data, metaclass=Checked, tag="base64"):
    """Media inside the message, base64-encoded."""

    media_type: str
    data: str


class Url(Data, metaclass=Checked, omit_defaults=True, tag="url"):
    """Media that the model's vendor fetches. `media_type` is the sender's word for what is there, if it said."""

    url: str
    media_type: str | None = None


MediaSource = Base64 | Url | Unknown


class Text(Data, tag="text"):
    """Plain text."""

    text: str


class Image(Data, metaclass=Checked, tag="image"):
    """A picture."""

    source: MediaSource


class Audio(Data, metaclass=Checked, tag="audio"):
    """A recording."""

    source: MediaSource


class Video(Data, metaclass=Checked, tag="video"):
    """A video."""

    source: MediaSource


class Document(Data, metaclass=Checked, omit_defaults=True, tag="document"):
    """A file, such as a PDF."""

    source: MediaSource
    title: str | None = None


class Thinking(Data, omit_defaults=True, tag="thinking"):
    """A model's reasoning. `signature` and `encrypted` are opaque, and are sent back to the same vendor only."""

    text: str = ""
    signature: str | None = None
    encrypted: str | None = None
    vendor: str | None = None


class ToolCall(Data, omit_defaults=True, tag="tool_call"):
    """A model's request to call a tool.

    `id` is assigned by wakeful, `vendor_id` by the vendor. `signature` is opaque and is sent back with the call.
    """

    id: str
    name: str
    arguments: dict[str, Any] = {}
    vendor_id: str | None = None
    signature: str | None = None


class ServerTool(Data, omit_defaults=True, tag="server_tool"):
    """A tool that the vendor ran within an answer, such as its web search, or that a backend's agent ran.

    `name` is `web_search`, `web_fetch`, `code_execution`, `file_search`, `image_generation` or `mcp`, else the
    vendor's own name. `input` and `result` are JSON. `raw` has the vendor's blocks, which are sent back to the
    same vendor only.
    """

    id: str
    name: str
    input: Any = None
    result: Any = None
    status: Literal["running", "done", "failed"] = "done"
    vendor: str | None = None
    raw: tuple[dict[str, Any], ...] = ()

    @property
    def is_over(self) -> bool:
        """Whether it has its result, or failed."""
        return self.status != "running"


class Citation(Data, omit_defaults=True, tag="citation"):
    """A source of an answer.

    `start` and `end` are the span that it supports, in characters of the message's text; None if the vendor names
    none. `source` is the vendor's id, name or index of a document; `location` the place in it, such as pages, as
    JSON. `raw` is the vendor's form, which is sent back to the same vendor only.
    """

    kind: Literal["url", "document", "search"]
    start: int | None = None
    end: int | None = None
    url: str | None = None
    title: str | None = None
    source: str | None = None
    quote: str | None = None
    location: dict[str, Any] = {}
    vendor: str | None = None
    raw: dict[str, Any] = {}


class Logprob(Data, omit_defaults=True):
    """The log probability of a token, with the likeliest tokens at its place if they were asked for."""

    token: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()


class Logprobs(Data, tag="logprobs"):
    """The log probabilities of an answer's tokens, which `ModelSettings.logprobs` asks for."""

    tokens: tuple[Logprob, ...]


Part = Text | Image | Audio | Video | Document | Unknown


class Artifact(Data, metaclass=Checked, omit_defaults=True):
    """A tool's product for the application; the model doesn't see it."""

    content: Any
    id: str | None = None
    name: str | None = None
    media_type: str | None = None


class ToolReply(Data, omit_defaults=True, tag="tool_reply"):
    """The result of a call as the model sees it. `error` is the kind of error, if the call failed.

    `data` is the result as JSON, if the tool returned structured data beside the text.
    """

    call_id: str
    name: str
    content: tuple[Part, ...] = ()
    error: str | None = None
    data: Raw | UnsetType = UNSET
    metadata: dict[str, Any] = {}
    artifacts: tuple[Artifact, ...] = ()


Content = (
    Text
    | Image
    | Audio
    | Video
    | Document
    | Thinking
    | ToolCall
    | ToolReply
    | ServerTool
    | Citation
    | Logprobs
    | Unknown
)

Role = Literal["system", "user", "assistant", "tool"]


def text_of(content: tuple[Content, ...]) -> str:
    """Join the text parts."""
    if len(content) == 1 and type(content[0]) is Text:
        return content[0].text
    return "".join([part.text for part in content if type(part) is Text])


def clean_text(text: str) -> str:
    """Replace lone surrogates, which UTF-8 can't encode, by U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        # Surrogate pairs are joined to one character; `replace` handles the lone ones.
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def require_text(value: Any, what: str) -> str:
    """Return `value` as encodable text; raise `UsageError`, naming `what`, if it isn't a string."""
    if not isinstance(value, str):
        raise UsageError(f"{what} is a text, not {value!r:.80}")
    return clean_text(value)


def part_problem(part: Content) -> str:
    """Explain why a part doesn't survive encoding and decoding; empty if it does."""
    try:
        msgspec.json.decode(msgspec.json.encode(part), type=type(part))
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
        return f"{type(part).__name__}: {error}"
    return ""
