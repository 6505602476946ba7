"""Helpers of the wire suite: requests, and a collector of chunks."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from wire_script import Codec, Says, Script
from wire_server import WireServer

from wakeful.models import (
    CallChunk,
    CallDeltaChunk,
    CallStartChunk,
    Model,
    ModelRequest,
    PartChunk,
    ReasoningChunk,
    StopChunk,
    TextChunk,
    UsageChunk,
)
from wakeful.types.content import Content, Part, Text, Thinking, ToolCall, ToolReply
from wakeful.types.ids import new_id, now_ms
from wakeful.types.messages import Message, user_message
from wakeful.types.requests import ToolSpec
from wakeful.types.runs import Usage

IMAGE = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(16)).decode()
DOCUMENT = base64.b64encode(b"%PDF-1.7 " + bytes(16)).decode()
AUDIO = base64.b64encode(b"RIFF" + bytes(24)).decode()

LOOK = ToolSpec(
    "look", "Look at something.", {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}
)
HELLO = ModelRequest("", [user_message("Hello")], [LOOK])


NO_USAGE = Usage()


@dataclass
class Heard:
    """The chunks of one call."""

    texts: list[str] = field(default_factory=list[str])
    reasoning: list[str] = field(default_factory=list[str])
    pieces: list[str] = field(default_factory=list[str])
    vendor_ids: list[str | None] = field(default_factory=list[str | None])
    signatures: list[str | None] = field(default_factory=list[str | None])
    usage: Usage = NO_USAGE
    stop: str = "unknown"
    parts: list[Any] = field(default_factory=list[Any])
    _names: list[str] = field(default_factory=list[str])
    _arguments: list[str] = field(default_factory=list[str])
    _places: dict[int, int] = field(default_factory=dict[int, int])
    _thoughts: list[Thinking] = field(default_factory=list[Thinking])
    _open: list[str] = field(default_factory=list[str])

    @property
    def calls(self) -> list[tuple[str, dict[str, Any]]]:
        return [(n, json.loads(a or "{}")) for n, a in zip(self._names, self._arguments, strict=True)]

    @property
    def said(self) -> Any:
        """The content of the message."""
        return "".join(self.texts), "".join(self.reasoning), self.calls, self.parts, self.stop

    def add(self, chunk: Any) -> None:
        match chunk:
            case TextChunk(text):
                self.texts.append(text)
            case ReasoningChunk(text, signature, encrypted, vendor):
                self._open.append(text)
                if text:
                    self.reasoning.append(text)
                if signature is not None or encrypted is not None:
                    self._thoughts.append(Thinking("".join(self._open), signature, encrypted, vendor))
                    self._open = []
            case CallStartChunk(index, name, vendor_id, signature):
                assert index not in self._places
                self._places[index] = len(self._names)
                self._names.append(name)
                self._arguments.append("")
                self.vendor_ids.append(vendor_id)
                self.signatures.append(signature)
            case CallDeltaChunk(index, text):
                self.pieces.append(text)
                self._arguments[self._places[index]] += text
            case CallChunk(name, arguments, vendor_id, signature):
                self._names.append(name)
                self._arguments.append(json.dumps(arguments))
                self.vendor_ids.append(vendor_id)
                self.signatures.append(signature)
            case PartChunk(part):
                self.parts.append(part)
            case UsageChunk(usage):
                self.usage = usage
            case StopChunk(reason):
                self.stop = reason
            case _:
                raise AssertionError(f"no chunk: {chunk!r}")

    def message(self) -> Message:
        """The message that the loop would build."""
        content: list[Content] = [*self._thoughts]
        if self.texts:
            content.append(Text("".join(self.texts)))
        calls = zip(self.calls, self.vendor_ids, self.signatures, strict=True)
        content += [ToolCall(new_id(), name, arguments, vid, sign) for (name, arguments), vid, sign in calls]
        return Heard.of(content)

    @staticmethod
    def of(content: Sequence[Content]) -> Message:
        return Message(new_id(), "assistant", tuple(content), now_ms())


async def listen(model: Model, request: ModelRequest) -> Heard:
    """Collect the chunks of a request."""
    heard = Heard()
    async for chunk in model.stream(request):
        heard.add(chunk)
    return heard


async def ask(codec: Codec, script: Script, **options: Any) -> tuple[Heard, WireServer]:
    """Collect the chunks when a vendor sends the script."""
    async with WireServer(codec.answer(script)) as server:
        model = codec.model(server.url, **options)
        try:
            return await listen(model, HELLO), server
        finally:
            await model.close()  # pyright: ignore[reportAttributeAccessIssue]


async def asked(codec: Codec, request: ModelRequest, **options: Any) -> dict[str, Any]:
    """The request that a vendor receives, validated by its SDK's types."""
    async with WireServer(codec.answer(Script([Says(["ok"])]))) as server:
        model = codec.model(server.url, **options)
        try:
            await listen(model, request)
        finally:
            await model.close()  # pyright: ignore[reportAttributeAccessIssue]
    body = server.requests[0].body
    codec.check(body)
    return body


def history(call: ToolCall | None = None, reply: Message | None = None) -> list[Message]:
    """A conversation of two turns, the first with the given calls."""
    answers = [Heard.of([Text("I look."), call]), reply, Heard.of([Text("It is blue.")])] if call and reply else []
    return [
        user_message("What do you see?"),
        *(answers or [Heard.of([Text("Nothing.")])]),
        user_message("And now?"),
    ]


def RESULT(  # noqa: N802
    call_id: str, name: str, text: str = "blue", *, error: str | None = None, parts: Sequence[Part] = ()
) -> Message:
    """The message with a result."""
    reply = ToolReply(call_id, name, (Text(text), *parts), error)
    return Message(new_id(), "tool", (reply,), now_ms())
