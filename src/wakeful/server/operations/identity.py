"""Operations of identity: the caller, API keys and the audit."""

from __future__ import annotations

from typing import Any

import msgspec

from ...api.operators import CreatedKey, CreateKey, KeyView, ListAudit, Me
from ...api.pages import Page, PageQuery, page_of, position_of
from ...errors import Conflict, RequestReused, UnknownKey
from ...identity import AUTHENTICATED, check_scopes, create_key, revoke_key
from ...types.records import ApiKey, AuditEntry
from .call import Call, Reply
from .operation import op

__all__: list[str] = []


@op("me.get", "GET", "/v1/me", scope=AUTHENTICATED, reply=Me)
async def me(call: Call) -> Any:
    """The caller, as its credential says."""
    caller, principal = call.caller, call.caller.principal
    return Me(
        principal=caller.id,
        tenant=call.runtime.store.tenant_name,
        scopes=tuple(sorted(caller.scopes)),
        groups=() if principal is None else principal.groups,
        roles=() if principal is None else principal.roles,
        agents=caller.agents,
        auth=caller.auth,
        until=caller.until,
    )


@op("keys.list", "GET", "/v1/keys", scope="keys:admin", reply=Page[KeyView])
async def list_(call: Call, query: PageQuery) -> Any:
    """The tenant's API keys, revoked ones included."""
    found = await call.runtime.store.records(ApiKey, before=position_of(query), limit=query.limit + 1)
    return page_of(query, [_view(key) for key in found], "id")


@op("keys.get", "GET", "/v1/keys/{key}", scope="keys:admin", reply=KeyView)
async def get(call: Call, key: str) -> Any:
    """An API key."""
    found = await call.runtime.store.record(ApiKey, key)
    if found is None:
        raise UnknownKey(f"no API key {key!r:.80} in this tenant")
    return _view(found)


@op(
    "keys.create",
    "POST",
    "/v1/keys",
    scope="keys:admin",
    reply=CreatedKey,
    statuses=(201, 200),
    repeatable=True,
)
async def create(call: Call, body: CreateKey) -> Any:
    """Create an API key. Its text is shown this once; a repeated request replies with the key without it.

    A key can't have a scope that its creator lacks.
    """
    store = call.runtime.store
    key_id = call.derived_id
    try:
        key, text = await create_key(
            store,
            body.name,
            principal=body.principal or call.caller.id or body.name,
            scopes=call.grantable(body.scopes),
            kind=body.kind,
            groups=body.groups,
            agents=body.agents,
            expires_at=body.expires_at,
            created_by=call.caller.id,
            key_id=key_id,
        )
    except Conflict:
        key = None if key_id is None else await store.record(ApiKey, key_id)
        if key is None:
            raise
        if not _asks_for(key, body):
            raise RequestReused("this Idempotency-Key made another API key; use a new one") from None
        return Reply(CreatedKey(key=_view(key), text=None), 200, idempotency_replayed="true")
    await call.audit("done", "key", key.id)
    return Reply(CreatedKey(key=_view(key), text=text), location=f"/v1/keys/{key.id}")


@op("keys.revoke", "POST", "/v1/keys/{key}/revoke", scope="keys:admin", reply=KeyView)
async def revoke(call: Call, key: str) -> Any:
    """Revoke an API key. Every process refuses it within a second."""
    found = await revoke_key(call.runtime.store, key)
    await call.audit("done", "key", key)
    return _view(found)


@op("audit.list", "GET", "/v1/audit", scope="audit:read", reply=Page[AuditEntry])
async def audit(call: Call, query: ListAudit) -> Any:
    """The tenant's audit, newest first: changes of keys, decisions, refusals and deletions."""
    found = await call.runtime.store.records(AuditEntry, before=position_of(query), limit=query.limit + 1)
    return page_of(query, found, "id")


def _asks_for(key: ApiKey, body: CreateKey) -> bool:
    """Whether a request asks for this key."""
    given = (body.name, check_scopes(body.scopes), body.kind, body.groups, body.agents, body.expires_at)
    is_same = given == (key.name, key.scopes, key.kind, key.groups, key.agents, key.expires_at)
    return is_same and body.principal in (None, key.principal_id)


def _view(key: ApiKey) -> KeyView:
    return msgspec.convert(key, KeyView, from_attributes=True)
