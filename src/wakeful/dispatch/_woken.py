"""Input that a wake-up brings along, so that whoever hears of it can begin before it has asked the store."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ..stores import Committed, InboxItem, ThreadRecord, ThreadView
from ..types.codec import encode

__all__ = ["Begins"]


class Begins(Struct, frozen=True, gc=False, omit_defaults=True):
    """Input that was put into the inbox of a thread that nobody ran, and where the thread stood then. It is a hint
    like every other: what is begun with it is refused by the store if the thread moved since."""

    item: InboxItem
    version: int = 0
    head: int = 0
    epoch: int = 0
    inbox_head: int = 1

    @classmethod
    def of(cls, item: InboxItem, committed: Committed) -> Raw | UnsetType:
        """What a wake-up says of input that was just written; nothing, if its time is yet to come."""
        if item.at is not None:
            return UNSET
        found = cls(item, committed.version, committed.head, committed.epoch, committed.inbox_head)
        return Raw(encode(found))

    @classmethod
    def read(cls, begins: Raw | UnsetType) -> Begins | None:
        """What a wake-up said; None if it said nothing that this version knows."""
        try:
            return None if begins is UNSET else msgspec.json.decode(begins, type=cls)
        except msgspec.DecodeError:
            return None

    @property
    def view(self) -> ThreadView | None:
        """The thread's view, if this input is all that there ever was of it; else the store has it."""
        if (self.version, self.head, self.epoch, self.inbox_head) != (0, 0, 0, 1):
            return None
        return ThreadView(thread=ThreadRecord(id=self.item.thread_id, inbox_head=1), inbox=(self.item,))

    def holds(self, stored: ThreadView) -> bool:
        """Whether the thread stands where it stood and is due for nothing else: nobody claimed it since, and no
        attempt was made."""
        thread, same = stored.thread, [item.id for item in stored.inbox] == [self.item.id]
        return same and stored.run is None and not thread.claimed and thread.epoch == self.epoch
