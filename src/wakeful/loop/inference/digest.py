"""Digests of requests: what was sent to a model, as one short value that an audit can compare."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from ...models import ModelRequest
from ...types.codec import encode
from ...types.messages import Message

__all__ = ["RequestDigests"]


class RequestDigests:
    """Digests of an activation's requests. A message is hashed once, while the messages before it stay the same.

    A digest is the SHA-256 of the system text, tools, settings, output schema and server tools, and of the role
    and content of each message in order. Ids and times don't count: no model is shown them.
    """

    __slots__ = ("_frame", "_framed", "_hash", "_seen", "names")

    def __init__(self) -> None:
        self._frame: tuple[Any, ...] = ()
        self._framed = b""
        self._hash = sha256()
        self._seen: list[Message] = []
        self.names: tuple[str, ...] = ()

    def digest(self, request: ModelRequest) -> str:
        """The digest of a request; sets `names` to the names of its tools."""
        frame = (request.system, request.tools, request.settings, request.output, request.server_tools)
        if frame != self._frame:
            self._frame, self._framed = frame, sha256(_encode(frame)).digest()
            self.names = tuple([spec.name for spec in request.tools])
        given, seen = request.messages, self._seen
        messages = given if isinstance(given, list) else list(given)
        size = len(seen)
        if size and seen != messages[:size]:
            self._hash, size = sha256(), 0
            seen.clear()
        new = messages[size:]
        for message in new:
            self._hash.update(_encode((message.role, message.content)))
        seen += new
        whole = self._hash.copy()
        whole.update(self._framed)
        return whole.hexdigest()


def _encode(value: Any) -> bytes:
    """A value as JSON, or its `repr` if JSON can't hold it: settings take objects of the vendor's library."""
    try:
        return encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return repr(value).encode("utf-8", "backslashreplace")
