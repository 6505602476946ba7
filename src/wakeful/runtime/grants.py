"""Grants: list and revoke the approvals that were remembered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from msgspec.structs import replace

from ..errors import Conflict, UnknownGrant, UsageError
from ..errors.arguments import checked_methods
from ..stores import Records
from ..types.records import Grant, grant_prefix
from ..types.runs import Author, Principal
from ..types.tickets import GrantScope
from .arguments import check_author, check_choice, check_count, check_id, check_ids
from .scope import Scope

__all__ = ["Grants"]


@checked_methods("runtime.grants")
class Grants:
    """`runtime.grants`: the remembered approvals of one tenant. An approval gives one with `remember`."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    async def list(
        self,
        *,
        scope: GrantScope | None = None,
        scope_id: str | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> Sequence[Grant]:
        """Grants older than the grant `before`, newest first, with expired and revoked ones.

        `scope` and `scope_id` select those for one run, thread, agent or user.
        """
        check_choice(scope, get_args(GrantScope), "scope")
        check_ids(grant=before, scope=scope_id)
        if (scope is None) is not (scope_id is None):
            raise UsageError("grants are listed by a scope and its id, such as scope='user', scope_id='ada'")
        prefix = "" if scope is None or scope_id is None else grant_prefix(scope, scope_id)
        most = check_count(limit, "limit") or 100
        return await self._scope.store.records(Grant, before=before, prefix=prefix, limit=most)

    async def get(self, grant: str) -> Grant:
        """A grant; raises `UnknownGrant`."""
        found = await self._scope.store.record(Grant, check_id(grant, "grant"))
        if found is None:
            raise UnknownGrant(f"no grant {grant!r:.80} in this store; grants.list() has all")
        return found

    async def revoke(self, grant: str, *, principal: Principal | Author | None = None) -> Grant:
        """Revoke a grant: it lifts no rule from the next call on. A revoked one stays as it is."""
        author = check_author(principal)
        who = None if author is None else author.principal.id
        while True:
            found = await self.get(grant)
            if found.revoked_at is not None:
                return found
            now = self._scope.env.clock.now()
            revoked = replace(found, revoked_at=now, revoked_by=who, revision=found.revision + 1)
            try:
                await self._scope.store.put(Records([revoked]))
            except Conflict:
                continue  # Somebody else revoked it meanwhile.
            return revoked
