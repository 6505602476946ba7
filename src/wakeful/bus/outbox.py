"""The queue of a link: messages and updates that wait to be sent."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

from ..types.codec import encode
from .envelopes import AllMembers, Envelope, Watchers
from .protocol import LiveUpdate, LogAdvanced, StreamAdvanced, Update
from .wire import Announcement, Key, pack_updates

__all__ = ["MAX_PENDING", "Outbox"]

MAX_PENDING = 4096
# Bytes of an announcement beside its watched threads.
_ANNOUNCEMENT_BYTES = 200


class Outbox:
    """Pending envelopes, updates and announcements of one member. `changed` is set whenever there is work."""

    def __init__(self, member_id: str) -> None:
        self._member_id = member_id
        self._envelopes: dict[object, Envelope] = {}
        self._updates: dict[Key, list[Update]] = {}
        self._hello = False
        self.changed = asyncio.Event()
        self.is_announcing = False
        # Set once the pending announcement is sent.
        self.announced = asyncio.Event()

    def put(self, envelope: Envelope, key: object = None) -> None:
        """Add an envelope. Replaces a pending one with the same key; drops the oldest if there are too many."""
        if len(self._envelopes) >= MAX_PENDING:
            del self._envelopes[next(iter(self._envelopes))]
        self._envelopes[object() if key is None else key] = envelope
        self.changed.set()

    def publish(self, key: Key, updates: Sequence[Update], *, with_deltas: bool) -> None:
        """Add updates of a thread, merged with the pending ones."""
        pending = self._updates.setdefault(key, [])
        for update in updates:
            if with_deltas or not isinstance(update, LiveUpdate):
                _append(pending, update)
        if len(pending) > MAX_PENDING:
            # Readers detect the gap by the offsets, and read the missing part from the store.
            pending[:] = [update for update in pending if not isinstance(update, LiveUpdate)][-MAX_PENDING:]
        self.changed.set()

    def announce(self, *, hello: bool = False) -> None:
        """Announce the member and its watched threads with the next batch."""
        self.is_announcing = True
        self.announced.clear()
        self._hello |= hello
        self.changed.set()

    def drain(self, watches: Collection[Key], *, serves: bool, max_bytes: int) -> list[Envelope]:
        """Remove and return everything pending. Announcements come first, so that replies find this member."""
        envelopes: list[Envelope] = []
        if self.is_announcing:
            envelopes += self._announcements(watches, serves, max_bytes)
        envelopes += self._envelopes.values()
        self._envelopes.clear()
        for key, updates in self._updates.items():
            bodies = pack_updates(self._member_id, *key, updates, max_bytes)
            envelopes += [Envelope(Watchers(*key), body) for body in bodies]
        self._updates.clear()
        return envelopes

    def _announcements(self, watches: Collection[Key], serves: bool, max_bytes: int) -> list[Envelope]:
        hello, self.is_announcing, self._hello = self._hello, False, False
        pages: list[list[Key]] = [[]]
        size = 0
        for key in watches:
            length = len(encode(key)) + 1
            if size + length > max_bytes - _ANNOUNCEMENT_BYTES:
                pages.append([])
                size = 0
            pages[-1].append(key)
            size += length
        messages = [Announcement(self._member_id, serves, page, hello and not n) for n, page in enumerate(pages)]
        return [Envelope(AllMembers(), encode(message)) for message in messages]


def _append(pending: list[Update], update: Update) -> None:
    """Append an update, or merge it with the last one."""
    last = pending[-1] if pending else None
    if isinstance(update, LogAdvanced) and isinstance(last, LogAdvanced) and last.thread_id == update.thread_id:
        after, head = min(last.after, update.after), max(last.head, update.head)
        pending[-1] = LogAdvanced(update.thread_id, after, head)
    elif not (isinstance(update, StreamAdvanced) and update == last):
        pending.append(update)
