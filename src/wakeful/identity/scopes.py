"""Scopes: what a credential permits, as `noun:verb`, and their sets for usual roles."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ..errors import UsageError

__all__ = ["AUTHENTICATED", "EVERYTHING", "PUBLIC", "ROLES", "SCOPES", "check_scopes", "holds"]

EVERYTHING = "*"

PUBLIC = "public"
"""The scope of an operation that needs no credential."""

AUTHENTICATED = "authenticated"
"""The scope of an operation that needs a credential with any scope."""

SCOPES: Mapping[str, str] = {
    "agents:read": "list agents with their descriptions and tools",
    "agents:inspect": "read instructions, effects and delegates of agents",
    "runs:create": "start runs and send messages",
    "runs:read": "read runs with their calls, results and events",
    "runs:control": "cancel, pause and retry runs",
    "threads:read": "read threads with their messages, state and events",
    "threads:write": "describe, fork and import threads",
    "threads:delete": "delete threads",
    "tickets:read": "read tickets and their decisions",
    "tickets:answer": "answer, approve and deny tickets, and comment on them",
    "tickets:edit": "approve a call with other arguments",
    "tickets:supply": "supply a call's result instead of running it",
    "tickets:reassign": "give tickets to other assignees",
    "tickets:override": "decide tickets that are assigned to others",
    "grants:read": "list remembered approvals",
    "grants:revoke": "revoke remembered approvals",
    "tasks:read": "read background tasks",
    "tasks:write": "start and cancel background tasks",
    "mail:read": "read pending input",
    "mail:write": "edit, move and retract pending input",
    "memories:read": "read long-term memories",
    "memories:write": "write, edit and erase long-term memories",
    "schedules:read": "list schedules",
    "schedules:write": "put, run and delete schedules",
    "usage:read": "read tokens, cost, latency and errors",
    "ops:read": "read everything of the tenant, whoever it belongs to",
    "ops:write": "control everything of the tenant, dead letters and dispatches included",
    "cluster:read": "read workers and metrics, which concern all tenants",
    "keys:admin": "create, list and revoke API keys",
    "audit:read": "read the audit log",
}

_USER = (
    "agents:read",
    "runs:create",
    "runs:read",
    "runs:control",
    "threads:read",
    "threads:write",
    "threads:delete",
    "tickets:read",
    "tickets:answer",
    "grants:read",
    "grants:revoke",
    "tasks:read",
    "tasks:write",
    "mail:read",
    "mail:write",
    "memories:read",
    "memories:write",
)
_OPERATOR = (
    *_USER,
    "agents:inspect",
    "tickets:reassign",
    "schedules:read",
    "schedules:write",
    "usage:read",
    "ops:read",
    "ops:write",
    "cluster:read",
)
ROLES: Mapping[str, tuple[str, ...]] = {
    "user": _USER,
    "approver": ("tickets:read", "tickets:answer", "tickets:edit", "tickets:supply", "tickets:reassign"),
    "operator": _OPERATOR,
    "admin": (EVERYTHING,),
}


def holds(held: Collection[str], scope: str, agent: str | None = None) -> bool:
    """Whether the scopes permit this one: by itself, by `*` or `noun:*`, or `noun:verb:agent` for that agent.

    Without an agent, a scope for some agent is enough.
    """
    noun = scope.partition(":")[0]
    if not {EVERYTHING, f"{noun}:*", scope}.isdisjoint(held):
        return True
    if agent is None:
        return any(each.startswith(f"{scope}:") for each in held)
    return f"{scope}:{agent}" in held


def check_scopes(scopes: Collection[str]) -> tuple[str, ...]:
    """Return the scopes, sorted, with roles replaced by theirs; raise `UsageError` for an unknown one."""
    found: set[str] = set()
    for given in scopes:
        noun, _, rest = given.partition(":")
        scope = f"{noun}:{rest.partition(':')[0]}"
        if given in ROLES:
            found.update(ROLES[given])
        elif given == EVERYTHING or scope in SCOPES or (rest == "*" and _has_noun(noun)):
            found.add(given)
        else:
            raise UsageError(
                f"unknown scope {given!r:.80}; scopes are {', '.join(SCOPES)}, and the roles {', '.join(ROLES)}"
            )
    if not found:
        raise UsageError(
            f"no scope is given, which would permit nothing; name some, or a role: {', '.join(ROLES)}"
        )
    return tuple(sorted(found))


def _has_noun(noun: str) -> bool:
    return any(scope.startswith(f"{noun}:") for scope in SCOPES)
