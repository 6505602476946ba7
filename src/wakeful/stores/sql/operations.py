"""The operations that commits are made of, as one table, and their SQL in both dialects.

An operation takes rows of values in the order of its columns. Rows are absolute: none depends on the result of
another. `OPERATIONS` is in the order of execution: parents before children, deletes before inserts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Literal, cast

from msgspec import Struct

__all__ = ["OPERATIONS", "RANK", "SQLITE", "Column", "Operation", "Rows", "postgres_sql"]

Verb = Literal["insert", "upsert", "ignore", "update", "delete"]

Rows = dict[str, list[tuple[Any, ...]]]
"""The rows of a commit or a group, by operation."""

_TYPES = {"i": "bigint", "t": "text", "b": "bytea"}


class Column(Struct, frozen=True):
    """A column that an operation writes. With `keeps`, NULL leaves the stored value as it is."""

    name: str
    type: str
    keeps: bool = False


class Operation(Struct, frozen=True):
    """One statement over rows.

    An `upsert` of a row that exists changes the columns `changes`; an `ignore` leaves it as it is. A `delete` with
    a column that isn't in its key deletes the rows of the key with a smaller value.
    """

    name: str
    verb: Verb
    table: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    changes: tuple[str, ...] = ()

    @property
    def types(self) -> list[str]:
        """The Postgres types of the columns."""
        return [_TYPES[column.type] for column in self.columns]


# One operation a line: name, verb, table, key, columns with a type each (i integer, t text, b bytes). A column
# marked with `?` keeps the stored value if the new one is NULL. An upsert changes the columns after `|`.
# thread_step and run_step change no column that has an index.
_TABLE = """
thread_new insert threads no
    no:i tenant:t id:t parent:t version:i head:i epoch:i claim:t handed:i inbox_head:i wakes:t open_run:i
    last_run:i title:t metadata:b created_at:i updated_at:i last_commit:t principal:t
thread_step update threads no
    no:i version:i head:i wakes:t updated_at:i
thread_inbox update threads no
    no:i inbox_head:i
thread update threads no
    no:i version:i head:i epoch:i claim:t handed:i inbox_head:i? wakes:t open_run:i last_run:i title:t? metadata:b?
    updated_at:i? last_commit:t?
run_new insert runs no
    no:i tenant:t id:t thread:i agent:t status:t step:i acting:i answer:i finished_at:i payload:b root:t priority:i
    principal:t outcome:t waits:t parent:t created_at:i
run_step update runs no
    no:i step:i acting:i answer:i? waits:t payload:b
run update runs no
    no:i agent:t status:t step:i acting:i answer:i? finished_at:i waits:t outcome:t payload:b
chunks_drop delete chunks thread
    thread:i
chunks_older delete chunks thread
    thread:i attempt:i
chunk insert chunks number
    thread:i message:t attempt:i at:i payload:b
log insert log thread,seq
    thread:i seq:i kind:t run:i agent:t at:i ref:i payload:b size:i more:b
call upsert calls run,step,place
    run:i step:i place:i id:t name:t ref:i arguments:b | payload:b
ticket upsert tickets tenant,id
    tenant:t id:t thread:i run:i | status:t agent:t tool:t asked_by:t
    assignee:t requester:t names:t barred:t due:i payload:b
decision upsert decisions tenant,id
    tenant:t id:t thread:i ticket:t at:i | payload:b
task upsert tasks tenant,id
    tenant:t id:t thread:i run:t | status:t payload:b
item_new insert inbox tenant,id
    tenant:t id:t thread:i kind:t wake:t position:i run:t status:t taken_by:t priority:i at:i agent:t payload:b
    digest:t
item_taken update inbox tenant,id,thread
    tenant:t id:t thread:i status:t taken_by:t
item_changed update inbox tenant,id
    tenant:t id:t status:t position:i revision:i payload:b
state upsert state thread,run,name
    thread:i run:i name:t | seq:i payload:b
state_log upsert state_log thread,name,seq
    thread:i name:t seq:i at:i | payload:b
usage insert usage_log number
    tenant:t at:i agent:t model:t failed:i duration:i input:i output:i cached:i cache_write:i reasoning:i cost:i
    searches:i
relay upsert relays tenant,id
    tenant:t id:t thread:i run:t kind:t | status:t cursor:i due_at:i owner:t until:i revision:i payload:b
record_new insert records tenant,kind,id
    tenant:t kind:t id:t at:i revision:i payload:b digest:t
