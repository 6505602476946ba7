"""One suite for `Runtime` and for `Client`: the same verbs, types and errors, in process and over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from sockets import serve_app, serve_in_thread
from wakeful import (
    Agent,
    ClientTool,
    RunFailed,
    Runtime,
    ScriptedModel,
    UsageError,
    call,
    tool,
)
from wakeful.client import Client
from wakeful.errors import (
    Conflict,
    InvalidDecision,
    TicketClosed,
    UnknownAgent,
    UnknownRun,
    UnknownThread,
    UnknownTicket,
)
from wakeful.events import TextDelta
from wakeful.server import app
from wakeful.stores import Tally


class Weather(BaseModel):
    city: str
    degrees: int


@tool(approval=True)
async def refund(order: str) -> str:
    """Refund an order."""
    return f"refunded {order}"


TYPED = Agent("typed", model=ScriptedModel(['{"city": "Rome", "degrees": 21}'] * 9), output=Weather)


def office(path: Path) -> Runtime:
    asks = ScriptedModel([call("refund", order="A7"), "It is refunded."] * 9)
    shows = ScriptedModel([call("show", page="/"), "It is shown."] * 9)
    return Runtime(
        [
            Agent("desk", model=ScriptedModel(["Hello, how are you?"] * 50)),
            Agent("refunds", model=asks, tools=[refund]),
            Agent("screen", model=shows),
            Agent("broken", model=ScriptedModel([])),
            TYPED,
        ],
        store=path / "app.db",
    )


@asynccontextmanager
async def opened(kind: str, path: Path) -> AsyncIterator[Any]:
    """A runtime, or a client of a server that has one."""
    runtime = office(path)
    if kind == "runtime":
        async with runtime:
            yield runtime
        return
    async with serve_app(app(runtime)) as url, Client(url) as client:
        yield client


both = pytest.mark.parametrize("kind", ["runtime", "client"])


@both
async def test_run_returns_text_and_record(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as agents:
        result = await agents.run("desk", "Hi", thread="t")
        assert (result.text, result.output, result.status) == ("Hello, how are you?",) * 2 + ("done",)
        record = await agents.runs.get(result.run_id)
        assert (record.id, record.agent_id, record.status) == (result.run_id, "desk", "done")
        assert [run.id for run in await agents.runs.list(thread="t")] == [result.run_id]
        assert [m.text for m in await agents.threads.messages("t")] == ["Hi", "Hello, how are you?"]
        assert (await agents.threads.get("t")).last_run_id == result.run_id
        assert [row.requests for row in await agents.usage()] == [1]


@both
async def test_output_has_its_type_when_agent_is_passed(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as agents:
        assert (await agents.run(TYPED, "Rome?")).output == Weather(city="Rome", degrees=21)


@both
async def test_failed_run_raises_unless_unchecked(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as agents:
        with pytest.raises(RunFailed) as caught:
            await agents.run("broken", "Hi")
        assert caught.value.result.status == "done"
        result = await agents.run("broken", "Hi", check=False)
        assert result.error is not None
        with pytest.raises(RunFailed):
            _ = [event async for event in agents.stream("broken", "Hi")]


@both
async def test_ticket_is_answered_once(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as agents:
        waiting = await agents.run("refunds", "Refund A7")
        (ticket,) = waiting.tickets
        assert (await agents.tickets.get(ticket.id)) == ticket
        assert [each.id for each in await agents.tickets.list(status="open")] == [ticket.id]
        done = await agents.tickets.answer(ticket.id, ticket.approve(reason="fine"))
        assert (done.text, done.status) == ("It is refunded.", "done")
        assert [d.reason for d in await agents.tickets.decisions(ticket.id)] == ["fine"]
        with pytest.raises(TicketClosed) as caught:
            await agents.tickets.answer(ticket.id, ticket.deny())
        assert caught.value.ticket_id == ticket.id


@both
async def test_resume_takes_decisions_and_answers(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as agents:
        waiting = await agents.run("refunds", "Refund A7")
        assert (await agents.resume(waiting.run_id, waiting.tickets[0].approve())).text == "It is refunded."
        waiting = await agents.run("refunds", "Refund A7")
        assert (await agents.resume(waiting.run_id, answers={waiting.tickets[0].id: True})).status == "done"


@both
async def test_lists_are_filtered_paged_and_counted(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as agents:
        one = (await agents.run("refunds", "Refund A7", thread="t")).tickets[0]
        shows = [ClientTool("show", "Shows a page.")]
        two = (await agents.run("screen", "Show it", client_tools=shows)).tickets[0]
        await agents.run("desk", "Hi")
        await agents.run("broken", "Hi", check=False)
        tickets, runs = agents.tickets, agents.runs
        assert await tickets.count(status="open") == Tally(2)
        assert await tickets.count(agent="refunds", tool="refund") == Tally(1)
        assert await tickets.count(agent="desk") == await tickets.count(asked_by="tool") == Tally(0)
        assert await tickets.count(one.run_id) == await tickets.count(thread="t") == Tally(1)
        by_deadline = await tickets.list(status="open", order="deadline")
        assert [each.id for each in by_deadline] == [one.id, two.id]
        assert [each.id for each in await tickets.list(after=one.id)] == [two.id]
        after = (one.deadline, one.id)
        assert [each.id for each in await tickets.list(status="open", order="deadline", after=after)] == [two.id]
        assert await tickets.list(due_before=datetime(2020, 1, 1, tzinfo=UTC)) == []
        with pytest.raises(UsageError, match="one status"):
            await tickets.list(order="deadline")
        assert [run.agent_id for run in await runs.list(outcome="error")] == ["broken"]
        assert [run.id for run in await runs.list(waits_for="tool_permission")] == [one.run_id]
        assert [run.id for run in await runs.list(before=two.run_id)] == [one.run_id]
        assert await runs.count() == await runs.count(since=datetime(2020, 1, 1, tzinfo=UTC)) == Tally(4)
        assert await runs.count(root=one.run_id) == await runs.count(parent=one.run_id) == Tally(0)
        assert await runs.count(until=datetime(2020, 1, 1, tzinfo=UTC)) == Tally(0)


@both
async def test_client_tool_waits_for_its_result(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as agents:
        waiting = await agents.run("screen", "Show it", client_tools=[ClientTool("show", "Shows a page.")])
        (ticket,) = waiting.tickets
        assert (ticket.tool, ticket.arguments, ticket.asked_by) == ("show", {"page": "/"}, "client")
        assert (await agents.tickets.answer(ticket.id, "shown")).text == "It is shown."


@both
async def test_stream_has_deltas_and_events_read_them_again(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as agents:
        events = [event async for event in agents.stream("desk", "Hi", thread="t")]
        assert [events[0].type, events[-1].type] == ["run_start", "run_finish"]
        again = [event.type async for event in agents.events("t", follow=False)]
        assert again == [event.type for event in events if event.durable]
        last = [event.type async for event in agents.events("t", after=events[-2].cursor, follow=False)]
        assert last == ["run_finish"]
        assert all(isinstance(event, TextDelta) for event in events if event.type == "text_delta")


@both
async def test_request_id_runs_once(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as agents:
        first = await agents.run("desk", "Hi", request_id="r1")
        again = await agents.run("desk", "Hi", request_id="r1")
        assert first.run_id == again.run_id


@both
async def test_send_starts_a_run_on_an_idle_thread(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as agents:
        receipt = await agents.send("t", "Hi", agent="desk")
        assert (receipt.status, receipt.thread_id) == ("accepted", "t")
        async for event in agents.events("t"):
            if event.type == "run_finish":
                break
        assert [m.text for m in await agents.threads.messages("t")] == ["Hi", "Hello, how are you?"]


@both
async def test_pending_input_is_edited_moved_and_retracted(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as agents:
        waiting = await agents.run("refunds", "Refund A7", thread="t")
        await agents.send("t", "one", policy="queue")
        await agents.send("t", "two", policy="queue")
        one, two = await agents.mail.pending("t")
        assert [one.text, two.text] == ["one", "two"]
        edited = await agents.mail.edit(one.id, "uno", revision=one.revision)
        assert edited.text == "uno"
        with pytest.raises(Conflict):
            await agents.mail.edit(one.id, "eins", revision=one.revision)
        await agents.mail.move(two.id)
        assert [each.text for each in await agents.mail.pending("t")] == ["two", "uno"]
        await agents.mail.retract(two.id)
        assert [each.text for each in await agents.mail.pending("t")] == ["uno"]
        assert await agents.cancel(waiting.run_id, "enough")
        assert not await agents.cancel(waiting.run_id)


@both
async def test_thread_is_described_forked_exported_and_deleted(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as agents:
        await agents.run("desk", "Hi", thread="a/b c")
        await agents.threads.describe("a/b c", title="Hello", metadata={"k": 1})
        record = await agents.threads.get("a/b c")
        assert (record.title, record.metadata) == ("Hello", {"k": 1})
        assert await agents.threads.fork("a/b c", into="fork") == "fork"
        lines = [line async for line in agents.threads.export("a/b c")]
        assert await agents.threads.import_(lines, into="copy") == "copy"
        assert [m.text for m in await agents.threads.messages("copy", newest=1)] == ["Hello, how are you?"]
        assert {each.id for each in await agents.threads.list()} == {"a/b c", "fork", "copy"}
        assert await agents.threads.delete("copy") == 1
        with pytest.raises(UnknownThread):
            await agents.threads.get("copy")


@both
async def test_schedules_and_dispatches_are_listed(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as agents:
        made = await agents.schedules.put("daily", "desk", "Hi", cron="@daily")
        assert [each.name for each in await agents.schedules.list()] == [made.name]
        assert (await agents.schedules.pause("daily")).paused
        receipt = await agents.schedules.run_now("daily")
        async for event in agents.events(receipt.thread_id):
            if event.type == "run_finish":
                break
        assert (await agents.schedules.unpause("daily")).next_at == made.next_at
        assert (await agents.schedules.get("daily")).agent_id == "desk"
        assert await agents.schedules.delete("daily")
        assert not await agents.schedules.delete("daily")
        assert await agents.workers.dispatches(dead=True) == []


@both
async def test_wrong_calls_raise_the_same_errors(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as agents:
        for attempt, error in (
            (agents.run("nobody", "Hi"), UnknownAgent),
            (agents.runs.get("x"), UnknownRun),
            (agents.tickets.get("x"), UnknownTicket),
            (agents.mail.replay("x"), UsageError),
            (agents.run("desk", ""), UsageError),
        ):
            with pytest.raises(error):
                await attempt
        waiting = await agents.run("refunds", "Refund A7")
        with pytest.raises(InvalidDecision):
            await agents.tickets.answer(waiting.tickets[0].id, "what?")


@both
def test_sync_calls_work_without_a_loop(kind: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        if kind == "runtime":
            agents: Any = office(tmp_path)
        else:
            agents = Client(stack.enter_context(serve_in_thread(lambda: app(office(tmp_path)))))
            stack.callback(agents.close_sync)
        waiting = agents.run_sync("refunds", "Refund A7")
        assert agents.resume_sync(waiting.run_id, waiting.tickets[0].approve()).text == "It is refunded."
