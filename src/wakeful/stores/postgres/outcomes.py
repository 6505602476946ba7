"""Whether a statement was executed whose reply was lost with its connection.

A commit under a fence is found by the thread's epoch and version, or by `handed`, the version at the last change
of owner. A new thread is found by its number, other commits by the id that they note on their thread, and
deliveries and edits by the rows that they wrote.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from ..conditions import writes
from ..heads import Facts, Head
from ..records import Commit
from ..sql.operations import Rows
from ..writes import GroupWrites
from .facts import Loaded
from .statements import GuardRow

__all__ = ["Decided", "is_found_by_version", "is_written", "load_edits"]

_STORED = """SELECT 'relay', r.id, r.revision, r.payload
    FROM unnest($1::text[], $2::text[]) AS k(tenant, id) JOIN relays r ON r.tenant = k.tenant AND r.id = k.id
UNION ALL SELECT 'item_changed', i.id, i.revision, i.payload
    FROM unnest($3::text[], $4::text[]) AS k(tenant, id) JOIN inbox i ON i.tenant = k.tenant AND i.id = k.id
UNION ALL SELECT 'record', r.kind || ' ' || r.id, r.revision, r.payload
    FROM unnest($5::text[], $6::text[], $7::text[]) AS k(tenant, kind, id)
    JOIN records r ON r.tenant = k.tenant AND r.kind = k.kind AND r.id = k.id
UNION ALL SELECT 'record_drop', k.kind || ' ' || k.id, 0, ''
    FROM unnest($8::text[], $9::text[], $10::text[]) AS k(tenant, kind, id)
    LEFT JOIN records r ON r.tenant = k.tenant AND r.kind = k.kind AND r.id = k.id WHERE r.id IS NULL"""

_PUT = ("record_new", "record")

Edit = tuple[str, str, int, bytes]
"""A relay, an item or a record as it is stored: operation, id, revision, payload; or a record that is gone."""


class Decided(Struct, frozen=True):
    """A group with the facts that it was decided by, and what the statement was given for it."""

    facts: Facts
    group: GroupWrites
    guards: list[GuardRow]
    rows: Rows
    commit_id: str | None


def is_found_by_version(commit: Commit) -> bool:
    """Whether the version of the thread tells if the commit was written: only its owner moves that."""
    return commit.fence is not None and writes(commit)


def is_written(tenant: str, decided: Decided, loaded: Loaded, edits: set[Edit]) -> bool:
    """Whether a group is in the database, by the facts that were loaded after the connection broke."""
    commit = decided.group.writes[0].commit
    thread_id = commit.thread_id
    before, after = decided.facts.heads[thread_id], decided.group.facts.heads[thread_id]
    found = loaded.heads[tenant, thread_id]
    if after.no and not before.no:
        return found.no == after.no
    if is_found_by_version(commit):
        return _has_version(found, before.no, after)
    if decided.commit_id is not None and loaded.last_commits.get((tenant, thread_id)) == decided.commit_id:
        return True
    wrote = _edits_of(decided.rows)
    if wrote:
        return wrote <= edits
    if commit.claim is not None or commit.release or writes(commit):
        return False
    delivered = [delivery.item.id for one in decided.group.writes for delivery in one.deliveries]
    return bool(delivered) and all(loaded.items.get((tenant, item_id)) is not None for item_id in delivered)


def _has_version(found: Head, no: int, after: Head) -> bool:
    if found.no != no:
        return False
    if found.epoch == after.epoch:
        return found.version >= after.version
    return found.epoch == after.epoch + 1 and found.handed >= after.version


def _edits_of(rows: Rows) -> set[Edit]:
    relays = {("relay", row[1], row[9], bytes(row[10])) for row in rows.get("relay", ())}
    items = {("item_changed", row[1], row[4], bytes(row[5])) for row in rows.get("item_changed", ())}
    put = [row for name in _PUT for row in rows.get(name, ())]
    records = {("record", f"{row[1]} {row[2]}", row[4], bytes(row[5])) for row in put}
    gone = {("record_drop", f"{row[1]} {row[2]}", 0, b"") for row in rows.get("record_drop", ())}
    return relays | items | records | gone


async def load_edits(connection: Any, decided: list[Decided]) -> set[Edit]:
    """The stored relays, items and records that these groups may have written."""

    def columns(names: Sequence[str], width: int) -> list[list[Any]]:
        """The first columns of the rows of these operations."""
        rows = [row for one in decided for name in names for row in one.rows.get(name, ())]
        return [[row[n] for row in rows] for n in range(width)]

    args = [
        *columns(("relay",), 2),
        *columns(("item_changed",), 2),
        *columns(_PUT, 3),
        *columns(("record_drop",), 3),
    ]
    if not any(args):
        return set()
    rows = await connection.fetch(_STORED, *args)
    return {(kind, name, revision, bytes(payload or b"")) for kind, name, revision, payload in rows}
