"""Children that a tool's code runs, one after the other or together, and tools that are unwound meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from loop.helpers import Hold, Scripted, Spy, holding, replies_on, reply_text, soon, spying
from wakeful import Agent, Delegate, FunctionModel, Runtime, ToolContext, call, tool
from wakeful.errors import InvalidArguments
from wakeful.types.runs import NaturalEnd

from .conftest import Place
from .helpers import ask, assert_quiet, run_of, tasks_of, told

WAYS = ["gather", "gather with errors", "group", "swallowed"]


def surveying(way: str, **how: Any) -> Any:
    @tool(resumable=True)
    async def survey(ctx: ToolContext) -> str:
        """Ask two agents at once."""
        work = [ctx.run_agent(name, "do it", **how) for name in ("slow", "waiting")]
        if way == "group":
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one) for one in work]
            found: Any = [task.result() for task in tasks]
        elif way == "swallowed":
            try:
                found = await asyncio.gather(*work)
            except BaseException:
                return "nothing came of it"
        else:
            found = await asyncio.gather(*work, return_exceptions=way == "gather with errors")
        return " ".join(child.text for child in found)

    return survey


@pytest.mark.parametrize("how", ["ephemeral", "durable"])
@pytest.mark.parametrize("way", WAYS)
async def test_tool_may_wait_for_several_children_in_any_way(
    way: str, how: str, place: Place, scripted: Scripted
) -> None:
    spy = Spy()
    agents = [
        Agent("lead", scripted(call("survey"), "done"), tools=[surveying(way, durable=how == "durable")]),
        Agent("slow", scripted(call("look"), "slow"), tools=[spying(spy, "look")]),
        Agent("waiting", scripted(call("pay"), "paid"), tools=[spying(spy, "pay", approval=True)]),
    ]
    runtime = Runtime(agents, store=place())
    waiting = await soon(runtime.run("lead", "go", thread="t"))
    assert [t.tool for t in waiting.tickets] == ["pay"]
    result = await soon(runtime.resume(waiting.run_id, waiting.tickets[0].approve()))
    (reply,) = await replies_on(runtime, "t")
    assert (result.text, reply_text(reply), sorted(spy.ran)) == ("done", "slow paid", ["look", "pay"])
    assert len(await runtime.runs.list()) == 3
    await assert_quiet(runtime)
    await runtime.close()


async def test_child_of_unwound_call_reports_to_next_attempt(place: Place, scripted: Scripted) -> None:
    """`gather` leaves the slow child running when the other one waits: the next attempt gets its result."""
    hold = Hold()
    agents = [
        Agent("lead", scripted(call("survey"), "done"), tools=[surveying("gather")]),
        Agent("slow", scripted(call("wait"), "slow"), tools=[holding(hold)]),
        Agent("waiting", scripted(call("pay"), "paid"), tools=[spying(Spy(), "pay", approval=True)]),
    ]
    runtime = Runtime(agents, store=place())
    running = asyncio.create_task(runtime.run("lead", "go", thread="t"))
    await soon(hold.reached.wait())
    while not (tickets := await runtime.tickets.list(status="open")):
        await asyncio.sleep(0.002)
    answering = asyncio.create_task(runtime.tickets.answer(tickets[0].id, True))
    lead = await run_of(runtime, "lead")
    while (await runtime.runs.calls(lead.id))[0].attempt < 2:
        await asyncio.sleep(0.002)
    hold.released.set()
    assert {(await soon(task)).text for task in (running, answering)} == {"done"}
    assert reply_text((await replies_on(runtime, "t"))[0]) == "slow paid"
    await assert_quiet(runtime)
    await runtime.close()


async def test_failed_task_group_is_tool_error(scripted: Scripted) -> None:
    """Before Python 3.13 such a group leaves its task marked as cancelled, and that task may be the run's own."""

    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("no")

    @tool
    async def grouped() -> str:
        """Fail in a group, in a group."""
        async with asyncio.TaskGroup() as outer:
            outer.create_task(asyncio.sleep(0))
            async with asyncio.TaskGroup() as group:
                group.create_task(fail())
        return "never"

    runtime = Runtime([Agent("agent", scripted(call("grouped"), "done"), tools=[grouped], expose_errors=True)])
    result = await soon(runtime.run("agent", "go", thread="t"))
    assert (result.text, result.termination) == ("done", NaturalEnd())
    assert "unhandled errors in a TaskGroup" in reply_text((await replies_on(runtime, "t"))[0])
    me = asyncio.current_task()
    assert me is not None
    assert me.cancelling() == 0


