"""Instructions as texts, functions of the run's context, or a list of both."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from wakeful import (
    Agent,
    ConfigurationError,
    FunctionModel,
    MemoryStore,
    Plugin,
    Principal,
    RunContext,
    Runtime,
    SqliteStore,
    StateKey,
    ToolContext,
    call,
    tool,
)
from wakeful.plugins import BeforeInference
from wakeful.stores import Commit, Committed
from wakeful.testing import FakeClock
from wakeful.types.events import InferenceComplete, RunStart, StepStart
from wakeful.types.runs import Failed

from .helpers import Scripted, assert_settled, events_of, soon


class Mood(StateKey[str, str]):
    name = "mood"
    default = "calm"


@tool
async def cheer(ctx: ToolContext) -> str:
    """Change the mood."""
    ctx.update(Mood, "happy")
    return "ok"


def by_mood(ctx: RunContext) -> str:
    return f"You are {ctx.state[Mood]} in step {ctx.step}."


async def by_deps(ctx: RunContext[str]) -> str:
    return f"Use {ctx.deps}."


async def test_instructions_are_evaluated_for_each_request(scripted: Scripted) -> None:
    model = scripted(call("cheer"), "done")
    runtime = Runtime([Agent("agent", model=model, tools=[cheer], instructions=by_mood)], keys=[Mood])
    await soon(runtime.run("agent", "go", thread="t"))
    assert [request.system for request in model.requests] == [
        "You are calm in step 1.",
        "You are happy in step 2.",
    ]
    await assert_settled(runtime, "t")


async def test_instructions_join_texts_and_functions(scripted: Scripted) -> None:
    model = scripted("done")
    parts = ["Be brief.", by_deps, lambda ctx: "", by_mood]  # pyright: ignore
    runtime = Runtime([Agent("agent", model=model, instructions=parts)], keys=[Mood], deps="metres")
    await soon(runtime.run("agent", "go"))
    assert model.requests[0].system == "Be brief.\n\nUse metres.\n\nYou are calm in step 1."


async def test_constant_instructions_are_joined_once(scripted: Scripted) -> None:
    model = scripted(call("cheer"), "done")
    agent = Agent("agent", model=model, tools=[cheer], instructions=["Be brief.", "", "Be kind."])
    await soon(Runtime([agent], keys=[Mood]).run("agent", "go"))
    first, second = (request.system for request in model.requests)
    assert first == "Be brief.\n\nBe kind."
    assert first is second


async def test_run_context_has_the_run(scripted: Scripted) -> None:
    seen: list[RunContext[str]] = []

    def look(ctx: RunContext[str]) -> str:
        seen.append(ctx)
        return "x"

    clock = FakeClock()
    runtime = Runtime([Agent("agent", model=scripted("a"), instructions=look)], deps="deps", clock=clock)
    result = await soon(runtime.run("agent", "go", thread="t", principal=Principal("ada")))
    (ctx,) = seen
    assert (ctx.run.agent_id, ctx.run.run_id, ctx.run.thread_id) == ("agent", result.run_id, "t")
    assert (ctx.principal, ctx.deps) == (Principal("ada"), "deps")
    assert ctx.time.timestamp() * 1000 == clock.now()
    assert ctx.time.utcoffset() is not None
    with pytest.raises(AttributeError):
        ctx.step = 3  # pyright: ignore


async def test_instructions_use_overridden_deps(scripted: Scripted) -> None:
    model = scripted("done")
    runtime = Runtime([Agent("agent", model=model, instructions=by_deps)], deps="metres")
    with runtime.override(deps="miles"):
        await soon(runtime.run("agent", "go"))
    assert model.requests[0].system == "Use miles."


async def test_instructions_of_functions_are_shown_in_events(scripted: Scripted, tmp_path: Path) -> None:
    """Functions' texts aren't known otherwise; those of a constant are in the code."""
    path = tmp_path / "app.db"
    agents = [
        Agent("changing", model=scripted(call("cheer"), "done"), tools=[cheer], instructions=by_mood),
        Agent("constant", model=scripted("done"), instructions="Be brief."),
    ]
    async with Runtime(agents, keys=[Mood], store=SqliteStore(path)) as runtime:
        await soon(runtime.run("changing", "go", thread="t"))
        await soon(runtime.run("constant", "go", thread="u"))
    async with Runtime(agents, keys=[Mood], store=SqliteStore(path)) as runtime:
        shown = [event.instructions for event in await events_of(runtime, "t", InferenceComplete)]
        assert shown == ["You are calm in step 1.", "You are happy in step 2."]
        assert [event.instructions for event in await events_of(runtime, "u", InferenceComplete)] == [""]


class Watched(MemoryStore):
    """Counts commits, and notes the steps that were committed."""

    def __init__(self) -> None:
        super().__init__()
        self.commits = 0
        self.steps: list[int] = []

    async def commit(self, commit: Commit) -> Committed:
        self.commits += 1
        self.steps += [entry.step for entry in commit.log if isinstance(entry, StepStart)]
        return await super().commit(commit)


async def test_step_is_committed_before_functions_run(scripted: Scripted) -> None:
    """No commit is added: it is the one that precedes the request anyway."""
    store, plain = Watched(), Watched()
    seen: list[list[int]] = []

    async def look(ctx: RunContext) -> str:
        seen.append(list(store.steps))
        return f"step {ctx.step}"

    for place, instructions in ((store, look), (plain, "step")):
        model = scripted(call("cheer"), "done")
        agent = Agent("agent", model=model, tools=[cheer], instructions=instructions)
        await soon(Runtime([agent], keys=[Mood], store=place).run("agent", "go"))
    assert seen == [[1], [1, 2]]
    assert store.commits == plain.commits


async def test_hooks_edit_instructions_of_functions(scripted: Scripted) -> None:
    class Redacting(Plugin):
        async def before_inference(self, ctx: BeforeInference) -> None:
            ctx.plan.instructions = ctx.plan.instructions.replace("calm", "***")
            ctx.plan.add_system("Added.")

    model = scripted("done")
    runtime = Runtime([Agent("agent", model=model, instructions=by_mood, plugins=[Redacting()])], keys=[Mood])
    await soon(runtime.run("agent", "go", thread="t"))
    assert model.requests[0].system == "You are *** in step 1.\n\nAdded."
    (event,) = await events_of(runtime, "t", InferenceComplete)
    assert event.instructions == "You are *** in step 1."


def failing(ctx: RunContext) -> str:
    raise ValueError("oops")


def numeric(ctx: RunContext) -> Any:
    return 3


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (failing, "instructions function 'failing' failed: ValueError"),
        (numeric, "the result of instructions function 'numeric' is a text, not 3"),
    ],
)
async def test_failing_instructions_end_the_run(scripted: Scripted, function: Any, text: str) -> None:
    model = scripted()
    result = await Runtime([Agent("agent", model=model, instructions=function)]).run("agent", "go", check=False)
    assert isinstance(result.termination, Failed)
    assert result.termination.error == "HookFailed"
    assert text in result.termination.text
    assert model.requests == []


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (3, "instructions is a text, a function of a RunContext or a list of both, not 3"),
        (str, "instructions is a text, a function of a RunContext or a list of both, not <class 'str'>"),
        (["a", None], "instructions has None; give texts and functions of a RunContext"),
        (["a\ud83d"], "instructions has a lone surrogate"),
        (asking := lambda: "a", "instructions function '<lambda>' is called with a RunContext"),
        ([asking], "instructions function '<lambda>' is called with a RunContext"),
    ],
)
def test_wrong_instructions_are_refused(scripted: Scripted, given: Any, problem: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Runtime([Agent("agent", model=scripted(), instructions=given)])
    assert problem in refused.value.problems[0]


def test_instructions_with_missing_deps_are_refused(scripted: Scripted) -> None:
    agents = [Agent("agent", model=scripted(), instructions=["Be brief.", by_deps])]
    with pytest.raises(ConfigurationError) as refused:
        Runtime(agents)
    assert "agent 'agent': an instructions function: it needs deps of type str" in refused.value.problems[0]
    with pytest.raises(ConfigurationError):
        Runtime(agents, deps=3)


def say(word: str, ctx: RunContext) -> str:
    return word


@tool(approval=True)
async def pay() -> str:
    """Pay."""
    return "paid"


@pytest.mark.parametrize(
    ("later", "changed"),
    [
        (["Be kind.", partial(say, "b"), by_mood], ()),
        (["Be kind.", by_mood, partial(say, "b")], ("instructions",)),
        (["Be brief.", partial(say, "b"), by_mood], ("instructions",)),
    ],
)
async def test_code_change_names_functions(later: Any, changed: tuple[str, ...]) -> None:
    """A function is known by its qualified name, which is the same in every process."""

    def answer(request: Any) -> Any:
        return "done" if request.messages[-1].role == "tool" else call("pay")

    store, model = MemoryStore(), FunctionModel(answer)
    before = ["Be kind.", partial(say, "a"), by_mood]

    def runtime(instructions: Any) -> Runtime:
        return Runtime(
            [Agent("agent", model=model, tools=[pay], instructions=instructions)], keys=[Mood], store=store
        )

    result = await soon(runtime(before).run("agent", "go", thread="t"))
    again = runtime(later)
    await soon(again.tickets.answer(result.tickets[0].id, True))
    assert [event.changed for event in await events_of(again, "t", RunStart)] == [(), changed]
