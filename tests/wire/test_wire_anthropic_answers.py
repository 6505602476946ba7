"""Every block, delta, stop reason and error that the Messages API documents, streamed and whole.

Sources: the types of the SDK (`anthropic.types` and `anthropic.types.beta`), and the pages "Streaming messages",
"Server tools", "Programmatic tool calling", "Compaction", "Handling stop reasons" and "Citations".
"""

from __future__ import annotations

import json
import random
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace
from wire_mutations import mutate
from wire_replay import Replayed, heard, outcome
from wire_replay import sent as requests_of
from wire_script import sse
from wire_suite import HELLO, RESULT, Heard

from wakeful import Text
from wakeful.errors import (
    BadCredentials,
    ContentFiltered,
    ModelError,
    ModelNotFound,
    ModelOverloaded,
    RateLimited,
    StreamBroken,
)
from wakeful.models import ModelRequest
from wakeful.models.anthropic import AnthropicModel
from wakeful.types import Citation, Message, ServerTool, Thinking, ToolCall
from wakeful.types.messages import user_message
from wakeful.types.runs import Usage

MODEL = partial(AnthropicModel, "claude-sonnet-5", api_key="k")
USAGE = {"input_tokens": 9, "output_tokens": 20}
SEARCH_ERROR = {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}


def use(name: str, given: Any = None, id: str = "srvtoolu_1") -> dict[str, Any]:
    return {"type": "server_tool_use", "id": id, "name": name, "input": given or {}, "caller": {"type": "direct"}}


def result(kind: str, content: Any, id: str = "srvtoolu_1", **more: Any) -> dict[str, Any]:
    return {"type": f"{kind}_tool_result", "tool_use_id": id, "content": content, **more}


def message(
    *blocks: dict[str, Any], stop: str | None = "end_turn", usage: Any = USAGE, **more: Any
) -> dict[str, Any]:
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-5"}
    return {**head, "content": list(blocks), "stop_reason": stop, "stop_sequence": None, "usage": usage, **more}


