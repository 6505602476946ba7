"""Conditions of lists as SQL, with their arguments."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any
from urllib.parse import quote

from ...types.addressees import addressees_of, group_names, names_of
from ...types.tickets import Ticket
from ..filters import RunFilters, TicketFilters

__all__ = ["Where", "names_text", "run_conditions", "ticket_conditions"]


class Where:
    """The conditions of a query, with their arguments."""

    def __init__(self, sql: str, *args: Any) -> None:
        self.sql = sql
        self.args = list(args)

    def add(self, condition: str, *args: Any) -> None:
        """Add a condition."""
        self.sql += f" AND {condition}"
        self.args += args

    def add_equal(self, column: str, value: Any) -> None:
        """Add that a column has a value, unless that is None."""
        if value is not None:
            self.add(f"{column} = ?", value)

    def add_any(self, column: str, values: Collection[str] | None) -> None:
        """Add that a column has one of the values, unless they are None."""
        if values is not None:
            self.add(_is_any(column, values), *values)


def run_conditions(tenant: str, where: RunFilters) -> Where:
    """The conditions on runs `r` of a tenant."""
    found = Where("r.tenant = ?", tenant)
    if (thread_id := where.get("thread_id")) is not None:
        found.add("r.thread = (SELECT no FROM threads WHERE tenant = ? AND id = ?)", tenant, thread_id)
    found.add_equal("r.status", where.get("status"))
    found.add_equal("r.agent", where.get("agent_id"))
    found.add_any("r.agent", where.get("agents"))
    found.add_equal("r.root", where.get("root_run_id"))
    found.add_equal("r.parent", where.get("parent_run_id"))
    found.add_equal("r.principal", where.get("principal"))
    found.add_equal("r.waits", where.get("waits_for"))
    if (outcome := where.get("outcome")) is not None:
        found.add_equal("r.outcome", outcome)
        if outcome != "natural_end":
            found.add("r.outcome <> 'natural_end'")  # For the partial index.
    if (since := where.get("since")) is not None:
        found.add("r.created_at >= ?", since)
    if (until := where.get("until")) is not None:
        found.add("r.created_at < ?", until)
    return found


def ticket_conditions(tenant: str, run_id: str | None, where: TicketFilters) -> Where:
    """The conditions on tickets `k` of a tenant."""
    found = Where("k.tenant = ?", tenant)
    at = Where("TRUE")
    if run_id is not None:
        at.add("k.run = (SELECT no FROM runs WHERE tenant = ? AND id = ?)", tenant, run_id)
    if (thread_id := where.get("thread_id")) is not None:
        at.add("k.thread = (SELECT no FROM threads WHERE tenant = ? AND id = ?)", tenant, thread_id)
    if at.args and (below := where.get("below")):
        threads = f"k.thread IN (SELECT no FROM threads WHERE tenant = ? AND {_is_any('id', below)})"
        found.add(f"({at.sql} OR {threads})", *at.args, tenant, *below)
    elif at.args:
        found.add(at.sql.removeprefix("TRUE AND "), *at.args)
    found.add_equal("k.status", where.get("status"))
    found.add_equal("k.agent", where.get("agent_id"))
    found.add_any("k.agent", where.get("agents"))
    found.add_equal("k.tool", where.get("tool"))
    found.add_equal("k.asked_by", where.get("asked_by"))
    found.add_equal("k.assignee", where.get("assignee"))
    found.add_equal("k.requester", where.get("requester"))
    if (before := where.get("due_before")) is not None:
        found.add("k.due < ?", before)
    for person, names in ((where.get("answerable_by"), names_of), (where.get("in_groups_of"), group_names)):
        if person is not None:
            found.add("(k.barred IS NULL OR k.barred <> ?)", person.id)
            _add_named(found, names(person))
    if (reader := where.get("visible_to")) is not None:
        named = Where("k.requester = ?", reader.id)
        _add_named(named, names_of(reader), " OR ")
        found.add(f"({named.sql})", *named.args)
    return found


def names_text(ticket: Ticket) -> str:
    """The addressees of a ticket as a text in which a name is found by `_token`."""
    return "".join([_token(name)[:-1] for name in addressees_of(ticket)]) + "/"


def _token(name: str) -> str:
    return f"/{quote(name, safe=':', errors='backslashreplace')}/"


def _add_named(where: Where, names: Iterable[str], glue: str = " AND ") -> None:
    """Add that a ticket is addressed to one of the names."""
    tokens = [_token(name) for name in sorted(names)]
    where.sql += glue + ("(" + " OR ".join(["instr(k.names, ?) > 0"] * len(tokens)) + ")" if tokens else "FALSE")
    where.args += tokens


def _is_any(column: str, values: Collection[str]) -> str:
    return f"{column} IN ({', '.join('?' * len(values))})" if values else "FALSE"
