"""Changes of hooks to a model call: tools on offer, settings, system text and the model itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from loop.helpers import Scripted, Spy, outcomes, spying
from wakeful import Agent, ClientTool, ModelRequest, ModelSettings, Plugin, Runtime, StateKey, call
from wakeful.plugins import BeforeInference, InferencePlan, PlanEdits
from wakeful.types.runs import Failed

Edit = Callable[[PlanEdits], Any]


def planner(label: str, edit: Edit) -> Plugin:
    """A plugin that edits the plan."""

    async def hook(self: Plugin, ctx: BeforeInference) -> None:
        edit(ctx.plan)

    return type(label, (Plugin,), {"before_inference": hook})()


async def planned(scripted: Scripted, *edits: Edit, **options: Any) -> ModelRequest:
    """The model's request after these edits, by one plugin each."""
    model = scripted("done")
    plugins = [planner(f"Plugin{n}", edit) for n, edit in enumerate(edits)]
    tools = [spying(Spy(), name) for name in ("a", "b", "c")]
    run = options.pop("run", {})
    agent = Agent("agent", model=model, instructions="Base.", tools=tools, plugins=plugins, **options)
    await Runtime([agent]).run("agent", "go", **run)
    return model.requests[0]


def names(request: ModelRequest) -> list[str]:
    """The tools on offer."""
    return [spec.name for spec in request.tools]


async def test_tool_exclusions_accumulate(scripted: Scripted) -> None:
    request = await planned(scripted, lambda p: p.exclude_tools("a"), lambda p: p.exclude_tools("c", "nope"))
    assert names(request) == ["b"]


async def test_tool_inclusions_are_a_union(scripted: Scripted) -> None:
    request = await planned(scripted, lambda p: p.include_only("a"), lambda p: p.include_only("c"))
    assert names(request) == ["a", "c"]


async def test_exclusion_beats_inclusion_in_any_order(scripted: Scripted) -> None:
    for edits in (
        [lambda p: p.exclude_tools("a"), lambda p: p.include_only("a", "b")],
        [lambda p: p.include_only("a", "b"), lambda p: p.exclude_tools("a")],
    ):
        assert names(await planned(scripted, *edits)) == ["b"]


async def test_empty_inclusion_offers_no_tools(scripted: Scripted) -> None:
    assert names(await planned(scripted, lambda p: p.include_only())) == []


async def test_tools_are_offered_in_stable_order(scripted: Scripted) -> None:
    assert names(await planned(scripted)) == ["a", "b", "c"]


async def test_system_paragraphs_follow_instructions_in_order(scripted: Scripted) -> None:
    request = await planned(scripted, lambda p: p.add_system("One."), lambda p: p.add_system("Two."))
    assert request.system == "Base.\n\nOne.\n\nTwo."


async def test_settings_merge_from_agent_run_and_hooks(scripted: Scripted) -> None:
    request = await planned(
        scripted,
        lambda p: p.settings(temperature=0.3, stop=("a",)),
        lambda p: p.settings(temperature=0.4, extra={"y": 2}),
        settings=ModelSettings(temperature=0.1, top_p=0.1, max_tokens=10, extra={"x": 1}),
        run={"settings": ModelSettings(temperature=0.2, top_p=0.2)},
    )
    assert request.settings == ModelSettings(
        temperature=0.4, top_p=0.2, max_tokens=10, stop=("a",), extra={"x": 1, "y": 2}
    )


async def test_later_settings_of_one_hook_win(scripted: Scripted) -> None:
    def twice(plan: PlanEdits) -> None:
        plan.settings(temperature=0.1, top_p=0.5)
        plan.settings(temperature=0.9)

    request = await planned(scripted, twice)
    assert (request.settings.temperature, request.settings.top_p) == (0.9, 0.5)


async def test_last_model_override_wins_for_one_call(scripted: Scripted) -> None:
    own, one, two = scripted("back to me"), scripted(), scripted(call("act"), name="two")

    class First(Plugin):
        async def before_inference(self, ctx: BeforeInference) -> None:
            if ctx.step == 1:
                ctx.plan.model = "one"

    class Second(Plugin):
        async def before_inference(self, ctx: BeforeInference) -> None:
            if ctx.step == 1:
                ctx.plan.model = "two"

    agent = Agent("agent", model=own, tools=[spying(Spy(), "act")], plugins=[First(), Second()])
    result = await Runtime([agent], models={"one": one, "two": two}).run("agent", "go")
    assert result.text == "back to me"


