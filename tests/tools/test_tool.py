"""Functions, methods and objects become tools."""

from __future__ import annotations

import functools
import inspect
import re
from typing import Any

import pytest

from wakeful import Agent, ClientTool, ConfigurationError, Runtime, ScriptedModel, Tool, ToolContext, call, tool
from wakeful.errors import InvalidArguments
from wakeful.tools import Done, FunctionTool, NotDone, UnknownOutcome


@tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers.

    Args:
        a: The first.
        b: The second.
    """
    return a + b


@tool
async def fetch(url: str, ctx: ToolContext) -> str:
    """Fetch a page."""
    return f"{url} for {ctx.call_id}"


class Shop:
    """Keeps what was bought."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.bought: list[str] = []

    @tool(effect="pure", timeout=3)
    def buy(self, item: str) -> str:
        """Buy something."""
        self.bought.append(item)
        return f"{self.owner} has {item}"

    @tool
    async def look(self, ctx: ToolContext) -> str:
        """Look around."""
        return f"{self.owner} in {ctx.run.thread_id}"


class Counter(Tool):
    """A tool with state of its own."""

    name = "count"
    description = "Count calls."
    effect = "pure"

    def __init__(self) -> None:
        self.calls = 0

    async def run(self, by: int = 1) -> int:
        """Ignored: the class says it."""
        self.calls += by
        return self.calls


def names_of(tool_: Tool) -> list[str]:
    return list(tool_.spec.parameters["properties"])


# -- functions -----------------------------------------------------------------------------------------------


def test_tool_takes_name_and_schema_from_function() -> None:
    assert isinstance(add, FunctionTool)
    assert (add.spec.name, add.spec.description) == ("add", "Add two numbers.")
    assert names_of(add) == ["a", "b"]
    assert add.spec.parameters["properties"]["a"]["description"] == "The first."
    assert add.problems() == []


def test_tool_can_still_be_called_as_function() -> None:
    assert add(2, b=3) == 5
    assert add.__name__ == "add"
    assert add.__doc__ is not None
    assert add.__doc__.startswith("Add two")


async def test_async_tool_can_still_be_awaited() -> None:
    @tool
    async def double(n: int) -> int:
        return 2 * n

    assert await double(4) == 8


def test_context_is_hidden_from_model() -> None:
    assert names_of(fetch) == ["url"]
    assert fetch.parameters.context == "ctx"


def test_only_coroutine_functions_run_on_event_loop() -> None:
    assert fetch.is_async
    assert not add.is_async


def test_context_is_passed_when_declared() -> None:
    class Plain(Tool):
        def run(self, a: int, where: ToolContext) -> Any:
            return a, where

    marker: Any = object()
    assert Plain().call({"a": 1}, marker) == (1, marker)
    assert add.call({"a": 1}, marker) == 2


def test_arguments_are_checked_and_converted() -> None:
    assert add.parameters.bind({"a": 2}) == {"a": 2}
    with pytest.raises(InvalidArguments, match=r"\$\.a"):
        add.parameters.bind({"a": "two"})


def test_repr_shows_tool_name() -> None:
    assert repr(add) == "<tool add>"


# -- options -------------------------------------------------------------------------------------------------


def test_tool_defaults() -> None:
    assert (add.effect, add.approval, add.timeout, add.resumable, add.sequential) == (
        "once",
        False,
        None,
        False,
        False,
    )
    assert add.max_result_bytes == 256 * 1024


def test_tool_options_are_kept() -> None:
    @tool(
        name="plus",
        description="Sum.",
        effect="idempotent",
        approval=True,
        timeout=1.5,
        resumable=True,
        sequential=True,
        max_result_bytes=10,
    )
    def add(a: int) -> int:
        """Not this."""
        return a

    assert (add.spec.name, add.spec.description, add.effect) == ("plus", "Sum.", "idempotent")
    assert (add.approval, add.timeout, add.resumable, add.sequential) == (True, 1.5, True, True)
    assert add.max_result_bytes == 10
    assert add(3) == 3


def test_misspelt_option_is_refused() -> None:
    options: Any = {"aproval": True}
    with pytest.raises(TypeError, match="no argument 'aproval'; did you mean 'approval'"):
        tool(**options)


def test_positional_name_is_refused() -> None:
    what: Any = "search"
    with pytest.raises(TypeError, match=r"takes a function, not 'search'; .* option: @tool\(name='search'\)"):
        tool(what)
    with pytest.raises(TypeError, match=r"takes a function, not 5$"):
        tool(what.__len__() - 1)


