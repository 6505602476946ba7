"""Tool calls of a Chat Completions stream, however a server numbers them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec
from msgspec import Struct

from ...errors import StreamBroken
from ..protocol import CallDeltaChunk, CallStartChunk, Chunk

__all__ = ["CallReader"]


class _Call(Struct, eq=False):
    """A call that has started. `has_name` is False until the server says its name."""

    position: int
    id: str | None
    has_name: bool
    pieces: list[str] = []

    @property
    def is_whole(self) -> bool:
        """Whether the arguments are a complete object, which can't grow."""
        try:
            return isinstance(msgspec.json.decode("".join(self.pieces)), dict)
        except msgspec.DecodeError:
            return False


class CallReader:
    """Tells the calls of one answer apart.

    Servers use one index for all calls, or none, repeat the id or the name with each delta, or send neither id nor
    index. `broken` makes the error for deltas that belong to no call.
    """

    __slots__ = ("_broken", "_by_index", "_calls")

    def __init__(self, broken: Callable[[str], StreamBroken]) -> None:
        self._broken = broken
        self._calls: list[_Call] = []
        # The newest call of each index of the server's; of None for calls without an index.
        self._by_index: dict[Any, _Call] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def read(self, delta: Mapping[str, Any], chunks: list[Chunk], *, index: Any = None) -> None:
        """Read a delta of a call, or a whole call. `index` is its place in a message that has no indexes."""
        index = delta.get("index", index)
        function: Any = delta.get("function") or delta.get("custom") or {}
        name, ident = function.get("name"), delta.get("id")
        ident = str(ident) if ident not in (None, "") else None
        call = self._by_index.get(index)
        arguments = function.get("arguments")
        if "input" in function and "custom" in delta:
            arguments = {"input": function["input"]}
        if call is None or _is_other(call, ident, name):
            if not name and not ident:
                if call is None:
                    raise self._broken("it has arguments for a tool call that never started")
                self._append(call, arguments, chunks)
                return
            call = _Call(len(self._calls), ident, False)
            self._by_index[index] = call
            self._calls.append(call)
        if name and not call.has_name:
            call.has_name = True
            chunks.append(CallStartChunk(call.position, str(name), call.id, _signature(delta)))
            early, call.pieces = call.pieces, []
            for piece in early:
                self._append(call, piece, chunks)
        self._append(call, arguments, chunks)

    def check(self) -> None:
        """Raise `StreamBroken` for a call without a name."""
        if not all(call.has_name for call in self._calls):
            raise self._broken("it has a tool call without a name")

    def _append(self, call: _Call, arguments: Any, chunks: list[Chunk]) -> None:
        if arguments is None or arguments == "":
            return
        text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
        call.pieces.append(text)
        if call.has_name:
            chunks.append(CallDeltaChunk(call.position, text))


def _is_other(call: _Call, ident: str | None, name: Any) -> bool:
    """Whether a delta under the index of `call` starts another one."""
    if ident is not None and call.id is not None:
        return ident != call.id
    return bool(name) and call.has_name and ident is None and call.is_whole


def _signature(delta: Mapping[str, Any]) -> str | None:
    """Gemini's signature of a call, in the forms of its own API and of gateways."""
    for holder in (delta, delta.get("function")):
        if not isinstance(holder, dict):
            continue
        found = cast(dict[str, Any], holder)
        extra: Any = found.get("extra_content")
        google: Any = cast(dict[str, Any], extra).get("google") if isinstance(extra, dict) else None
        for fields in (google, found.get("provider_specific_fields")):
            if isinstance(fields, dict) and isinstance(
                sign := cast(dict[str, Any], fields).get("thought_signature"), str
            ):
                return sign
    return None
