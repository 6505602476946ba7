"""Configuration of agents with a backend."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

import pytest

from wakeful import (
    Agent,
    ConfigurationError,
    Delegate,
    FunctionModel,
    ModelSettings,
    Plugin,
    Runtime,
    StateKey,
    tool,
)
from wakeful.backends import (
    BackendConfig,
    BackendFactory,
    BackendResult,
    Capabilities,
    ExecutionBackend,
    InvalidConfig,
)
from wakeful.backends.a2a import ApiKey, Bearer, OAuth2
from wakeful.plugins import BeforeInference, GateAnswer, GateTool, Guardrail, Step

from .helpers import Scripted


@tool
async def look() -> str:
    """Look."""
    return "seen"


class Plans(Plugin):
    """A plugin with hooks on model calls."""

    async def before_inference(self, ctx: BeforeInference) -> None: ...


class Gates(Plugin):
    """A plugin with a hook on tool calls."""

    async def gate_tool(self, ctx: GateTool) -> GateAnswer: ...


class Brings(Plugin):
    """A plugin with a tool."""

    def tools(self) -> list[Any]:
        return [look]


class Notes(Plugin):
    """A plugin with hooks on runs and steps only."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def run_start(self, ctx: Step) -> None:
        self.seen.append("run_start")

    async def step_start(self, ctx: Step) -> None:
        self.seen.append("step_start")

    async def step_end(self, ctx: Step) -> None:
        self.seen.append("step_end")


class Sync(ExecutionBackend):
    """A backend whose `execute_root` isn't async."""

    def execute_root(self, request: Any) -> BackendResult:  # type: ignore[override]
        return BackendResult("far")


class Partial:
    """A backend without a base class that lacks two methods."""

    capabilities = Capabilities.remote_stateless_text()
    timeout = None

    async def execute_root(self, request: Any) -> BackendResult:
        return BackendResult("far")


class Wrapped(ExecutionBackend):
    """A backend whose method is decorated."""

    @staticmethod
    def _traced(method: Any) -> Any:
        @functools.wraps(method)
        def call(*args: Any) -> Any:
            return method(*args)

        return call

    @_traced
    async def execute_root(self, request: Any) -> BackendResult:
        return BackendResult("far", response="traced")


def test_methods_of_backend_must_be_async() -> None:
    with pytest.raises(ConfigurationError, match="agent 'far': its execute_root must be an async method"):
        Runtime([Agent("far", backend=Sync())])
    with pytest.raises(ConfigurationError) as partial:
        Runtime([Agent("far", backend=Partial())])
    found = [problem.partition(" must ")[0] for problem in partial.value.problems]
    assert found == [f"agent 'far': its {name}" for name in ("execute_delegate", "abort", "poll")]


async def test_decorated_async_method_is_accepted() -> None:
    assert (await Runtime([Agent("far", backend=Wrapped())]).run("far", "hi")).text == "traced"


class RootOnly(ExecutionBackend):
    """A backend that executes root runs only."""

    async def execute_root(self, request: Any) -> BackendResult:
        return BackendResult("far", response="root")


@pytest.mark.parametrize(
    ("how", "backend", "text"),
    [
        (Delegate("far", durable=True), Scripted(), "does not support: delegate_persistence (durable)"),
        (Delegate("far", background=True), Scripted(), "does not support: delegate_persistence (durable)"),
        (
            Delegate("far"),
            Scripted(capabilities=Capabilities(persistence=("durable",))),
            "does not support: delegate_persistence (ephemeral); it declares durable",
        ),
        ("far", RootOnly(), "its backend does not support delegated execution"),
    ],
)
def test_delegate_that_backend_lacks_is_refused(how: Any, backend: ExecutionBackend, text: str) -> None:
    lead = Agent("lead", FunctionModel(lambda _: "x"), delegates=[how])
    with pytest.raises(ConfigurationError) as error:
        Runtime([lead, Agent("far", backend=backend)])
    (problem,) = error.value.problems
    assert problem.startswith("agent 'lead': delegate 'far': ")
    assert text in problem


class Odd(ExecutionBackend):
    """A backend with an invalid declaration."""

    def __init__(self, **fields: Any) -> None:
        vars(self).update(fields)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"timeout": "5"}, "agent 'far': its timeout must be None or a positive number of seconds, not '5'"),
        ({"timeout": 0}, "its timeout must be None or a positive number"),
        ({"timeout": True}, "its timeout must be None or a positive number"),
        ({"capabilities": None}, "agent 'far': its capabilities must be Capabilities(...), not None"),
        (
            {"capabilities": Capabilities(waits="input", continuation="none")},
            "agent 'far': its capabilities: waits needs a continuation",
        ),
        (
            {"capabilities": Capabilities(cancellation="abort")},
            "agent 'far': its capabilities: cancellation='abort' needs an abort method",
        ),
        ({"capabilities": Capabilities(waits="sometimes")}, "its capabilities: Invalid enum value"),  # type: ignore[arg-type]
    ],
)
def test_backend_declaration_is_checked(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(text)):
        Runtime([Agent("far", backend=Odd(**fields))])


@pytest.mark.parametrize("backends", [5, [object()], [BackendFactory], [BackendFactory()], "a2a"])
def test_factories_are_checked(backends: Any) -> None:
    with pytest.raises(ConfigurationError, match="backends "):
        Runtime([Agent("far", backend=Scripted())], backends=backends)