async def test_cancel_reaches_tool_with_failed_group(scripted: Scripted) -> None:
    hold = Hold()

    async def fail() -> None:
        raise ValueError("no")

    async def stay() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await hold.here()

    @tool(effect="pure")
    async def grouped() -> str:
        """Fail in a group that takes its time to end."""
        async with asyncio.TaskGroup() as group:
            group.create_task(stay())
            await asyncio.sleep(0)
            group.create_task(fail())
        return "never"

    runtime = Runtime([Agent("agent", scripted(call("grouped")), tools=[grouped])])
    handle = await runtime.start("agent", "go", thread="t")
    await soon(hold.reached.wait())
    cancelling = asyncio.create_task(handle.cancel("enough"))
    await asyncio.sleep(0)
    hold.released.set()
    assert await soon(cancelling) is True
    assert "enough" in str((await handle.result()).termination)


async def test_background_report_waits_for_step_end(place: Place, scripted: Scripted) -> None:
    """The owner's call waits for somebody else: the news is taken in, and told behind that call's result."""
    back = [ask("quick", background=True), ask("waiting")]
    agents = [
        Agent("lead", scripted(back, "done"), delegates=[Delegate("quick", background=True), "waiting"]),
        Agent("quick", scripted("quick")),
        Agent("waiting", scripted(call("pay"), "paid"), tools=[spying(Spy(), "pay", approval=True)]),
    ]
    runtime = Runtime(agents, store=place())
    waiting = await soon(runtime.run("lead", "go", thread="t"))
    assert (waiting.status, await told(runtime)) == ("waiting", [])
    await runtime.close()
    runtime = Runtime(agents, store=place())
    result = await soon(runtime.resume(waiting.run_id, waiting.tickets[0].approve()))
    assert result.text == "done"
    roles = [m.role for m in await runtime.threads.messages("t")]
    assert roles == ["user", "assistant", "tool", "tool", "user", "assistant"]
    (news,) = await told(runtime)
    assert "quick" in news
    assert sorted(task.status for task in await tasks_of(runtime)) == ["completed", "completed"]
    await assert_quiet(runtime)
    await runtime.close()


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ({"prompt": ""}, "prompt must not be empty"),
        ({"prompt": "  "}, "prompt must not be empty"),
        ({"prompt": []}, "the input is empty"),
        ({"prompt": "x" * (1024 * 1024 + 1)}, "the input has 1,048,577 bytes; the limit is 1,048,576"),
        ({"state": "much"}, "state is a dict of state keys and values, not 'much'"),
    ],
)
@pytest.mark.parametrize("verb", ["run_agent", "spawn"])
async def test_child_input_must_not_be_none(verb: str, how: Any, text: str, scripted: Scripted) -> None:
    @tool
    async def begin(ctx: ToolContext) -> str:
        """Begin a child with it."""
        await getattr(ctx, verb)("worker", **({"prompt": "x"} | how))
        return "begun"

    runtime = Runtime([Agent("lead", scripted(call("begin"), "done"), tools=[begin]), Agent("worker", scripted())])
    await runtime.run("lead", "go", thread="t")
    (reply,) = await replies_on(runtime, "t")
    assert text in reply_text(reply)
    assert await tasks_of(runtime) == []


@pytest.mark.parametrize(
    ("verb", "agent", "prompt", "text"),
    [
        ("run_agent", "worker", None, "the input is a text or a list of content parts, not NoneType"),
        ("run_agent", 5, "x", "an agent is named by its id"),
        ("spawn", "worker", None, "agent worker takes a prompt, and no arguments: spawn('worker', prompt)"),
        ("spawn", 5, "x", "'5' is no task of this runtime"),
    ],
)
async def test_spawn_needs_agent_and_input(
    verb: str, agent: Any, prompt: Any, text: str, scripted: Scripted
) -> None:
    @tool
    async def begin(ctx: ToolContext) -> str:
        """Begin it."""
        await getattr(ctx, verb)(agent, prompt)
        return "begun"

    runtime = Runtime([Agent("lead", scripted(call("begin"), "done"), tools=[begin]), Agent("worker", scripted())])
    await runtime.run("lead", "go", thread="t")
    (reply,) = await replies_on(runtime, "t")
    assert text in reply_text(reply)


@pytest.mark.parametrize(
    ("option", "hint"),
    [("nme", "has no argument 'nme'; did you mean 'name'?"), ("city", "it has name, state, detached, wake")],
)
async def test_unknown_option_of_spawned_agent_is_named(option: str, hint: str, scripted: Scripted) -> None:
    @tool
    async def begin(ctx: ToolContext) -> str:
        """Begin a child with it."""
        await ctx.spawn("worker", "x", **{option: "s"})
        return "begun"

    agents = [Agent("lead", scripted(call("begin"), "done"), tools=[begin]), Agent("worker", scripted())]
    async with Runtime(agents) as runtime:
        await runtime.run("lead", "go", thread="t")
        (reply,) = await replies_on(runtime, "t")
        assert f"spawn(...) has no argument {option!r}; " in reply_text(reply)
        assert hint in reply_text(reply)
        with pytest.raises(InvalidArguments, match=r"'thred'; did you mean 'thread'\?"):
            await runtime.tasks.spawn("worker", "x", thred="t")
        assert await tasks_of(runtime) == []


