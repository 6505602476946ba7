"""Function calls of Gemini, whose arguments may be streamed as values at JSON paths."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from ..protocol import CallChunk

__all__ = ["PartialCalls", "text_or_none"]

_KEY = re.compile(r"""\.([^.\[\]]+)|\[(\d+)\]|\[(?:'([^']*)'|"([^"]*)")\]""")
_VALUES = ("stringValue", "numberValue", "boolValue")


class PartialCalls:
    """The calls of one answer: complete ones at once, and one whose arguments follow piece by piece."""

    def __init__(self) -> None:
        self._open: dict[str, Any] | None = None
        self._arguments: dict[str, Any] = {}
        self._signature: str | None = None
        # The path of a text that goes on in the next piece.
        self._path = ""

    def add(self, call: dict[str, Any], signature: str | None) -> Iterator[CallChunk]:
        """Read a call or a piece of one."""
        pieces, goes_on = call.get("partialArgs") or (), bool(call.get("willContinue"))
        name, begins = call.get("name"), bool(call.get("name"))
        if begins and self._open is not None:
            yield from self.end()
        if begins and not pieces and not goes_on:
            yield CallChunk(_text(name), _object(call.get("args")), text_or_none(call.get("id")), signature)
            return
        if begins:
            self._open, self._arguments, self._signature = call, dict(_object(call.get("args"))), None
        if self._open is None:
            raise ValueError("it has arguments for no call")
        self._signature = signature or self._signature
        for piece in pieces:
            self._put(piece)
        if not goes_on:
            yield from self.end()

    def end(self) -> Iterator[CallChunk]:
        """Complete the open call, if there is one."""
        call, self._open = self._open, None
        if call is not None:
            yield CallChunk(_text(call["name"]), self._arguments, text_or_none(call.get("id")), self._signature)

    def _put(self, piece: dict[str, Any]) -> None:
        path = _text(piece["jsonPath"])
        value = next((piece[name] for name in _VALUES if name in piece), None)
        keys = [
            int(index) if index else name or single or double for name, index, single, double in _KEY.findall(path)
        ]
        if not keys:
            raise ValueError(f"{path!r:.80} is no path of an argument")
        at: Any = self._arguments
        for key, following in pairwise(keys):
            at = _child(at, key, list[Any]() if isinstance(following, int) else dict[str, Any]())
        before = _child(at, keys[-1], None)
        if path == self._path and isinstance(before, str) and isinstance(value, str):
            value = before + value
        at[keys[-1]] = value
        self._path = path if piece.get("willContinue") else ""


def _child(at: Any, key: str | int, default: Any) -> Any:
    """The value under a key, made if it is missing."""
    if isinstance(key, int):
        if not isinstance(at, list) or key > len(at):  # pyright: ignore[reportUnknownArgumentType]
            raise ValueError(f"it has an argument at [{key}], which doesn't follow the one before")
        if key == len(at):  # pyright: ignore[reportUnknownArgumentType]
            at.append(default)  # pyright: ignore[reportUnknownMemberType]
        return at[key]  # pyright: ignore[reportUnknownVariableType]
    return at.setdefault(key, default)


def text_or_none(value: Any) -> str | None:
    """Check that a value is a text or missing; raises `TypeError`."""
    return None if value is None else _text(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.80} isn't a text")
    return value


def _object(value: Any) -> dict[str, Any]:
    return {} if value is None else value