def streamed(whole: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of a message, in pieces as the API sends them."""
    start = {**whole, "content": [], "stop_reason": None, "usage": {**USAGE, "output_tokens": 1}}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": start}, {"type": "ping"}]
    for index, block in enumerate(whole["content"]):
        opened, deltas = pieces_of(block)
        events.append({"type": "content_block_start", "index": index, "content_block": opened})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    if "stop_details" in whole:
        delta["stop_details"] = whole["stop_details"]
    return [*events, {"type": "message_delta", "delta": delta, "usage": whole["usage"]}, {"type": "message_stop"}]


def pieces_of(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    kind = block["type"]
    if kind == "text":
        cited = [{"type": "citations_delta", "citation": one} for one in block.get("citations") or ()]
        half = len(block["text"]) // 2
        texts = [{"type": "text_delta", "text": piece} for piece in (block["text"][:half], block["text"][half:])]
        return {"type": "text", "text": "", **({"citations": []} if cited else {})}, [*cited, *texts]
    if kind == "thinking":
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in block["thinking"].partition(" ")]
        return {**block, "thinking": "", "signature": ""}, [
            *deltas,
            {"type": "signature_delta", "signature": block["signature"]},
        ]
    if kind.endswith("tool_use"):
        text = json.dumps(block["input"])
        given = [{"type": "input_json_delta", "partial_json": piece} for piece in ("", text[:5], text[5:])]
        return {**block, "input": {}}, given
    if kind == "compaction":
        return {"type": kind, "content": None}, [{"type": "compaction_delta", "content": block.get("content")}]
    return block, []


def sent(events: list[dict[str, Any]]) -> bytes:
    return b"".join(sse(event, event["type"]) for event in events)


@pytest.fixture(params=["streamed", "whole", "unnamed events"])
def way(request: pytest.FixtureRequest) -> str:
    return request.param


async def read(way: str, whole: dict[str, Any], request: ModelRequest = HELLO) -> Heard:
    if way == "whole":
        return await heard(MODEL, json.dumps(whole).encode(), kind="application/json", request=request)
    events = streamed(whole)
    body = sent(events) if way == "streamed" else b"".join(sse(event) for event in events)
    return await heard(MODEL, body, request=request)


def last(found: Heard) -> dict[str, Any]:
    """The last state of each part, as the loop keeps it."""
    return {getattr(part, "id", str(place)): part for place, part in enumerate(found.parts)}


CASES: dict[str, tuple[list[dict[str, Any]], str, Any, Any, str]] = {
    "web search": (
        [use("web_search", {"query": "tea"}), result("web_search", [{"type": "web_search_result", "url": "u"}])],
        "web_search",
        {"query": "tea"},
        [{"type": "web_search_result", "url": "u"}],
        "done",
    ),
    "failed web search": (
        [use("web_search", {"query": "tea"}), result("web_search", SEARCH_ERROR)],
        "web_search",
        {"query": "tea"},
        SEARCH_ERROR,
        "failed",
    ),
    "web fetch": (
        [
            use("web_fetch", {"url": "https://tea"}),
            result(
                "web_fetch", {"type": "web_fetch_result", "url": "https://tea", "content": {"type": "document"}}
            ),
        ],
        "web_fetch",
        {"url": "https://tea"},
        {"type": "web_fetch_result", "url": "https://tea", "content": {"type": "document"}},
        "done",
    ),
    "failed web fetch": (
        [
            use("web_fetch", {"url": "x"}),
            result("web_fetch", {"type": "web_fetch_tool_result_error", "error_code": "url_not_accessible"}),
        ],
        "web_fetch",
        {"url": "x"},
        {"type": "web_fetch_tool_result_error", "error_code": "url_not_accessible"},
        "failed",
    ),
    "code execution": (
        [
            use("code_execution", {"code": "print(1)"}),
            result("code_execution", {"type": "code_execution_result", "stdout": "1\n", "return_code": 0}),
        ],
        "code_execution",
        {"code": "print(1)"},
        {"type": "code_execution_result", "stdout": "1\n", "return_code": 0},
        "done",
    ),
    "encrypted code execution": (
        [
            use("code_execution", {"code": "search()"}),
            result("code_execution", {"type": "encrypted_code_execution_result", "encrypted_stdout": "Eq=="}),
        ],
        "code_execution",
        {"code": "search()"},
        {"type": "encrypted_code_execution_result", "encrypted_stdout": "Eq=="},
        "done",
    ),
    "bash": (
        [
            use("bash_code_execution", {"command": "ls"}),
            result("bash_code_execution", {"type": "bash_code_execution_result", "stdout": "a", "return_code": 0}),
        ],
        "code_execution",
        {"command": "ls"},
        {"type": "bash_code_execution_result", "stdout": "a", "return_code": 0},
        "done",
    ),
    "text editor": (
        [
            use("text_editor_code_execution", {"command": "view", "path": "a"}),
            result(
                "text_editor_code_execution",
                {"type": "text_editor_code_execution_tool_result_error", "error_code": "file_not_found"},
            ),
        ],
        "code_execution",
        {"command": "view", "path": "a"},
        {"type": "text_editor_code_execution_tool_result_error", "error_code": "file_not_found"},
        "failed",
    ),
    "tool search": (
        [
            use("tool_search_tool_bm25", {"query": "weather"}),
            result("tool_search", {"type": "tool_search_tool_search_result", "tool_references": []}),
        ],
        "tool_search",
        {"query": "weather"},
        {"type": "tool_search_tool_search_result", "tool_references": []},
        "done",
    ),
    "advisor": (
        [use("advisor"), result("advisor", {"type": "advisor_result", "text": "Do it."})],
        "advisor",
        {},
        {"type": "advisor_result", "text": "Do it."},
        "done",
    ),
    "mcp": (
        [
            {"type": "mcp_tool_use", "id": "srvtoolu_1", "name": "echo", "server_name": "s", "input": {"x": 1}},
            result("mcp", [{"type": "text", "text": "no"}], is_error=True),
        ],
        "mcp",
        {"x": 1},
        [{"type": "text", "text": "no"}],
        "failed",
    ),
    "result without call": (
        [result("bash_code_execution", {"type": "bash_code_execution_result", "stdout": "a"})],
        "code_execution",
        None,
        {"type": "bash_code_execution_result", "stdout": "a"},
        "done",
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_server_tool_block_is_read(way: str, case: str) -> None:
    blocks, name, given, found, status = CASES[case]
    tool = last(await read(way, message(*blocks, {"type": "text", "text": "So."})))["srvtoolu_1"]
    assert isinstance(tool, ServerTool)
    assert (tool.name, tool.input, tool.result, tool.status) == (name, given, found, status)
    assert list(tool.raw) == blocks


@pytest.mark.parametrize(
    "block",
    [
        {"type": "container_upload", "file_id": "file_1"},
        {"type": "compaction", "content": "So far: tea."},
        {"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}, "trigger": {"type": "refusal"}},
        {"type": "mcp_tool_listing", "mcp_server_name": "s", "tools": []},
        {"type": "hologram", "light": [1, 2]},
    ],
    ids=lambda block: block["type"],
)
async def test_other_block_is_kept_and_sent_back(way: str, block: dict[str, Any]) -> None:
    (tool,) = (await read(way, message(block, {"type": "text", "text": "So."}))).parts
    assert isinstance(tool, ServerTool)
    assert (tool.name, tool.status, tool.raw) == (block["type"], "done", (block,))


async def test_call_is_read_however_it_comes(way: str) -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "sky", "é": [1]}}
    found = await read(way, message({"type": "text", "text": "I look."}, call, stop="tool_use"))
    assert (found.calls, found.vendor_ids, found.stop) == (
        [("look", {"at": "sky", "é": [1]})],
        ["toolu_1"],
        "tool_use",
    )


async def test_call_with_its_input_at_the_start_is_read() -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "sky"}}
    events = streamed(message(call, stop="tool_use"))
    events[2]["content_block"] = call
    found = await heard(MODEL, sent([event for event in events if event["type"] != "content_block_delta"]))
    assert found.calls == [("look", {"at": "sky"})]


async def test_call_by_code_keeps_its_caller(way: str) -> None:
    caller = {"type": "code_execution_20250825", "tool_id": "srvtoolu_1"}
    call = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}, "caller": caller}
    found = await read(way, message(use("code_execution", {"code": "look()"}), call, stop="tool_use"))
    (signature,) = found.signatures
    assert json.loads(signature or "") == {"caller": caller}


async def test_thinking_is_read(way: str) -> None:
    blocks = [
        {"type": "thinking", "thinking": "Let me think.", "signature": "sig-1"},
        {"type": "redacted_thinking", "data": "gAAA"},
        {"type": "thinking", "thinking": "", "signature": "sig-2"},
        {"type": "text", "text": "Four."},
    ]
    found = await read(way, message(*blocks))
    assert [part for part in found.message().content if isinstance(part, Thinking)] == [
        Thinking("Let me think.", "sig-1", None, "anthropic"),
        Thinking("", None, "gAAA", "anthropic"),
        Thinking("", "sig-2", None, "anthropic"),
    ]


async def test_citations_have_spans(way: str) -> None:
    where = {"type": "char_location", "cited_text": "Grass.", "document_index": 0, "document_title": None}
    cited = {**where, "start_char_index": 0, "end_char_index": 6}
    whole = message(
        {"type": "text", "text": "It is "}, {"type": "text", "text": "green.", "citations": [cited, cited]}
    )
    found = await read(way, whole)
    assert [(one.start, one.end, one.source) for one in found.parts if isinstance(one, Citation)] == [
        (6, 12, "0")
    ] * 2


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("end_turn", "end_turn"),
        ("max_tokens", "max_tokens"),
        ("model_context_window_exceeded", "max_tokens"),
        ("stop_sequence", "stop_sequence"),
        ("pause_turn", "pause_turn"),
        ("compaction", "pause_turn"),
        ("boredom", "unknown"),
    ],
)
async def test_stop_reasons_are_read(way: str, reason: str, stop: str) -> None:
    assert (await read(way, message({"type": "text", "text": "So"}, stop=reason))).stop == stop


@pytest.mark.parametrize(
    ("details", "said"),
    [
        ({"type": "refusal", "category": "cyber", "explanation": "It could do harm."}, "It could do harm"),
        ({"type": "refusal", "category": "bio", "explanation": None}, "bio"),
        (None, "doesn't say why"),
    ],
)
async def test_refusal_is_filtered_with_its_usage(details: Any, said: str) -> None:
    whole = message({"type": "text", "text": "Here"}, stop="refusal", stop_details=details)
    model, chunks = MODEL(http_client=Replayed(sent(streamed(whole))).client()), list[Any]()

    async def collect() -> None:
        async for chunk in model.stream(HELLO):
            chunks.append(chunk)

    with pytest.raises(ContentFiltered, match=said):
        await collect()
    assert [chunk.usage.output_tokens for chunk in chunks if hasattr(chunk, "usage")][-1] == 20


async def test_usage_has_caches_thoughts_and_compactions(way: str) -> None:
    usage = {
        "input_tokens": 10,
        "cache_read_input_tokens": 1000,
        "cache_creation_input_tokens": 200,
        "cache_creation": {"ephemeral_5m_input_tokens": 200, "ephemeral_1h_input_tokens": 0},
        "output_tokens": 300,
        "output_tokens_details": {"thinking_tokens": 250},
        "server_tool_use": {"web_search_requests": 2, "web_fetch_requests": 0},
        "iterations": [
            {"type": "message", "input_tokens": 10, "output_tokens": 300},
            {"type": "compaction", "input_tokens": 5000, "output_tokens": 70},
        ],
        "service_tier": "standard",
    }
    found = await read(way, message({"type": "text", "text": "So"}, usage=usage))
    assert found.usage == Usage(6210, 370, 1000, 200, 250, searches=2)


async def test_completed_answer_may_be_empty() -> None:
    """The model has nothing to add, such as after a result, as "Handling stop reasons" says."""
    found = await heard(MODEL, json.dumps(message()).encode(), kind="application/json")
    assert (found.texts, found.stop, found.usage) == ([], "end_turn", Usage(9, 20))


@pytest.mark.parametrize("reason", ["tool_use", "odd"])
async def test_end_that_has_no_content_by_mistake_is_an_error(reason: str) -> None:
    found = await outcome(MODEL, json.dumps(message(stop=reason)).encode(), kind="application/json")
    assert isinstance(found, StreamBroken)
    assert repr(reason) in str(found)


async def test_usage_includes_advisors() -> None:
    """Their tokens are in no total, like those of compactions."""
    counts = {
        "input_tokens": 100,
        "output_tokens": 50,
        "cache_read_input_tokens": 5,
        "cache_creation_input_tokens": 0,
    }
    ran = [{"type": "message", **USAGE}, {"type": "advisor_message", "model": "claude-opus-5", **counts}]
    body = message({"type": "text", "text": "Hi"}, usage={**USAGE, "iterations": ran})
    found = await heard(MODEL, json.dumps(body).encode(), kind="application/json")
    assert found.usage == Usage(114, 70, 5)


async def test_streamed_input_of_another_block_is_kept() -> None:
    block = {"type": "new_tool_use", "id": "n1", "name": "new", "input": {}}
    delta = {"type": "input_json_delta", "partial_json": '{"a": 1}'}
    given = [
        {"type": "message_start", "message": message(stop=None)},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": USAGE},
        {"type": "message_stop"},
    ]
    found = await heard(MODEL, b"".join([sse(one, one["type"]) for one in given]))
    (tool,) = found.parts
    assert isinstance(tool, ServerTool)
    assert tool.raw == ({**block, "input": {"a": 1}},)


async def test_usage_may_be_missing_or_null() -> None:
    events = streamed(message({"type": "text", "text": "So"}))
    events[0]["message"].pop("usage")
    events[-2]["usage"] = {"output_tokens": 5, "input_tokens": None, "cache_read_input_tokens": None}
    assert (await heard(MODEL, sent(events))).usage == Usage(0, 5)


async def test_input_repeated_as_zero_is_kept() -> None:
    whole = message({"type": "text", "text": "So"}, usage={"input_tokens": 0, "output_tokens": 20})
    assert (await heard(MODEL, sent(streamed(whole)))).usage == Usage(9, 20)


async def test_message_that_ends_without_a_reason_is_complete() -> None:
    events = [
        event for event in streamed(message({"type": "text", "text": "So"})) if event["type"] != "message_delta"
    ]
    found = await heard(MODEL, sent(events))
    assert (found.texts, found.stop) == (["S", "o"], "end_turn")


async def test_content_of_the_message_start_is_read() -> None:
    """After a call that code made, the API starts with the results so far and the next call."""
    found = result("code_execution", {"type": "code_execution_result", "stdout": "1"})
    call = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": 1}}
    start = {"type": "message_start", "message": message(found, call, stop="tool_use")}
    said = await heard(MODEL, sent([start, {"type": "message_stop"}]))
    assert (said.calls, said.stop) == ([("look", {"at": 1})], "tool_use")
    assert [part.result for part in said.parts] == [found["content"]]


async def test_empty_stream_is_broken() -> None:
    start, stop = streamed(message())[0], {"type": "message_stop"}
    for body in (b"", sent([start]), sent([start, stop])):
        with pytest.raises(StreamBroken):
            await heard(MODEL, body)


@pytest.mark.parametrize(
    ("kind", "text", "error"),
    [
        ("overloaded_error", "Overloaded", ModelOverloaded),
        ("rate_limit_error", "Number of requests", RateLimited),
        ("authentication_error", "invalid x-api-key", BadCredentials),
        ("not_found_error", "model: claude-9", ModelNotFound),
        ("billing_error", "Your credit balance is too low", RateLimited),
    ],
)
async def test_error_is_typed_with_its_words(kind: str, text: str, error: type[ModelError]) -> None:
    said = {"type": "error", "error": {"type": kind, "message": text}, "request_id": "req_7"}
    begun = streamed(message({"type": "text", "text": "So"}))[:4]
    for body, media in (
        (sent([*begun, said]), "text/event-stream"),
        (json.dumps(said).encode(), "application/json"),
    ):
        found = await outcome(MODEL, body, kind=media)
        assert isinstance(found, error)
        assert text in str(found)
        assert found.request_id == "req_7"


async def test_blocks_without_an_end_are_closed() -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "sky"}}
    thought = {"type": "thinking", "thinking": "Hm. So", "signature": "sig-1"}
    events = [e for e in streamed(message(thought, call, stop="tool_use")) if e["type"] != "content_block_stop"]
    found = await heard(MODEL, sent(events))
    assert found.calls == [("look", {"at": "sky"})]
    assert found.message().content[0] == Thinking("Hm. So", "sig-1", None, "anthropic")


RICH = message(
    {"type": "thinking", "thinking": "Let me think.", "signature": "sig-1"},
    *CASES["web search"][0],
    {"type": "text", "text": "It is ü.", "citations": [{"type": "char_location", "cited_text": "ü"}]},
    {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "sky"}},
    stop="tool_use",
)


async def test_every_prefix_is_read_or_a_typed_error() -> None:
    body = sent(streamed(RICH))
    for cut in range(0, len(body), 7):
        found = await outcome(MODEL, body[:cut])
        assert isinstance(found, StreamBroken | Heard)


@pytest.mark.parametrize("seed", range(4))
async def test_every_mutation_is_read_or_a_typed_error(seed: int) -> None:
    chance = random.Random(seed)
    events = streamed(RICH)
    for _ in range(60):
        some = json.loads(json.dumps(events))
        mutate(some, chance)
        found = await outcome(MODEL, sent([{"type": "?", **event} for event in some if isinstance(event, dict)]))
        assert isinstance(found, ModelError | Heard)


# -- what is sent ---------------------------------------------------------------------------------------------


async def bodies(messages: list[Message], model: str = "claude-sonnet-5", system: str = "") -> dict[str, Any]:
    make = partial(AnthropicModel, model, api_key="k")
    (body,) = await requests_of(
        make, [ModelRequest(system, messages)], sent(streamed(message({"type": "text", "text": "a"})))
    )
    return body


def spoken(*roles: str) -> list[Message]:
    return [
        Heard.of([Text(f"{role} {place}")])
        if role == "assistant"
        else replace(user_message(f"{role} {place}"), role=role)
        for place, role in enumerate(roles)
    ]


@pytest.mark.parametrize(
    ("model", "roles", "expected"),
    [
        ("claude-opus-4-8", ["user", "system"], ["user", "system"]),
        ("claude-opus-4-8", ["user", "system", "assistant", "user"], ["user", "system", "assistant", "user"]),
        ("claude-opus-4-8", ["user", "system", "user"], ["user"]),
        ("claude-opus-4-5", ["user", "system", "assistant", "user"], ["user", "assistant", "user"]),
        ("claude-opus-4-5", ["system", "user"], ["user"]),
        ("claude-opus-4-5", ["assistant", "user"], ["assistant", "user"]),
    ],
)
async def test_roles_have_the_documented_places(model: str, roles: list[str], expected: list[str]) -> None:
    body = await bodies(spoken(*roles), model)
    assert [message["role"] for message in body["messages"]] == expected
    assert all(f"{role} {place}" in json.dumps(body) for place, role in enumerate(roles))


async def test_leading_system_messages_join_the_system_text() -> None:
    body = await bodies(spoken("system", "system", "user"), system="Be brief.")
    assert body["system"][0]["text"] == "Be brief.\n\nsystem 0\n\nsystem 1"


async def test_call_by_code_goes_back_with_its_tool() -> None:
    caller = {"type": "code_execution_20250825", "tool_id": "srvtoolu_1"}
    call = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}, "caller": caller}
    run = use("code_execution", {"code": "look()"})
    found = await read("streamed", message(run, call, stop="tool_use"))
    tool = last(found)["srvtoolu_1"]
    asked = ToolCall("c1", "look", {}, "toolu_1", found.signatures[0])
    history = [user_message("Go."), Heard.of([tool, asked]), RESULT("c1", "look", "blue")]
    body = await bodies(history)
    assert body["messages"][1]["content"] == [run, call]
    done = result("code_execution", {"type": "code_execution_result", "stdout": "blue", "return_code": 0})
    later = await read("streamed", message(done, {"type": "text", "text": "Blue."}), ModelRequest("", history))
    (ended,) = later.parts
    assert (ended.name, ended.input, ended.raw) == ("code_execution", {"code": "look()"}, (done,))
    body = await bodies([*history, Heard.of([ended, Text("Blue.")]), user_message("Thanks.")])
    assert body["messages"][1]["content"] == [run, call]
    assert body["messages"][3]["content"] == [done, {"type": "text", "text": "Blue."}]


async def test_cited_texts_go_back_with_their_citations() -> None:
    cited = {
        "type": "page_location",
        "cited_text": "Green.",
        "document_index": 0,
        "document_title": "T",
        "start_page_number": 1,
        "end_page_number": 2,
    }
    blocks = [
        {"type": "text", "text": "It is "},
        {"type": "text", "text": "green", "citations": [cited]},
        {"type": "text", "text": ", all of it."},
    ]
    found = await read("streamed", message(*blocks))
    answer = Heard.of([Text("".join(found.texts)), *found.parts])
    body = await bodies([user_message("What?"), answer, user_message("Sure?")])
    assert body["messages"][1]["content"] == blocks
