"""Scenario: an agent delegates to another, and the process is killed.

Charges are recorded in a file, which outlives the processes. A file `hold-…` blocks a tool until it is removed.
"""

from __future__ import annotations

from typing import Any

from wakeful import (
    Agent,
    Delegate,
    FunctionModel,
    Limits,
    ModelRequest,
    Runtime,
    TokenBudget,
    ToolContext,
    Turn,
    Usage,
    WallTime,
    call,
    tool,
)
from wakeful.stores import Store
from wakeful.testing import CrashSite
from wakeful.testing.crash import list_all_runs
from wakeful.types.content import text_of

from .shop import Bank, held, serving

ASK = call("agent_run_worker", prompt="Charge")


def replies(request: ModelRequest) -> list[str]:
    found = [message.reply for message in request.messages if message.reply is not None]
    return [reply.error or text_of(reply.content) for reply in found]


def leading(*asked: Any) -> FunctionModel:
    """Makes these calls, then answers with their results."""

    def say(request: ModelRequest) -> Any:
        told = [m.text for m in request.messages if "<background-task-event" in m.text]
        return f"{'; '.join([*replies(request), *told])}" if replies(request) else list(asked)

    return FunctionModel(say)


def working(request: ModelRequest) -> Any:
    """Calls charge and look, then answers with their results."""
    came = replies(request)
    wanted = [call("charge"), call("look")]
    return wanted[len(came)] if len(came) < 2 else f"worked: {came[0]}, {came[1]}"


def family(site: CrashSite, how: Delegate, asked: Any = ASK, *, approval: bool = False) -> Runtime:
    bank = Bank(site.folder)

    @tool(effect="once", approval=approval)
    async def charge(ctx: ToolContext) -> str:
        """Charge the customer."""
        bank.charge(ctx.idempotency_key)
        await held(site.folder, "charge")
        return "charged"

    @tool(effect="pure")
    async def look() -> str:
        """Look."""
        await held(site.folder, "look")
        return "seen"

    agents = [
        Agent("lead", leading(asked), delegates=[how]),
        Agent("worker", FunctionModel(working), tools=[charge, look]),
    ]
    return Runtime(agents, store=site.store)


async def work(runtime: Runtime) -> None:
    """Run the scenario and approve every ticket."""
    result = await runtime.run("lead", "go", thread="t", request_id="work")
    while result.status == "waiting":
        (ticket,) = result.tickets
        result = await runtime.resume(result.run_id, ticket.approve(), request_id=ticket.id)
    await runtime.close()


async def ephemeral(site: CrashSite) -> None:
    await work(family(site, Delegate("worker")))


async def durable(site: CrashSite) -> None:
    await work(family(site, Delegate("worker", durable=True)))


async def background(site: CrashSite) -> None:
    asked = call("agent_run_worker", prompt="Charge", background=True)
    await work(family(site, Delegate("worker", background=True), asked))


async def approved(site: CrashSite) -> None:
    await work(family(site, Delegate("worker"), approval=True))


async def approved_durable(site: CrashSite) -> None:
    await work(family(site, Delegate("worker", durable=True), approval=True))


async def serve(site: CrashSite) -> None:
    """Serve due runs until stopped."""
    await serving(family(site, Delegate("worker", durable=True)), site)


async def check(site: CrashSite, store: Store) -> None:
    """Check that the charge was made once or is unknown, and that the only child ended and its result arrived."""
    runs = {run.agent_id: run for run in await list_all_runs(store)}
    assert sorted(runs) == ["lead", "worker"]
    assert len(await list_all_runs(store)) == 2
    assert {run.status for run in runs.values()} == {"done"}
    calls = {call.name: call for call in await store.calls(runs["worker"].id)}
    charges = len(Bank(site.folder).charges)
    assert calls["charge"].attempt == 1
    assert charges == 1 if calls["charge"].outcome == "ok" else charges <= 1
    assert calls["look"].outcome == "ok"
    said = {"ok": "charged", "unknown": "interrupted"}[str(calls["charge"].outcome)]
    answer = await store.answer(runs["lead"].id)
    assert answer is not None
    assert f"worked: {said}, seen" in answer.text, answer.text
    for run in runs.values():
        view = await store.load(run.thread_id)
        assert view is not None
        assert (view.run, view.thread.claimed, list(view.inbox)) == (None, False, [])
        assert all(task.status == "completed" for task in await store.tasks(run.thread_id))
    assert await store.due() == []


# -- budgets -------------------------------------------------------------------------------------------------

TOKENS = 40
CALLS = 7


def spending(request: ModelRequest) -> Any:
    """Uses ten tokens and makes two calls in each turn."""
    return Turn(calls=[call("look"), call("look")], usage=Usage(input_tokens=10))


def spenders(site: CrashSite, **limits: Any) -> Runtime:
    @tool(effect="pure")
    async def look() -> str:
        """Look."""
        return "seen"

    def lead(request: ModelRequest) -> Any:
        return Turn(calls=[ASK, ASK], usage=Usage(input_tokens=10))

    agents = [
        Agent("lead", FunctionModel(lead), delegates=[Delegate("worker", durable=True)], **limits),
        Agent("worker", FunctionModel(spending), tools=[look]),
    ]
    return Runtime(agents, store=site.store)


async def spend_tokens(site: CrashSite) -> None:
    await work(spenders(site, stop=[TokenBudget(TOKENS, tree=True)]))


async def spend_calls(site: CrashSite) -> None:
    await work(spenders(site, limits=Limits(tree_calls=CALLS)))


async def spend_time(site: CrashSite) -> None:
    await work(spenders(site, limits=Limits(tree_calls=100_000), stop=[WallTime(0.3, tree=True)]))


async def within_tokens(site: CrashSite, store: Store) -> None:
    """Check the budget: each of the three runs may exceed it by one answer."""
    runs = await list_all_runs(store)
    used = sum(run.usage.input_tokens for run in runs)
    assert TOKENS < used <= TOKENS + 3 * 10, used
    assert_stopped(runs, "token_budget")


async def within_calls(site: CrashSite, store: Store) -> None:
    runs = await list_all_runs(store)
    made = sum(run.calls for run in runs)
    assert CALLS < made <= CALLS + 3 * 2, made
    assert_stopped(runs, "tree_calls")


async def within_time(site: CrashSite, store: Store) -> None:
    assert_stopped(await list_all_runs(store), "wall_time")


def assert_stopped(runs: list[Any], policy: str) -> None:
    assert {run.status for run in runs} == {"done"}
    root = next(run for run in runs if run.agent_id == "lead")
    assert root.outcome.termination.policy == policy, root.outcome
