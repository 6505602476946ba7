"""The reference's edge cases, rows 47 to 58: plans, context, fences and state. (Row 46, modalities, belongs to
models, which have no guard yet.)"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from wakeful import Agent, MemoryStore, Plugin, Runtime, StateKey, call
from wakeful.errors import Conflict, StaleFence, UnknownTicket
from wakeful.plugins import BeforeInference, ContextMessage, Step
from wakeful.stores import Commit, Fence
from wakeful.types.messages import user_message
from wakeful.types.runs import Cancelled, Identity, Outcome

from .helpers import House, Scripted, Spy, assert_settled, outcomes, replies_on, reply_text, spying

THREE = [call("act", x=1), call("act", x=2), "done"]


def planning(scripted: Scripted, hook: Any, *turns: Any) -> tuple[Runtime, Any]:
    """A runtime whose plugin shapes each model call, and its model."""
    model = scripted(*(turns or THREE))
    plugin = type("Planner", (Plugin,), {"before_inference": hook})()
    tools = [spying(Spy(), "act"), spying(Spy(), "other")]
    return Runtime([Agent("agent", model=model, instructions="Base.", tools=tools, plugins=[plugin])]), model


async def test_changed_context_text_skips_cooldown(scripted: Scripted) -> None:
    """Row 47."""
    texts = {1: "same", 2: "same", 3: "changed"}

    async def hook(self: Plugin, ctx: BeforeInference) -> None:
        ctx.add_context(ContextMessage("note", texts[ctx.step], cooldown=10))

    runtime, model = planning(scripted, hook)
    await runtime.run("agent", "go")
    assert [r.system for r in model.requests] == ["Base.\n\nsame", "Base.", "Base.\n\nchanged"]


async def test_plan_changes_do_not_leak_into_next_request(scripted: Scripted) -> None:
    """Row 48."""

    async def hook(self: Plugin, ctx: BeforeInference) -> None:
        if ctx.step == 1:
            ctx.plan.settings(temperature=0.1)
            ctx.plan.add_system("Only now.")
            ctx.plan.exclude_tools("other")
            ctx.add_context(ContextMessage("once", "Only here.", target="end"))

    runtime, model = planning(scripted, hook)
    await runtime.run("agent", "go", thread="t")
    first, second, third = model.requests
    assert (first.system, first.settings.temperature) == ("Base.\n\nOnly now.", 0.1)
    assert first.messages[-1].text == "Only here."
    assert [spec.name for spec in first.tools] == ["act"]
    for later in (second, third):
        assert (later.system, later.settings.temperature) == ("Base.", None)
        assert [spec.name for spec in later.tools] == ["act", "other"]
        assert all(m.text != "Only here." for m in later.messages)
    assert all(m.text != "Only here." for m in await runtime.threads.messages("t"))


async def test_tool_exclusion_beats_inclusion(scripted: Scripted) -> None:
    """Row 49."""

    async def hook(self: Plugin, ctx: BeforeInference) -> None:
        ctx.plan.include_only("act", "other")
        ctx.plan.exclude_tools("act")

    runtime, model = planning(scripted, hook, call("act"), "done")
    result = await runtime.run("agent", "go", thread="t")
    assert [spec.name for spec in model.requests[0].tools] == ["other"]
    assert await outcomes(runtime, result.run_id) == {"act": "error"}
    (reply,) = await replies_on(runtime, "t")
    assert reply.error == "not_found"
    assert "isn't offered in this step" in reply_text(reply)


async def test_commit_needs_fence_or_version() -> None:
    """Row 54: the reference guards appends by a message count; here a commit carries the fence of its claim,
    or the version it saw."""
    store = MemoryStore()
    me = Identity("r", "t", "agent", "r")
    claimed = await store.commit(
        Commit(thread_id="t", version=0, claim="mine", identity=me, log=[user_message("a")])
    )
    with pytest.raises(Conflict, match="owned by another writer"):
        await store.commit(Commit(thread_id="t", identity=me, log=[user_message("b")]))
    with pytest.raises(Conflict):
        await store.commit(Commit(thread_id="t", version=claimed.version, identity=me, log=[user_message("c")]))
    fence = Fence(claimed.epoch, "somebody else's")
    with pytest.raises(StaleFence):
        await store.commit(Commit(thread_id="t", fence=fence, identity=me, log=[user_message("d")]))
    fence = Fence(claimed.epoch, "mine")
    await store.commit(Commit(thread_id="t", fence=fence, identity=me, log=[user_message("e")], release=True))
    with pytest.raises(StaleFence):
        await store.commit(Commit(thread_id="t", fence=fence, identity=me, log=[user_message("f")]))
    with pytest.raises(Conflict, match="at version 2, not 1"):
        await store.commit(Commit(thread_id="t", version=1, identity=me, log=[user_message("g")]))
    with pytest.raises(Conflict):
        await store.commit(Commit(thread_id="t", identity=me, log=[user_message("h")]))
    assert [m.text for m in await store.messages("t")] == ["a", "e"]


async def test_fenced_run_writes_nothing_more(scripted: Scripted) -> None:
    """Row 54: the caller gets the result of the run where it continued."""
    store = MemoryStore()

    class Robbed(Plugin):
        async def step_start(self, ctx: Step) -> None:
            await runtime._scope.shared.worker.state.lease.close()
            view = await store.load("t")
            assert view is not None
            assert view.run is not None
            ended = replace(view.run, status="done", outcome=Outcome(Cancelled("elsewhere")))
            taken = Commit("t", ctx.run, version=view.thread.version, claim="another", runs=[ended])
            await store.commit(taken)

    runtime = Runtime([Agent("agent", model=scripted(), plugins=[Robbed()])], store=store)
    result = await runtime.run("agent", "go", thread="t")
    assert result.termination == Cancelled("elsewhere")
    assert [e.type for e in await store.events("t")] == ["run_start", "message", "step_start"]
    assert not runtime._scope.dispatch.active


class OfThread(StateKey[int, int]):
    """Counts the thread's runs."""

    name, scope, default = "of_thread", "thread", 0


