"""Bodies, queries and replies of memories."""

from __future__ import annotations

from msgspec import Struct

from ..types.records import MemoryScope
from .pages import PageQuery

__all__ = ["EditMemory", "EraseMemories", "Erased", "ListMemories", "PutMemory", "SearchMemories"]


class ListMemories(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The notes about a user, an agent or a thread: its id is `scope_id`."""

    scope: MemoryScope
    scope_id: str


class SearchMemories(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The notes about a user, an agent or a thread with words of the query."""

    scope: MemoryScope
    scope_id: str
    query: str
    limit: int = 20

    def __post_init__(self) -> None:
        if not 1 <= self.limit <= 100:
            raise ValueError(f"limit is from 1 to 100, not {self.limit}")


class PutMemory(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A note: its text replaces that of the note under the same key."""

    scope: MemoryScope
    scope_id: str
    key: str
    text: str


class EditMemory(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The new text of a note."""

    text: str


class EraseMemories(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The user, the agent or the thread whose notes are erased."""

    scope: MemoryScope
    scope_id: str


class Erased(Struct, frozen=True, kw_only=True):
    """The number of erased notes."""

    erased: int
