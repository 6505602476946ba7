"""Parked runs whose code changed: resumed or refused with the reason, and checked beforehand."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from loop.helpers import Hold, events_of, holding, replies_on, reply_text, soon
from wakeful import (
    Agent,
    ClientTool,
    Decision,
    FunctionModel,
    MemoryStore,
    Plugin,
    Runtime,
    ScriptedModel,
    SqliteStore,
    StateKey,
    ToolContext,
    UsageError,
    call,
    tool,
)
from wakeful.dispatch import check_parked
from wakeful.errors import CannotResume
from wakeful.types.events import RunStart
from wakeful.types.runs import Cancelled

Make = Callable[..., Runtime]


@pytest.fixture(params=["memory", "sqlite"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Makes runtimes of any code on one store."""
    store = MemoryStore()

    def made(*tools: Any, name: str = "agent", keys: Any = (), more: Any = (), **options: Any) -> Runtime:
        place: Any = store if request.param == "memory" else SqliteStore(tmp_path / "app.db")
        options.setdefault("model", FunctionModel(asking))
        return Runtime([Agent(name, tools=tools, **options), *more], store=place, keys=keys)

    return made


def asking(request: Any) -> Any:
    return "done" if request.messages[-1].role == "tool" else call("refund", order="A7", amount=5)


class Total(StateKey[int, int]):
    name, scope, default = "total", "thread", 0


class Counting(Plugin):
    keys = (Total,)


@tool(approval=True)
async def refund(order: str, amount: int, ctx: ToolContext) -> str:
    """Refund an order."""
    return f"refunded {amount} for {order}"


@tool(approval=True, name="refund")
async def refund_in(order: str, amount: int, currency: str = "EUR") -> str:
    """Refund an order in a currency."""
    return f"refunded {amount} {currency} for {order}"


@tool(approval=True, name="refund")
async def refund_stranger(order: int, reason: str) -> str:
    """Refund an order."""
    return f"refunded {order}: {reason}"


@tool
async def other() -> str:
    """Something else."""
    return "else"


async def parked(runtime: Runtime, **options: Any) -> Any:
    """Run until it waits, and end the process; the ticket."""
    result = await runtime.run("agent", "go", thread="t", **options)
    await runtime.close()
    (ticket,) = result.tickets
    return ticket


async def refused(runtime: Runtime, ticket: Any, answer: Any = True) -> tuple[str, ...]:
    """The reasons why the run can't be resumed; nothing may have changed."""
    async with runtime:
        before = await runtime.store.load("t")
        with pytest.raises(CannotResume) as caught:
            await runtime.tickets.answer(ticket.id, answer)
        with pytest.raises(CannotResume):
            await runtime.resume(ticket.run_id, Decision(ticket.id, mode="proceed"))
        assert await runtime.store.load("t") == before
        assert list(await runtime.tickets.decisions(ticket.id)) == []
        assert [t.status for t in await runtime.tickets.list()] == ["open"]
        found = await runtime.runs.check_parked()
        assert [(p.thread_id, p.run_id, p.reasons) for p in found] == [("t", ticket.run_id, caught.value.reasons)]
        assert all(reason in str(caught.value) for reason in caught.value.reasons)
    return caught.value.reasons


# -- what a run needs ----------------------------------------------------------------------------------------


async def test_waiting_run_records_its_needs(make: Make) -> None:
    @tool(approval=True, name="refund")
    async def counting(order: str, amount: int) -> str:
        """Refund."""
        return "ok"

    class Writing(Counting):
        async def run_start(self, ctx: Any) -> None:
            ctx.update(Total, 1)

    runtime = make(counting, other, plugins=[Writing()])
    ticket = await parked(runtime)
    again = make(counting, other, plugins=[Writing()])
    needs = (await again.runs.get(ticket.run_id)).needs
    assert needs is not None
    assert sorted(needs.agent) == ["instructions", "model", "tools"]
    assert list(needs.tools) == ["refund"]
    assert needs.keys == ("total",)
    assert await again.runs.check_parked() == []
    await again.close()


async def test_unparked_run_records_no_needs(make: Make) -> None:
    async with make(other, model=ScriptedModel(["done"])) as runtime:
        result = await runtime.run("agent", "go", thread="t")
        assert (await runtime.runs.get(result.run_id)).needs is None


# -- code that changed and still checks ----------------------------------------------------------------------


async def test_unchanged_code_reports_nothing(make: Make) -> None:
    ticket = await parked(make(refund))
    async with make(refund) as runtime:
        assert (await runtime.tickets.answer(ticket.id, True)).status == "done"
        assert [event.changed for event in await events_of(runtime, "t", RunStart)] == [(), ()]


