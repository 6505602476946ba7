"""The tables of a schema: created, migrated, or refused and left as they are."""

from __future__ import annotations

import re
from typing import Any

from ...errors import ConfigurationError, InvalidStore, StoreUnavailable
from ..sql.schema import MIN_READER, VERSION, statements

__all__ = ["checked_schema", "install"]

_APPLICATION = "wakeful"
_NOT_ALLOWED = "42501"
_TABLES = re.findall(
    r"CREATE TABLE (\w+)", "".join("".join(statements(n, "postgres")) for n in range(1, VERSION + 1))
)


def checked_schema(name: str) -> str:
    """The name of a schema. Raises `ConfigurationError` if no schema can have it."""
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", str(name)) or name.startswith("pg_"):
        raise ConfigurationError(
            f"a schema's name is made of a-z, 0-9 and _, at most 63, and doesn't begin with pg_; not {name!r:.80}"
        )
    return name


async def install(connection: Any, schema: str, place: str, *, create: bool = True) -> None:
    """Create or migrate the tables, once for all processes that open the schema at the same time.

    Without `create` a schema without tables is refused.
    """
    found = await _version(connection, schema, place)
    if found >= VERSION:
        return
    if not found and not create:
        raise InvalidStore(
            f"{place} has no store in the schema {schema!r}, and none was made: check the URL's host and database"
        )
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", f"wakeful {schema}")
        version = await _version(connection, schema, place)
        if version >= VERSION:
            return
        if not version and not await connection.fetch("SELECT 1 FROM pg_namespace WHERE nspname = $1", schema):
            await connection.execute(f'CREATE SCHEMA "{schema}"')
        for step in range(version + 1, VERSION + 1):
            if script := ";\n".join(statements(step, "postgres")):
                try:
                    await connection.execute(script)
                except Exception as error:
                    if version and getattr(error, "sqlstate", None) == _NOT_ALLOWED:
                        raise _not_the_owner(schema, place, version, error) from error
                    raise
        for name, value in (("application", _APPLICATION), ("version", VERSION), ("min_reader", MIN_READER)):
            await connection.execute(
                """INSERT INTO meta (name, value) VALUES ($1, $2)
                   ON CONFLICT (name) DO UPDATE SET value = excluded.value""",
                name,
                str(value),
            )


def _not_the_owner(schema: str, place: str, version: int, error: Exception) -> StoreUnavailable:
    return StoreUnavailable(
        f"the schema {schema!r} of {place} is of version {version}, and this user can't bring it to version "
        f"{VERSION} ({error}); it was left as it is: open the store once as the user that owns it"
    )


async def _version(connection: Any, schema: str, place: str) -> int:
    """The version of the tables; 0 if there are none."""
    rows = await connection.fetch(
        """SELECT c.relname, (SELECT array_agg(a.attname::text) FROM pg_attribute a WHERE a.attrelid = c.oid)
           FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
           WHERE n.nspname = $1 AND c.relname = ANY ($2)""",
        schema,
        _TABLES,
    )
    if not rows:
        return 0
    meta: dict[str, str] = {}
    if {"name", "value"} <= set(dict(rows).get("meta") or ()):
        meta = dict(await connection.fetch(f'SELECT name::text, value::text FROM "{schema}".meta'))
    if meta.get("application") != _APPLICATION:
        raise InvalidStore(
            f"the schema {schema!r} of {place} has tables of another program ({rows[0][0]}); they were left as "
            "they are: give another schema"
        )
    version = int(meta["version"])
    if version > VERSION and int(meta["min_reader"]) > VERSION:
        raise InvalidStore(
            f"the schema {schema!r} of {place} was written by a newer version of wakeful (its tables are version "
            f"{version}, this one knows {VERSION}); it was left as it is: upgrade wakeful"
        )
    return version
