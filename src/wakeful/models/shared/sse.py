"""Server-sent events with JSON data, read from the bytes of a response."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec

__all__ = ["DONE", "decode_json", "read_events", "starts_events"]

DONE = "[DONE]"
"""The mark after the last event of OpenAI's APIs."""

_decode = msgspec.json.Decoder().decode
_FIELDS = (b"data:", b"event:", b"id:", b"retry:", b":")


async def read_events(pieces: AsyncIterator[bytes]) -> AsyncIterator[Any]:
    """Decode the data of each event. `DONE` is yielded as is. A body of JSON without events is one event.

    Raises `ValueError` for data that isn't JSON. The last event may lack its end, as some servers omit it.
    """
    buffer, data = b"", list[bytes]()
    is_body: bool | None = None
    async for piece in pieces:
        buffer += piece
        if is_body is None and (start := buffer.lstrip(b"\xef\xbb\xbf \r\n\t")):
            is_body, buffer = start[:1] in b"{[", start
        if is_body or not (end := buffer.rfind(b"\n") + 1):
            continue
        lines, buffer = buffer[:end].splitlines(), buffer[end:]
        for line in lines:
            if line[:5] == b"data:":
                data.append(line[6:] if line[5:6] == b" " else line[5:])
            elif not line and data:
                joined, data = b"\n".join(data), []
                if joined:
                    yield _value(joined)
    if is_body:
        yield decode_json(buffer)
        return
    data += [line[5:].lstrip() for line in buffer.splitlines() if line[:5] == b"data:"]
    if joined := b"\n".join(data):
        yield _value(joined)


def starts_events(start: bytes) -> bool:
    """Whether a body starts as a stream of events, whatever its media type says."""
    return start.lstrip(b"\xef\xbb\xbf \r\n\t").startswith(_FIELDS)


def decode_json(data: bytes) -> Any:
    """Decode JSON. Raises `ValueError`."""
    try:
        return _decode(data)
    except msgspec.DecodeError:
        return json.loads(data)  # Takes half a surrogate pair, which some servers send.


def _value(data: bytes) -> Any:
    return DONE if data[:6] == b"[DONE]" else decode_json(data)