@pytest.mark.parametrize(
    ("tools", "options", "changed"),
    [
        ((refund,), {"instructions": "Be kind."}, ("instructions",)),
        ((refund,), {"model": FunctionModel(asking, name="other")}, ("model",)),
        ((refund, other), {}, ("tools",)),
        ((refund_in,), {}, ("tools", "arguments of refund")),
    ],
)
async def test_compatible_code_change_is_logged_and_run_resumes(
    make: Make, tools: Any, options: Any, changed: tuple[str, ...]
) -> None:
    ticket = await parked(make(refund))
    async with make(*tools, **options) as runtime:
        assert await runtime.runs.check_parked() == []
        assert (await runtime.tickets.answer(ticket.id, True)).status == "done"
        assert [event.changed for event in await events_of(runtime, "t", RunStart)] == [(), changed]
        (reply,) = await replies_on(runtime, "t")
        assert "refunded 5" in reply_text(reply)


# -- code that can't go on -----------------------------------------------------------------------------------


async def test_missing_agent_is_reported(make: Make) -> None:
    ticket = await parked(make(refund))
    assert await refused(make(refund, name="clerk"), ticket) == ("agent 'agent' is gone (known: clerk)",)


async def test_missing_tool_is_reported(make: Make) -> None:
    ticket = await parked(make(refund))
    (reason,) = await refused(make(other), ticket)
    assert reason == f"tool 'refund' of call {ticket.call_id} is gone (agent 'agent' has: other)"


async def test_invalid_arguments_are_reported(make: Make) -> None:
    ticket = await parked(make(refund))
    (reason,) = await refused(make(refund_stranger), ticket)
    assert "no longer fit tool 'refund'" in reason
    assert "$.order: expected int, got str" in reason
    assert "missing required argument 'reason'" in reason


class Writing(Counting):
    async def run_start(self, ctx: Any) -> None:
        ctx.update(Total, 1)


async def test_missing_state_key_is_reported(make: Make) -> None:
    ticket = await parked(make(refund, plugins=[Writing()]))
    (reason,) = await refused(make(refund), ticket)
    assert reason.startswith("state key 'total' is gone")


async def test_changed_state_key_type_is_reported(make: Make) -> None:
    class Words(StateKey[list[str], str]):
        name, scope, default = "total", "thread", ()

    ticket = await parked(make(refund, plugins=[Writing()]))
    (reason,) = await refused(make(refund, keys=[Words]), ticket)
    assert "state key 'total': the stored value can't be read" in reason


async def test_all_reasons_are_listed(make: Make) -> None:
    ticket = await parked(make(refund, plugins=[Writing()]))
    reasons = await refused(make(other), ticket)
    assert [reason.split()[0] for reason in reasons] == ["tool", "state"]


async def test_state_key_of_foreign_plugin_may_go(make: Make) -> None:
    writer = Agent("writer", model=FunctionModel(lambda r: "written"), plugins=[Writing()])
    runtime = make(refund, more=[writer])
    await runtime.run("writer", "go", thread="t")
    ticket = await parked(runtime)
    async with make(refund) as runtime:
        assert await runtime.runs.check_parked() == []
        assert (await runtime.tickets.answer(ticket.id, True)).status == "done"


async def test_state_key_registered_elsewhere_counts(make: Make) -> None:
    ticket = await parked(make(refund, plugins=[Writing()]))
    async with make(refund, keys=[Total]) as runtime:
        assert (await runtime.tickets.answer(ticket.id, True)).status == "done"
        assert await runtime.threads.state("t") == {"total": 1}


async def test_client_tools_belong_to_the_run(make: Make) -> None:
    model = FunctionModel(lambda r: "done" if r.messages[-1].role == "tool" else call("locate"))
    ticket = await parked(make(model=model), client_tools=[ClientTool("locate")])
    async with make(model=model) as runtime:
        assert await runtime.runs.check_parked() == []
        assert (await runtime.tickets.answer(ticket.id, "Rome")).status == "done"


# -- ways out ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "how", [lambda t: t.deny("gone"), lambda t: t.result("done by hand")], ids=["deny", "result"]
)
async def test_ticket_result_settles_call_of_missing_tool(make: Make, how: Any) -> None:
    ticket = await parked(make(refund))
    async with make(other) as runtime:
        assert (await runtime.tickets.answer(ticket.id, how(ticket))).status == "done"


async def test_ticket_arguments_may_fit_new_code(make: Make) -> None:
    ticket = await parked(make(refund))
    async with make(refund_stranger) as runtime:
        result = await runtime.tickets.answer(ticket.id, ticket.edit({"order": 7, "reason": "late"}))
        assert result.status == "done"
        (reply,) = await replies_on(runtime, "t")
        assert reply_text(reply).startswith("refunded 7: late")


async def test_arguments_for_missing_tool_keep_ticket_open(make: Make) -> None:
    ticket = await parked(make(refund))
    edited = ticket.edit(ticket.arguments)
    async with make(other) as runtime:
        with pytest.raises(CannotResume, match=r"tool 'refund' of call .* is gone"):
            await runtime.tickets.answer(ticket.id, edited)
        assert [t.id for t in await runtime.tickets.list(status="open")] == [ticket.id]
    async with make(refund) as runtime:
        assert (await runtime.tickets.answer(ticket.id, edited)).status == "done"


