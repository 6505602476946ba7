"""The statement that writes commits: it locks and compares the guards of all groups, then writes their rows.

A group whose guards miss writes nothing; the others aren't affected. In READ COMMITTED a statement sees everything
but the locked rows as of its beginning, so it reads nothing but the guards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from msgspec import Struct

from ..heads import Facts
from ..sql.operations import OPERATIONS, RANK, Rows, postgres_sql
from ..writes import GroupWrites
from .text import escape

__all__ = ["SETTINGS", "Reply", "build_statement", "escape_rows", "guards_of", "read_reply", "size_of"]

# Plans are made once and go by indexes, however small the tables were at that time.
SETTINGS: Mapping[str, str] = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
}

GuardRow = tuple[int, str, int, int | None, int | None]
"""A thread's row number, claim and epoch, and its version and inbox head where the decision rests on them."""

_GUARD_TYPES = ["int", "bigint", "text", "bigint", "bigint", "bigint"]
_GUARD = """WITH guards AS MATERIALIZED (
    SELECT x.c1 AS n, x.c2 AS no, t.no AS found, t.inbox_head FROM {source} LEFT JOIN LATERAL (
        SELECT no, claim, epoch, version, inbox_head FROM threads WHERE no = x.c2 FOR NO KEY UPDATE) t
    ON coalesce(t.claim, '') = x.c3 AND t.epoch = x.c4 AND t.version = coalesce(x.c5, t.version)
        AND t.inbox_head = coalesce(x.c6, t.inbox_head)
), misses AS MATERIALIZED (
    SELECT coalesce(array_agg(n) FILTER (WHERE found IS NULL), '{{}}') AS groups FROM guards
)"""
_REPLY = "SELECT n, no, found, inbox_head FROM guards"

# A lone group of few rows has its values as parameters, which is a fifth faster than arrays of one.
_MAX_LONE_ROWS = 16

# Few shapes of batches, so that a connection has few statements to plan: the first with all operations is used.
_STEPS = ("thread_step", "run_step", "chunks_drop", "log", "call", "usage")
_DELIVERIES = ("thread_new", "thread_inbox", "item_new", "dispatch")
_RUNS = tuple(
    sorted(
        {*_STEPS, *_DELIVERIES, "thread", "run_new", "run", "item_taken", "dispatch_drop", "lease"},
        key=RANK.__getitem__,
    )
)
_SHAPES = [(frozenset(shape), shape) for shape in (_STEPS, _DELIVERIES, _RUNS, tuple(OPERATIONS))]


class Reply(Struct, frozen=True):
    """The reply to a statement: the places of groups whose guards missed, and inbox heads by thread number."""

    misses: set[int]
    inbox_heads: dict[int, int]


def guards_of(facts: Facts, group: GroupWrites) -> list[GuardRow]:
    """The guards of a group that was decided by these facts."""
    merged: dict[str, tuple[bool, bool]] = {}
    for writes in group.writes:
        for thread_id, guard in writes.guards.items():
            version, inbox_head = merged.get(thread_id, (False, False))
            merged[thread_id] = (version or guard.version, inbox_head or guard.inbox_head)
    found: list[GuardRow] = []
    for thread_id, (version, inbox_head) in merged.items():
        head = facts.heads[thread_id]
        if head.no:
            compared = (head.version if version else None, head.inbox_head if inbox_head else None)
            found.append((head.no, escape(head.claim or ""), head.epoch, *compared))
    return found


def escape_rows(rows: Rows) -> Rows:
    """The rows in texts that Postgres can hold."""
    return {
        name: [tuple([escape(value) if type(value) is str else value for value in row]) for row in found]
        for name, found in rows.items()
    }


def _name_of(row: tuple[Any, ...]) -> tuple[str, str]:
    """Tenant and id of a `thread_new` row. Inserting in this order everywhere rules out deadlocks."""
    return row[1], row[2]


def size_of(rows: Rows) -> int:
    """The bytes of the payloads of a group."""
    return sum(
        [len(value) for found in rows.values() for row in found for value in row if type(value) is bytearray]
    )