@pytest.mark.parametrize(
    ("effect", "resumable", "expected"),
    [("once", False, False), ("once", True, True), ("pure", False, True), ("idempotent", False, True)],
)
def test_repeatable_tool_may_ask_while_running(effect: Any, resumable: bool, expected: bool) -> None:
    @tool(effect=effect, resumable=resumable)
    def act() -> None: ...

    assert act.can_suspend is expected


# -- methods -------------------------------------------------------------------------------------------------


def test_method_is_tool_of_its_instance() -> None:
    ann, bob = Shop("ann"), Shop("bob")
    assert names_of(ann.buy) == ["item"]
    assert ann.buy("tea") == "ann has tea"
    assert (ann.bought, bob.bought) == (["tea"], [])
    assert (ann.buy.effect, ann.buy.timeout) == ("pure", 3)
    assert ann.buy.problems() == []


def test_method_keeps_its_name_and_kind() -> None:
    shop = Shop("ann")
    assert (shop.look.spec.name, shop.look.is_async, shop.buy.is_async) == ("look", True, False)
    assert names_of(shop.look) == []


def test_unbound_method_is_problem() -> None:
    (problem,) = Shop.buy.problems()
    assert "'buy': it is a method; take it from an instance" in problem


async def test_methods_and_objects_run_as_tools(scripted: Any) -> None:
    shop, counter = Shop("ann"), Counter()
    turns = [call("buy", item="tea"), call("look"), call("count", by=2), call("count")]
    model = scripted(turns, "done")
    async with Runtime([Agent("a", model=model, tools=[shop.buy, shop.look, counter])]) as runtime:
        await runtime.run("a", "go", thread="t1")
        replies = {m.reply.call_id: m.reply for m in await runtime.threads.messages("t1") if m.reply is not None}
    assert sorted(r.content[0].text for r in replies.values()) == ["2", "3", "ann has tea", "ann in t1"]
    assert (shop.bought, counter.calls) == (["tea"], 3)


# -- objects -------------------------------------------------------------------------------------------------


def test_tool_class_has_its_own_state() -> None:
    counter = Counter()
    assert (counter.spec.name, counter.spec.description) == ("count", "Count calls.")
    assert names_of(counter) == ["by"]
    assert counter.is_async
    assert counter.problems() == []


def test_tool_class_is_named_by_default() -> None:
    class Weather(Tool):
        def run(self, city: str) -> str:
            """The weather in a city."""
            return city

    assert (Weather().spec.name, Weather().spec.description) == ("Weather", "The weather in a city.")


# -- other callables -----------------------------------------------------------------------------------------


class Multiply:
    """Multiplies."""

    def __init__(self, factor: int) -> None:
        self.factor = factor

    async def __call__(self, n: int) -> int:
        """Multiply a number."""
        return n * self.factor


async def test_partials_and_callable_objects_can_be_tools(scripted: Any) -> None:
    def scale(n: int, *, factor: int) -> int:
        """Scale a number."""
        return n * factor

    tools: list[Any] = [functools.partial(scale, factor=3), Multiply(5)]
    model = scripted([call("scale", n=2), call("Multiply", n=2)], "done")
    async with Runtime([Agent("a", model=model, tools=tools)]) as runtime:
        await runtime.run("a", "go", thread="t1")
        texts = [m.reply.content[0].text for m in await runtime.threads.messages("t1") if m.reply is not None]
    assert sorted(texts) == ["10", "6"]


def test_static_method_is_tool_of_its_class() -> None:
    class Kit:
        @staticmethod
        @tool
        def ping() -> str:
            """Ping."""
            return "pong"

    assert Kit.ping.problems() == []
    assert Kit.ping() == "pong"


# -- what is wrong with a tool -------------------------------------------------------------------------------