record update records tenant,kind,id
    tenant:t kind:t id:t at:i revision:i payload:b
record_drop delete records tenant,kind,id
    tenant:t kind:t id:t
memory_drop delete memory_index rowid
    rowid:i
memory upsert memory_index rowid
    rowid:i | owner:t id:t words:t
blob ignore blobs thread,digest
    thread:i digest:t payload:b
dispatch_drop delete dispatches thread
    thread:i
dispatch upsert dispatches thread
    thread:i | tenant:t agent:t priority:i due_at:i attempts:i held:i mark:i dead_at:i error:t
lease upsert workers id
    id:t started_at:i | until:i
"""


def _parse(table: str) -> Iterator[Operation]:
    for entry in re.split(r"\n(?=\w)", table.strip()):
        name, verb, target, key, *columns = entry.split()
        first = columns.index("|") if "|" in columns else 0
        parsed = tuple(
            Column(column.split(":")[0], column.split(":")[1][0], column.endswith("?"))
            for column in columns
            if column != "|"
        )
        changes = tuple(column.name for column in parsed[first:]) if first else ()
        yield Operation(name, cast(Verb, verb), target, tuple(key.split(",")), parsed, changes)


OPERATIONS = {operation.name: operation for operation in _parse(_TABLE)}
RANK = {name: rank for rank, name in enumerate(OPERATIONS)}


def _conflict_clause(operation: Operation) -> str:
    if operation.verb == "insert":
        return ""
    if operation.verb == "ignore":
        return " ON CONFLICT DO NOTHING"
    changes = ", ".join([f"{name} = excluded.{name}" for name in operation.changes])
    return f" ON CONFLICT ({', '.join(operation.key)}) DO UPDATE SET {changes}"


def _conditions(operation: Operation, value: Callable[[int], str]) -> str:
    """The condition that finds the rows of an update or a delete."""
    wanted: list[str] = []
    for n, column in enumerate(operation.columns, 1):
        if column.name in operation.key:
            wanted.append(f"t.{column.name} = {value(n)}")
        elif operation.verb == "delete":
            wanted.append(f"t.{column.name} < {value(n)}")
    return " AND ".join(wanted)


def _assignments(operation: Operation, value: Callable[[int], str]) -> str:
    """The SET clause of an update."""
    changes: list[str] = []
    for n, column in enumerate(operation.columns, 1):
        if column.name not in operation.key:
            new = f"coalesce({value(n)}, t.{column.name})" if column.keeps else value(n)
            changes.append(f"{column.name} = {new}")
    return ", ".join(changes)


def _sqlite_sql(operation: Operation) -> str:
    def value(n: int) -> str:
        return f"?{n}"

    table = operation.table
    if operation.verb == "delete":
        return f"DELETE FROM {table} AS t WHERE {_conditions(operation, value)}"
    if operation.verb == "update":
        return f"UPDATE {table} AS t SET {_assignments(operation, value)} WHERE {_conditions(operation, value)}"
    names = ", ".join([column.name for column in operation.columns])
    values = ", ".join([value(n) for n in range(1, len(operation.columns) + 1)])
    if table == "memory_index":  # A virtual table, which has no ON CONFLICT.
        return f"INSERT OR REPLACE INTO {table} ({names}) VALUES ({values})"
    return f"INSERT INTO {table} ({names}) VALUES ({values}){_conflict_clause(operation)}"


SQLITE = {name: _sqlite_sql(operation) for name, operation in OPERATIONS.items()}
"""The statement of each operation for SQLite, which takes one row."""


def postgres_sql(operation: Operation, source: str, condition: str) -> str:
    """The statement of an operation for Postgres, over all rows of `source` that meet the condition.

    `source` is a FROM item with the alias `x` and the columns `c1`, `c2` and so on.
    """

    def value(n: int) -> str:
        return f"x.c{n}"

    table = operation.table
    if operation.verb == "delete":
        return f"DELETE FROM {table} t USING {source} WHERE {_conditions(operation, value)} AND {condition}"
    if operation.verb == "update":
        return (
            f"UPDATE {table} t SET {_assignments(operation, value)} FROM {source} "
            f"WHERE {_conditions(operation, value)} AND {condition}"
        )
    names = ", ".join([column.name for column in operation.columns])
    values = ", ".join([value(n) for n in range(1, len(operation.columns) + 1)])
    return (
        f"INSERT INTO {table} ({names}) SELECT {values} FROM {source} "
        f"WHERE {condition}{_conflict_clause(operation)}"
    )
