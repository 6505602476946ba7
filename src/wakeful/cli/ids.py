"""Ids on the command line: a prefix stands for the one id that begins with it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from ..errors import UnknownGrant, UnknownRun, UnknownThread, UnknownTicket, UsageError
from ..runtime import TenantRuntime

__all__ = ["find_grant", "find_message", "find_run", "find_thread", "find_ticket"]

# Threads have ids of any form, so all of them are read, up to this number.
MAX_THREADS = 10_000
# Of grants the newest are.
MAX_GRANTS = 1000
_PAGE = 500
# Sorts behind all characters of generated ids.
_LAST = "~"


async def find_run(runtime: TenantRuntime, given: str) -> str:
    """The id of a run by a prefix of it. An unknown id is returned as it is."""
    with suppress(UnknownRun):
        if given:
            return (await runtime.runs.get(given)).id
    found = await runtime.runs.list(before=given + _LAST, limit=2)
    return _only(given, [run.id for run in found], "run")


async def find_ticket(runtime: TenantRuntime, given: str) -> str:
    """The id of a ticket by a prefix of it. An unknown id is returned as it is."""
    with suppress(UnknownTicket):
        return (await runtime.tickets.get(given)).id if given else given
    found = await runtime.tickets.list(after=given, limit=2)
    return _only(given, [ticket.id for ticket in found], "ticket")


async def find_grant(runtime: TenantRuntime, given: str) -> str:
    """The id of a grant by a prefix of it. An unknown id is returned as it is."""
    with suppress(UnknownGrant):
        return (await runtime.grants.get(given)).id if given else given
    found = await runtime.grants.list(limit=MAX_GRANTS)
    return _only(given, [grant.id for grant in found], "grant")


async def find_message(runtime: TenantRuntime, given: str) -> str:
    """The id of a dead letter by a prefix of it. An unknown id is returned as it is."""
    found = [letter.id for letter in await runtime.mail.dead_letters()]
    return given if given in found else _only(given, found, "message")


async def find_thread(runtime: TenantRuntime, given: str) -> str:
    """The id of a thread by a prefix of it. An unknown id is returned as it is."""
    with suppress(UnknownThread):
        return (await runtime.threads.get(given)).id if given else given
    found: list[str] = []
    before: str | None = None
    for _ in range(MAX_THREADS // _PAGE):
        page = await runtime.threads.list(before=before, limit=_PAGE)
        found += [thread.id for thread in page if thread.id.startswith(given)]
        if len(page) < _PAGE or len(found) > 1:
            break
        before = page[-1].id
    return _only(given, found, "thread")


def _only(given: str, ids: Sequence[str], noun: str) -> str:
    matches = [one for one in ids if one.startswith(given)]
    if len(matches) > 1:
        raise UsageError(
            f"more than one {noun} has an id that begins with {given!r}: {', '.join(matches)}; use more of it"
        )
    return matches[0] if matches else given
