"""A Postgres schema that an older version wrote, opened by this one: what waited in it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest
from postgres_suite import connected, texts

from conformance.store_suite import Writer, record
from postgres_server import server
from wakeful import Agent, PostgresStore, Runtime, ScriptedModel, tool
from wakeful.stores._schema import VERSION, statements
from wakeful.types.content import text_of

DATA = Path(__file__).parent / "data"


@asynccontextmanager
async def version_2(schema: str, version: int = 2) -> AsyncIterator[PostgresStore]:
    """A store on tables of version 2, with what that version wrote; perhaps migrated to a later one since."""
    async with connected(schema) as connection:
        await connection.execute(f"CREATE SCHEMA {schema}")
        store = PostgresStore(server().url(), schema=schema)
        try:
            for step in range(1, version + 1):
                await connection.execute(";\n".join(["SELECT 1", *statements(step, "postgres")]))
                if (written := DATA / f"postgres_v{step}.sql").exists():
                    await connection.execute(written.read_text())
            await connection.execute("UPDATE meta SET value = $1 WHERE name = 'version'", str(version))
            yield store
        finally:
            await store.close()
            await connection.execute(f"DROP SCHEMA {schema} CASCADE")


@tool(approval=True)
async def refund(order: str) -> str:
    """Give the money back."""
    return f"refunded {order}"


def shop(*turns: str) -> Agent:
    return Agent("shop", model=ScriptedModel(list(turns)), tools=[refund])


async def test_a_run_that_waited_in_version_2_is_answered_and_finished() -> None:
    async with version_2("version_two_waits") as store:
        runtime = Runtime([shop("Done.")], store=store)
        (run,) = await runtime.list_runs(status="waiting")
        (ticket,) = await store.tickets(run.id)
        result = await runtime.resume(run.id, ticket.approve())
        assert (result.status, result.text) == ("done", "Done.")
        assert [text for text in await texts(store) if text] == ["Hi", "Hello.", "Refund order 7", "Done."]
        replies = [m.reply for m in await store.messages("t1") if m.reply is not None]
        assert [text_of(reply.content) for reply in replies] == ["refunded 7"]
        assert [e.seq for e in await store.events("t1")] == list(range(1, (await store.head("t1")) + 1))
        assert await store.check() == []
        assert await store.version() == VERSION


async def test_input_that_nobody_took_in_version_2_is_claimed_and_run() -> None:
    async with version_2("version_two_input") as store:
        (one,) = (await store.claim("w", agents=["shop"], limit=5)).claimed
        assert (one.thread_id, one.attempts, one.taken_over) == ("t2", 0, False)
        (run_id,) = [item.run_id for item in (await store.load("t2")).inbox]  # type: ignore[union-attr]
        assert run_id is not None
        await store.keep("w").close()  # It is due again.
        async with Runtime([shop("Yes.")], store=store) as runtime:
            async with asyncio.timeout(20):
                while await store.run(run_id) is None:
                    await asyncio.sleep(0.01)
            assert (await runtime.wait(run_id)).text == "Yes."
            assert await texts(store, "t2") == ["Anybody there?", "Yes."]


async def test_many_that_open_version_2_at_once_migrate_it_once() -> None:
    async with version_2("version_two_many") as store:
        others = [PostgresStore(server().url(), schema="version_two_many") for _ in range(3)]
        try:
            assert await asyncio.gather(*[other.head("t1") for other in others]) == [15] * 3
            assert {await other.version() for other in (store, *others)} == {VERSION}
        finally:
            for other in others:
                await other.close()


async def test_a_run_that_waited_in_version_5_goes_on_with_an_answer_that_was_left() -> None:
    async with version_2("version_five", 5) as store:
        (run,) = await store.runs(status="waiting")
        async with Runtime([shop("Done.", "Done.")], store=store) as runtime:
            (ticket,) = await runtime.tickets(run.id)
            await runtime.leave_answer(ticket.approve())
            async with asyncio.timeout(20):
                while (await runtime.get_run(run.id)).status != "done":
                    await asyncio.sleep(0.01)
            assert [m.text for m in await runtime.messages("t1")][-1] == "Done."
            assert await store.dispatches(dead=True) == []
            assert await store.version() == VERSION


async def test_a_worker_of_version_5_claims_nothing_of_what_it_could_not_read() -> None:
    async with version_2("version_five_claims", 5) as store, connected("version_five_claims") as connection:
        claim = "SELECT * FROM claim_rows_v3('old', 30000, ARRAY['shop'], 5, NULL, NULL, '{}')"
        assert len(await connection.fetch(claim)) > 1
        await connection.execute("UPDATE threads SET claim = NULL; UPDATE dispatches SET held = 0")
        assert await store.head("t1") == 15
        with pytest.raises(asyncpg.UndefinedFunctionError):
            await connection.fetch(claim)
        assert [one.thread_id for one in (await store.claim("w", agents=["shop"], limit=5)).claimed] == ["t2"]


HOLD_OF_6 = """
CREATE OR REPLACE FUNCTION hold_v3(
    v_tenant text, v_thread bigint, v_agent text, v_now bigint, v_priority bigint, v_step bigint, v_lost boolean
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO dispatches AS d (thread, tenant, agent, priority, due_at, held, mark)
        VALUES (v_thread, v_tenant, v_agent, v_priority, v_now, 1, v_step)
    ON CONFLICT (thread) DO UPDATE SET held = 1, due_at = excluded.due_at, mark = excluded.mark;
END
$$
"""


async def test_claims_make_dispatches_in_version_6_and_none_once_it_is_migrated() -> None:
    async with version_2("version_six", 6) as store, connected("version_six") as connection:
        await connection.execute(HOLD_OF_6)
        await connection.execute(
            "SELECT hold_v3('default', no, 'shop', 1, 128, 1, false) FROM threads WHERE id = 't1'"
        )
        await connection.execute("UPDATE threads SET claim = 'old' WHERE id = 't1'")
        old = "SELECT held FROM dispatches d JOIN threads t ON t.no = d.thread WHERE t.id = $1"
        assert [row[0] for row in await connection.fetch(old, "t1")] == [1]
        writer = Writer(store, "new")
        for number in (1, 2):
            await writer.begin(f"r{number}")
            assert await connection.fetch(old, "new") == []
            await writer.release(runs=[record(f"r{number}", "new", status="done")])
        taken = {one.thread_id: one for one in (await store.claim("w", agents=["shop"], limit=5)).claimed}
        assert (taken["t1"].taken_over, taken["t1"].attempts) == (True, 1)
        assert await store.version() == VERSION
