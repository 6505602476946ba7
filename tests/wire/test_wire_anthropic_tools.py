"""Anthropic's server tools and citations.

Sources: the pages "Web search tool", "Code execution tool", "MCP connector" and "Citations" of
the API documentation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from wire_anthropic import STREAM, Anthropic
from wire_script import sse
from wire_server import Reply, WireServer
from wire_suite import Heard, asked, history

from wakeful import Agent, Runtime
from wakeful.errors import InvalidRequest
from wakeful.models import CodeExecution, FileSearch, ModelRequest, WebFetch, WebSearch, forbid_live_models
from wakeful.models.anthropic import AnthropicModel
from wakeful.types import Message, ServerTool, Text
from wakeful.types.messages import user_message

USE = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
FOUND = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [
        {"type": "web_search_result", "title": "Tea", "url": "https://tea.example", "encrypted_content": "Eq=="}
    ],
}
SOURCE = {
    "type": "web_search_result_location",
    "url": "https://tea.example",
    "title": "Tea",
    "encrypted_index": "Eo8=",
    "cited_text": "Tea is a drink",
}


PAGE = ("https://tea.example", "Tea")


@pytest.fixture(autouse=True)
def _live_allowed(no_live_models: None) -> Iterator[None]:
    before = forbid_live_models(False)
    yield
    forbid_live_models(before)


def block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *[{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas],
        {"type": "content_block_stop", "index": index},
    ]


def says(index: int, text: str, *citations: dict[str, Any]) -> list[dict[str, Any]]:
    cited = [{"type": "citations_delta", "citation": one} for one in citations]
    return block(index, {"type": "text", "text": ""}, *cited, {"type": "text_delta", "text": text})


def answer(*blocks: list[dict[str, Any]], stop: str = "end_turn") -> Reply:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": "claude-sonnet-5"}
    start = {**message, "stop_reason": None, "usage": {"input_tokens": 9, "output_tokens": 1}}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": start}]
    events += [event for one in blocks for event in one]
    usage = {"output_tokens": 20, "server_tool_use": {"web_search_requests": 1}}
    events += [{"type": "message_delta", "delta": {"stop_reason": stop}, "usage": usage}, {"type": "message_stop"}]
    return Reply([sse(event, event["type"]) for event in events], headers=dict(STREAM))


async def ask(*replies: Reply, **fields: Any) -> tuple[Message, list[dict[str, Any]]]:
    """The answer of an agent, and the bodies of its requests."""
    async with WireServer(*replies) as server:
        model = AnthropicModel("claude-sonnet-5", base_url=server.url, api_key="k")
        async with Runtime([Agent("a", model=model, **fields)]) as runtime:
            await runtime.run("a", "Tea?", thread="t")
            found = await runtime.threads.messages("t")
    return found[-1], [request.body for request in server.requests]


SEARCHES = [
    block(
        0,
        USE,
        {"type": "input_json_delta", "partial_json": '{"query": '},
        {"type": "input_json_delta", "partial_json": '"tea"}'},
    ),
    block(1, FOUND),
]


async def test_web_search_is_content_with_input_and_result() -> None:
    message, _ = await ask(answer(*SEARCHES, says(2, "Tea is "), says(3, "a drink.", SOURCE)))
    tool = message.content[0]
    assert isinstance(tool, ServerTool)
    assert (tool.name, tool.input, tool.status) == ("web_search", {"query": "tea"}, "done")
    assert tool.result[0]["url"] == "https://tea.example"
    assert message.text == "Tea is a drink."


async def test_citation_has_the_span_of_its_block() -> None:
    message, _ = await ask(answer(*SEARCHES, says(2, "Tea is "), says(3, "a drink.", SOURCE)))
    (cited,) = message.citations
    assert (cited.kind, cited.url, cited.title, cited.quote) == (
        "url",
        "https://tea.example",
        "Tea",
        "Tea is a drink",
    )
    assert message.text[cited.start : cited.end] == "a drink."


@pytest.mark.parametrize(
    ("raw", "kind", "source", "location"),
    [
        (
            {
                "type": "char_location",
                "document_index": 0,
                "document_title": "T",
                "start_char_index": 1,
                "end_char_index": 5,
            },
            "document",
            "0",
            {"start_char_index": 1, "end_char_index": 5},
        ),
        (
            {
                "type": "page_location",
                "document_index": 1,
                "file_id": "file_1",
                "start_page_number": 2,
                "end_page_number": 3,
            },
            "document",
            "file_1",
            {"start_page_number": 2, "end_page_number": 3},
        ),
        (
            {
                "type": "search_result_location",
                "source": "kb/7",
                "search_result_index": 0,
                "start_block_index": 0,
                "end_block_index": 1,
            },
            "search",
            "kb/7",
            {"start_block_index": 0, "end_block_index": 1},
        ),
    ],
)
async def test_citation_has_source_and_location(raw: Any, kind: str, source: str, location: Any) -> None:
    message, _ = await ask(answer(says(0, "Tea.", {**raw, "cited_text": "tea"})))
    (cited,) = message.citations
    assert (cited.kind, cited.source, cited.location, cited.quote) == (kind, source, location, "tea")


async def test_failed_server_tool_is_content() -> None:
    failed = {**FOUND, "content": {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}}
    message, _ = await ask(answer(SEARCHES[0], block(1, failed), says(2, "Sorry.")))
    assert isinstance(tool := message.content[0], ServerTool)
    assert (tool.status, tool.result["error_code"]) == ("failed", "max_uses_exceeded")


async def test_mcp_tool_of_the_vendor_is_content() -> None:
    use = {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "echo", "server_name": "s", "input": {"x": 1}}
    result = {
        "type": "mcp_tool_result",
        "tool_use_id": "mcptoolu_1",
        "is_error": False,
        "content": [{"type": "text", "text": "1"}],
    }
    message, _ = await ask(answer(block(0, use), block(1, result), says(2, "One.")))
    assert isinstance(tool := message.content[0], ServerTool)
    assert (tool.name, tool.input, tool.result, tool.raw[0]["name"]) == (
        "mcp",
        {"x": 1},
        [{"type": "text", "text": "1"}],
        "echo",
    )


async def test_server_tool_is_sent_back_to_its_vendor() -> None:
    message, _ = await ask(answer(*SEARCHES, says(2, "Tea.", SOURCE)))
    later = [user_message("Tea?"), message, user_message("More?")]
    body = await asked(Anthropic(), ModelRequest("", later))
    assert body["messages"][1]["content"] == [
        {**USE, "input": {"query": "tea"}},
        FOUND,
        {"type": "text", "text": "Tea.", "citations": [SOURCE]},
    ]


async def test_server_tool_of_another_vendor_is_skipped() -> None:
    tool = ServerTool("x", "web_search", {}, [], vendor="openai", raw=({"type": "web_search_call"},))
    body = await asked(
        Anthropic(), ModelRequest("", [*history(), Heard.of([tool, Text("Tea.")]), user_message("More?")])
    )
    assert body["messages"][-2]["content"] == [{"type": "text", "text": "Tea."}]


async def test_server_tools_are_switched_on() -> None:
    tools = [
        WebSearch(max_uses=3, allowed_domains=("tea.example",)),
        WebFetch(),
        CodeExecution(extra={"type": "code_execution_20260120"}),
    ]
    _, bodies = await ask(answer(says(0, "Tea.")), server_tools=tools)
    assert [
        {name: value for name, value in tool.items() if name != "cache_control"} for tool in bodies[0]["tools"]
    ] == [
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 3, "allowed_domains": ["tea.example"]},
        {"type": "web_fetch_20250910", "name": "web_fetch"},
        {"type": "code_execution_20260120", "name": "code_execution"},
    ]


async def test_missing_server_tool_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="has no FileSearch; its server tools are WebSearch, WebFetch"):
        await asked(Anthropic(), ModelRequest("", history(), server_tools=[FileSearch(("vs_1",))]))


async def test_paused_answer_is_continued_without_a_prompt() -> None:
    paused = answer(says(0, "Let me see. "), block(1, {**USE, "input": {"query": "tea"}}), stop="pause_turn")
    message, bodies = await ask(paused, answer(block(0, FOUND), says(1, "A drink.", SOURCE)))
    assert [m["role"] for m in bodies[1]["messages"]] == ["user", "assistant"]
    assert bodies[1]["messages"][1]["content"][1] == {**USE, "input": {"query": "tea"}}
    assert message.text == "Let me see. A drink."
    assert [part.status for part in message.content if isinstance(part, ServerTool)] == ["done"]
    assert [message.text[cited.start : cited.end] for cited in message.citations] == ["A drink."]


async def test_unfinished_server_tool_is_not_sent_back() -> None:
    cut = [answer(block(0, USE), says(1, "Hm"), stop="max_tokens")] * 10
    message, _ = await ask(*cut)
    body = await asked(Anthropic(), ModelRequest("", [user_message("Tea?"), message, user_message("More?")]))
    assert {block["type"] for block in body["messages"][1]["content"]} == {"text"}
