"""Databases that can't be reached or may not be used: the error says what to do, and never shows a password."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest
from postgres_suite import connected, schema_of

from conformance.store_suite import Writer, identity, message, record
from free_ports import free_port
from postgres_server import fresh_store, server
from wakeful.errors import InvalidStore, StoreUnavailable
from wakeful.stores.postgres import PostgresStore
from wakeful.stores.sql.schema import MIGRATIONS, VERSION

SECRET = "s3same"


@asynccontextmanager
async def a_guarded_user(*rights: str) -> AsyncIterator[None]:
    """The user `guarded`, who needs a password and has no rights but these."""
    connection = await asyncpg.connect(server().url())
    try:
        await connection.execute(f"CREATE ROLE guarded LOGIN PASSWORD '{SECRET}'")
        for right in rights:
            await connection.execute(f"GRANT {right} TO guarded")
        yield
    finally:
        await connection.execute("DROP OWNED BY guarded; DROP ROLE guarded")
        await connection.close()


async def refusal(url: str, *, write: bool = False, **options: Any) -> str:
    """The error of the store on first use; all that shows of it is searched for the password."""
    store = PostgresStore(url, **options)
    try:
        with pytest.raises(StoreUnavailable) as caught:
            await (Writer(store).write(message()) if write else store.head("t1"))
    finally:
        await store.close()
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value) + repr(store) + str(store)
    assert SECRET not in shown
    return str(caught.value)


async def test_wrong_password_error() -> None:
    async with a_guarded_user():
        said = await refusal(server().url("guarded", f"not-{SECRET}"))
        assert "refused the login" in said
        assert "password" in said
        assert f"postgres://guarded@127.0.0.1:{server().port}/postgres" in said


async def test_missing_store_error_when_none_is_created() -> None:
    store = PostgresStore(server().url(), schema="not_there", create=False)
    with pytest.raises(InvalidStore, match="has no store in the schema 'not_there', and none was made"):
        await store.head("t1")
    await store.close()
    async with fresh_store() as there:
        await there.head("t1")
        again = PostgresStore(server().url(), schema=schema_of(there), create=False)
        assert await again.head("t1") == 0
        await again.close()
    connection = await asyncpg.connect(server().url())
    assert not await connection.fetch("SELECT 1 FROM pg_namespace WHERE nspname = 'not_there'")
    await connection.close()


async def test_unknown_user_error() -> None:
    assert "refused the login" in await refusal(server().url("nobody_at_all", SECRET))


async def test_unknown_database_error() -> None:
    said = await refusal(server().url("postgres", SECRET, "not_there"))
    assert "not_there has no database of that name: create it" in said


async def test_missing_create_right_error() -> None:
    async with a_guarded_user():
        said = await refusal(server().url("guarded", SECRET), schema="not_mine")
        assert "too few rights" in said
        assert "GRANT CREATE ON DATABASE" in said


async def test_missing_write_right_error() -> None:
    async with fresh_store() as store:
        await Writer(store).write(message("kept"))
        schema = schema_of(store)
        rights = (f"USAGE ON SCHEMA {schema}", f"SELECT ON ALL TABLES IN SCHEMA {schema}")
        async with a_guarded_user(*rights):
            reader = PostgresStore(server().url("guarded", SECRET), schema=schema)
            try:
                assert [m.text for m in await reader.messages("t1")] == ["kept"]
            finally:
                await reader.close()
            said = await refusal(server().url("guarded", SECRET), write=True, schema=schema)
            assert "too few rights" in said
            assert "GRANT ALL" in said


def all_rights(schema: str) -> tuple[str, ...]:
    return (
        f"ALL ON SCHEMA {schema}",
        *[f"ALL ON ALL {kind} IN SCHEMA {schema}" for kind in ("TABLES", "SEQUENCES")],
    )


async def test_rights_on_existing_schema_suffice() -> None:
    async with fresh_store() as store:
        await Writer(store).write(message())
        schema = schema_of(store)
        async with a_guarded_user(*all_rights(schema)):
            theirs = PostgresStore(server().url("guarded", SECRET), schema=schema)
            try:
                writer = Writer(theirs, "t2")
                await writer.begin(log=[message()], identity=identity("r1", "t2"))
                done = record("r1", "t2", status="done")
                await writer.release(log=[message()], runs=[done], identity=identity("r1", "t2"), inbox_head=0)
                assert (await writer.view()).run is None
            finally:
                await theirs.close()


async def test_migration_by_user_without_rights_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fresh_store() as store:
        await Writer(store).write(message())
        schema = schema_of(store)
        script = "ALTER TABLE threads ADD COLUMN note text"
        monkeypatch.setattr("wakeful.stores.sql.schema.MIGRATIONS", (*MIGRATIONS, script))
        monkeypatch.setattr("wakeful.stores.postgres.install.VERSION", VERSION + 1)
        async with a_guarded_user(*all_rights(schema)):
            said = await refusal(server().url("guarded", SECRET), schema=schema)
        assert f"is of version {VERSION}, and this user can't bring it to version {VERSION + 1} (must be" in said
        assert "open the store once as the user that owns it" in said


async def test_many_openers_migrate_a_schema_once(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = "migrated_once"
    try:
        await opened(schema, 1)
        script = "CREATE TABLE notes (no {number}, note {text})"
        monkeypatch.setattr("wakeful.stores.sql.schema.MIGRATIONS", (*MIGRATIONS, script))
        monkeypatch.setattr("wakeful.stores.postgres.install.VERSION", VERSION + 1)
        assert await opened(schema, 6) == [VERSION + 1] * 6
    finally:
        async with connected() as connection:
            await connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


async def opened(schema: str, count: int) -> list[int]:
    """The versions that so many stores find which open the schema at once."""
    stores = [PostgresStore(server().url(), schema=schema) for _ in range(count)]
    try:
        return await asyncio.gather(*[store.version() for store in stores])
    finally:
        await asyncio.gather(*[store.close() for store in stores])


async def test_right_to_create_schema_suffices() -> None:
    async with a_guarded_user("CREATE ON DATABASE postgres"):
        store = PostgresStore(server().url("guarded", SECRET), schema="all_mine")
        try:
            await Writer(store).write(message("hello"))
            assert [m.text for m in await store.messages("t1")] == ["hello"]
        finally:
            await store.close()


async def test_read_only_database_error() -> None:
    async with fresh_store() as store:
        await store.head("t1")
        schema = schema_of(store)
        url = f"{server().url('postgres', SECRET)}?default_transaction_read_only=on"
        assert "read-only" in await refusal(url, write=True, schema=schema)


async def test_absent_server_is_not_waited_for_at_first() -> None:
    said = await refusal(f"postgres://me:{SECRET}@127.0.0.1:{free_port()}/app")
    assert "can't be reached" in said
    assert "host and port" in said


async def test_unknown_host_error() -> None:
    assert "can't be reached" in await refusal(f"postgres://me:{SECRET}@nowhere.invalid/app")


@pytest.mark.parametrize(
    "url",
    [
        f"mysql://me:{SECRET}@host/app",
        f"me:{SECRET}@host/app",
        f"postgres://me:{SECRET}/x@host/app",
        f"postgres://me:x@{SECRET}@host/app",
        f"postgres://me:{SECRET}#x@host/app",
        f"postgres://me:{SECRET}?x@host/app",
        f"postgres://me:12#{SECRET}@host/app",
        f"postgres://[{SECRET}/app",
    ],
)
def test_unreadable_url_is_not_shown(url: str) -> None:
    with pytest.raises(StoreUnavailable, match="postgres://") as caught:
        PostgresStore(url)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("end", ["host:port/app", "host:99999999/app", "host/app?port=x", "a:1,b:x/app"])
async def test_url_refused_by_driver_is_explained(end: str) -> None:
    said = await refusal(f"postgres://me:{SECRET}@{end}")
    assert "URL" in said


def test_open_makes_no_connection() -> None:
    store = PostgresStore(f"postgresql://me:{SECRET}@nowhere.invalid:1/app?password={SECRET}", tenant="acme")
    assert repr(store) == "PostgresStore('postgresql://me@nowhere.invalid:1/app', schema='wakeful', tenant='acme')"


def test_open_imports_no_driver() -> None:
    program = (
        "import sys\nfrom wakeful.stores.postgres import PostgresStore\n"
        "PostgresStore('postgres://host/app')\nprint('asyncpg' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


async def test_missing_driver_error_names_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    assert "pip install 'wakeful[postgres]'" in await refusal(server().url())
