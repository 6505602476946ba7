"""Payloads: encoding through a codec, and blobs for what is larger than 32 KiB."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from ...errors import CodecFailed, ConfigurationError, CorruptRow, explain
from ...types.codec import encode
from ...types.messages import Message

__all__ = ["BLOB_BYTES", "UNREADABLE", "Codec", "NoCodec", "Packer", "Sealed"]

BLOB_BYTES = 32 * 1024
MAX_REPORTED = 1000

_CODED, _REFERS = b"\x01", b"\x02"


class Codec(Protocol):
    """A transformation of payloads, such as encryption. It has to decode what earlier keys encoded."""

    def encode(self, data: bytes) -> bytes:
        """Encode a payload for storage."""
        ...

    def decode(self, data: bytes) -> bytes:
        """Decode a stored payload."""
        ...


class Sealed(CorruptRow):
    """The store's codec can't decode a payload."""


class NoCodec(Sealed):
    """A payload needs a codec, and the store was opened without one."""


# The errors of decoding a damaged row.
UNREADABLE = (msgspec.DecodeError, CorruptRow, UnicodeDecodeError, TypeError, KeyError, RecursionError)


class _Reference(Struct, tag="blob"):
    digest: str


class _Parts(Struct):
    content: list[Raw]


class Packer:
    """Packs and unpacks payloads. Packed ones are bytearrays, which both drivers bind without an adapter."""

    def __init__(self, codec: Codec | None = None) -> None:
        ways = [getattr(codec, name, None) for name in ("encode", "decode")]
        if codec is not None and (isinstance(codec, type) or not all(map(callable, ways))):
            raise ConfigurationError(
                f"codec is an object with the methods encode(bytes) and decode(bytes), not {codec!r:.80}"
            )
        self._codec = codec
        self._reported: set[str] = set()

    @property
    def has_codec(self) -> bool:
        """Whether payloads are encoded."""
        return self._codec is not None

    def is_news(self, problem: str) -> bool:
        """Whether a problem is reported for the first time."""
        if problem in self._reported:
            return False
        if len(self._reported) >= MAX_REPORTED:
            self._reported.clear()
        self._reported.add(problem)
        return True

    def pack(self, data: bytes, blobs: dict[str, bytes]) -> bytearray:
        """Encode a payload. A large one goes into `blobs`, and the payload refers to it."""
        if len(data) > BLOB_BYTES:
            return bytearray(_REFERS + self._code(encode(_Reference(self._put(data, blobs)))))
        return bytearray(data if self._codec is None else self._code(data))

    def pack_whole(self, data: bytes) -> bytearray:
        """Encode a payload that belongs to no thread, and so has no blobs."""
        return bytearray(self._code(data))

    def pack_message(self, message: Message, blobs: dict[str, bytes]) -> bytearray:
        """Encode a message without its time, which is a column. Large parts go into `blobs`."""
        message = replace(message, created_at=0)
        data = encode(message)
        if len(data) <= BLOB_BYTES:
            return bytearray(data if self._codec is None else self._code(data))
        parts: list[Any] = []
        for part in message.content:
            small = len(body := encode(part)) <= BLOB_BYTES
            parts.append(part if small else _Reference(self._put(body, blobs)))
        whole = msgspec.json.decode(encode(replace(message, content=())))
        return bytearray(_REFERS + self._code(encode({**whole, "content": parts})))

    def _put(self, data: bytes, blobs: dict[str, bytes]) -> str:
        from hashlib import sha256  # OpenSSL is slow to import, and rarely needed.

        digest = sha256(data).hexdigest()
        blobs[digest] = self._code(data)
        return digest

    def _code(self, data: bytes) -> bytes:
        if self._codec is None:
            return data
        try:
            return _CODED + self._codec.encode(data)
        except Exception as error:
            raise CodecFailed(
                f"the store's codec couldn't encode a payload ({explain(error)}); nothing was written: see to the "
                "codec and the key that it needs, and try again"
            ) from error

    def _plain(self, data: bytes) -> bytes:
        if data[:1] != _CODED:
            return data
        if self._codec is None:
            raise NoCodec("it was written through a codec; open the store with that codec")
        try:
            return bytes(self._codec.decode(data[1:]))
        except Exception as error:
            raise Sealed(f"the codec refuses it: {explain(error)}") from error

    def digests(self, data: bytes | None) -> Sequence[str]:
        """The digests of the blobs that a stored payload refers to."""
        if data is None or data[:1] != _REFERS:
            return ()
        plain = self._plain(data[1:])
        return [r.digest for r in _references(plain)]

    def unpack(self, data: bytes, blobs: dict[str, bytes]) -> bytes:
        """Decode a stored payload to JSON."""
        if data[:1] != _REFERS:
            return self._plain(data)
        plain = self._plain(data[1:])
        if (whole := _reference(plain)) is not None:
            return self._blob(whole.digest, blobs)
        value = msgspec.json.decode(plain)
        parts: list[Raw] = []
        for raw in msgspec.json.decode(plain, type=_Parts).content:
            found = _reference(raw)
            parts.append(raw if found is None else Raw(self._blob(found.digest, blobs)))
        return encode({**value, "content": parts})

    def _blob(self, digest: str, blobs: dict[str, bytes]) -> bytes:
        if digest not in blobs:
            raise CorruptRow(f"blob {digest} is missing")
        return self._plain(blobs[digest])


def _reference(data: bytes | Raw) -> _Reference | None:
    try:
        return msgspec.json.decode(data, type=_Reference)
    except msgspec.ValidationError:
        return None


def _references(plain: bytes) -> Iterable[_Reference]:
    if (whole := _reference(plain)) is not None:
        return [whole]
    found = [_reference(raw) for raw in msgspec.json.decode(plain, type=_Parts).content]
    return [reference for reference in found if reference is not None]