def build_statement(groups: Sequence[tuple[Sequence[GuardRow], Rows]]) -> tuple[str, list[Any]]:
    """The statement for these groups, and its arguments."""
    if len(groups) == 1:
        guards, rows = groups[0]
        if sum([len(found) for found in rows.values()]) <= _MAX_LONE_ROWS:
            shape = tuple([(name, len(found)) for name, found in rows.items()])
            args: list[Any] = []
            for guard in sorted(guards):
                args += (0, *guard)
            for name, found in rows.items():
                for row in sorted(found, key=_name_of) if name == "thread_new" else found:
                    args += row
            return _lone_statement(shape, len(guards)), args
    return _build_batch(groups)


def read_reply(rows: Sequence[Any]) -> Reply:
    """The reply that a statement's result is."""
    return Reply(
        {row[0] for row in rows if row[2] is None}, {row[1]: row[3] for row in rows if row[2] is not None}
    )


def _build_batch(groups: Sequence[tuple[Sequence[GuardRow], Rows]]) -> tuple[str, list[Any]]:
    guards: list[tuple[Any, ...]] = []
    merged: dict[str, list[tuple[Any, ...]]] = {}
    for n, (own, rows) in enumerate(groups):
        guards += [(n, *guard) for guard in own]
        for name, found in rows.items():
            merged.setdefault(name, []).extend([(n, *row) for row in found])
    # Locks are taken in one order everywhere: guards by number, new threads by name.
    guards.sort(key=lambda guard: guard[1])
    if "thread_new" in merged:
        merged["thread_new"].sort(key=lambda row: _name_of(row[1:]))
    if "lease" in merged:
        merged["lease"] = list({row[1]: row for row in merged["lease"]}.values())
    shape = next(shape for names, shape in _SHAPES if merged.keys() <= names)
    args = _columns(guards, len(_GUARD_TYPES))
    for name in shape:
        args += _columns(merged.get(name, ()), len(OPERATIONS[name].columns) + 1)
    return _batch_statement(shape), args


def _columns(rows: Sequence[tuple[Any, ...]], width: int) -> list[Any]:
    return list(zip(*rows, strict=True)) if rows else [()] * width


@lru_cache(512)
def _lone_statement(shape: tuple[tuple[str, int], ...], guards: int) -> str:
    parts: list[str] = []
    first, condition = 1, "TRUE"
    if guards:
        parts.append(_GUARD.format(source=_values(1, _GUARD_TYPES, guards)))
        first += guards * len(_GUARD_TYPES)
        condition = "(SELECT groups FROM misses) = '{}'"
    for name, count in shape:
        operation = OPERATIONS[name]
        sql = postgres_sql(operation, _values(first, operation.types, count), condition)
        parts.append(f"{'' if parts else 'WITH '}w_{name} AS ({sql})")
        first += count * len(operation.types)
    return ",\n".join(parts) + (f" {_REPLY}" if guards else " SELECT 0, 0, 0, 0 WHERE FALSE")


@lru_cache(16)
def _batch_statement(shape: tuple[str, ...]) -> str:
    names = ["c1", "c2", "c3", "c4", "c5", "c6"]
    parts = [_GUARD.format(source=_arrays(1, _GUARD_TYPES, names))]
    first = 1 + len(_GUARD_TYPES)
    for name in shape:
        operation = OPERATIONS[name]
        types = ["int", *operation.types]
        source = _arrays(first, types, ["n", *[f"c{n}" for n in range(1, len(types))]])
        condition = "x.n <> ALL ((SELECT groups FROM misses)::int[])"
        parts.append(f"w_{name} AS ({postgres_sql(operation, source, condition)})")
        first += len(types)
    return ",\n".join(parts) + f" {_REPLY}"


def _values(first: int, types: Sequence[str], count: int) -> str:
    """A FROM item over rows of parameters."""
    rows: list[str] = []
    for row in range(count):
        start = first + row * len(types)
        rows.append(f"({', '.join([f'${start + n}::{kind}' for n, kind in enumerate(types)])})")
    return f"(VALUES {', '.join(rows)}) AS x({', '.join([f'c{n}' for n in range(1, len(types) + 1)])})"


def _arrays(first: int, types: Sequence[str], names: Sequence[str]) -> str:
    """A FROM item over arrays, one for each column."""
    arrays = ", ".join([f"${first + n}::{kind}[]" for n, kind in enumerate(types)])
    return f"unnest({arrays}) AS x({', '.join(names)})"
