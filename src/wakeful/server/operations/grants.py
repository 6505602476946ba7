"""Operations of grants: the remembered approvals."""

from __future__ import annotations

from typing import Any

from ...api.operators import ListGrants
from ...api.pages import Page, page_of, position_of
from ...errors import UsageError
from ...identity import Resource
from ...types.records import Grant
from .call import Call
from .operation import op

__all__: list[str] = []


@op("grants.list", "GET", "/v1/grants", scope="grants:read", reply=Page[Grant])
async def list_(call: Call, query: ListGrants) -> Any:
    """Grants, newest first, with expired and revoked ones.

    Callers who may not read everything of the tenant see the grants for themselves as a user, and with a `scope`
    those for their own runs and threads.
    """
    narrowed = await call.narrow("grant")
    scope, scope_id = query.scope, query.scope_id
    if (scope is None) is not (scope_id is None):
        raise UsageError("grants are listed by a scope and its id, such as scope=user&scope_id=ada")
    if narrowed.owner is not None:
        if scope is None or scope_id is None:
            scope, scope_id = "user", narrowed.owner
        elif await _owner(call, scope, scope_id) != narrowed.owner:
            return Page[Grant](())
    found = await call.runtime.grants.list(
        scope=scope, scope_id=scope_id, before=position_of(query), limit=query.limit + 1
    )
    page = page_of(query, found, "id")
    agents = call.agents_of(narrowed, None)
    kept = [grant for grant in page.items if agents is None or grant.agent_id in agents]
    return Page(tuple(kept), page.next)


@op("grants.get", "GET", "/v1/grants/{grant}", scope="grants:read", reply=Grant)
async def get(call: Call, grant: str) -> Any:
    """A grant."""
    return await _grant_of(call, grant)


@op("grants.revoke", "POST", "/v1/grants/{grant}/revoke", scope="grants:revoke", reply=Grant)
async def revoke(call: Call, grant: str) -> Any:
    """Revoke a grant: it lifts no rule from the next call on."""
    found = await _grant_of(call, grant)
    revoked = await call.runtime.grants.revoke(found.id, principal=call.author)
    await call.audit("done", "grant", found.id)
    return revoked


async def _grant_of(call: Call, grant: str) -> Grant:
    """A grant that the caller may use for the operation."""
    found = await call.find(lambda: call.runtime.grants.get(grant), "grant", grant)
    owner = await _owner(call, found.scope, found.scope_id)
    await call.require(Resource("grant", found.id, owner, found.agent_id))
    return found


async def _owner(call: Call, scope: str, scope_id: str) -> str | None:
    """The principal that a grant is about: the user, or the owner of the run or thread. An agent's is nobody's."""
    if scope == "user":
        return scope_id
    if scope == "run":
        run = await call.runtime.store.run(scope_id)
        return None if run is None else run.owner_id
    if scope == "thread":
        thread = await call.runtime.store.thread(scope_id)
        return None if thread is None else thread.principal
    return None
