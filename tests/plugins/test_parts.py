"""Parts of plugins: tools, state keys and config, and their names."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Struct

from loop.helpers import Scripted, Spy, replies_on, reply_text, spying
from wakeful import Agent, ConfigurationError, MemoryStore, Plugin, Runtime, StateKey, ToolContext, call, tool
from wakeful.plugins import Step
from wakeful.stores import Commit, Committed
from wakeful.types.events import StateDelta


class Level(StateKey[int, int]):
    """A level of the thread."""

    name, scope, default = "level", "thread", 1


class Kit(Plugin):
    """Brings a tool that works on its own key."""

    keys = (Level,)

    def __init__(self, prefix: str = "level") -> None:
        self.prefix = prefix

    @tool
    async def raise_level(self, ctx: ToolContext, by: int = 1) -> str:
        """Raise the level."""
        ctx.update(Level, ctx.state[Level] + by)
        return f"{self.prefix} {ctx.state[Level] + by}"


# -- tools ---------------------------------------------------------------------------------------------------


async def test_plugin_methods_are_tools_of_its_agents(scripted: Scripted) -> None:
    model = scripted(call("raise_level", by=2), "ok")
    other = scripted("none")
    agents = [Agent("agent", model=model, plugins=[Kit("height")]), Agent("other", model=other)]
    runtime = Runtime(agents)
    await runtime.run("agent", "go", thread="t")
    assert reply_text((await replies_on(runtime, "t"))[0]) == "height 3"
    await runtime.run("other", "go", thread="t")
    assert [spec.name for spec in model.requests[0].tools] == ["raise_level"]
    assert other.requests[0].tools == ()


async def test_runtime_plugin_applies_to_every_agent(scripted: Scripted) -> None:
    one, two = scripted("a"), scripted("b")
    runtime = Runtime([Agent("one", model=one), Agent("two", model=two)], plugins=[Kit()])
    await runtime.run("one", "go")
    await runtime.run("two", "go")
    for model in (one, two):
        assert [spec.name for spec in model.requests[0].tools] == ["raise_level"]


async def test_plugin_may_list_its_tools(scripted: Scripted) -> None:
    spy = Spy()

    class Lists(Plugin):
        def tools(self) -> Any:
            return [spying(spy, "listed")]

    await Runtime([Agent("agent", model=scripted(call("listed"), "ok"), plugins=[Lists()])]).run("agent", "go")
    assert spy.ran == ["listed"]


def test_plugin_tool_must_not_hide_another(scripted: Scripted) -> None:
    agent = Agent("agent", model=scripted(), tools=[spying(Spy(), "raise_level")], plugins=[Kit()])
    with pytest.raises(ConfigurationError, match="two tools are named 'raise_level'"):
        Runtime([agent])


# -- keys ----------------------------------------------------------------------------------------------------


async def test_plugin_keys_are_registered_once(scripted: Scripted) -> None:
    agents = [Agent("a", model=scripted("x"), plugins=[Kit()]), Agent("b", model=scripted("y"), plugins=[Kit()])]
    runtime = Runtime(agents, keys=[Level])
    assert (await runtime.run("a", "go")).text == "x"
    assert (await runtime.run("b", "go")).text == "y"


def test_key_with_two_definitions_is_refused(scripted: Scripted) -> None:
    class Other(StateKey[str, str]):
        """Of the same name."""

        name = "level"

    with pytest.raises(ConfigurationError, match="state key 'level' has two definitions"):
        Runtime([Agent("agent", model=scripted(), plugins=[Kit()])], keys=[Other])


async def test_transient_state_is_not_stored_or_shown(scripted: Scripted) -> None:
    class Scratch(StateKey[Any, Any]):
        """Anything at all."""

        name, persistent, default = "scratch", False, None

    seen: list[Any] = []

    class Uses(Plugin):
        keys = (Scratch,)

        async def run_start(self, ctx: Step) -> None:
            ctx.update(Scratch, object())

        async def step_start(self, ctx: Step) -> None:
            seen.append(ctx.state[Scratch])

    runtime = Runtime([Agent("agent", model=scripted("ok"), plugins=[Uses()])])
    await runtime.run("agent", "go", thread="t")
    assert type(seen[0]) is object
    assert not [e async for e in runtime.events("t", follow=False) if isinstance(e, StateDelta)]


async def test_initial_state_is_there_from_start(scripted: Scripted) -> None:
    model = scripted(call("raise_level"), "ok")
    runtime = Runtime([Agent("agent", model=model, plugins=[Kit()])])
    await runtime.run("agent", "go", thread="t", state={Level: 41})
    assert reply_text((await replies_on(runtime, "t"))[0]) == "level 42"
    stored = await runtime.store.load("t")
    assert stored is not None
    assert stored.state == {"level": b"42"}


# -- config --------------------------------------------------------------------------------------------------


class Manner(Struct):
    """How to greet."""

    word: str = "hello"
    times: int = 1


class Greets(Plugin):
    """Greets in the way it is configured."""

    config = Manner

    def __init__(self) -> None:
        self.seen: list[Any] = []

    async def run_start(self, ctx: Step) -> None:
        self.seen.append(ctx.config)


async def test_agents_have_their_own_plugin_sections(scripted: Scripted) -> None:
    plugin = Greets()
    agents = [
        Agent("plain", model=scripted("a")),
        Agent("dict", model=scripted("b"), config={"Greets": {"word": "hi", "times": 2}}),
        Agent("typed", model=scripted("c"), config={"Greets": Manner("hey")}),
    ]
    runtime = Runtime(agents, plugins=[plugin])
    for name in ("plain", "dict", "typed"):
        await runtime.run(name, "go")
    assert plugin.seen == [Manner(), Manner("hi", 2), Manner("hey")]


def test_invalid_or_unknown_section_is_refused(scripted: Scripted) -> None:
    with pytest.raises(ConfigurationError, match=r"config of plugin 'Greets'.*times"):
        Runtime([Agent("agent", model=scripted(), plugins=[Greets()], config={"Greets": {"times": "many"}})])
    with pytest.raises(ConfigurationError, match="config section 'Typo' belongs to none of its plugins"):
        Runtime([Agent("agent", model=scripted(), plugins=[Greets()], config={"Typo": {}})])


# -- names ---------------------------------------------------------------------------------------------------


def test_two_plugins_of_one_name_are_refused_in_one_agent(scripted: Scripted) -> None:
    with pytest.raises(ConfigurationError, match="two plugins are named 'Kit'"):
        Runtime([Agent("agent", model=scripted(), plugins=[Kit(), Kit()])])


async def test_plugin_listed_twice_runs_once(scripted: Scripted) -> None:
    plugin = Greets()
    await Runtime([Agent("agent", model=scripted("a"), plugins=[plugin])], plugins=[plugin]).run("agent", "go")
    assert len(plugin.seen) == 1


async def test_hooks_run_in_order_runtime_first_then_agents(scripted: Scripted) -> None:
    order: list[str] = []

    def named(label: str) -> Plugin:
        async def hook(self: Plugin, ctx: Step) -> None:
            order.append(label)

        return type(label, (Plugin,), {"run_start": hook})()

    agent = Agent("agent", model=scripted("a"), plugins=[named("Third"), named("Fourth")])
    await Runtime([agent], plugins=[named("First"), named("Second")]).run("agent", "go")
    assert order == ["First", "Second", "Third", "Fourth"]


async def test_phase_without_hooks_costs_no_commit(scripted: Scripted) -> None:
    class Counting(MemoryStore):
        commits = 0

        async def commit(self, commit: Commit) -> Committed:
            self.commits += 1
            return await super().commit(commit)

    store = Counting()
    agent = Agent("agent", model=scripted(call("act"), "ok"), tools=[spying(Spy(), "act")])
    await Runtime([agent], store=store).run("agent", "go")
    assert store.commits <= 4  # The input; the answer with its call begun; the result; the end.
