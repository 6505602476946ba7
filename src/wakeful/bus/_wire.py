"""What processes say to each other on a bus, as JSON: ids, numbers, and live events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Raw, Struct

from ..types.codec import decode_event, encode
from ._protocol import Grown, Moved, News, Shown, Wake

__all__ = ["Announce", "Begin", "Happened", "Heard", "Letter", "Tell", "WakeUp", "news_of", "parse", "split"]

Key = tuple[str, str]
"""A tenant and a thread."""


class Announce(Struct, frozen=True, tag="announce", omit_defaults=True):
    """Somebody is there, and watches these threads. `hello` asks the others to say the same."""

    sender: str
    serves: bool = False
    watches: list[Key] = []
    hello: bool = False
    leaving: bool = False


class WakeUp(Struct, frozen=True, tag="wake", omit_defaults=True):
    """A thread is due. One that was passed on was refused by somebody before."""

    sender: str
    wake: Wake
    passed_on: bool = False


class Tell(Struct, frozen=True, tag="tell"):
    """A live command to a thread's owner: look into its inbox."""

    sender: str
    id: str
    tenant: str
    thread_id: str


class Begin(Struct, frozen=True, tag="begin"):
    """A run to begin, asked of one that serves. What it is, only those know who have the store."""

    sender: str
    id: str
    sealed: bytes


class Heard(Struct, frozen=True, tag="heard"):
    """The answer to a command: whether it was done, and for a run that was begun the proof of it."""

    id: str
    heard: bool
    proof: bytes = b""


class Happened(Struct, frozen=True, tag="happened"):
    """What happened on a thread, or below it."""

    sender: str
    tenant: str
    thread_id: str
    news: list[Raw]


Letter = Announce | WakeUp | Tell | Begin | Heard | Happened


class _ShownRaw(Struct, frozen=True, tag="shown"):
    event: Raw


_letters = msgspec.json.Decoder(Letter)
_news = msgspec.json.Decoder(Moved | Grown | _ShownRaw)


def parse(body: bytes | str) -> Letter | None:
    """The letter; None if a newer version wrote what this one doesn't know."""
    try:
        return _letters.decode(body)
    except msgspec.DecodeError:
        return None


def news_of(letter: Happened) -> list[News]:
    """What happened, without what this version doesn't know."""
    found: list[News] = []
    for raw in letter.news:
        try:
            one = _news.decode(raw)
            found.append(Shown(decode_event(bytes(one.event))) if isinstance(one, _ShownRaw) else one)
        except msgspec.DecodeError:
            continue
    return found


def split(sender: str, tenant: str, thread_id: str, news: Sequence[News], limit: int) -> Iterator[bytes]:
    """The news as letters of at most so many bytes; what alone is larger is left out."""
    room = limit - len(encode(Happened(sender, tenant, thread_id, [])))
    batch: list[Raw] = []
    size = 0
    for one in news:
        encoded = encode(one)
        if len(encoded) + 1 > room:
            continue
        if size + len(encoded) + 1 > room:
            yield encode(Happened(sender, tenant, thread_id, batch))
            batch, size = [], 0
        batch.append(Raw(encoded))
        size += len(encoded) + 1
    if batch:
        yield encode(Happened(sender, tenant, thread_id, batch))
