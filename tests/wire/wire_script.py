"""What a vendor is to say, in no vendor's words: a codec puts it into the vendor's, and reads requests back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from wire_server import Reply

from wakeful.models import Model
from wakeful.types.events import StopReason
from wakeful.types.runs import Usage

USED = Usage(input_tokens=20, output_tokens=9)


@dataclass(frozen=True)
class Says:
    """Text, in the pieces in which it is streamed."""

    pieces: Sequence[str]


@dataclass(frozen=True)
class Thinks:
    """Reasoning, in pieces, with what the vendor wants to have back. Redacted, it has no text at all."""

    pieces: Sequence[str] = ()
    signature: str | None = None
    encrypted: str | None = None


@dataclass(frozen=True)
class Calls:
    """A tool call, with its arguments as JSON text in pieces."""

    name: str
    pieces: Sequence[str] = ("{}",)
    id: str = "call_1"


@dataclass(frozen=True)
class Script:
    """One answer. With `interleaved`, the arguments of all calls are streamed in turns."""

    parts: Sequence[Says | Thinks | Calls]
    usage: Usage = USED
    stop: StopReason = "end_turn"
    interleaved: bool = False


FaultKind = Literal[
    "rate_limited",
    "quota",
    "overloaded",
    "unavailable",
    "timeout",
    "bad_key",
    "forbidden",
    "not_found",
    "overflow",
    "filtered",
    "invalid",
]


@dataclass(frozen=True)
class Can:
    """What a vendor's API can do; cases about the rest are left out for it."""

    reasoning: bool = True
    signed_reasoning: bool = True
    parallel: bool = True
    interleaved: bool = True
    partial_arguments: bool = True
    images: bool = True
    image_urls: bool = True
    audio: bool = False
    documents: bool = True
    video: bool = False
    images_in_results: bool = True
    errors_marked: bool = False
    temperature: bool = True
    stop: bool = True
    errors_in_stream: bool = True
    filtered_stop: bool = True
    request_ids: bool = True
    headers: bool = True
    reasoning_tokens: bool = True
    needs_key: bool = True


@dataclass(frozen=True)
class Seen:
    """A request as the vendor would read it, in no vendor's words."""

    system: str = ""
    # (role, kind, value): kinds are text, image, audio, document, video, thinking, call, result and error.
    parts: list[tuple[str, str, Any]] = field(default_factory=list[tuple[str, str, Any]])
    tools: list[tuple[str, dict[str, Any]]] = field(default_factory=list[tuple[str, dict[str, Any]]])
    output: dict[str, Any] | None = None
    settings: dict[str, Any] = field(default_factory=dict[str, Any])

    def of(self, *kinds: str) -> list[Any]:
        return [value for _, kind, value in self.parts if kind in kinds]

    @property
    def roles(self) -> list[str]:
        return [role for role, _, _ in self.parts]


class Codec(Protocol):
    """One vendor's format: how it says a script, how it fails, how a request of ours reads; and our model."""

    name: str
    can: Can
    key: str
    request_id: str

    def model(self, url: str, **options: Any) -> Model:
        """Our model, talking to that address."""
        ...

    def answer(self, script: Script) -> Reply:
        """The vendor's stream for a script, an event for each piece."""
        ...

    def fault(self, kind: FaultKind, headers: dict[str, str] | None = None) -> Reply:
        """The vendor's documented error answer."""
        ...

    def fault_in_stream(self, script: Script, kind: FaultKind) -> Reply:
        """A stream that begins as the script and ends with an error event."""
        ...

    def odd(self, kind: Literal["malformed", "duplicate_index", "empty", "unknown_event"]) -> Reply:
        """A stream that is odd: not JSON in the middle; two calls under one index; an event without content; an
        event of a kind that doesn't exist yet. The text `Hello` is in it, before and after."""
        ...

    def check(self, body: dict[str, Any]) -> None:
        """Fail if the request isn't what the SDK's own types allow."""
        ...

    def read(self, body: dict[str, Any]) -> Seen:
        """The request, read back."""
        ...


def sse(data: Any, event: str | None = None) -> bytes:
    """One server-sent event."""
    text = data if isinstance(data, str) else json.dumps(data)
    return (f"event: {event}\n" if event else "").encode() + f"data: {text}\n\n".encode()


def json_reply(status: int, body: Any, headers: dict[str, str] | None = None) -> Reply:
    """An answer of JSON in one piece."""
    return Reply([json.dumps(body).encode()], status, {"content-type": "application/json", **(headers or {})})
