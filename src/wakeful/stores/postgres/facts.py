"""The facts that commits are decided by, loaded in one statement and so from one snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ..heads import FOREIGN, DispatchRow, Facts, Head, ItemRow, NeedFacts, RecordKey, RecordRow, RunRow
from .text import NOW_MS, escape, unescape_rows

__all__ = ["Key", "Loaded", "load_facts", "lock_rows", "split_records"]

Key = tuple[str, str]
"""A tenant and an id."""

_NUMBERS, _TEXTS = 18, 10


def _row(kind: str, numbers: Sequence[str], texts: Sequence[str], tenant: str = "''", name: str = "''") -> str:
    """A SELECT list: kind, tenant and id, then numbers and texts, filled up with NULL."""
    more = [*numbers, *["NULL::bigint"] * (_NUMBERS - len(numbers))]
    words = [*texts, *["NULL"] * (_TEXTS - len(texts))]
    return f"SELECT '{kind}', {tenant}, {name}, {', '.join([*more, *words])}"


_ITEM = ("i.revision", "i.position", "i.at", "i.priority")
_ITEM_TEXTS = ("i.status", "i.taken_by", "i.wake", "i.agent", "i.digest")
_HEAD = _row(
    "head",
    (
        *("t.no", "t.version", "t.head", "t.epoch", "t.handed", "t.inbox_head", "t.last_run"),
        *("r.no", "r.priority", "r.step", "d.priority", "d.due_at", "d.attempts", "d.held", "d.mark", "d.dead_at"),
        "(SELECT w.until FROM workers w WHERE w.id = t.claim)",
    ),
    (
        *("t.claim", "t.wakes", "t.parent", "l.agent", "r.id", "r.agent", "r.status", "d.agent", "d.error"),
        "t.last_commit",
    ),
    "t.tenant",
    "t.id",
)
_LOAD = f"""
WITH t AS (SELECT t.* FROM unnest($1::text[], $2::text[]) AS k(tenant, id)
    JOIN threads t ON t.tenant = k.tenant AND t.id = k.id)
{_HEAD} FROM t LEFT JOIN runs r ON r.no = t.open_run LEFT JOIN runs l ON l.no = t.last_run
    LEFT JOIN dispatches d ON d.thread = t.no
UNION ALL {_row("pending", _ITEM, ("i.id", *_ITEM_TEXTS), "t.tenant", "t.id")}
    FROM t JOIN inbox i ON i.thread = t.no AND i.status = 'pending'
UNION ALL {_row("item", _ITEM, ("t.id", *_ITEM_TEXTS), "i.tenant", "i.id")}
    FROM unnest($3::text[], $4::text[]) AS k(tenant, id) JOIN inbox i ON i.tenant = k.tenant AND i.id = k.id
    LEFT JOIN threads t ON t.no = i.thread
UNION ALL {_row("run", ("r.no", "r.priority", "r.step"), ("r.agent", "r.status"), "r.tenant", "r.id")}
    FROM unnest($5::text[], $6::text[]) AS k(tenant, id) JOIN runs r ON r.tenant = k.tenant AND r.id = k.id
UNION ALL {_row("relay", ("r.revision",), (), "r.tenant", "r.id")}
    FROM unnest($7::text[], $8::text[]) AS k(tenant, id) JOIN relays r ON r.tenant = k.tenant AND r.id = k.id
UNION ALL {_row("record", ("r.revision",), ("r.kind", "r.digest"), "k.tenant", "k.id")}
    FROM unnest($9::text[], $10::text[], $11::text[]) AS k(tenant, kind, id)
    JOIN records r ON r.tenant = k.tenant AND r.kind = k.kind AND r.id = k.id
UNION ALL {_row("record", (f"{FOREIGN}",), ("r.kind", "''"), "k.tenant", "k.id")}
    FROM unnest($9::text[], $10::text[], $11::text[]) AS k(tenant, kind, id)
    JOIN records r ON k.kind = 'key' AND r.kind = 'key' AND r.id = k.id AND r.tenant <> k.tenant