def with_options(**options: Any) -> Tool:
    def act(a: int = 0) -> None: ...

    return tool(**options)(act)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            {"effect": "sometimes"},
            "tool 'act': effect is 'pure', 'idempotent', 'reconcile' or 'once', not 'sometimes'",
        ),
        (
            {"effect": "reconcile"},
            "tool 'act': effect 'reconcile' needs check=..., a function of the idempotency key",
        ),
        (
            {"check": lambda key: NotDone()},
            "tool 'act': check is for effect 'reconcile', and would never be asked with 'once': set "
            "effect='reconcile', or leave check out",
        ),
        ({"timeout": 0}, "tool 'act': timeout is in seconds and positive, not 0"),
        ({"timeout": -1.5}, "tool 'act': timeout is in seconds and positive, not -1.5"),
        ({"name": "wet weather"}, "tool 'wet weather': a name has 1 to 64 letters, digits, '_' or '-'"),
        ({"name": "x" * 65}, f"tool '{'x' * 65}': a name has 1 to 64 letters, digits, '_' or '-'"),
        ({"name": "wetter_für_heute"}, "tool 'wetter_für_heute': a name has 1 to 64 letters, digits, '_' or '-'"),
        ({"name": "a\n"}, "tool 'a\\n': a name has 1 to 64 letters, digits, '_' or '-'"),
    ],
)
def test_problem_names_tool_and_fault(options: dict[str, Any], problem: str) -> None:
    assert with_options(**options).problems() == [problem]


def test_all_problems_are_found_at_once() -> None:
    assert len(with_options(name="?", effect="reconcile", timeout=0).problems()) == 3


@pytest.mark.parametrize("name", ["a", "get-weather_2", "x" * 64])
def test_good_names_are_accepted(name: str) -> None:
    assert with_options(name=name).problems() == []


def test_lambda_needs_name() -> None:
    assert "'<lambda>'" in tool(lambda: 1).problems()[0]
    assert tool(name="one")(lambda: 1).problems() == []


def test_class_without_run_is_problem() -> None:
    class Empty(Tool):
        pass

    (problem,) = Empty().problems()
    assert problem == "tool 'Empty': it has no `run` method; define one, sync or async"


def test_signature_without_schema_is_problem() -> None:
    @tool
    def spread(*words: str) -> None: ...

    (problem,) = spread.problems()
    assert problem.startswith("tool 'spread'")
    assert "*words" in problem


# -- reconcile -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("found", [Done("paid"), NotDone(), UnknownOutcome()])
async def test_reconcile_tool_asks_its_check(found: Any) -> None:
    asked: list[str] = []

    def sync_check(key: str) -> Any:
        asked.append(key)
        return found

    async def async_check(key: str) -> Any:
        return sync_check(key)

    for check in (sync_check, async_check):
        pay = with_options(effect="reconcile", check=check)
        assert pay.problems() == []
        assert await pay.reconcile("run:call") == found
    assert asked == ["run:call", "run:call"]


async def test_class_brings_its_check_as_method() -> None:
    class Pay(Tool):
        effect = "reconcile"

        def run(self) -> None: ...

        async def check(self, key: str) -> Any:
            return Done(key)

    assert Pay().problems() == []
    assert await Pay().reconcile("k") == Done("k")


async def test_tool_without_check_cannot_tell() -> None:
    assert await add.reconcile("k") == UnknownOutcome()


# -- tools that the client runs ------------------------------------------------------------------------------


def test_client_tool_has_name_and_schema_only() -> None:
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}}
    confirm = ClientTool("confirm", "Ask the user.", schema)
    assert (confirm.spec.name, confirm.spec.description, confirm.spec.parameters) == (
        "confirm",
        "Ask the user.",
        schema,
    )
    assert ClientTool("bare").spec.parameters == {"type": "object", "properties": {}}
    assert ClientTool("bare").problems() == []
    said = "a name has 1 to 64 letters, digits, '_' or '-'"
    assert ClientTool("not a name").problems() == [f"tool 'not a name': {said}"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ((5,), "tool 5: a name has"),
        (("look", 5), "tool 'look': its description is a text, .*got `int` - at `\\$.description`"),
        (("look", "", [1]), "its parameters a JSON schema: .*got `array`"),
        (("look", "", {"properties": {"x": object()}}), "its parameters a JSON schema: .*type object"),
    ],
)
def test_unencodable_client_tool_is_refused(given: Any, says: str) -> None:
    (problem,) = ClientTool(*given).problems()
    assert re.search(says, problem)


def test_tool_is_not_a_coroutine_function() -> None:
    assert not inspect.iscoroutinefunction(add)


def test_generator_tool_is_refused_by_runtime() -> None:
    @tool
    def numbers():  # type: ignore[no-untyped-def]
        """Count."""
        yield 1

    @tool
    async def letters():  # type: ignore[no-untyped-def]
        """Spell."""
        yield "a"

    with pytest.raises(ConfigurationError) as raised:
        Runtime([Agent("a", model=ScriptedModel([]), tools=[numbers, letters])])
    assert [problem.partition(": it yields")[0] for problem in raised.value.problems] == [
        "agent 'a': tool 'numbers'",
        "agent 'a': tool 'letters'",
    ]
