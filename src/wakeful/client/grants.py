"""The grants of a client."""

from __future__ import annotations

from collections.abc import Sequence

from ..api.operators import ListGrants
from ..errors import UnknownGrant
from ..types.records import Grant
from ..types.tickets import GrantScope
from .http import path_of
from .nouns import Noun, pages

__all__ = ["Grants"]


class Grants(Noun):
    """`client.grants`: see `runtime.grants`."""

    async def list(
        self,
        *,
        scope: GrantScope | None = None,
        scope_id: str | None = None,
        before: str | None = None,
        limit: int | None = 100,
    ) -> Sequence[Grant]:
        """Grants older than the grant `before`, newest first; see `runtime.grants.list`."""
        query = ListGrants(scope=scope, scope_id=scope_id)
        return await pages(self._http, "/v1/grants", Grant, query, limit, before)

    async def get(self, grant: str) -> Grant:
        """A grant; raises `UnknownGrant`."""
        if not grant:
            raise UnknownGrant("a grant is named by its id, a text that isn't empty")
        return await self._http.get(path_of("/v1/grants/{}", grant), Grant)

    async def revoke(self, grant: str) -> Grant:
        """Revoke a grant: it lifts no rule from the next call on."""
        return await self._http.post(path_of("/v1/grants/{}/revoke", grant), Grant)
