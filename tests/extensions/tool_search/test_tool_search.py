"""Tool search: what is found, what a request shows, native deferral, crashes and wrong options."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from toolbox import QUERIES, TOOLS, toolbox

from wakeful import (
    Agent,
    ClientTool,
    ConfigurationError,
    FunctionModel,
    Message,
    ModelRequest,
    Runtime,
    call,
    tool,
)
from wakeful.extensions.permissions import Permissions, Policy
from wakeful.extensions.tool_search import FoundTools, ToolIndex, ToolSearch
from wakeful.models.anthropic import AnthropicModel
from wakeful.models.anthropic.request import messages_request
from wakeful.models.openai import OpenAIModel
from wakeful.models.openai.dialect import OPENAI_RESPONSES
from wakeful.models.openai.responses_request import responses_request
from wakeful.stores import Store
from wakeful.testing import CrashSite, crash_matrix
from wakeful.types.requests import ToolSpec


def index() -> ToolIndex:
    return ToolIndex([tool.spec for tool in toolbox()])


# -- search --------------------------------------------------------------------------------------------------


def test_recall_of_five_results_is_above_nine_tenths() -> None:
    found = index()
    assert (len(TOOLS) >= 50, len(QUERIES) >= 70) == (True, True)
    hits = sum(wanted in found.search(query, 5) for query, wanted in QUERIES)
    assert hits / len(QUERIES) >= 0.9


def test_words_of_nested_schemas_are_searched() -> None:
    nested: dict[str, Any] = {
        "type": "object",
        "properties": {"a": {"type": "array", "items": {"enum": ["zebra"]}}},
    }
    nested["properties"]["b"] = {"anyOf": [{"description": "An okapi."}, {"$ref": "#/$defs/c"}]}
    nested["$defs"] = {"c": {"properties": {"giraffeName": {"type": "string"}}}}
    found = ToolIndex([ToolSpec("x", "Does things.", nested), ToolSpec("y", "Does other things.")])
    for query in ("zebras", "okapi", "name of a giraffe"):
        assert found.search(query) == ["x"], query


def test_exact_name_comes_first_and_unknown_words_find_nothing() -> None:
    found = index()
    assert found.search("use jira_log_work to refund a payment")[0] == "jira_log_work"
    assert found.search("knit a woollen sweater") == []
    assert found.search("") == []
    assert ToolIndex([]).search("refund") == []


def test_hostile_queries_and_schemas_are_cheap() -> None:
    deep: dict[str, Any] = {}
    for _ in range(500):
        deep = {"properties": {"a": deep}, "description": "word " * 100}
    found = ToolIndex([ToolSpec("deep", "x" * 100_000, deep), ToolSpec("odd", "", {"properties": 7, "anyOf": {}})])
    assert found.search("refund " * 100_000) == []
    assert found.search("ODD") == ["odd"]


# -- requests ------------------------------------------------------------------------------------------------


@tool(effect="pure")
async def refund(order: str, amount: int) -> str:
    """Refund an order to the customer."""
    return f"refunded {amount}"


PLAN = [call("tool_search", query="refund an order"), call("refund", order="A7", amount=5)]


class Asked(FunctionModel):
    """A model that follows the plan and keeps its requests."""

    def __init__(self, plan: list[Any], *, defers: bool = False) -> None:
        self.requests: list[ModelRequest] = []
        self.defers_tools = defers
        super().__init__(self._answer)
        self._plan = plan

    def _answer(self, request: ModelRequest) -> Any:
        # The history is one list that grows.
        self.requests.append(replace(request, messages=list(request.messages)))
        done = sum(message.role == "tool" for message in request.messages)
        return self._plan[done] if done < len(self._plan) else "Done."


def names(request: ModelRequest) -> list[str]:
    return [spec.name for spec in request.tools]


def desk(model: Any, *plugins: Any, tools: int = 60, **options: Any) -> Runtime:
    every = [refund, *toolbox()[:tools]]
    search = ToolSearch(**options)
    return Runtime([Agent("desk", model=model, tools=every, plugins=[search])], plugins=list(plugins))


async def test_found_tools_are_appended_and_can_be_called() -> None:
    model = Asked([PLAN[0], call("tool_search", names=["weather_forecast"]), PLAN[1]])
    async with desk(model, eager=["slack_*"]) as runtime:
        result = await runtime.run("desk", "Refund A7", thread="t")
        assert result.text == "Done."
        eager = [f"slack_{name}" for name in sorted(t["name"][6:] for t in TOOLS if "slack_" in t["name"])]
        first, second, third, last = [names(request) for request in model.requests]
        assert first == [*eager, "tool_search"]
        assert second[: len(first)] == first
        assert "refund" in second[len(first) :]
        assert third == [*second, "weather_forecast"]
        assert last == third
        assert [call.outcome for call in await runtime.runs.calls(result.run_id)] == ["ok"] * 3
        await runtime.run("desk", "Again", thread="t2")
        assert names(model.requests[4]) == first  # Each run begins anew.


@pytest.mark.parametrize(
    ("tools", "options", "defers"),
    [
        (5, {}, False),
        (60, {}, True),
        (5, {"share": 0.001}, True),
        (60, {"most": 100}, False),
        (2, {"when": "always"}, True),
    ],
)
async def test_tools_are_deferred_when_there_are_many(tools: int, options: Any, defers: bool) -> None:
    model = Asked([])
    async with desk(model, tools=tools, **options) as runtime:
        await runtime.run("desk", "Hi")
        found = names(model.requests[0])
        assert (found == ["tool_search"]) is defers
        assert ("tool_search" in found) is defers
        assert defers or len(found) == tools + 1


async def test_call_without_a_search_shows_the_tool_next() -> None:
    model = Asked([PLAN[1], PLAN[1]])
    async with desk(model) as runtime:
        result = await runtime.run("desk", "Refund A7")
        assert [call.outcome for call in await runtime.runs.calls(result.run_id)] == ["error", "ok"]
        assert names(model.requests[1]) == ["tool_search", "refund"]


async def test_search_without_result_says_so() -> None:
    model = Asked([call("tool_search", query="knit a sweater"), call("tool_search")])
    async with desk(model) as runtime:
        await runtime.run("desk", "Knit", thread="t")
        replies = [m.text or m.reply.content[0].text for m in await runtime.threads.messages("t") if m.reply]
        assert all("No tool fits. There are 61 more tools" in text for text in replies)
        assert len(replies) == 2


async def test_denied_tool_stays_hidden_when_it_is_found() -> None:
    model = Asked(PLAN)
    async with desk(model, Permissions(Policy(deny=["refund"], allow=["*"]))) as runtime:
        result = await runtime.run("desk", "Refund A7")
        assert "refund" not in names(model.requests[1])
        assert [call.outcome for call in await runtime.runs.calls(result.run_id)] == ["ok", "error"]


# -- vendors -------------------------------------------------------------------------------------------------


async def native_requests(plan: list[Any]) -> list[ModelRequest]:
    model = Asked(plan, defers=True)
    async with desk(model, eager=["weather_*"]) as runtime:
        await runtime.run("desk", "Refund A7")
    return model.requests


async def test_native_deferral_keeps_the_list_of_tools() -> None:
    before, after, last = await native_requests(PLAN)
    assert before.tools == after.tools == last.tools
    assert [spec.name for spec in before.tools if not spec.deferred] == ["tool_search", "weather_forecast"]


async def test_anthropic_prefix_is_unchanged_by_a_discovery() -> None:
    bodies = [messages_request("claude-sonnet-5", "m", request, {})[0] for request in await native_requests(PLAN)]
    before, after, _ = bodies
    assert (before["tools"], before.get("system")) == (after["tools"], after.get("system"))
    marked = [one["name"] for one in before["tools"] if "cache_control" in one]
    assert marked == ["weather_forecast"]
    assert {one["name"] for one in before["tools"] if not one.get("defer_loading")} == {
        "tool_search",
        "weather_forecast",
    }
    result = after["messages"][-1]["content"][0]
    assert {"type": "tool_reference", "tool_name": "refund"} in result["content"]
    assert unmarked(after["messages"])[: len(before["messages"])] == unmarked(before["messages"])


def unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: unmarked(each) for name, each in value.items() if name != "cache_control"}
    return [unmarked(each) for each in value] if isinstance(value, list) else value


async def test_openai_prefix_is_unchanged_by_a_discovery() -> None:
    signed = call("tool_search", arguments={"query": "refund an order"})
    before, after, _ = await native_requests([signed, PLAN[1]])
    after = with_search_item(after)
    sent = responses_request("gpt-5.6", "m", "openai", before, OPENAI_RESPONSES)
    body = responses_request("gpt-5.6", "m", "openai", after, OPENAI_RESPONSES)
    assert sent["tools"] == body["tools"]
    assert [one.get("name", one["type"]) for one in body["tools"]] == ["tool_search", "weather_forecast"]
    assert body["tools"][0]["execution"] == "client"
    assert body["input"][: len(sent["input"])] == sent["input"]
    output = body["input"][-1]
    assert (output["type"], output["status"]) == ("tool_search_output", "completed")
    assert output["tools"][0]["name"] == "refund"
    assert all(one["defer_loading"] for one in output["tools"])


def with_search_item(request: ModelRequest) -> ModelRequest:
    """The request as it is if the vendor's own item made the call."""

    def sign(message: Message) -> Message:
        item = {"type": "tool_search_call", "call_id": "c1", "execution": "client", "arguments": {}}
        parts = [
            replace(part, signature=msgspec.json.encode(item).decode())
            if getattr(part, "name", "") == "tool_search" and message.role == "assistant"
            else part
            for part in message.content
        ]
        return replace(message, content=tuple(parts))

    return replace(request, messages=[sign(message) for message in request.messages])


