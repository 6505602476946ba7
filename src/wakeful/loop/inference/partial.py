"""A typed output while it is streamed: as much of it as is there, and fits the schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import msgspec

from ...tools.schema.validate import value_fault

__all__ = ["PartialReader"]

# Characters of an output that is shown in parts, and the share by which a text must grow before the next look,
# which costs time by the length of the text.
_LIMIT, _SHARE = 262_144, 64
# Keywords that only a complete value fulfils.
_OF_WHOLES = ("required", "minItems", "minProperties", "minLength", "minContains", "not")


class PartialReader:
    """Reads the text of an answer piece by piece.

    A text field is shown while it grows, unless the schema restricts it; a number is shown once it is complete.
    """

    __slots__ = ("_end", "_is_relaxed", "_looked", "_scan", "_schema", "_shown", "size")

    def __init__(self, schema: dict[str, Any]) -> None:
        self._schema: Any = schema
        self._is_relaxed = False
        self.restart("")

    def restart(self, text: str) -> None:
        """Begin again with a text."""
        self.size = self._looked = 0
        self._shown: Any = None
        # The characters of JSON that were shown: nothing that was shown is taken back.
        self._end = 0
        self._scan = _Scan()
        if text:
            self.add(text)

    def add(self, piece: str) -> None:
        """Read another piece of the text."""
        self.size += len(piece)
        if self.size <= _LIMIT:
            self._scan.add(piece)

    def look(self) -> Any:
        """The output so far, if it has changed since the last look, and fits; else None."""
        scan = self._scan
        if self.size > _LIMIT or (not scan.is_over and self.size - self._looked < self.size // _SHARE):
            return None
        self._looked = self.size
        if not self._is_relaxed:
            self._schema, self._is_relaxed = _relaxed(self._schema), True
        for end, text in scan.candidates():
            if end < self._end:
                continue
            try:
                value = msgspec.json.decode(text)
            except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
                continue
            if value_fault(value, self._schema) is None:
                if value == self._shown:
                    return None
                self._shown, self._end = value, end
                return value
        return None


class _Scan:
    """The structure of an unfinished JSON text: where it can be cut, and what closes it there."""

    def __init__(self) -> None:
        self.is_over = False
        self._text: list[str] = []
        # The closers of the open containers, innermost last.
        self._open: list[str] = []
        self._is_key = self._in_text = self._is_escaped = self._in_scalar = False
        # Hexadecimal digits that an escape still lacks.
        self._digits = 0
        # The length up to which values are complete, with the closers there.
        self._cut = 0
        self._closers = ""

    def add(self, piece: str) -> None:
        """Read a piece."""
        for char in piece:
            if self.is_over or not (self._open or char in "{["):
                continue  # What is around the JSON, such as a fence.
            self._text.append(char)
            if self._in_text:
                self._add_to_text(char)
            else:
                self._add_outside(char)

    def candidates(self) -> Iterator[tuple[int, str]]:
        """The text and its length, closed where it ends and where its last complete value ends."""
        if self._in_text and not self._is_key and not (self._is_escaped or self._digits):
            yield len(self._text), "".join([*self._text, '"', *reversed(self._open)])
        if self._cut:
            yield self._cut, "".join(self._text[: self._cut]) + self._closers

    def _add_to_text(self, char: str) -> None:
        if self._digits:
            self._digits -= 1
        elif self._is_escaped:
            self._is_escaped = False
            self._digits = 4 if char == "u" else 0
        elif char == "\\":
            self._is_escaped = True
        elif char == '"':
            self._in_text = False
            if not self._is_key:
                self._mark()

    def _add_outside(self, char: str) -> None:
        if self._in_scalar and char in ",]} \t\r\n":
            self._in_scalar = False
            self._mark(before=1)
        match char:
            case "{" | "[":
                self._open.append("}" if char == "{" else "]")
                self._is_key = char == "{"
                self._mark()
            case "}" | "]":
                self._open.pop()
                self._mark()
                self.is_over = not self._open
            case '"':
                self._in_text = True
            case ":":
                self._is_key = False
            case ",":
                self._is_key = self._open[-1] == "}"
            case " " | "\t" | "\r" | "\n":
                pass
            case _:
                self._in_scalar = True

    def _mark(self, before: int = 0) -> None:
        self._cut = len(self._text) - before
        self._closers = "".join(reversed(self._open))


def _relaxed(schema: Any) -> Any:
    """The schema without what only a complete value fulfils."""
    if isinstance(schema, list):
        return [_relaxed(one) for one in cast(list[Any], schema)]
    if not isinstance(schema, dict):
        return schema
    made: dict[str, Any] = {}
    for name, value in cast(dict[str, Any], schema).items():
        if name in ("properties", "patternProperties", "$defs") and isinstance(value, dict):
            made[name] = {key: _relaxed(inner) for key, inner in cast(dict[str, Any], value).items()}
        elif name == "oneOf":
            made["anyOf"] = _relaxed(value)
        elif name in ("enum", "const", "default", "examples"):
            made[name] = value
        elif name not in _OF_WHOLES:
            made[name] = _relaxed(value)
    return made
