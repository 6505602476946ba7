"""Parts of text and of reasoning that grow in a UI message stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ..growth import Grown

__all__ = ["Track", "data_frame"]

_encode = msgspec.json.Encoder().encode


def data_frame(chunk: Mapping[str, Any]) -> bytes:
    """A chunk as a frame."""
    return b"data: %s\n\n" % _encode(chunk)


class Track:
    """A part of text or of reasoning, as far as it was sent."""

    __slots__ = ("grown", "head", "id", "is_open", "kind", "lags", "message_id", "starts")

    def __init__(self, message_id: str, kind: str) -> None:
        self.message_id = message_id
        self.kind = kind
        self.grown = Grown()
        self.is_open = False
        self.lags = False
        self.starts = 0
        self.id = ""
        self.head = b""

    def start(self) -> bytes:
        """Open a part of its own: a part that was closed isn't opened again."""
        self.starts += 1
        self.is_open = True
        self.id = f"{self.message_id}:{self.kind}{'' if self.starts == 1 else self.starts}"
        self.head = b'data: {"type":"%s-delta","id":%s,"delta":' % (self.kind.encode(), _encode(self.id))
        return data_frame({"type": f"{self.kind}-start", "id": self.id})

    def end(self) -> bytes:
        """Close the part, if it is open."""
        if not self.is_open:
            return b""
        self.is_open = False
        return data_frame({"type": f"{self.kind}-end", "id": self.id})