UNION ALL {_row("worker", ("w.until",), (), name="w.id")} FROM workers w WHERE w.id = ANY ($12::text[])
UNION ALL {_row("clock", (NOW_MS,), ())}
"""
_LOCK = """SELECT t.no FROM unnest($1::text[], $2::text[]) AS k(tenant, id)
    JOIN threads t ON t.tenant = k.tenant AND t.id = k.id ORDER BY t.no FOR NO KEY UPDATE OF t"""
_LOCK_RECORDS = """SELECT 1 FROM unnest($1::text[], $2::text[], $3::text[]) AS k(tenant, kind, id)
    JOIN records r ON r.tenant = k.tenant AND r.kind = k.kind AND r.id = k.id
    ORDER BY r.tenant, r.kind, r.id FOR UPDATE OF r"""


class Loaded(Struct):
    """Rows by tenant and id; an id that was looked for and isn't there has None. `untils` has ends of leases."""

    now: int = 0
    heads: dict[Key, Head] = {}
    items: dict[Key, ItemRow | None] = {}
    runs: dict[Key, RunRow | None] = {}
    relays: dict[Key, int | None] = {}
    records: dict[tuple[str, RecordKey], RecordRow | None] = {}
    untils: dict[str, int] = {}
    last_commits: dict[Key, str | None] = {}

    @classmethod
    def none_of(cls, wanted: Iterable[tuple[str, NeedFacts]]) -> Loaded:
        """The keys that groups of these tenants need, without rows."""
        found = cls()
        for tenant, needs in wanted:
            found.heads.update({(tenant, thread_id): Head(thread_id) for thread_id in needs.threads})
            found.items.update(dict.fromkeys([(tenant, item_id) for item_id in needs.items]))
            found.runs.update(dict.fromkeys([(tenant, run_id) for run_id in needs.runs]))
            found.relays.update(dict.fromkeys([(tenant, relay_id) for relay_id in needs.relays]))
            found.records.update(dict.fromkeys([(tenant, key) for key in needs.records]))
        return found

    def facts_of(self, tenant: str, needs: NeedFacts, next_thread: int, next_run: int) -> Facts:
        """The facts that one group needs."""
        heads = {thread_id: self.heads[tenant, thread_id] for thread_id in needs.threads}
        return Facts(
            heads,
            {item_id: self.items[tenant, item_id] for item_id in needs.items},
            {run_id: self.runs[tenant, run_id] for run_id in needs.runs},
            {relay_id: self.relays[tenant, relay_id] for relay_id in needs.relays},
            {key: self.records[tenant, key] for key in needs.records},
            {head.claim: self.untils.get(head.claim, 0) > self.now for head in heads.values() if head.claim},
            self.untils,
            next_thread,
            next_run,
        )


async def load_facts(connection: Any, wanted: Iterable[tuple[str, NeedFacts]], workers: Iterable[str]) -> Loaded:
    """Load the rows that groups of these tenants need, and the leases of these workers."""
    found = Loaded.none_of(wanted)
    args: list[list[str]] = []
    for keys in (found.heads, found.items, found.runs, found.relays):
        args += _split(keys)
    args += split_records(found.records)
    args.append([escape(worker_id) for worker_id in workers])
    pending: dict[Key, list[tuple[str, ItemRow]]] = {}
    for kind, tenant, name, *values in unescape_rows(await connection.fetch(_LOAD, *args)):
        key, n, s = (tenant, name), values[:_NUMBERS], values[_NUMBERS:]
        match kind:
            case "head":
                found.heads[key] = _head_of(name, n, s)
                found.last_commits[key] = s[9]
                if s[0] is not None:
                    found.untils[s[0]] = n[16] or 0
            case "pending":
                pending.setdefault(key, []).append((s[0], _item_of(name, n, s)))
            case "item":
                found.items[key] = _item_of(s[0], n, s)
            case "run":
                found.runs[key] = RunRow(n[0], name, s[0], n[1], n[2], s[1])
            case "relay":
                found.relays[key] = n[0]
            case "record":
                found.records[tenant, (s[0], name)] = RecordRow(n[0], s[1])
            case "worker":
                found.untils[name] = n[0]
            case _:
                found.now = n[0]
    for key, items in pending.items():
        in_order = dict(sorted(items, key=lambda entry: entry[1].position))
        found.heads[key] = replace(found.heads[key], pending=in_order)
    return found


async def lock_rows(connection: Any, threads: Iterable[Key], records: Iterable[tuple[str, RecordKey]]) -> None:
    """Lock the rows of threads in order of their numbers, then those of records, inside a transaction."""
    await connection.fetch(_LOCK, *_split(threads))
    if any(args := split_records(records)):
        await connection.fetch(_LOCK_RECORDS, *args)


def split_records(keys: Iterable[tuple[str, RecordKey]]) -> list[list[str]]:
    """Keys of records as three arrays: tenants, kinds and ids."""
    found = [(escape(tenant), kind, escape(name)) for tenant, (kind, name) in keys]
    return [[key[n] for key in found] for n in range(3)]


def _split(keys: Iterable[Key]) -> tuple[list[str], list[str]]:
    """Keys as two arrays."""
    found = [(escape(tenant), escape(name)) for tenant, name in keys]
    return [key[0] for key in found], [key[1] for key in found]


def _head_of(thread_id: str, n: Sequence[Any], s: Sequence[Any]) -> Head:
    run = None if n[7] is None else RunRow(n[7], s[4], s[5], n[8], n[9], s[6])
    dispatch = None
    if n[10] is not None:
        dispatch = DispatchRow(s[7], n[10], n[11], n[12], bool(n[13]), n[14], n[15], s[8])
    return Head(
        thread_id,
        no=n[0],
        version=n[1],
        log_head=n[2],
        epoch=n[3],
        claim=s[0],
        handed=n[4],
        inbox_head=n[5],
        wakes=s[1],
        open_run=run,
        last_run=n[6],
        last_agent=s[3] or "",
        dispatch=dispatch,
        parent=s[2],
    )


def _item_of(thread_id: str, n: Sequence[Any], s: Sequence[Any]) -> ItemRow:
    return ItemRow(thread_id, s[1], n[0], n[1], s[2], s[3], n[2], n[3], s[4], s[5])
