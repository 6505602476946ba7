"""Sealed offers: input for a run, encrypted and signed so that a bus can neither read nor forge it.

The key is the store's, so only processes with access to the store can seal and open. A replayed offer has no
effect: the store dedupes the input by its id, and old offers are refused.
"""

from __future__ import annotations

import hmac
from hashlib import sha256, shake_256
from secrets import token_bytes

import msgspec

from ..types.base import Data
from ..types.codec import encode
from ..types.inbox import InputItem

__all__ = ["RunOffer", "make_proof", "open_sealed", "seal"]

# The age limit of a request: its sender waits no longer. If the clocks of two machines differ by more, no run is
# started this way.
MAX_AGE_MS = 250
_NONCE, _TAG = 16, 32


class RunOffer(Data):
    """Input that a worker may start a run with, its tenant, and the time when it was sealed."""

    tenant: str
    at: int
    item: InputItem

    def is_fresh(self, now: int) -> bool:
        """Whether the sender still waits."""
        return abs(now - self.at) <= MAX_AGE_MS


def seal(key: bytes, request: RunOffer) -> bytes:
    """Encrypt a request, then sign it."""
    nonce = token_bytes(_NONCE)
    hidden = _encrypt(key, nonce, encode(request))
    return nonce + hidden + _sign(key, nonce + hidden)


def open_sealed(key: bytes, sealed: bytes, now: int) -> RunOffer | None:
    """Decrypt a request; None if it has another key, is too old, or comes from a newer version."""
    body, tag = sealed[:-_TAG], sealed[-_TAG:]
    if len(body) < _NONCE or not hmac.compare_digest(tag, _sign(key, body)):
        return None
    try:
        request = msgspec.json.decode(_encrypt(key, body[:_NONCE], body[_NONCE:]), type=RunOffer)
    except msgspec.DecodeError:
        return None
    return request if request.is_fresh(now) else None


def make_proof(key: bytes, sealed: bytes) -> bytes:
    """The reply of a worker that started a run with the request; only a holder of the key can make it."""
    return hmac.digest(key, b"begun" + sealed, sha256)


def _encrypt(key: bytes, nonce: bytes, data: bytes) -> bytes:
    """Encrypt or decrypt with a key stream that is unique to the nonce."""
    stream = shake_256(b"hide" + key + nonce).digest(len(data))
    return (int.from_bytes(data) ^ int.from_bytes(stream)).to_bytes(len(data))


def _sign(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, b"sign" + data, sha256)
