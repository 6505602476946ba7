"""`wakeful keys` and `wakeful audit`: API keys of a server, and what callers did."""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any, cast

import typer

from ..api.operators import CreatedKey, KeyView
from ..identity import ROLES, create_key, revoke_key
from ..runtime import TenantRuntime
from ..stores import Records
from ..types.ids import new_id, now_ms
from ..types.records import ApiKey, AuditEntry
from .locations import Json, Place, Tenant, ask, is_url, show
from .tables import print_list
from .text import parse_seconds, time_text

__all__ = ["audit", "keys_app"]

keys_app = typer.Typer(name="keys", help="Create, list and revoke API keys.", no_args_is_help=True)

KEYS = 1000

Key = Annotated[str, typer.Argument(metavar="KEY", help="The key's id.", show_default=False)]


@keys_app.command()
def create(
    place: Place,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the key is for.", show_default=False)],
    principal: Annotated[
        str | None, typer.Option(metavar="ID", help="Whose runs it starts and sees; NAME by default.")
    ] = None,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SCOPE", help=f"A scope such as runs:read, or a role: {', '.join(ROLES)}. Repeatable."
        ),
    ] = None,
    group: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A group for tickets. Repeatable.")
    ] = None,
    agent: Annotated[list[str] | None, typer.Option(metavar="ID", help="An agent it may use. Repeatable.")] = None,
    expires: Annotated[str | None, typer.Option(metavar="TIME", help="When it expires: 90d, 12h, 30m.")] = None,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Create an API key and print it, this once. Only its hash is stored."""

    async def make(runtime: TenantRuntime) -> tuple[ApiKey | KeyView, str]:
        wanted: dict[str, Any] = {
            "principal": principal or name,
            "scopes": scope or ["user"],
            "groups": group or (),
            "agents": agent,
            "expires_at": None if expires is None else now_ms() + parse_seconds(expires) * 1000,
        }
        if is_url(place):
            made: CreatedKey = await cast(Any, runtime).keys.create(name, **wanted)
            return made.key, made.text or ""
        key, text = await create_key(runtime.store, name, **wanted)
        await _audit_change(runtime, "keys.create", key.id)
        return key, text

    key, text = ask(place, tenant, make)
    show(json, {"id": key.id, "key": text, "principal": key.principal_id, "scopes": list(key.scopes)}, text)


@keys_app.command("list")
def list_(place: Place, tenant: Tenant = None, json: Json = False) -> None:
    """List the API keys of a tenant, revoked ones included."""

    async def look(runtime: TenantRuntime) -> Sequence[ApiKey | KeyView]:
        if is_url(place):
            return await cast(Any, runtime).keys.list(limit=KEYS)
        return await runtime.store.records(ApiKey, limit=KEYS)

    found = ask(place, tenant, look)
    rows = [
        (
            key.id,
            key.name,
            key.principal_id,
            _scopes(key),
            time_text(key.created_at),
            "-" if key.last_used_at is None else time_text(key.last_used_at),
            _state(key),
        )
        for key in found
    ]
    shown = [{**_public(key), "state": _state(key)} for key in found]
    print_list(
        json, shown, ("KEY", "NAME", "PRINCIPAL", "SCOPES", "CREATED", "LAST USE", "STATE"), rows, "no keys"
    )


@keys_app.command()
def revoke(place: Place, key: Key, tenant: Tenant = None, json: Json = False) -> None:
    """Revoke an API key. Every server refuses it within a second."""

    async def end(runtime: TenantRuntime) -> ApiKey | KeyView:
        if is_url(place):
            return await cast(Any, runtime).keys.revoke(key)
        revoked = await revoke_key(runtime.store, key)
        await _audit_change(runtime, "keys.revoke", key)
        return revoked

    found = ask(place, tenant, end)
    show(json, {"id": found.id, "revoked_at": found.revoked_at}, f"revoked key {found.id}")


def audit(
    place: Place,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="The most entries to show.")] = 50,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Show the audit of a tenant, newest first: changes of keys, and what callers were refused."""

    async def look(runtime: TenantRuntime) -> Sequence[AuditEntry]:
        if is_url(place):
            return await cast(Any, runtime).audit(limit=limit)
        return await runtime.store.records(AuditEntry, limit=limit)

    found = ask(place, tenant, look)
    rows = [
        (
            time_text(entry.at),
            entry.principal_id or "-",
            entry.auth if entry.key_id is None else f"{entry.auth}:{entry.key_id}",
            entry.action,
            entry.outcome,
            f"{entry.resource} {entry.resource_id or ''}".strip(),
        )
        for entry in found
    ]
    print_list(json, found, ("TIME", "PRINCIPAL", "AUTH", "ACTION", "OUTCOME", "RESOURCE"), rows, "no entries")


async def _audit_change(runtime: TenantRuntime, action: str, key_id: str) -> None:
    """Write an entry of the audit: the user of the shell changed a key."""
    who = None
    with suppress(KeyError, OSError):  # A container's user may have no name.
        who = getpass.getuser()
    entry = AuditEntry(
        id=new_id(),
        at=now_ms(),
        action=action,
        outcome="done",
        principal_id=who,
        auth="shell",
        resource="key",
        resource_id=key_id,
    )
    await runtime.store.put(Records([entry]))


def _scopes(key: ApiKey | KeyView) -> str:
    """The role whose scopes these are, or the scopes."""
    role = next((name for name, scopes in ROLES.items() if set(scopes) == set(key.scopes)), None)
    return role or " ".join(key.scopes)


def _state(key: ApiKey | KeyView) -> str:
    if key.revoked_at is not None:
        return "revoked"
    return "expired" if key.expires_at is not None and key.expires_at <= now_ms() else "valid"


def _public(key: ApiKey | KeyView) -> dict[str, object]:
    return {name: getattr(key, name) for name in key.__struct_fields__ if name not in ("hash", "revision")}
