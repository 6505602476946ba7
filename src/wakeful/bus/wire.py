"""The messages on a bus, as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Raw

from ..types.base import Data
from ..types.codec import decode_event, encode
from .protocol import LiveUpdate, LogAdvanced, StreamAdvanced, Update, Wake

__all__ = [
    "Announcement",
    "BusMessage",
    "Command",
    "InboxNotice",
    "Key",
    "Reply",
    "StartRequest",
    "ThreadUpdates",
    "WakeUp",
    "decode_message",
    "decode_updates",
    "pack_updates",
]

Key = tuple[str, str]
"""A tenant and a thread id."""


class Announcement(Data, tag="announce", omit_defaults=True):
    """A member is present and watches these threads. `hello` asks the others to announce themselves too."""

    sender: str
    serves: bool = False
    watches: list[Key] = []
    hello: bool = False
    leaving: bool = False


class WakeUp(Data, tag="wake", omit_defaults=True):
    """A thread is due. `passed_on`: a member refused it before."""

    sender: str
    wake: Wake
    passed_on: bool = False


class InboxNotice(Data, tag="inbox"):
    """A command to a thread's owner: read the inbox."""

    sender: str
    id: str
    tenant: str
    thread_id: str


class StartRequest(Data, tag="start"):
    """A command to a serving member: start a run. `sealed` is readable only with the store's key."""

    sender: str
    id: str
    sealed: bytes


class Reply(Data, tag="reply"):
    """The reply to a command. `proof` shows that a requested run was started."""

    id: str
    is_done: bool
    proof: bytes = b""


class ThreadUpdates(Data, tag="updates"):
    """Updates of a thread and of the threads below it."""

    sender: str
    tenant: str
    thread_id: str
    updates: list[Raw]


Command = InboxNotice | StartRequest
BusMessage = Announcement | WakeUp | InboxNotice | StartRequest | Reply | ThreadUpdates


class _RawLiveUpdate(Data, tag="live"):
    event: Raw


_message_decoder = msgspec.json.Decoder(BusMessage)
_update_decoder = msgspec.json.Decoder(LogAdvanced | StreamAdvanced | _RawLiveUpdate)


def decode_message(body: bytes | str) -> BusMessage | None:
    """Decode a message; None if it is of a kind that only a newer version knows."""
    try:
        return _message_decoder.decode(body)
    except msgspec.DecodeError:
        return None


def decode_updates(message: ThreadUpdates) -> list[Update]:
    """Decode the updates of a message, without kinds that only a newer version knows."""
    found: list[Update] = []
    for raw in message.updates:
        try:
            one = _update_decoder.decode(raw)
            found.append(LiveUpdate(decode_event(bytes(one.event))) if isinstance(one, _RawLiveUpdate) else one)
        except msgspec.DecodeError:
            continue
    return found


def pack_updates(
    sender: str, tenant: str, thread_id: str, updates: Sequence[Update], limit: int
) -> Iterator[bytes]:
    """Encode updates as messages of at most `limit` bytes; drops an update that is larger by itself."""
    room = limit - len(encode(ThreadUpdates(sender, tenant, thread_id, [])))
    batch: list[Raw] = []
    size = 0
    for one in updates:
        encoded = encode(one)
        if len(encoded) + 1 > room:
            continue
        if size + len(encoded) + 1 > room:
            yield encode(ThreadUpdates(sender, tenant, thread_id, batch))
            batch, size = [], 0
        batch.append(Raw(encoded))
        size += len(encoded) + 1
    if batch:
        yield encode(ThreadUpdates(sender, tenant, thread_id, batch))
