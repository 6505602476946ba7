"""Questions of MCP servers: they become tickets, and survive the restart of every process involved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from wakeful import RunResult, Runtime, ScriptedModel, SqliteStore, Turn, call
from wakeful.errors import InvalidDecision
from wakeful.extensions.mcp import MCP
from wakeful.stores import Store
from wakeful.testing import CrashSite, crash_matrix
from wakeful.types.content import text_of

from . import asking_server
from .servers import HttpServer, agent, caller, command, one_call, reply

SCRIPT = Path(asking_server.__file__)
OLD: Any = "2025-11-25"
NEW: Any = "2026-07-28"

KEY = "0123456789abcdef0123456789abcdef"


def travel(protocol: Any, **settings: Any) -> MCP:
    """The asking server, in this process."""
    return MCP("travel", server=asking_server.make(), protocol=protocol, **settings)


def shown(model: ScriptedModel) -> str:
    return text_of(reply(model).content)


@pytest.mark.parametrize(("protocol", "effect"), [(OLD, "idempotent"), (NEW, "once"), (NEW, "pure")])
async def test_elicitation_becomes_a_ticket(protocol: Any, effect: Any) -> None:
    model = one_call("mcp__travel__book", city="Oslo")
    async with Runtime([agent(model, travel(protocol, effects={"*": effect}))]) as runtime:
        result = await runtime.run("helper", "go")
        (ticket,) = result.tickets
        assert (ticket.asked_by, ticket.message) == ("tool", "travel asks: When to Oslo?")
        assert ticket.schema is not None
        assert ticket.schema["required"] == ["day"]
        with pytest.raises(InvalidDecision):
            await runtime.resume(result.run_id, ticket.answer({"day": 7}))
        assert (await runtime.resume(result.run_id, ticket.answer({"day": "Monday"}))).text == "done"
    assert shown(model) == "Oslo on Monday"


@pytest.mark.parametrize("protocol", [OLD, NEW])
async def test_denied_question_is_declined_and_the_call_continues(protocol: Any) -> None:
    model = one_call("mcp__travel__book", city="Oslo")
    async with Runtime([agent(model, travel(protocol, effects={"*": "pure"}))]) as runtime:
        result = await runtime.run("helper", "go")
        await runtime.resume(result.run_id, result.tickets[0].deny("not now"))
    assert shown(model) == "no trip to Oslo: decline"


@pytest.mark.parametrize("protocol", [OLD, NEW])
async def test_questions_of_one_call_are_asked_in_turn(protocol: Any) -> None:
    model = one_call("mcp__travel__book_class", city="Rome")
    async with Runtime([agent(model, travel(protocol, effects={"*": "pure"}))]) as runtime:
        result = await runtime.run("helper", "go")
        result = await runtime.resume(result.run_id, result.tickets[0].answer({"day": "Friday"}))
        assert result.tickets[0].message == "travel asks: First class?"
        await runtime.resume(result.run_id, result.tickets[0].answer({"first": True}))
    assert shown(model) == "Rome on Friday, first class"


async def test_question_in_a_once_call_of_2025_is_declined() -> None:
    """Such a call can't run again from the top, so nobody is asked."""
    model = one_call("mcp__travel__book", city="Oslo")
    async with Runtime([agent(model, travel(OLD))]) as runtime:
        assert (await runtime.run("helper", "go")).status == "done"
    assert "no trip to Oslo: decline" in shown(model)
    assert "The effect of this tool is 'once'" in shown(model)


@pytest.mark.parametrize("protocol", [OLD, NEW])
async def test_questions_are_declined_if_the_settings_say_so(protocol: Any) -> None:
    model = one_call("mcp__travel__book", city="Oslo")
    source = travel(protocol, effects={"*": "pure"}, elicitation="deny")
    async with Runtime([agent(model, source)]) as runtime:
        result = await runtime.run("helper", "go")
    assert result.status == "done"
    assert "Oslo on" not in shown(model)


async def test_page_to_visit_is_shown_with_its_host_and_never_fetched() -> None:
    model = one_call("mcp__travel__pay")
    async with Runtime([agent(model, travel(OLD, effects={"*": "idempotent"}))]) as runtime:
        result = await runtime.run("helper", "go")
        (ticket,) = result.tickets
        assert "Open this page of bank.example" in ticket.message
        assert "https://bank.example/pay?n=1" in ticket.message
        await runtime.resume(result.run_id, ticket.approve())
    assert shown(model) == "paid: accept"


