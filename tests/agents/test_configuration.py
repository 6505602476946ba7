"""The runtime reports all configuration problems at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec import Struct

from wakeful import (
    Agent,
    ClientTool,
    Compaction,
    ConfigurationError,
    CostBudget,
    Delegate,
    Limits,
    Plugin,
    Pool,
    Runtime,
    ScriptedModel,
    StateKey,
    StopOnTool,
    TokenBudget,
    WallTime,
    WindowPolicy,
    call,
    tool,
)
from wakeful.errors import UnknownAgent
from wakeful.models import Member
from wakeful.plugins import action, notice
from wakeful.types import ConsecutiveErrors, ContentMatch, LoopDetection
from wakeful.types.runs import Stopped

MODEL = ScriptedModel([])


async def hook(self: Any, ctx: Any) -> None: ...


async def bare(self: Any) -> None: ...


async def wants_more(self: Any, ctx: Any, run: Any) -> None: ...


@action("go")
async def acts(self: Any, payload: Any) -> None: ...


@notice("told")
def hears(self: Any, payload: Any) -> None: ...


@notice("told")
async def nameless(self: Any, payload: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821


@action("go")
async def odd(self: Any, payload: list[complex], ctx: Any) -> None: ...


async def yields(self: Any, ctx: Any) -> Any:
    yield


def not_async(self: Any, ctx: Any) -> None: ...


@tool
async def look(at: str) -> str:
    """Look at something."""
    return at


@tool
async def look_up(word: str) -> str:
    """Look up a word."""
    return word


@tool
async def wait() -> str:
    """Wait."""
    return ""


def other_look() -> str:
    """Another tool of the same name."""
    return ""


other_look.__name__ = "look"


class Tone(Struct, frozen=True):
    warmth: int = 1


class Settings(Struct):
    level: int
    tone: Tone = Tone()


class Tuned(Plugin):
    name = "tuned"
    config = Settings


class Audit(Plugin):
    """A plugin with a tool, a key and handlers."""

    name = "audit"

    @tool
    async def look(self) -> str:
        """Look, too."""
        return ""

    @action("archive")
    async def archive(self, payload: str, ctx: Any) -> None: ...

    @notice("told")
    async def told(self, payload: str) -> None: ...


class Rival(Plugin):
    name = "rival"

    @action("archive")
    async def archive(self, payload: str, ctx: Any) -> None: ...

    @notice("told")
    async def told(self, payload: str) -> None: ...


class Calls(StateKey[int, int]):
    name = "calls"


class OtherCalls(StateKey[str, str]):
    name = "calls"


class Nameless(StateKey[int, int]):
    pass


def agent(id: str = "a", **fields: Any) -> Agent:
    return Agent(id, **({"model": MODEL} | fields))


def problems(*agents: Agent, **options: Any) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as raised:
        Runtime(agents, **options)
    return raised.value.problems


def tools_of(runtime: Runtime, agent_id: str = "a") -> list[str]:
    return list(runtime._scope.env.registry.resolve(agent_id).offered)


# -- one thing wrong -----------------------------------------------------------------------------------------


@dataclass
class Wrong:
    """Arguments of a runtime with one problem, and the expected error."""

    label: str
    says: tuple[str, ...]
    agents: Callable[[], list[Agent]] = lambda: [agent()]
    options: Callable[[], dict[str, Any]] = field(default=dict)


def of(label: str, *says: str, **fields: Any) -> Wrong:
    return Wrong(label, ("agent 'a'", *says), lambda: [agent(**fields)])


WRONG = [
    Wrong("no agents", ("a runtime needs at least one agent",), list),
    Wrong("an id twice", ("agent 'a' is defined twice", "unique"), lambda: [agent(), agent()]),
    *[
        Wrong(f"the id {name!r}", (f"agent {name!r}", "1 to 48 letters, digits"), lambda name=name: [agent(name)])
        for name in ("", "two words", "ä", "x" * 49, "a\n")
    ],
    of("an unknown model", "unknown model 'acme:large'", "no vendor 'acme'", model="acme:large"),
    of("a malformed model", "unknown model 'large'", "'vendor:name'", model="large"),
    of("no model", "None is no model", model=None),
    of("an unknown tool", "no tool named 'look'", "Runtime(tools=...)", "there: none", tools=["look"]),
    of("an unknown pattern", "no tool named 'look*'", tools=["look*"]),
    of("an unknown delegate", "delegate 'nobody' is not an agent of this runtime", delegates=["nobody"]),
    of("an unknown handoff", "handoff 'nobody' is not an agent of this runtime", handoffs=["nobody"]),
    of("two tools of one name", "two tools are named 'look'", tools=[look, other_look]),
    of("a tool and a plugin's", "two tools are named 'look'", tools=[look], plugins=[Audit()]),
    of(
        "a tool and a handoff",
        "two tools are named 'handoff_to_a'",
        tools=[tool(name="handoff_to_a")(wait.run)],
        handoffs=["a"],
    ),
    of(
        "a tool and a delegate",
        "two tools are named 'agent_run_a'",
        tools=[tool(name="agent_run_a")(wait.run)],
        delegates=["a"],
    ),
    of("a delegate twice", "two tools are named 'agent_run_a'", delegates=["a", "a"]),
    Wrong(
        "two shared tools",
        ("Runtime(tools=...)", "two tools are named 'look'"),
        options=lambda: {"tools": [look, other_look]},
    ),
    Wrong(
        "a name as a shared tool",
        ("Runtime(tools=...)", "'look' is a name; give the tool itself"),
        options=lambda: {"tools": ["look"]},
    ),
    of("no tool at all", "5 is not a tool; give a function, a Tool or a name", tools=[5]),
    of("a class for a tool", "is not a tool", tools=[dict]),
    of("a Tool's class for a tool", "is not a tool; give an instance of it: ClientTool(...)", tools=[ClientTool]),
    of("an agent for a tool", "an agent that others call is named in delegates: ['b']", tools=[Agent("b")]),
    of(
        "a tool that is not well defined",
        "tool 'wait'",
        "effect 'reconcile' needs check",
        tools=[tool(effect="reconcile")(wait.run)],
    ),
    of(
        "a check that is never asked",
        "tool 'wait': check is for effect 'reconcile'",
        tools=[tool(check=lambda key: None)(wait.run)],
    ),
    of("a signature without a schema", "tool '<lambda>'", "'*words'", tools=[lambda *words: 1]),
    of(
        "a plugin that is named which is reserved",
        "a plugin can't be named 'approval', which is reserved",
        plugins=[type("Asks", (Plugin,), {"name": "approval"})()],
    ),
    of(
        "a delegate that is durable in words",
        "Delegate('other'): durable is True or False, not 'yes'",
        delegates=[Delegate("other", durable="yes")],  # type: ignore[arg-type]
    ),
    of("an input that says nothing", "input is object, which says nothing", input=object),
    of(
        "two plugins of one name",
        "two plugins are named 'tuned'",
        config={"tuned": {"level": 1}},
        plugins=[Tuned(), Tuned()],
    ),
    of("a class for a plugin", "Audit", "is not a plugin; give an instance", plugins=[Audit]),
    Wrong(
        "a class for a shared plugin",
        ("Runtime(plugins=...)", "is not a plugin"),
        options=lambda: {"plugins": [Audit]},
    ),
    of("config for no plugin", "config section 'tuned' belongs to none of its plugins", config={"tuned": {}}),
    of(
        "config for a plugin without config",
        "config section 'audit' belongs to none",
        plugins=[Audit()],
        config={"audit": {}},
    ),
    of(
        "config under a name that the plugin doesn't have",
        "config of plugin 'tuned': it has no 'tome'; did you mean 'tone'?",
        plugins=[Tuned()],
        config={"tuned": {"level": 1, "tome": {"warmth": 1}}},
    ),
    *[
        of(label, "agent 'a', plugin 'P': ", *says, plugins=[type("P", (Plugin,), parts)()])
        for label, parts, says in (
            ("a hook without a context", {"run_end": bare}, ["run_end() is called with ctx; write `async def"]),
            ("a hook that wants more", {"run_end": wants_more}, ["run_end(ctx", "is called with ctx"]),
            ("a hook that isn't async", {"run_end": not_async}, ["must be `async def run_end(self, ctx)`"]),
            ("a hook that yields", {"run_end": yields}, ["run_end must be", "doesn't yield"]),
            ("a hook that is no function", {"run_end": "x"}, ["run_end must be"]),
            ("a phase misspelt", {"befor_tool": hook}, ["befor_tool is no phase; did you mean before_tool?"]),
            (
                "a phase that there isn't",
                {"before_step": hook},
                ["before_step is no phase; the"],
            ),
            ("a phase misspelt and not async", {"befor_tool": not_async}, ["did you mean before_tool?"]),
            (
                "an action's handler without a context",
                {"go": acts},
                ["go(payload) is called with"],
            ),
            ("a notice's handler that isn't async", {"go": hears}, ["go must be `async def"]),
            ("a handler whose types aren't there", {"go": nameless}, ["can't be read", "Nowhere"]),
            ("a payload that can't be kept", {"go": odd}, ["go: complex can't be stored as JSON; use builtin"]),
            ("keys that are no list", {"keys": None}, ["keys is a list of state keys, not None"]),
            ("tools that are no method", {"tools": []}, ["tools is a method that returns a list of tools"]),
        )
    ],
    of("a plugin's name that is no text", "name is a text, not 5", plugins=[type("P", (Plugin,), {"name": 5})()]),
    of("config that is missing", "config of plugin 'tuned'", "level", plugins=[Tuned()]),
    of(
        "config of the wrong type",
        "config of plugin 'tuned'",
        "$.level",
        plugins=[Tuned()],
        config={"tuned": {"level": "high"}},
    ),
    of(
        "config wrong deep inside",
        "config of plugin 'tuned'",
        "$.tone.warmth",
        plugins=[Tuned()],
        config={"tuned": {"level": 1, "tone": {"warmth": "hot"}}},
    ),
    of("money in dollars", "half a dollar is 500_000", stop=[CostBudget(0.5)]),  # type: ignore[arg-type]
    of("a bad pattern", "stop policy content_match: bad pattern", stop=[ContentMatch("(")]),
    *[
        of(
            f"a {policy.__struct_config__.tag} of {number}",
            "is too small",
            str(policy.__struct_config__.tag),
            stop=[policy(number)],
        )
        for policy, number in [
            (WallTime, 0),
            (TokenBudget, -1),
            (CostBudget, 0),
            (ConsecutiveErrors, 0),
            (LoopDetection, 1),
        ]
    ],
    *[
        of(f"a limit of {name}", f"limits.{name} must be at least {lowest}", limits=Limits(**{name: lowest - 1}))
        for name, lowest in {
            "steps": 1,
            "parallel": 1,
            "depth": 1,
            "tree_calls": 1,
            "handoffs": 0,
            "repairs": 0,
            "continuations": 0,
        }.items()
    ],
    of("an output without a schema", "output:", output=Callable[[int], int]),
    Wrong(
        "a key defined twice",
        ("state key 'calls' has two definitions",),
        options=lambda: {"keys": [Calls, OtherCalls]},
    ),
    Wrong("a key without a name", ("Nameless", "it needs a name"), options=lambda: {"keys": [Nameless]}),
    Wrong(
        "two handlers for one action",
        ("action 'archive' has two handlers", "'audit'", "'rival'"),
        lambda: [agent(plugins=[Audit()]), agent("b", plugins=[type("Quiet", (Rival,), {"told": None})()])],
    ),
    Wrong(
        "two handlers for one notice",
        ("notice 'told' has two handlers", "'audit'", "'rival'"),
        lambda: [agent(plugins=[Audit()]), agent("b", plugins=[type("Quiet", (Rival,), {"archive": None})()])],
    ),
]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.label)
def test_configuration_problem_says_where_and_what(wrong: Wrong) -> None:
    found = problems(*wrong.agents(), **wrong.options())
    assert len(found) == 1
    for part in wrong.says:
        assert part in found[0]


def test_configuration_error_of_one_problem_is_its_text() -> None:
    with pytest.raises(ConfigurationError) as raised:
        Runtime([])
    assert str(raised.value) == "a runtime needs at least one agent"


# -- everything wrong ----------------------------------------------------------------------------------------


def test_configuration_error_lists_all_problems() -> None:
    agents = [
        agent(
            "a", model="acme:large", tools=["nothing", 5, look, other_look], delegates=["nobody"], handoffs=["no"]
        ),
        agent("a"),
        agent("two words", stop=[ContentMatch("("), LoopDetection(1)], limits=Limits(steps=0, parallel=0)),
        agent("b", plugins=[Tuned(), Audit], config={"tuned": {"level": "x"}, "none": {}}, output=Callable),
    ]
    found = problems(*agents, keys=[Calls, OtherCalls, Nameless], tools=["name"])
    expected = [
        "agent 'a' is defined twice",
        "agent 'two words': an id",
        "agent 'b': <class",
        "state key 'calls' has two definitions",
        "it needs a name",
        "Runtime(tools=...): 'name' is a name",
        "agent 'a': no tool named 'nothing'",
        "agent 'a': 5 is not a tool",
        "agent 'a': two tools are named 'look'",
        "agent 'a': delegate 'nobody'",
        "agent 'a': handoff 'no'",
        "agent 'a': unknown model 'acme:large'",
        "agent 'two words': limits.steps",
        "agent 'two words': limits.parallel",
        "agent 'two words': stop policy content_match",
        "agent 'two words': stop policy loop_detection",
        "agent 'b': config section 'none'",
        "agent 'b': config of plugin 'tuned'",
        "agent 'b': output:",
    ]
    for part in expected:
        assert [problem for problem in found if part in problem], part
    assert len(found) == len(expected)
    with pytest.raises(ConfigurationError, match=r"^19 problems:\n  - agent 'a' is defined twice"):
        Runtime(agents, keys=[Calls, OtherCalls, Nameless], tools=["name"])


# -- what is right -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tools", [None, [], ()], ids=repr)
async def test_agent_without_tools_has_none(scripted: Any, tools: Any) -> None:
    model = scripted(call("look", at="sky"), "no tools here")
    async with Runtime([agent(model=model, tools=tools)], tools=[look, wait]) as runtime:
        assert tools_of(runtime) == []
        await runtime.run("a", "go", thread="t1")
        (reply,) = [m.reply for m in await runtime.threads.messages("t1") if m.reply is not None]
    assert model.requests[0].tools == ()
    assert reply.error == "not_found"


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["look"], ["look"]),
        (["look*"], ["look", "look_up"]),
        (["*"], ["look", "look_up", "wait"]),
        (["*_up", "wait"], ["look_up", "wait"]),
        (["look", "look*"], ["look", "look_up"]),
        (["l??k"], ["look"]),
    ],
)
def test_shared_tools_match_names_and_patterns(names: list[str], expected: list[str]) -> None:
    assert sorted(tools_of(Runtime([agent(tools=names)], tools=[look, look_up, wait]))) == expected


def test_tool_patterns_are_case_sensitive() -> None:
    (problem,) = problems(agent(tools=["Look"]), tools=[look])
    assert "there: look" in problem


def test_agent_combines_tools_of_all_sources() -> None:
    def plain() -> str:
        """A plain function."""
        return ""

    runtime = Runtime(
        [agent(tools=["wait", plain], delegates=["b"], handoffs=["b"], plugins=[Audit()]), agent("b")],
        tools=[wait],
    )
    assert sorted(tools_of(runtime)) == ["agent_run_b", "handoff_to_b", "look", "plain", "wait"]


def test_plugin_of_runtime_and_agent_is_used_once() -> None:
    audit = Audit()
    runtime = Runtime([agent(plugins=[audit]), agent("b")], plugins=[audit])
    assert (tools_of(runtime, "a"), tools_of(runtime, "b")) == (["look"], ["look"])


def test_key_of_two_plugins_is_one_key() -> None:
    one, two = (type(name, (Plugin,), {"keys": (Calls,)})() for name in ("One", "Two"))
    Runtime([agent(plugins=[one, two])], keys=[Calls])


def test_plugin_may_serve_several_agents() -> None:
    audit = Audit()
    Runtime([agent(plugins=[audit]), agent("b", plugins=[audit])])


@pytest.mark.parametrize("section", [{"level": 2}, Settings(2)], ids=["plain", "typed"])
async def test_plugin_gets_its_config_section(scripted: Any, section: Any) -> None:
    seen: list[Any] = []

    class Watch(Tuned):
        async def run_start(self, ctx: Any) -> None:
            seen.append(ctx.config)

    agents = [agent(model=scripted("hi"), plugins=[Watch()], config={"tuned": section})]
    async with Runtime(agents) as runtime:
        await runtime.run("a", "go")
    assert seen == [Settings(2)]


def test_valid_limits_and_policies_are_accepted() -> None:
    stop = [
        WallTime(0.5),
        TokenBudget(1),
        CostBudget(1),
        ConsecutiveErrors(1),
        StopOnTool("x"),
        ContentMatch("a|b"),
        LoopDetection(2),
    ]
    Runtime([agent(stop=stop, limits=Limits(steps=1, parallel=1, handoffs=0, repairs=0, continuations=0))])


@pytest.mark.parametrize("name", ["", "two words", "search()", "x" * 65])
def test_stop_policy_for_an_invalid_tool_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="stop policy stop_on_tool: no tool can be named"):
        Runtime([agent(stop=[StopOnTool(name)])])


async def test_stop_policy_may_name_a_client_tool(scripted: Any) -> None:
    stops = agent(model=scripted(call("pick")), stop=[StopOnTool("pick")])
    async with Runtime([stops]) as runtime:
        result = await runtime.run("a", "go", client_tools=[ClientTool("pick", "Pick one.")])
    assert result.termination == Stopped("stop_on_tool", "pick")


def test_unregistered_agent_is_unknown() -> None:
    runtime = Runtime([agent("a"), agent("b")])
    assert set(runtime.agents) == {"a", "b"}
    with pytest.raises(UnknownAgent, match=r"unknown agent 'c' \(known: a, b\)"):
        runtime._scope.env.registry.resolve("c")


def test_model_is_not_called_before_a_run() -> None:
    made: list[str] = []
    Runtime([agent(model="acme:large")], models={"acme": lambda name: made.append(name) or MODEL})
    assert made == []


def test_shared_plugin_problems_are_reported_once() -> None:
    shared = type("Odd", (Plugin,), {"run_end": bare, "befor_tool": hook, "keys": 5})()
    found = problems(agent(plugins=[shared]), agent("b", plugins=[shared]))
    assert [problem.partition(": ")[2].split()[0] for problem in found] == ["keys", "run_end()", "befor_tool"]


def test_misspelt_phase_in_a_base_class_is_found() -> None:
    base = type("Base", (Plugin,), {"before_infrence": hook})
    (found,) = problems(agent(plugins=[type("Heir", (base,), {})()]))
    assert "did you mean before_inference?" in found


@pytest.mark.parametrize("mark", [action, notice])
def test_handler_mark_requires_a_name(mark: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"takes the .*'s name"):
        mark(hook)


ADDRESS = "openai-compatible:qwen3@http://ada:hunter2@gpu:8000/v1?token=sesame"


@pytest.mark.parametrize(
    "made",
    [
        Agent("a", model=ADDRESS),
        Agent("a", model=Pool([ADDRESS, Member(ADDRESS, weight=2)])),
        Agent("a", window=WindowPolicy(compaction=Compaction(model=ADDRESS))),
        Agent.remote("a", a2a="https://ada:hunter2@there.example/agent?token=sesame"),
        Agent.remote("a", a2a="https://there.example/agent", auth={"type": "bearer", "token": "hunter2"}),
        Agent.remote("a", a2a="https://there.example/agent", auth="hunter2"),
    ],
    ids=["its model", "a pool's member", "who summarises", "where it is", "its credentials", "no credentials"],
)
def test_agent_repr_hides_passwords_and_defaults(made: Agent) -> None:
    shown = repr(made)
    assert "hunter2" not in shown
    assert "sesame" not in shown
    assert "gpu:8000/v1'" in shown or "there.example/agent'" in shown
    assert shown.startswith("Agent(id='a', ")
    assert "limits" not in shown


@pytest.mark.parametrize("made", [lambda: Pool(ADDRESS), lambda: Runtime([Agent("a", model=[ADDRESS])])])  # type: ignore[arg-type]
def test_model_error_hides_passwords(made: Callable[[], Any]) -> None:
    with pytest.raises(ConfigurationError) as raised:
        made()
    assert "gpu:8000" in str(raised.value)
    assert "hunter2" not in str(raised.value)