async def test_blocked_run_can_be_cancelled_or_superseded(make: Make) -> None:
    ticket = await parked(make(refund))
    async with make(other) as runtime:
        assert await runtime.cancel(ticket.run_id)
        assert await runtime.runs.check_parked() == []
    async with make(refund) as runtime:
        await runtime.run("agent", "go", thread="u")
    async with make(other, model=FunctionModel(lambda r: "hello")) as runtime:
        assert (await runtime.run("agent", "Something else", thread="u")).text == "hello"


async def test_run_of_missing_agent_can_be_cancelled(make: Make) -> None:
    ticket = await parked(make(refund))
    async with make(refund, name="another") as runtime:
        assert await runtime.cancel(ticket.run_id, "out of date")
        assert (await runtime.runs.result(ticket.run_id)).termination == Cancelled("out of date")
        assert [row.outcome for row in await runtime.runs.calls(ticket.run_id)] == ["cancelled"]
        assert (await runtime.tickets.list(ticket.run_id))[0].status == "cancelled"


async def test_orphan_of_missing_agent_can_be_cancelled(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    """Input for its thread stays queued, no process retries the run, and a cancellation reports its calls."""
    hold = Hold()
    dead = make(holding(hold), model=FunctionModel(lambda r: call("wait")))
    work = asyncio.create_task(dead.run("agent", "go", thread="t"))
    await soon(hold.reached.wait())
    await dead._scope.shared.worker.state.lease.close()
    async with make(name="another", model=FunctionModel(lambda r: "hello")) as runtime:
        (run,) = await runtime.runs.list()
        waiting = [
            asyncio.create_task(w) for w in (runtime.wait(run.id), runtime.run("another", "hi", thread="t"))
        ]
        await asyncio.sleep(0.3)
        assert not any(task.done() for task in waiting)
        assert await soon(runtime.cancel(run.id))
        results = await soon(asyncio.gather(*waiting))
        assert (results[0].termination, results[1].text) == (Cancelled("cancelled by request"), "hello")
        assert [row.outcome for row in await runtime.runs.calls(run.id)] == ["unknown"]
        assert not caplog.records
    hold.released.set()
    await asyncio.wait([work])
    await dead.close()


# -- in the background ---------------------------------------------------------------------------------------


async def test_decision_stays_pending_until_code_is_back(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    ticket = await parked(make(refund))
    runtime = make(other)
    await runtime.tickets.submit(ticket.approve())
    async with runtime:
        while "can't go on" not in caplog.text:
            await asyncio.sleep(0.001)
        await runtime._scope.dispatch.start_if_due("t")
        assert caplog.text.count("can't go on") == 1
        assert (await runtime.runs.get(ticket.run_id)).status == "waiting"
        assert [t.status for t in await runtime.tickets.list()] == ["open"]
    async with make(refund) as runtime:

        async def done() -> None:
            while (await runtime.runs.get(ticket.run_id)).status != "done":
                await asyncio.sleep(0.001)

        await soon(done())


async def test_parked_runs_are_checked_by_page(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wakeful.dispatch.parked.PAGE", 2)
    runtime = make(refund)
    for number in range(5):
        await runtime.run("agent", "go", thread=f"t{number}")
    await runtime.close()
    async with make(other) as runtime:
        found = await check_parked(runtime._scope.env.registry, runtime.store)
    assert [problem.thread_id for problem in found] == ["t4", "t3", "t2", "t1", "t0"]
    assert {problem.agent_id for problem in found} == {"agent"}


async def test_run_settled_by_submitted_answer_is_no_problem(make: Make) -> None:
    ticket = await parked(make(refund))
    runtime = make(other)
    assert len(await runtime.runs.check_parked()) == 1
    await runtime.tickets.submit(ticket.deny("no such tool any more"))
    assert await runtime.runs.check_parked() == []
    await runtime.close()


async def test_unreadable_parked_run_is_listed(tmp_path: Path) -> None:
    def made(*tools: Any) -> Runtime:
        return Runtime([Agent("agent", model=FunctionModel(asking), tools=tools)], store=tmp_path / "app.db")

    first = made(refund)
    runs = [(await first.run("agent", "go", thread=thread)).run_id for thread in ("t1", "t2")]
    await first.close()
    with closing(sqlite3.connect(tmp_path / "app.db")) as db:
        db.execute("UPDATE tickets SET payload = x'7b' WHERE thread = (SELECT no FROM threads WHERE id = 't2')")
        db.commit()
    runtime = made(other)
    unread, gone = await runtime.runs.check_parked()
    assert [(p.thread_id, p.run_id) for p in (gone, unread)] == list(zip(("t1", "t2"), runs, strict=True))
    assert "tool 'refund'" in gone.reasons[0]
    assert "thread 't2': ticket" in unread.reasons[0]
    await runtime.close()


def test_error_is_usage_error_with_reasons() -> None:
    error = CannotResume("r1", ["a", "b"])
    assert isinstance(error, UsageError)
    assert (error.run_id, error.reasons) == ("r1", ("a", "b"))
    assert str(error) == "run r1 can't go on with the present code; nothing was changed:\n  - a\n  - b"