async def test_unknown_model_fails_run_with_its_name(scripted: Scripted) -> None:
    def wrong(plan: PlanEdits) -> None:
        plan.model = "acme:nope"

    runtime = Runtime([Agent("agent", model=scripted(), plugins=[planner("Wrong", wrong)])])
    result = await runtime.run("agent", "go", check=False)
    assert isinstance(result.termination, Failed)
    assert "acme:nope" in result.termination.message


async def test_tool_not_offered_does_not_run(scripted: Scripted) -> None:
    spy = Spy()
    plugin = planner("Hides", lambda p: p.exclude_tools("act"))
    runtime = Runtime(
        [Agent("agent", model=scripted(call("act"), "ok"), tools=[spying(spy, "act")], plugins=[plugin])]
    )
    result = await runtime.run("agent", "go", thread="t")
    assert spy.ran == []
    assert await outcomes(runtime, result.run_id) == {"act": "error"}


async def test_client_tools_are_part_of_plan(scripted: Scripted) -> None:
    request = await planned(
        scripted, lambda p: p.exclude_tools("a", "b", "c"), run={"client_tools": [ClientTool("locate")]}
    )
    assert names(request) == ["locate"]


async def test_hooks_see_offered_tools(scripted: Scripted) -> None:
    seen: list[Any] = []

    class Looks(Plugin):
        async def before_inference(self, ctx: BeforeInference) -> None:
            seen.append(set(ctx.tools))
            ctx.plan.exclude_tools("a")

        async def after_inference(self, ctx: Any) -> None:
            seen.append(set(ctx.offered))

    tools = [spying(Spy(), name) for name in "ab"]
    await Runtime([Agent("agent", model=scripted("ok"), tools=tools, plugins=[Looks()])]).run("agent", "go")
    assert seen == [{"a", "b"}, {"b"}]


async def test_hook_cannot_change_conversation(scripted: Scripted) -> None:
    class Clears(Plugin):
        async def before_inference(self, ctx: BeforeInference) -> None:
            with pytest.raises(AttributeError):
                ctx.messages.clear()  # type: ignore[attr-defined]
            assert [m.text for m in ctx.messages] == ["go"]

    model = scripted("ok")
    await Runtime([Agent("agent", model=model, plugins=[Clears()])]).run("agent", "go")
    assert [m.text for m in model.requests[0].messages] == ["go"]


async def test_rerun_hook_edits_plan_once(scripted: Scripted) -> None:
    class Word(StateKey[str, str]):
        """Exclusive."""

        name, default = "word", ""

    def writer(label: str) -> Plugin:
        async def hook(self: Plugin, ctx: BeforeInference) -> None:
            ctx.update(Word, label)
            ctx.plan.add_system(f"{label} after {ctx.state[Word]!r}.")

        return type(label, (Plugin,), {"before_inference": hook})()

    model = scripted("ok")
    agent = Agent("agent", model=model, plugins=[writer("A"), writer("B")])
    await Runtime([agent], keys=[Word]).run("agent", "go")
    assert model.requests[0].system == "A after ''.\n\nB after 'A'."


# -- the plan, alone -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("included", "excluded", "offered"),
    [
        (None, (), "abc"),
        (None, ("b",), "ac"),
        (("a", "b"), (), "ab"),
        (("a", "b"), ("b",), "a"),
        ((), (), ""),
        (("x",), (), ""),
    ],
)
def test_plan_offers_tools_by_edits(included: Any, excluded: Any, offered: str) -> None:
    edits = PlanEdits()
    if included is not None:
        edits.include_only(*included)
    edits.exclude_tools(*excluded)
    plan = InferencePlan(ModelSettings())
    plan.add(edits)
    assert "".join(name for name in "abc" if plan.offers(name)) == offered


def test_plan_without_edits_equals_agent() -> None:
    settings = ModelSettings(temperature=0.5)
    plan = InferencePlan(settings)
    plan.add(PlanEdits())
    assert (plan.settings, plan.model, plan.included, plan.system) == (settings, None, None, [])