async def test_calls_that_ask_at_once_get_their_own_answers() -> None:
    """Over stdio a question doesn't name its call, so such calls run one at a time."""
    model = ScriptedModel(
        [Turn(calls=[call("mcp__travel__meet", name="Ann"), call("mcp__travel__meet", name="Bob")]), "done"]
    )
    source = MCP("travel", command=command(script=SCRIPT), protocol=OLD, effects={"*": "pure"}, connect_timeout=60)
    async with Runtime([agent(model, source)]) as runtime:
        result: RunResult = await runtime.run("helper", "go")
        while result.tickets:
            ticket = result.tickets[0]
            day = "Monday" if "Ann" in ticket.message else "Tuesday"
            result = await runtime.resume(result.run_id, ticket.answer({"day": day}))
    replies = [text_of(m.reply.content) for m in model.requests[-1].messages if m.reply is not None]
    assert sorted(replies) == ["Ann on Monday", "Bob on Tuesday"]


@pytest.mark.parametrize("protocol", [OLD, NEW])
async def test_question_survives_restarts_of_server_and_client(protocol: Any, tmp_path: Path) -> None:
    """Another runtime, with another server process, answers a question that a killed server asked."""
    journal = tmp_path / "journal"
    options = ("--key", KEY, "--journal", str(journal))

    def runtime(server: HttpServer) -> Runtime:
        effects: Any = {"book": "once" if protocol == NEW else "idempotent"}
        source = MCP("travel", url=server.url, protocol=protocol, effects=effects, connect_timeout=60)
        return Runtime([agent(caller("mcp__travel__book", city="Oslo"), source)], store=tmp_path / "store.db")

    with HttpServer(*options, script=SCRIPT) as server:
        async with runtime(server) as first:
            result = await first.run("helper", "go")
        server.kill()
        server.start()
        async with runtime(server) as second:
            (ticket,) = await second.tickets.list()
            result = await second.resume(result.run_id, ticket.answer({"day": "Monday"}))
    assert result.text == "Oslo on Monday"
    assert journal.read_text().splitlines() == ["booked Oslo on Monday"]


@pytest.mark.parametrize(("effect", "text"), [("once", "forgot its question"), ("pure", "Oslo on Monday")])
async def test_forgotten_question_is_repeated_by_effect(effect: Any, text: str, tmp_path: Path) -> None:
    """A server without a fixed key can't read its own state after a restart."""
    path = tmp_path / "store.db"
    for is_first in (True, False):
        source = travel(NEW, effects={"*": effect})
        model = caller("mcp__travel__book", city="Oslo")
        async with Runtime([agent(model, source)], store=path) as runtime:
            if is_first:
                result = await runtime.run("helper", "go")
            else:
                (ticket,) = await runtime.tickets.list()
                result = await runtime.resume(result.run_id, ticket.answer({"day": "Monday"}))
    assert text in result.text


async def test_cancelled_run_withdraws_the_servers_question() -> None:
    model = one_call("mcp__travel__book", city="Oslo")
    async with Runtime([agent(model, travel(NEW))]) as runtime:
        result = await runtime.run("helper", "go")
        await runtime.cancel(result.run_id)
        assert (await runtime.runs.get(result.run_id)).status == "done"
        (ticket,) = await runtime.tickets.list()
        assert ticket.status == "cancelled"


async def ask_and_answer(site: CrashSite) -> None:
    """A run with a question, in processes that are killed at every commit."""
    server = asking_server.make(site.folder / "journal", KEY)
    source = MCP("travel", server=server, protocol=NEW)
    model = caller("mcp__travel__book", city="Oslo")
    runtime = Runtime([agent(model, source)], store=site.store)
    result = await runtime.run("helper", "go", thread="trip", request_id="trip")
    if result.tickets:
        await runtime.resume(result.run_id, result.tickets[0].answer({"day": "Monday"}))
    await runtime.close()


async def booked_once(site: CrashSite, store: Store) -> None:
    (run,) = await store.runs()
    (made,) = await store.calls(run.id)
    journal = site.folder / "journal"
    trips = len(journal.read_text().splitlines()) if journal.exists() else 0
    assert made.outcome in ("ok", "unknown")
    assert trips == 1 if made.outcome == "ok" else trips <= 1


@pytest.mark.long
def test_questions_survive_kills_at_every_commit() -> None:
    report = crash_matrix(ask_and_answer, check=booked_once)
    assert report.kills >= 12


async def test_pins_are_read_from_the_store_when_the_server_is_gone(tmp_path: Path) -> None:
    """A resumed run keeps its tools and its ticket while the server is down; the call fails with the reason."""
    store = tmp_path / "store.db"
    server = HttpServer("--key", KEY, script=SCRIPT)

    def runtime() -> Runtime:
        source = MCP("travel", url=server.url, connect_timeout=60, protocol=NEW)
        return Runtime([agent(caller("mcp__travel__book", city="Oslo"), source)], store=SqliteStore(store))

    with server:
        async with runtime() as first:
            result = await first.run("helper", "go")
    async with runtime() as second:
        (ticket,) = await second.tickets.list()
        result = await second.resume(result.run_id, ticket.answer({"day": "Monday"}))
    assert "can't be reached" in result.text
