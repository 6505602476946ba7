"""Input on its way to whoever begins with it: sealed, so that a bus carries nothing that others can read or forge.

The key is the store's: only processes that have the store can seal and open. What is sent again comes to nothing:
the store knows the input by its id, and what is old is refused.
"""

from __future__ import annotations

import hmac
from hashlib import sha256, shake_256
from secrets import token_bytes

import msgspec
from msgspec import Struct

from ..stores import InboxItem
from ..types.codec import encode

__all__ = ["Begins", "opened", "proof", "sealed"]

# How old what is opened may be: whoever asked waits so long, and then goes another way. Where clocks differ by
# more, nothing is begun this way.
MAX_AGE_MS = 250
_NONCE, _TAG = 16, 32


class Begins(Struct, frozen=True, gc=False):
    """Input that a run may begin with at once, of which tenant, and when that was said."""

    tenant: str
    at: int
    item: InboxItem

    def fresh(self, now: int) -> bool:
        """Whether whoever sent it still waits."""
        return abs(now - self.at) <= MAX_AGE_MS


def sealed(key: bytes, begins: Begins) -> bytes:
    """The input, encrypted and then signed."""
    nonce = token_bytes(_NONCE)
    hidden = _hide(key, nonce, encode(begins))
    return nonce + hidden + _sign(key, nonce + hidden)


def opened(key: bytes, seal: bytes, now: int) -> Begins | None:
    """The input; None if it was sealed with another key, long ago, or by a version that says more."""
    body, tag = seal[:-_TAG], seal[-_TAG:]
    if len(body) < _NONCE or not hmac.compare_digest(tag, _sign(key, body)):
        return None
    try:
        begins = msgspec.json.decode(_hide(key, body[:_NONCE], body[_NONCE:]), type=Begins)
    except msgspec.DecodeError:
        return None
    return begins if begins.fresh(now) else None


def proof(key: bytes, seal: bytes) -> bytes:
    """What only one with the key can answer: that it has begun with this."""
    return hmac.digest(key, b"begun" + seal, sha256)


def _hide(key: bytes, nonce: bytes, data: bytes) -> bytes:
    """Encrypt, or decrypt, with a stream that only the key gives, and that is never used twice."""
    stream = shake_256(b"hide" + key + nonce).digest(len(data))
    return (int.from_bytes(data) ^ int.from_bytes(stream)).to_bytes(len(data))


def _sign(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, b"sign" + data, sha256)
