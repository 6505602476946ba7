"""The namespaces of a runtime: verbs that no other test file is about."""

from __future__ import annotations

from pathlib import Path

import pytest

from wakeful import Agent, Delegate, FunctionModel, ModelRequest, Runtime, ScriptedModel, call, tool
from wakeful.errors import UnknownRun, UnknownTicket, UsageError


@tool(approval=True)
async def pay() -> str:
    """Pay."""
    return "paid"


def delegate(request: ModelRequest) -> object:
    if request.messages[-1].role == "tool":
        return "done"
    return [call("agent_run_helper", prompt="one"), call("agent_run_helper", prompt="two")]


async def test_run_tree_has_all_runs_below_a_run() -> None:
    lead = Agent("lead", model=FunctionModel(delegate), delegates=[Delegate("helper", durable=True)])
    helper = Agent("helper", model=FunctionModel(lambda request: request.messages[-1].text.upper()))
    async with Runtime([lead, helper]) as runtime:
        result = await runtime.run("lead", "go")
        tree = await runtime.runs.tree(result.run_id)
        assert (tree.run.id, tree.task, tree.run.agent_id) == (result.run_id, None, "lead")
        assert [child.run.agent_id for child in tree.children] == ["helper", "helper"]
        assert [child.task.target for child in tree.children if child.task] == [c.run.id for c in tree.children]
        assert (await runtime.runs.tree(tree.children[0].run.id)).children == ()
        with pytest.raises(UnknownRun):
            await runtime.runs.tree("nobody")


async def test_ticket_is_found_by_its_id() -> None:
    agent = Agent("a", model=ScriptedModel([call("pay"), "done"]), tools=[pay])
    async with Runtime([agent]) as runtime:
        (ticket,) = (await runtime.run("a", "go")).tickets
        assert await runtime.tickets.get(ticket.id) == ticket
        with pytest.raises(UnknownTicket, match="no ticket 'other' in this store"):
            await runtime.tickets.get("other")
        submitted = await runtime.tickets.submit(ticket.approve())
        assert submitted.id == ticket.id
        assert (await runtime.wait(ticket.run_id)).text == "done"


async def test_task_is_cancelled_by_its_id() -> None:
    agent = Agent("a", model=ScriptedModel([call("pay"), "done"]), tools=[pay])
    async with Runtime([agent]) as runtime:
        handle = await runtime.tasks.spawn("a", "go", thread="t")
        await handle.result()
        assert await runtime.tasks.cancel(handle.id, "enough")
        assert not await runtime.tasks.cancel(handle.id)


async def test_workers_of_a_store_are_listed(tmp_path: Path) -> None:
    agent = Agent("a", model=ScriptedModel(["hello"]))
    async with Runtime([agent], store=tmp_path / "app.db") as runtime:
        await runtime.run("a", "go")
        assert [(one.id, one.state) for one in await runtime.workers.list()] == [(runtime.workers.id, "alive")]
        assert not await runtime.workers.revive("t")
    async with Runtime([agent]) as runtime:
        with pytest.raises(UsageError, match="a store in memory has no other workers"):
            await runtime.workers.list()


def test_agents_are_a_mapping_with_their_tools() -> None:
    agent = Agent("a", model=ScriptedModel([]), tools=[pay])
    runtime = Runtime([agent])
    assert dict(runtime.agents) == {"a": agent}
    assert [spec.name for spec in runtime.agents.tools("a")] == ["pay"]


async def test_wrong_call_names_the_runtime_and_no_internal_class() -> None:
    runtime = Runtime([Agent("a", model=ScriptedModel([]))])
    for handle in (runtime, runtime.tenant("acme")):
        with pytest.raises(TypeError, match=r"^Runtime\.run\(\.\.\.\) has no argument 'threat'"):
            await handle.run("a", "go", threat="t")  # type: ignore[call-arg]


async def test_handles_show_their_ids_alone() -> None:
    runtime = Runtime([Agent("a", model=ScriptedModel(["one", "two"]))])
    handle = await runtime.start("a", "go", thread="t")
    task = await runtime.tasks.spawn("a", "go", thread="t")
    assert repr(handle) == f"RunHandle(run_id={handle.run_id!r}, thread_id='t')"
    assert repr(task) == f"TaskHandle(id={task.id!r}, thread_id={task.thread_id!r})"
    await handle.result()
    await task.result()