async def test_state_is_refused_when_not_json() -> None:
    async def saves(request: Any) -> BackendResult:
        await request.save({"handle": object()})
        raise AssertionError("it was saved")

    result = await Runtime([Agent("far", backend=Scripted(saves))]).run("far", "hi", check=False)
    assert str(result.error).startswith("ExecutionFailed: save takes a JSON object; this one can't be encoded")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"a2a": 5}, "the agent's address is a URL, not 5"),
        ({"a2a": None}, "the agent's address is a URL, not None"),
        ({"a2a": "ftp://x"}, "isn't an https or http URL"),
        ({"auth": "token"}, "auth must be a Bearer, an ApiKey or an OAuth2"),
        ({"auth": Bearer(5)}, "auth: Bearer's token is a text, an Env or a function, not a int"),  # type: ignore[arg-type]
        (
            {"auth": ApiKey("", "k")},
            "auth: ApiKey's header is a header's name, such as X-API-Key, not what it holds",
        ),
        (
            {"auth": ApiKey("X\r\nY", "k")},
            "auth: ApiKey's header is a header's name, such as X-API-Key, not what it holds",
        ),
        ({"auth": OAuth2("nowhere", "me", "s")}, "the token's address isn't an https or http URL"),
        ({"auth": OAuth2("https://x", "me", "s", 5)}, "OAuth2's scopes is a list of texts"),  # type: ignore[arg-type]
        ({"effect": "twice"}, "effect='twice' can't be kept"),
        ({"timeout": "5"}, "timeout='5' is no time: give a positive number of seconds"),
        ({"timeout": -1}, "timeout=-1 is no time"),
        ({"allow_private": "no"}, "allow_private is True or False, not 'no'"),
        ({"description": 5}, "description is a str"),
        ({"output": object}, "output is object, which says nothing"),
        ({"plugins": 5}, "plugins is a list"),
        ({"stop": 5}, "stop is a list"),
    ],
)
def test_agent_remote_arguments_are_checked(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(text)):
        Runtime([Agent.remote("far", **({"a2a": "https://x"} | fields))])


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "agent 'far': it has neither a model nor a backend; give it one of them"),
        ({"backend": ExecutionBackend}, "is no backend; give an ExecutionBackend object"),
        ({"backend": "a2a"}, "'a2a' is no backend; give an ExecutionBackend object"),
        ({"backend": Scripted(), "model": FunctionModel(lambda _: "x")}, "it has a backend and a model object"),
        ({"backend": Scripted(), "tools": [look]}, "it has a backend and tools; configure those"),
        ({"backend": Scripted(), "delegates": ["far"]}, "it has a backend and delegates; configure those"),
        (
            {"backend": Scripted(), "guardrails": [Guardrail("g", output=lambda m, c: None)]},
            "it has a backend and guardrails",
        ),
        ({"backend": Scripted(), "handoffs": ["far"]}, "it has a backend and handoffs; configure those"),
        (
            {"backend": Scripted(), "instructions": "Be brief."},
            "it has a backend and instructions; configure those",
        ),
        ({"backend": Scripted(), "settings": ModelSettings(temperature=1)}, "it has a backend and settings"),
        (
            {"backend": Scripted(), "plugins": [Gates()]},
            "plugin 'Gates' has hooks that a backend's runs never reach: gate_tool",
        ),
        ({"backend": Scripted(), "plugins": [Brings()]}, "plugin 'Brings' brings tools"),
    ],
)
def test_each_problem_is_reported_once(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        Runtime([Agent("far", **fields)])
    (problem,) = error.value.problems
    assert text in problem


async def test_plugins_observe_runs_of_backend() -> None:
    notes = Notes()
    runtime = Runtime([Agent("far", backend=Scripted("hi"), plugins=[notes])], plugins=[Plans(), Brings()])
    assert (await runtime.run("far", "hi")).text == "hi"
    assert notes.seen == ["run_start", "step_start", "step_end"]


class Greeter(BackendFactory):
    """Backends that greet."""

    name = "greeter"

    def build(self, endpoint: Mapping[str, Any]) -> ExecutionBackend:
        if not isinstance(endpoint.get("word"), str):
            raise InvalidConfig("a greeter needs a word")
        return Scripted(f"{endpoint['word']}!")


async def test_backend_may_be_given_as_data() -> None:
    agent = Agent("far", backend=BackendConfig("greeter", {"word": "hello"}))
    assert (await Runtime([agent], backends=[Greeter()]).run("far", "hi")).text == "hello!"
    with pytest.raises(ConfigurationError, match=r"^agent 'far': backend 'greeter': a greeter needs a word$"):
        Runtime([Agent("far", backend=BackendConfig("greeter"))], backends=[Greeter()])


def test_remote_agent_is_built_on_first_use() -> None:
    agent = Agent.remote("far", a2a="https://far.example.com", description="Far away.", timeout=9)
    assert agent.backend == BackendConfig(
        "a2a", {"url": "https://far.example.com", "effect": "once", "timeout": 9}
    )
    assert (agent.id, agent.model, agent.description) == ("far", "", "Far away.")


def test_internal_state_keys_are_reserved() -> None:
    class Mine(StateKey[int, int]):
        name = "__runtime_mine"

    with pytest.raises(ConfigurationError, match="'__runtime_' are wakeful's own"):
        Runtime([Agent("far", backend=Scripted())], keys=[Mine])