async def test_prompt_length_limit_equals_input_limit(scripted: Scripted) -> None:
    agents = [
        Agent("lead", scripted(ask(prompt="x" * (1024 * 1024 + 1)), "done"), delegates=["worker"]),
        Agent("worker", scripted()),
    ]
    runtime = Runtime(agents)
    await runtime.run("lead", "go", thread="t")
    (reply,) = await replies_on(runtime, "t")
    assert "the limit is 1,048,576" in reply_text(reply)
    assert await tasks_of(runtime) == []


# -- tools that aren't repeatable ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("again", "text"),
    [
        ([("quick", "one"), ("other", "two")], "2 of what it waits for it starts agent 'other', and started"),
        ([("quick", "two")], "1 of what it waits for it gives agent 'quick' 'two', which it gave it in place 2"),
    ],
    ids=["agent", "order"],
)
@pytest.mark.parametrize("how", [{}, {"durable": True}, {"fork": True}], ids=["ephemeral", "durable", "forked"])
async def test_rerun_tool_with_new_child_gets_its_own_result(
    how: Any, again: list[tuple[str, str]], text: str, place: Place, scripted: Scripted
) -> None:
    asked = [("quick", "one"), ("quick", "two"), ("waiting", "pay")]

    @tool(resumable=True)
    async def survey(ctx: ToolContext) -> str:
        """Ask some in turn, and later others, or in another order."""
        for agent, prompt in asked:
            await ctx.run_agent(agent, prompt, **how)
        return "surveyed"

    agents = [
        Agent("lead", scripted("hi", call("survey"), "done"), tools=[survey]),
        Agent("quick", FunctionModel(lambda request: request.messages[-1].text)),
        Agent("waiting", scripted(call("pay"), "paid"), tools=[spying(Spy(), "pay", approval=True)]),
        Agent("other", scripted()),
    ]
    runtime = Runtime(agents, store=place())
    await soon(runtime.run("lead", "hello", thread="t"))
    waiting = await soon(runtime.run("lead", "go", thread="t"))
    asked[:] = again
    result = await soon(runtime.resume(waiting.run_id, waiting.tickets[0].approve()))
    (reply,) = await replies_on(runtime, "t")
    assert result.text == "done"
    assert reply.error == "failed"
    assert f"survey runs again, and in place {text}" in reply_text(reply)
    await assert_quiet(runtime)
    await runtime.close()


async def test_reworded_prompt_gets_result_of_waiting_child(place: Place, scripted: Scripted) -> None:
    @tool(resumable=True)
    async def survey(ctx: ToolContext) -> str:
        """Ask somebody."""
        return (await ctx.run_agent("waiting", f"attempt {ctx.attempt}")).text

    agents = [
        Agent("lead", scripted(call("survey"), "done"), tools=[survey]),
        Agent("waiting", scripted(call("pay"), "paid"), tools=[spying(Spy(), "pay", approval=True)]),
    ]
    runtime = Runtime(agents, store=place())
    waiting = await soon(runtime.run("lead", "go", thread="t"))
    result = await soon(runtime.resume(waiting.run_id, waiting.tickets[0].approve()))
    (reply,) = await replies_on(runtime, "t")
    assert (result.text, reply_text(reply)) == ("done", "paid")
    await runtime.close()


async def test_spawned_task_is_found_by_its_call_only(place: Place, scripted: Scripted) -> None:
    @tool(resumable=True)
    async def begin(ctx: ToolContext) -> str:
        """Begin a task, and ask."""
        task = await ctx.spawn("worker" if ctx.attempt == 1 else "other", "one")
        return str(ctx.ask(f"Is {task.agent_id} right?"))

    agents = [
        Agent("lead", scripted(call("begin"), "done"), tools=[begin]),
        Agent("worker", scripted("worked")),
        Agent("other", scripted()),
    ]
    runtime = Runtime(agents, store=place())
    waiting = await soon(runtime.run("lead", "go", thread="t"))
    (task,) = await tasks_of(runtime)
    await soon((await runtime.tasks.get(task.id)).result())
    await soon(runtime.resume(waiting.run_id, waiting.tickets[0].answer("yes")))
    (reply,) = await replies_on(runtime, "t")
    assert "it starts agent 'other', and started agent 'worker' before" in reply_text(reply)
    assert len(await tasks_of(runtime)) == 1
    await runtime.close()
