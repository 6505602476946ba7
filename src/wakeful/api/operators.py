"""Bodies, queries and replies of schedules, grants, tasks, workers, usage, keys and the audit."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from ..stores import UsageKey
from ..tasks.schedule import Missed
from ..types.records import KeyKind
from ..types.runs import TaskStatus, TaskWake
from ..types.tickets import GrantScope
from .numbers import Seconds, Time
from .pages import PageQuery
from .runs import InputBody

__all__ = [
    "CreateKey",
    "CreateTask",
    "CreatedKey",
    "KeyView",
    "ListAudit",
    "ListDispatches",
    "ListGrants",
    "ListTasks",
    "ListWorkers",
    "Me",
    "PutSchedule",
    "TimesQuery",
    "UsageQuery",
]


class PutSchedule(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An agent's run at the times of a `cron` expression, once `at` a time in milliseconds, or after a `delay`."""

    agent: str
    input: InputBody | None = None
    cron: str | None = None
    tz: str = "UTC"
    at: Time | None = None
    delay: Seconds | None = None
    missed: Missed = "once"
    thread: str | None = None


class CreateTask(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An agent's run in the background, and the thread that is told of its outcome."""

    agent: str
    input: InputBody
    thread: str | None = None
    name: str | None = None
    wake: TaskWake = "inbox"


class ListTasks(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The tasks of a thread, in this status."""

    thread: str
    status: TaskStatus | None = None


class ListDispatches(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Dispatches; with `dead=true` only dead letters, with false the others."""

    dead: bool | None = None


class TimesQuery(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How many of a schedule's next times, at most 100."""

    count: Annotated[int, Meta(ge=1, le=100)] = 5


class ListGrants(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Grants, newest first: those for one run, thread, agent or user, by the `scope` and its id."""

    scope: GrantScope | None = None
    scope_id: str | None = None


class ListWorkers(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`limit` is the number of workers at most."""

    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class UsageQuery(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The keys to sum by, and the time in milliseconds: from `since` on and before `until`."""

    by: tuple[UsageKey, ...] = ("agent", "model", "day")
    since: Time | None = None
    until: Time | None = None


class Me(Struct, frozen=True, kw_only=True):
    """The caller, as its credential says."""

    principal: str | None
    tenant: str
    scopes: tuple[str, ...]
    groups: tuple[str, ...]
    roles: tuple[str, ...]
    agents: tuple[str, ...] | None
    auth: str
    until: int | None


class CreateKey(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An API key: its principal, by default the caller's, and the scopes or roles it has. `expires_at` is in
    milliseconds."""

    name: str
    scopes: tuple[str, ...]
    principal: str | None = None
    kind: KeyKind = "user"
    groups: tuple[str, ...] = ()
    agents: tuple[str, ...] | None = None
    expires_at: Time | None = None


class KeyView(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An API key without its hash."""

    id: str
    name: str
    principal_id: str
    scopes: tuple[str, ...]
    kind: KeyKind = "user"
    groups: tuple[str, ...] = ()
    agents: tuple[str, ...] | None = None
    created_by: str | None = None
    created_at: int = 0
    expires_at: Time | None = None
    last_used_at: int | None = None
    revoked_at: int | None = None


class CreatedKey(Struct, frozen=True, kw_only=True):
    """A new key and its text, which is shown this once. A repeated request has no text."""

    key: KeyView
    text: str | None


class ListAudit(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Entries of the audit, newest first."""