class OfRun(StateKey[int, int]):
    """Counts the run's activations."""

    name, default = "of_run", 0


class Counts(Plugin):
    """Counts in both scopes when a run starts."""

    keys = (OfThread, OfRun)

    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []

    async def run_start(self, ctx: Step) -> None:
        self.seen.append((ctx.state[OfThread], ctx.state[OfRun]))
        ctx.update(OfThread, ctx.state[OfThread] + 1)
        ctx.update(OfRun, ctx.state[OfRun] + 1)


async def test_each_state_scope_is_loaded_before_run_start(
    scripted: Scripted,
) -> None:
    """Row 55: the reference restores thread-scoped keys only; here a run's own state survives its suspensions
    too."""
    counts = Counts()
    tools = [spying(Spy(), "ask", approval=True)]
    house = House(scripted(call("ask"), "one", "two"), *tools, plugins=[counts])
    result = await house.run()
    stored = await house.store.load("t")
    assert stored is not None
    assert (stored.state, stored.run_state) == ({"of_thread": b"1"}, {"of_run": b"1"})
    await house.resume(result.run_id, result.tickets[0].approve())
    await house.run()
    assert counts.seen == [(0, 0), (1, 1), (2, 0)]
    await house.settled()


async def test_run_continues_on_its_own_thread_only(scripted: Scripted) -> None:
    """Row 56: the reference checks that a run id to continue belongs to the thread; here a run is resumed by
    its own tickets, which no other run's decisions fit."""
    tools = [spying(Spy(), "ask", approval=True)]
    runtime = Runtime([Agent("agent", model=scripted(call("ask"), call("ask"), "mine"), tools=tools)])
    one = await runtime.run("agent", "go", thread="one")
    two = await runtime.run("agent", "go", thread="two")
    for target in (two.tickets[0].id, two.tickets[0].call_id):
        with pytest.raises(UnknownTicket):
            await runtime.resume(one.run_id, answers={target: None})
    result = await runtime.resume(one.run_id, one.tickets[0].approve())
    assert (result.thread_id, result.text) == ("one", "mine")
    assert (await runtime.runs.get(two.run_id)).status == "waiting"
    await assert_settled(runtime, "one")


async def test_agent_without_tools_offers_none(scripted: Scripted) -> None:
    """Row 58: the reference has allow-lists, where null means none and absence means all; here an agent has
    the tools it lists, and no list means none."""
    model = scripted(call("act"), "ok")
    agents = [Agent("bare", model=model), Agent("other", model=scripted(), tools=["act"])]
    runtime = Runtime(agents, tools=[spying(Spy(), "act")])
    result = await runtime.run("bare", "go", thread="t")
    assert model.requests[0].tools == ()
    assert await outcomes(runtime, result.run_id) == {"act": "error"}
    assert "available: none" in reply_text((await replies_on(runtime, "t"))[0])
