"""API keys: made once, kept as hashes in the store, and recognized there."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from ..errors import Conflict, NotAuthenticated, UnknownKey, UsageError
from ..stores import Records, Store
from ..types.ids import now_ms
from ..types.records import ApiKey, KeyKind
from ..types.runs import Principal
from ..types.tickets import SYSTEM
from .caller import Caller, Incoming
from .scopes import check_scopes
from .tokens import bearer

__all__ = ["ApiKeys", "create_key", "revoke_key"]

PREFIX = "wk_"
ID_LENGTH = 8
SECRET_LENGTH = 43  # 256 bits in base62
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

# A revoked key is refused by every process after this time at most.
CACHE_SECONDS = 1.0
CACHE_ENTRIES = 10_000
USE_MS = 60_000


async def create_key(
    store: Store,
    name: str,
    *,
    principal: str,
    scopes: Collection[str],
    kind: KeyKind = "user",
    groups: Sequence[str] = (),
    agents: Sequence[str] | None = None,
    expires_at: int | None = None,
    created_by: str | None = None,
    key_id: str | None = None,
) -> tuple[ApiKey, str]:
    """Create a key in the store's tenant; returns it and its text, which is shown this once.

    Raises `UsageError` for an unknown scope or a reserved principal, and `Conflict` if there is a key of this id.
    """
    if not name.strip() or not principal or principal == SYSTEM:
        raise UsageError(f"a key has a name, and a principal other than {SYSTEM!r}, not {principal!r:.80}")
    secret = _random(SECRET_LENGTH)
    key = ApiKey(
        id=key_id or _random(ID_LENGTH),
        name=name.strip(),
        hash=_hash(secret),
        principal_id=principal,
        scopes=check_scopes(scopes),
        kind=kind,
        groups=tuple(groups),
        agents=None if agents is None else tuple(agents),
        created_by=created_by,
        created_at=now_ms(),
        expires_at=expires_at,
    )
    await store.put(Records([key]))
    return key, f"{PREFIX}{key.id}_{secret}"


async def revoke_key(store: Store, key_id: str) -> ApiKey:
    """Revoke a key; raises `UnknownKey` if the tenant has none of this id. Every process refuses it within a
    second."""
    while True:
        key = await store.record(ApiKey, key_id)
        if key is None:
            raise UnknownKey(f"no API key {key_id!r:.80} in this tenant")
        if key.revoked_at is not None:
            return key
        revoked = replace(key, revoked_at=now_ms(), revision=key.revision + 1)
        with suppress(Conflict):
            await store.put(Records([revoked]))
            return revoked


class ApiKeys:
    """Recognizes the API keys of a store, of all its tenants. Bearer tokens and `X-API-Key` are accepted."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._found: dict[str, tuple[float, tuple[str, ApiKey] | None]] = {}

    def __repr__(self) -> str:
        return "ApiKeys()"

    async def __call__(self, request: Incoming) -> Caller | None:
        """The caller of a key; raises `NotAuthenticated` for one that is unknown, revoked or expired."""
        given = bearer(request) or request.headers.get("x-api-key", "")
        if not given.startswith(PREFIX):
            return None
        key_id, _, secret = given.removeprefix(PREFIX).partition("_")
        found = await self._find(key_id) if len(key_id) == ID_LENGTH else None
        # An unknown id costs the same comparison, so that the duration reveals nothing.
        stored = b"" if found is None else found[1].hash
        if not hmac.compare_digest(stored, _hash(secret)) or found is None:
            raise NotAuthenticated("the API key is unknown; create one with: wakeful keys create")
        tenant, key = found
        if key.revoked_at is not None or (key.expires_at is not None and key.expires_at <= now_ms()):
            raise NotAuthenticated(f"the API key {key.id} was revoked or has expired; create a new one")
        await self._note_use(tenant, key)
        return Caller(
            principal=Principal(key.principal_id, kind=key.kind, groups=key.groups),
            tenant=tenant,
            scopes=frozenset(key.scopes),
            auth=f"key:{key.id}",
            agents=key.agents,
            until=key.expires_at,
        )

    async def _find(self, key_id: str) -> tuple[str, ApiKey] | None:
        now = time.monotonic()
        cached = self._found.get(key_id)
        if cached is not None and now - cached[0] < CACHE_SECONDS:
            return cached[1]
        found: Any = await self._store.find_record(ApiKey, key_id)
        if len(self._found) >= CACHE_ENTRIES:
            self._found.clear()
        self._found[key_id] = (now, found)
        return found

    async def _note_use(self, tenant: str, key: ApiKey) -> None:
        """Record the last use, at most once a minute."""
        now = now_ms()
        if now - (key.last_used_at or 0) < USE_MS:
            return
        used = replace(key, last_used_at=now, revision=key.revision + 1)
        self._found.pop(key.id, None)
        with suppress(Conflict):  # Another process noted it, or the key was revoked.
            await self._store.tenant(tenant).put(Records([used]))


def _random(length: int) -> str:
    return "".join([secrets.choice(_DIGITS) for _ in range(length)])


def _hash(secret: str) -> bytes:
    """The hash of a secret of 256 random bits, for which a slow hash adds nothing."""
    return hashlib.sha256(secret.encode()).digest()
