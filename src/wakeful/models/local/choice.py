"""The choice between answering and calling a tool: the schema of the output, and its incremental reader."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal, cast

from ...types.requests import OutputSpec, ToolSpec
from ..protocol import CallDeltaChunk, CallStartChunk, TextChunk

__all__ = ["ChoiceReader", "choice_schema", "choice_text"]


def choice_schema(tools: Sequence[ToolSpec], output: OutputSpec | None, choice: str) -> dict[str, Any] | None:
    """Build the schema of the output; None for free text. `choice` is `auto`, `required` or the name of a tool."""
    if not tools:
        return None if output is None else output.schema
    options: list[dict[str, Any]] = []
    if choice == "auto":
        answer = {"type": "string"} if output is None else _rebase(output.schema, "#/anyOf/0/properties/answer/")
        options.append(_object_schema({"answer": answer}))
    for tool in [tool for tool in tools if choice in ("auto", "required", tool.name)]:
        parameters = _rebase(tool.parameters, f"#/anyOf/{len(options)}/properties/arguments/")
        options.append(_object_schema({"call": {"const": tool.name}, "arguments": parameters}))
    return {"anyOf": options}


def _object_schema(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _rebase(schema: Any, to: str) -> Any:
    """Rebase the references of a schema to its new position."""
    if isinstance(schema, dict):
        found = cast(dict[str, Any], schema)
        return {
            key: to + value.removeprefix("#/") if key == "$ref" and isinstance(value, str) else _rebase(value, to)
            for key, value in found.items()
        }
    if isinstance(schema, list):
        return [_rebase(each, to) for each in cast(list[Any], schema)]
    return schema


def choice_text(*, answer: str | None = None, call: str | None = None, arguments: Any = None) -> str:
    """Format a choice as the model writes it."""
    choice = {"answer": answer} if call is None else {"call": call, "arguments": arguments}
    return json.dumps(choice, ensure_ascii=False, separators=(",", ":"))


_ANSWER_TEXT = re.compile(r'\s*\{\s*"answer"\s*:\s*"')
_ANSWER_VALUE = re.compile(r'\s*\{\s*"answer"\s*:\s*(?=\S)')
_CALL = re.compile(r'\s*\{\s*"call"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"arguments"\s*:\s*(?=\S)')
# An incomplete escape sequence, kept until the rest arrives.
_UNFINISHED = re.compile(r"(\\u[dD][89abAB][0-9a-fA-F]{2})?(\\(u[0-9a-fA-F]{0,3})?)?\Z")


class ChoiceReader:
    """Reads the JSON object incrementally and yields chunks as early as possible."""

    def __init__(self, output: OutputSpec | None) -> None:
        self._typed = output is not None
        self._buffer = ""
        self._state: Literal["begin", "text", "value", "arguments", "end"] = "begin"
        self._depth = 0
        self._quoted = False
        self._escaped = False
        self.called = False

    def read(self, piece: str) -> Iterator[TextChunk | CallStartChunk | CallDeltaChunk]:
        """Read the next piece of output."""
        self._buffer += piece
        if self._state == "begin":
            yield from self._read_start()
        if self._state == "text" and (text := self._text()):
            yield TextChunk(text)
        elif self._state in ("value", "arguments"):
            called = self._state == "arguments"
            if text := self._value():
                yield CallDeltaChunk(0, text) if called else TextChunk(text)

    def _read_start(self) -> Iterator[CallStartChunk]:
        found = _CALL.match(self._buffer)
        if found is not None:
            self.called, self._state = True, "arguments"
            yield CallStartChunk(0, json.loads(found[1]))
        elif (found := (_ANSWER_VALUE if self._typed else _ANSWER_TEXT).match(self._buffer)) is not None:
            self._state = "value" if self._typed else "text"
        if found is not None:
            self._buffer = self._buffer[found.end() :]

    def _text(self) -> str:
        """Decode the complete part of a JSON string."""
        held, end = self._buffer, 0
        while (quote := held.find('"', end)) >= 0 and _odd_backslashes(held, quote):
            end = quote + 1
        if quote >= 0:
            self._state, sure = "end", held[:quote]
        else:
            unfinished = _UNFINISHED.search(held)
            sure = held[: unfinished.start() if unfinished is not None else len(held)]
            if _odd_backslashes(held, len(sure)):  # The first backslash belongs to the escape before.
                sure = held[: len(sure) + 1]
        self._buffer = held[len(sure) :]
        return json.loads(f'"{sure}"', strict=False)

    def _value(self) -> str:
        """Return the next part of a JSON value, up to the brace that closes the choice."""
        held, self._buffer = self._buffer, ""
        for place, sign in enumerate(held):
            if self._escaped:
                self._escaped = False
            elif self._quoted:
                self._quoted, self._escaped = sign != '"', sign == "\\"
            elif sign == '"':
                self._quoted = True
            elif sign in "{[":
                self._depth += 1
            elif sign in "}]":
                if not self._depth:
                    self._state = "end"
                    return held[:place]
                self._depth -= 1
        return held


def _odd_backslashes(text: str, end: int) -> bool:
    """Whether an odd number of backslashes precedes an index."""
    place = end
    while place and text[place - 1] == "\\":
        place -= 1
    return (end - place) % 2 == 1