def test_models_say_whether_they_defer_tools() -> None:
    found = {
        name: AnthropicModel(name, api_key="k").defers_tools for name in ("claude-opus-4-1", "claude-sonnet-5")
    }
    found |= {
        name: OpenAIModel(name, api_key="k").defers_tools
        for name in ("gpt-5-mini", "gpt-5.3", "gpt-5.4", "gpt-6-x", "o3")
    }
    assert [name for name, defers in found.items() if defers] == ["claude-sonnet-5", "gpt-5.4", "gpt-6-x"]


# -- configuration, crashes, cost ----------------------------------------------------------------------------


def test_wrong_options_are_refused_together() -> None:
    with pytest.raises(ConfigurationError) as refused:
        desk(Asked([]), when="often", eager="x", share=2, most=0, results=True)
    assert len(refused.value.problems) == 5
    with pytest.raises(ConfigurationError, match="no tool of its agents is named 'slak_"):
        desk(Asked([]), eager=["slak_*"])


async def search_and_call(site: CrashSite) -> None:
    model = Asked(PLAN)
    every = [refund, *[ClientTool(f"other_{number}", "Something else.") for number in range(40)]]
    agent = Agent("desk", model=model, tools=every, plugins=[ToolSearch()])
    async with Runtime([agent], store=site.store) as runtime:
        await runtime.run("desk", "Refund A7", thread="t", request_id="r")
    assert all(names(request)[:1] == ["tool_search"] for request in model.requests)


async def found_once(site: CrashSite, store: Store) -> None:
    (run,) = await store.runs()
    assert [(c.name, c.outcome) for c in await store.calls(run.id)] == [("tool_search", "ok"), ("refund", "ok")]


@pytest.mark.long
def test_search_survives_every_kill() -> None:
    assert crash_matrix(search_and_call, check=found_once, points=["before", "after"]).kills >= 8


def test_found_tools_keep_their_order() -> None:
    key = FoundTools()
    assert key.apply(("b",), ["c", "b", "a"]) == ("b", "c", "a")
