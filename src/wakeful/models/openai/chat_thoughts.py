"""Reasoning of Chat Completions, in the fields of each server, and how it is sent back.

A `Thinking` of these servers names its field in `signature`, or has fields with signatures as JSON in `encrypted`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

from ...types.content import Thinking
from ..protocol import Chunk, ReasoningChunk

__all__ = ["THINKING", "ReasoningReader", "is_fields", "reasoning_fields"]

THINKING = "thinking"
"""Stands for reasoning among the content, as Mistral sends it."""

# DeepSeek, vLLM and many others use the first name; Ollama, Groq, Cerebras and OpenRouter the second; gateways
# the others.
_TEXTS = ("reasoning_content", "reasoning", "reasoning_text", "thinking")
# Lists of objects, some signed: OpenRouter's and Vercel's; LiteLLM's.
_LISTS = ("reasoning_details", "thinking_blocks")
# The fields of these objects that are streamed in pieces.
_GROWING = ("text", "summary", "thinking")


class ReasoningReader:
    """Collects the reasoning of one answer, and closes it where other content begins."""

    __slots__ = ("_field", "_fields", "vendor")

    def __init__(self, vendor: str) -> None:
        self.vendor = vendor
        # The field of the open text, and the fields to send back as they are.
        self._field: str | None = None
        self._fields: dict[str, Any] = {}

    @property
    def is_open(self) -> bool:
        """Whether other content must close the reasoning first."""
        return self._field is not None

    def read(self, delta: Mapping[str, Any], chunks: list[Chunk]) -> bool:
        """Read the reasoning of a delta. Returns whether its content is reasoning, too, as Gemini marks it."""
        text, field = "", None
        for name in _TEXTS:
            if isinstance(delta.get(name), str) and delta[name]:
                text, field = delta[name], name
                break
        for name in _LISTS:
            if items := _objects(delta.get(name)):
                text = text or "".join([_text_of(item) for item in items])
                field = field or name
                self._merge(name, items)
        google = _google(delta)
        is_content = google.get("thought") is True and isinstance(delta.get("content"), str)
        if is_content:
            text, field = delta["content"].removeprefix("<thought>").removesuffix("</thought>"), "content"
        if google.get("thought_signature"):
            self._fields["extra_content"] = {"google": {"thought_signature": google["thought_signature"]}}
        if field is not None:
            self.add(text, field, chunks)
        return is_content

    def add(self, text: str, field: str, chunks: list[Chunk]) -> None:
        """Add a piece of reasoning."""
        self._field = field
        if text:
            chunks.append(ReasoningChunk(text))

    def close(self, chunks: list[Chunk]) -> None:
        """End the open reasoning, with what is to be sent back."""
        if self._fields:
            encrypted = msgspec.json.encode(self._fields).decode()
            chunks.append(ReasoningChunk("", None, encrypted, self.vendor))
        elif self._field is not None:
            chunks.append(ReasoningChunk("", self._field, None, self.vendor))
        self._field, self._fields = None, {}

    def _merge(self, name: str, items: Iterable[dict[str, Any]]) -> None:
        """Join streamed pieces of one object."""
        found: list[dict[str, Any]] = self._fields.setdefault(name, [])
        for item in items:
            last = found[-1] if found else {}
            key = next((key for key in _GROWING if isinstance(item.get(key), str)), None)
            is_same = last.get("type") == item.get("type") and last.get("index") == item.get("index")
            if not is_same or last.get("signature") or not (key or item.get("signature")):
                found.append(dict(item))
                continue
            grown = {key: (last.get(key) or "") + item[key]} if key else {}
            last |= {field: value for field, value in item.items() if value is not None} | grown


def is_fields(encrypted: str) -> bool:
    """Whether an encrypted value has the fields of a message, as `ReasoningReader` keeps them."""
    return encrypted.startswith("{")


def reasoning_fields(thoughts: Iterable[Thinking], field: str | None) -> dict[str, Any]:
    """The fields of a message for its reasoning. Texts are sent in `field`, if there is one."""
    fields: dict[str, Any] = {}
    texts: list[str] = []
    for thought in thoughts:
        if thought.encrypted is None:
            texts.append(thought.text)
            continue
        for name, value in msgspec.json.decode(thought.encrypted, type=dict[str, Any]).items():
            fields[name] = [*fields.get(name, ()), *value] if isinstance(value, list) else value
    if field not in (None, THINKING) and (text := "".join(texts)):
        fields[field] = text
    return fields


def _objects(value: Any) -> list[dict[str, Any]]:
    items = cast(list[Any], value) if isinstance(value, list) else []
    return [cast(dict[str, Any], item) for item in items if isinstance(item, dict)]


def _text_of(item: Mapping[str, Any]) -> str:
    return next((item[key] for key in _GROWING if isinstance(item.get(key), str)), "")


def _google(delta: Mapping[str, Any]) -> Mapping[str, Any]:
    extra: Any = delta.get("extra_content")
    google: Any = cast(dict[str, Any], extra).get("google") if isinstance(extra, dict) else None
    return cast(dict[str, Any], google) if isinstance(google, dict) else {}
