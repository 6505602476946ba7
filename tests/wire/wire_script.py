"""Vendor-neutral scripts of answers. A codec encodes them for a vendor and decodes its requests."""

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
    """Text, in streamed pieces."""

    pieces: Sequence[str]


@dataclass(frozen=True)
class Thinks:
    """Reasoning in pieces, with the vendor's signature. Redacted reasoning has no text."""

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
    """One answer. `interleaved` streams the arguments of all calls alternately."""

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
    """The capabilities of a vendor's API; other cases are skipped."""

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
    """A decoded request, vendor-neutral."""

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
    """One vendor's format: encodes scripts and faults, decodes requests, and creates our model."""

    name: str
    can: Can
    key: str
    request_id: str

    def model(self, url: str, **options: Any) -> Model:
        """Our model at that URL."""
        ...

    def answer(self, script: Script) -> Reply:
        """Encode a script as the vendor's stream, an event for each piece."""
        ...

    def fault(self, kind: FaultKind, headers: dict[str, str] | None = None) -> Reply:
        """The vendor's documented error response."""
        ...

    def fault_in_stream(self, script: Script, kind: FaultKind) -> Reply:
        """A stream that starts with the script and ends with an error event."""
        ...

    def odd(self, kind: Literal["malformed", "duplicate_index", "empty", "unknown_event"]) -> Reply:
        """A malformed stream: invalid JSON, two calls of one index, an empty event, or an unknown event.

        It contains the text `Hello`, split around the anomaly.
        """
        ...

    def check(self, body: dict[str, Any]) -> None:
        """Assert that the request fits the SDK's own types."""
        ...

    def read(self, body: dict[str, Any]) -> Seen:
        """Decode a request."""
        ...


def sse(data: Any, event: str | None = None) -> bytes:
    """One server-sent event."""
    text = data if isinstance(data, str) else json.dumps(data)
    return (f"event: {event}\n" if event else "").encode() + f"data: {text}\n\n".encode()


def json_reply(status: int, body: Any, headers: dict[str, str] | None = None) -> Reply:
    """A JSON response in one piece."""
    return Reply([json.dumps(body).encode()], status, {"content-type": "application/json", **(headers or {})})
