"""Tools that the client runs: the agent's own and those that one run brings, over suspensions and runtimes."""

from __future__ import annotations

import pytest

from wakeful import Agent, ClientTool, MemoryStore, Plugin, Runtime, call
from wakeful.errors import InvalidDecision
from wakeful.plugins import GateAnswer, GateTool
from wakeful.types.runs import NaturalEnd

from .helpers import Scripted, Spy, assert_settled, replies_on, reply_text, spying

LOCATE = ClientTool(
    "locate", "Where the user is.", {"type": "object", "properties": {"exact": {"type": "boolean"}}}
)


async def test_client_tool_waits_for_client_result(
    scripted: Scripted,
) -> None:
    model = scripted(call("locate", exact=True), "You are in Rome.")
    agent = Agent("agent", model=model, tools=[LOCATE])
    store = MemoryStore()
    result = await Runtime([agent], store=store).run("agent", "Where am I?", thread="t")
    (ticket,) = result.tickets
    assert (ticket.tool, ticket.arguments, ticket.accepts) == ("locate", {"exact": True}, ("result",))
    assert ticket.asked_by == "client"
    assert model.requests[0].tools == (LOCATE.spec,)
    run = await Runtime([agent], store=store).runs.get(result.run_id)
    assert run.waiting is not None
    assert run.waiting.reason == "user_input"
    runtime = Runtime([agent], store=store)
    result = await runtime.resume(result.run_id, answers={ticket.call_id: {"city": "Rome"}})
    assert result.termination == NaturalEnd()
    assert [reply_text(r) for r in await replies_on(runtime, "t")] == ['{"city":"Rome"}']
    await assert_settled(runtime, "t")


async def test_client_tools_of_run_survive_suspension(scripted: Scripted) -> None:
    model = scripted(call("locate"), call("locate"), "done")
    store, agent = MemoryStore(), Agent("agent", model=model)
    result = await Runtime([agent], store=store).run("agent", "go", thread="t", client_tools=[LOCATE])
    for place in ("Rome", "Oslo"):
        (ticket,) = result.tickets
        result = await Runtime([agent], store=store).resume(result.run_id, ticket.answer(place))
    assert result.status == "done"
    assert [[spec.name for spec in request.tools] for request in model.requests] == [["locate"]] * 3


async def test_client_tools_of_run_are_not_offered_to_next(scripted: Scripted) -> None:
    model = scripted("one", "two")
    runtime = Runtime([Agent("agent", model=model)])
    await runtime.run("agent", "go", thread="t", client_tools=[LOCATE])
    await runtime.run("agent", "go", thread="t")
    assert [[spec.name for spec in request.tools] for request in model.requests] == [["locate"], []]


async def test_agent_tool_wins_over_client_tool_of_same_name(scripted: Scripted) -> None:
    spy = Spy()
    agent = Agent("agent", model=scripted(call("locate"), "done"), tools=[spying(spy, "locate")])
    result = await Runtime([agent]).run("agent", "go", client_tools=[LOCATE])
    assert result.status == "done"
    assert spy.ran == ["locate"]


async def test_client_tools_are_kept_on_handoff(scripted: Scripted) -> None:
    """The reference loses a run's frontend tools on handoff; here they belong to the run."""
    first = Agent("first", model=scripted(call("handoff_to_second")), handoffs=["second"])
    second = Agent("second", model=scripted(call("locate"), "done"))
    runtime = Runtime([first, second])
    result = await runtime.run("first", "go", client_tools=[LOCATE])
    assert [t.tool for t in result.tickets] == ["locate"]
    result = await runtime.resume(result.run_id, result.tickets[0].answer("Rome"))
    assert (result.agent_id, result.text) == ("second", "done")


async def test_client_tool_and_own_tool_run_in_one_step(scripted: Scripted) -> None:
    spy = Spy()
    agent = Agent(
        "agent", model=scripted([call("locate"), call("act")], "done"), tools=[LOCATE, spying(spy, "act")]
    )
    runtime = Runtime([agent])
    result = await runtime.run("agent", "go", thread="t")
    assert spy.ran == ["act"]
    await runtime.resume(result.run_id, result.tickets[0].answer("Rome"))
    assert [r.name for r in await replies_on(runtime, "t")] == ["act", "locate"]
    await assert_settled(runtime, "t")


async def test_client_result_too_large_is_refused(scripted: Scripted) -> None:
    runtime = Runtime([Agent("agent", model=scripted(call("locate"), "done"), tools=[LOCATE])])
    result = await runtime.run("agent", "go", thread="t")
    with pytest.raises(InvalidDecision, match=r"1,048,579 bytes; the limit is 1,048,576"):
        await runtime.resume(result.run_id, result.tickets[0].answer("x" * (1024 * 1024 + 1)))
    assert (await runtime.resume(result.run_id, result.tickets[0].answer("Rome"))).text == "done"


async def test_client_tool_takes_result_or_denial_only(scripted: Scripted) -> None:
    agent = Agent("agent", model=scripted(call("locate"), "done"), tools=[LOCATE])
    runtime = Runtime([agent])
    result = await runtime.run("agent", "go", thread="t")
    with pytest.raises(InvalidDecision, match="takes result, not arguments"):
        await runtime.resume(result.run_id, result.tickets[0].edit({}))
    await runtime.resume(result.run_id, result.tickets[0].deny("not shared"))
    (reply,) = await replies_on(runtime, "t")
    assert reply.error == "denied"


class Careful(Plugin):
    """Asks before anything runs."""

    async def gate_tool(self, ctx: GateTool) -> GateAnswer:
        return ctx.suspend("May it?")


async def test_gate_question_on_client_tool_allows_new_arguments(scripted: Scripted) -> None:
    agent = Agent("agent", model=scripted(call("locate", exact=True), "done"), tools=[LOCATE], plugins=[Careful()])
    runtime = Runtime([agent])
    result = await runtime.run("agent", "go", thread="t")
    assert [t.asked_by for t in result.tickets] == ["Careful"]
    result = await runtime.resume(result.run_id, result.tickets[0].edit({"exact": False}))
    assert [(t.asked_by, t.arguments) for t in result.tickets] == [("client", {"exact": False})]
    result = await runtime.resume(result.run_id, result.tickets[0].answer("Rome"))
    assert result.status == "done"
    await assert_settled(runtime, "t")


async def test_gate_may_supply_client_tool_result(scripted: Scripted) -> None:
    class Knows(Plugin):
        async def gate_tool(self, ctx: GateTool) -> GateAnswer:
            return ctx.supply("Rome")

    runtime = Runtime([Agent("agent", model=scripted(call("locate"), "done"), tools=[LOCATE], plugins=[Knows()])])
    result = await runtime.run("agent", "go", thread="t")
    assert (result.status, result.tickets) == ("done", ())
    assert [reply_text(reply) for reply in await replies_on(runtime, "t")] == ["Rome"]
