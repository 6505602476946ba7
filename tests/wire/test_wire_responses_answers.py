"""Answers of the Responses API: every kind of item and event, streamed, whole, and left out.

Sources: the API reference, pages "Streaming events" and "The response object", the guides on web search, file
search, code interpreter, image generation, MCP, computer use, shell, apply patch, custom tools and reasoning, and
the types in `openai.types.responses`.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any, get_args

import pytest
from test_wire_chat_answers import ODD, _paths, _with
from wire_openai import _response
from wire_replay import events, heard, outcome, sent
from wire_script import sse
from wire_suite import HELLO, RESULT, Heard

from wakeful.errors import ContentFiltered, ModelError, RateLimited, StreamBroken
from wakeful.models import ModelRequest
from wakeful.models.openai import OpenAIModel
from wakeful.types.content import Base64, Citation, Image, ServerTool, Text, Thinking
from wakeful.types.messages import user_message
from wakeful.types.runs import Usage

make = partial(OpenAIModel, "gpt-5-mini", api_key="k", base_url="http://vendor.test/v1")
TEXT = {"type": "output_text", "text": "Hi", "annotations": []}
MESSAGE = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [TEXT]}
CALL = {"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": "look", "arguments": '{"at": 1}'}
USED = Usage(20, 9)
PNG = "iVBORw0KGgo="


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", "sequence_number": 0, **fields}


def done(item: dict[str, Any], index: int = 0) -> dict[str, Any]:
    return event("output_item.done", item=item, output_index=index)


def added(item: dict[str, Any], index: int = 0) -> dict[str, Any]:
    return event("output_item.added", item=item, output_index=index)


def completed(*items: dict[str, Any]) -> dict[str, Any]:
    return event("completed", response=_response("completed", list(items), USED))


def stream(*found: dict[str, Any]) -> bytes:
    return b"".join([sse(one, one["type"]) for one in found])


async def body_after(answer: Heard, *replies: Any) -> list[dict[str, Any]]:
    """The items that the request after an answer has for it."""
    message = answer.message()
    results = [RESULT(call.id, call.name, *rest) for call, rest in zip(message.calls, replies, strict=True)]
    request = ModelRequest("", [*HELLO.messages, message, *results, user_message("!")])
    (body,) = await sent(make, [request], stream(completed(MESSAGE)))
    return body["input"][1:-1]


# -- whole answers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (json.dumps(_response("completed", [MESSAGE, CALL], USED)).encode(), "application/json"),
        (stream(completed(MESSAGE, CALL)), "text/event-stream"),
        (stream(done(MESSAGE), done(CALL, 1), completed(MESSAGE, CALL)), "text/event-stream"),
        (stream(done(MESSAGE), completed(MESSAGE, CALL)), "text/event-stream"),
        (stream(added(CALL, 1), completed(MESSAGE, CALL)), "text/event-stream"),
    ],
    ids=["json", "at-the-end", "items", "half", "started"],
)
async def test_responses_answer_is_whole_however_it_comes(body: bytes, kind: str) -> None:
    said = await heard(make, body, kind=kind)
    assert (said.texts, said.calls, said.stop) == (["Hi"], [("look", {"at": 1})], "tool_use")
    assert said.vendor_ids == ["call_1"]
    assert said.usage == USED


async def test_responses_items_of_one_index_are_read_once() -> None:
    opened = event("output_text.delta", delta="Hi", output_index=0, content_index=0)
    body = stream(opened, done(MESSAGE), done(CALL), completed({**MESSAGE, "id": "other"}, {**CALL, "id": "x"}))
    said = await heard(make, body)
    assert (said.texts, said.calls) == (["Hi"], [("look", {"at": 1})])


@pytest.mark.parametrize("opens", [True, False], ids=["started", "only-done"])
async def test_responses_calls_of_one_index_are_kept(opens: bool) -> None:
    other = {**CALL, "id": "fc_2", "call_id": "call_2", "arguments": '{"at": 2}'}
    given = event("function_call_arguments.delta", output_index=0, item_id="fc_2", delta='{"at": 2}')
    starts = [added({**CALL, "arguments": ""}), added({**other, "arguments": ""}), given] if opens else []
    said = await heard(make, stream(*starts, done(CALL), done(other), completed(CALL, other)))
    assert said.calls == [("look", {"at": 1}), ("look", {"at": 2})]
    assert said.vendor_ids == ["call_1", "call_2"]


async def test_responses_text_without_deltas_is_read_from_its_end() -> None:
    thought = event("reasoning_summary_text.done", text="Hm.", output_index=0, summary_index=0, item_id="rs_1")
    part = event("content_part.done", part=TEXT, output_index=1, content_index=0)
    text = event("output_text.done", text="Hi", output_index=1, content_index=0)
    said = await heard(make, stream(thought, text, part, completed()))
    assert (said.texts, said.reasoning) == (["Hi"], ["Hm."])


@pytest.mark.parametrize("status", ["failed", "cancelled", "queued", "in_progress"])
async def test_response_without_an_answer_is_an_error(status: str) -> None:
    body = json.dumps({**_response(status), "error": None}).encode()
    assert isinstance(await outcome(make, body, kind="application/json"), StreamBroken)


async def test_incomplete_response_is_cut_or_filtered() -> None:
    whole = {**_response("incomplete", [MESSAGE], USED), "incomplete_details": {"reason": "max_output_tokens"}}
    said = await heard(make, stream(event("incomplete", response=whole)))
    assert (said.texts, said.stop) == (["Hi"], "max_tokens")
    whole["incomplete_details"] = {"reason": "content_filter"}
    assert isinstance(await outcome(make, stream(event("incomplete", response=whole))), ContentFiltered)


@pytest.mark.parametrize(
    "failure",
    [
        event(
            "failed", response={**_response("failed"), "error": {"code": "insufficient_quota", "message": "poor"}}
        ),
        {"type": "error", "code": "insufficient_quota", "message": "poor", "param": None, "sequence_number": 2},
        {
            "type": "error",
            "error": {"type": "insufficient_quota", "code": "insufficient_quota", "message": "poor"},
        },
    ],
    ids=["response", "event", "nested"],
)
async def test_responses_error_has_the_vendors_words(failure: dict[str, Any]) -> None:
    error = await outcome(make, stream(added(MESSAGE), failure))
    assert isinstance(error, RateLimited)
    assert "poor" in str(error)
    assert not error.transient


@pytest.mark.parametrize("status", ["failed", "cancelled"])
async def test_failure_without_an_error_says_the_status(status: str) -> None:
    found = await outcome(make, stream(event(status, response={**_response(status, [], USED), "error": None})))
    assert isinstance(found, StreamBroken)
    assert f"the response is {status}" in str(found)


@pytest.mark.parametrize("why", ["max_messages", "odd"])
async def test_incomplete_response_without_content_is_an_error(why: str) -> None:
    response = {**_response("incomplete", [], USED), "incomplete_details": {"reason": why}}
    found = await outcome(make, stream(event("incomplete", response=response)))
    assert isinstance(found, StreamBroken)
    assert repr(why) in str(found)


async def test_completed_response_may_be_empty() -> None:
    found = await heard(make, stream(completed()))
    assert (found.texts, found.stop, found.usage) == ([], "end_turn", USED)


async def test_arguments_at_the_start_of_a_call_are_kept() -> None:
    found = await heard(make, stream(added(CALL), completed()))
    assert [call.arguments for call in found.message().calls] == [{"at": 1}]


async def test_text_of_events_without_an_index_is_read_once() -> None:
    given = {"type": "response.output_text.delta", "item_id": "msg_1", "delta": "Hi"}
    ended = {"type": "response.output_item.done", "item": MESSAGE}
    assert (await heard(make, stream(given, ended, completed(MESSAGE)))).texts == ["Hi"]


async def test_refusal_of_a_whole_answer_is_text() -> None:
    refusal = {**MESSAGE, "content": [{"type": "refusal", "refusal": "I can't."}]}
    assert (await heard(make, stream(completed(refusal)))).texts == ["I can't."]


# -- server tools --------------------------------------------------------------------------------------------

SEARCH = {
    "id": "ws_1",
    "type": "web_search_call",
    "status": "completed",
    "action": {"type": "search", "query": "x", "sources": [{"type": "url", "url": "https://a.test"}]},
}
CODE = {
    "id": "ci_1",
    "type": "code_interpreter_call",
    "status": "completed",
    "code": "print(1)",
    "container_id": "cntr_1",
    "outputs": [{"type": "logs", "logs": "1"}],
}
FILES = {
    "id": "fs_1",
    "type": "file_search_call",
    "status": "completed",
    "queries": ["x"],
    "results": [{"file_id": "f", "filename": "a.txt", "score": 0.9, "text": "…", "attributes": {}}],
}
MCP = {
    "id": "mcp_1",
    "type": "mcp_call",
    "server_label": "wiki",
    "name": "ask",
    "arguments": '{"q": "x"}',
    "output": "42",
    "error": None,
    "approval_request_id": None,
}
LISTED = {"id": "mcpl_1", "type": "mcp_list_tools", "server_label": "wiki", "tools": [{"name": "ask"}]}
COMPACTED = {"id": "cmp_1", "type": "compaction", "encrypted_content": "gAAA"}
SHELL = {
    "id": "sh_1",
    "type": "shell_call",
    "call_id": "call_s",
    "status": "completed",
    "action": {"commands": ["ls"]},
    "environment": {"type": "container_reference", "container_id": "cntr_1"},
}


@pytest.mark.parametrize(
    ("item", "name", "given", "found"),
    [
        (SEARCH, "web_search", SEARCH["action"], None),
        (CODE, "code_execution", "print(1)", CODE["outputs"]),
        (FILES, "file_search", ["x"], FILES["results"]),
        (MCP, "mcp", {"arguments": {"q": "x"}, "server_label": "wiki", "name": "ask"}, "42"),
        (LISTED, "mcp", "wiki", [{"name": "ask"}]),
        (COMPACTED, "compaction", None, None),
        (SHELL, "shell", {"commands": ["ls"]}, None),
        ({"id": "x_1", "type": "telepathy_call", "status": "completed"}, "telepathy", None, None),
    ],
    ids=["web", "code", "files", "mcp", "mcp-list", "compaction", "shell", "unknown"],
)
async def test_server_tool_is_kept_and_sent_back(item: dict[str, Any], name: str, given: Any, found: Any) -> None:
    running = {**item, "status": "in_progress"}
    body = stream(added(running), done(item), done(MESSAGE, 1), completed(item, MESSAGE))
    said = await heard(make, body)
    states = [(part.name, part.status) for part in said.parts]
    assert states == [(name, "running"), (name, "done")]
    tool = said.parts[-1]
    assert (tool.input, tool.result, said.texts, said.stop) == (given, found, ["Hi"], "end_turn")
    answer = Heard.of([tool, Text("Hi")])
    request = ModelRequest("", [*HELLO.messages, answer, user_message("!")])
    (request_body,) = await sent(make, [request], stream(completed(MESSAGE)))
    assert request_body["input"][1:-1] == [item, {"type": "message", "role": "assistant", "content": "Hi"}]


async def test_searches_of_an_answer_are_counted() -> None:
    opened = {**SEARCH, "id": "ws_2", "action": {"type": "open_page", "url": "https://a.test"}}
    said = await heard(make, stream(done(SEARCH), done(opened, 1), completed(SEARCH, opened, MESSAGE)))
    assert said.usage.searches == 1


@pytest.mark.parametrize("fields", [{"status": "failed"}, {"status": "incomplete"}, {"error": "no such tool"}])
async def test_failed_server_tool_says_so(fields: dict[str, Any]) -> None:
    said = await heard(make, stream(done({**MCP, **fields}), completed(MESSAGE)))
    assert said.parts[0].status == "failed"


async def test_result_of_a_tool_may_come_with_the_response() -> None:
    said = await heard(make, stream(done({**LISTED, "tools": []}), completed(LISTED, MESSAGE)))
    assert [part.result for part in said.parts] == [[], [{"name": "ask"}]]
    assert said.texts == ["Hi"]


async def test_generated_image_is_a_part_of_its_own() -> None:
    item = {
        "id": "ig_1",
        "type": "image_generation_call",
        "status": "completed",
        "result": PNG,
        "output_format": "webp",
        "revised_prompt": "a cat",
    }
    said = await heard(make, stream(added({**item, "result": None}), done(item), completed(item)))
    assert said.parts[1:] == [
        ServerTool("ig_1", "image_generation", None, "a cat", "done", "openai"),
        Image(Base64("image/webp", PNG)),
    ]
    body = await body_after(said)
    assert not body


async def test_picture_of_the_code_interpreter_is_a_part() -> None:
    item = {**CODE, "outputs": [{"type": "image", "url": f"data:image/png;base64,{PNG}"}]}
    said = await heard(make, stream(done(item), completed(item)))
    assert said.parts[1] == Image(Base64("image/png", PNG))


async def test_server_tools_without_an_id_are_told_apart() -> None:
    """Perplexity's results of searches have none."""
    found = {"type": "search_results", "queries": ["x"], "results": [{"url": "https://a.test"}]}
    other = {**found, "queries": ["y"]}
    said = await heard(make, stream(completed(found, other, MESSAGE)))
    assert [
        (part.id, part.name, part.input["queries"][0] if isinstance(part.input, dict) else part.input)
        for part in said.parts
    ] == [
        ("search_results/0", "web_search", ["x"]),
        ("search_results/1", "web_search", ["y"]),
    ]


# -- calls of the client -------------------------------------------------------------------------------------

PATCH = {
    "id": "apc_1",
    "type": "apply_patch_call",
    "call_id": "call_p",
    "status": "completed",
    "operation": {"type": "delete_file", "path": "a.txt"},
}
CUSTOM = {"id": "ctc_1", "type": "custom_tool_call", "call_id": "call_c", "name": "run", "input": "print(1)"}
LOCAL = {
    "id": "lsh_1",
    "type": "local_shell_call",
    "call_id": "call_l",
    "status": "completed",
    "action": {"type": "exec", "command": ["ls"], "env": {}},
}
COMPUTER = {
    "id": "cu_1",
    "type": "computer_call",
    "call_id": "call_u",
    "status": "completed",
    "action": {"type": "click", "x": 1, "y": 2, "button": "left"},
    "pending_safety_checks": [{"id": "sc_1", "code": "c", "message": "m"}],
}
APPROVAL = {
    "id": "mcpr_1",
    "type": "mcp_approval_request",
    "server_label": "wiki",
    "name": "ask",
    "arguments": '{"q": "x"}',
}
AT_HOME = {**SHELL, "environment": {"type": "local"}}


@pytest.mark.parametrize(
    ("item", "name", "arguments", "answer"),
    [
        (CUSTOM, "run", {"input": "print(1)"}, {"type": "custom_tool_call_output", "output": "ok"}),
        (
            PATCH,
            "apply_patch",
            {"operation": PATCH["operation"]},
            {"type": "apply_patch_call_output", "output": "ok", "status": "completed"},
        ),
        (
            AT_HOME,
            "shell",
            {"action": {"commands": ["ls"]}},
            {
                "type": "shell_call_output",
                "output": [{"stdout": "ok", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
            },
        ),
        (
            LOCAL,
            "local_shell",
            {"action": LOCAL["action"]},
            {"type": "local_shell_call_output", "id": "call_l", "output": "ok"},
        ),
        (
            APPROVAL,
            "mcp_approval_request",
            {"server_label": "wiki", "name": "ask", "arguments": '{"q": "x"}'},
            {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True},
        ),
    ],
    ids=["custom", "patch", "shell", "local-shell", "approval"],
)
async def test_call_of_the_client_is_a_call(
    item: dict[str, Any], name: str, arguments: Any, answer: dict[str, Any]
) -> None:
    said = await heard(make, stream(added({**item, "status": "in_progress"}), done(item), completed(item)))
    assert (said.calls, said.stop) == ([(name, arguments)], "tool_use")
    sent_call, sent_result = await body_after(said, ["ok"])
    assert sent_call == item
    assert sent_result == (
        {"call_id": item["call_id"]} | answer if "call_id" in item and "id" not in answer else answer
    )


async def test_denied_approval_is_sent_as_such() -> None:
    said = await heard(make, stream(done(APPROVAL), completed(APPROVAL)))
    message = said.message()
    reply = RESULT(message.calls[0].id, "mcp_approval_request", "not today", error="denied")
    request = ModelRequest("", [*HELLO.messages, message, reply])
    (body,) = await sent(make, [request], stream(completed(MESSAGE)))
    assert body["input"][-1] == {
        "type": "mcp_approval_response",
        "approval_request_id": "mcpr_1",
        "approve": False,
        "reason": "Error (denied): not today",
    }


async def test_computer_call_is_answered_with_a_picture() -> None:
    said = await heard(make, stream(done(COMPUTER), completed(COMPUTER)))
    message = said.message()
    reply = RESULT(message.calls[0].id, "computer", "", parts=[Image(Base64("image/png", PNG))])
    (body,) = await sent(make, [ModelRequest("", [*HELLO.messages, message, reply])], stream(completed(MESSAGE)))
    assert body["input"][-1] == {
        "type": "computer_call_output",
        "call_id": "call_u",
        "output": {"type": "computer_screenshot", "image_url": f"data:image/png;base64,{PNG}"},
        "acknowledged_safety_checks": COMPUTER["pending_safety_checks"],
    }


async def test_call_of_a_program_goes_back_with_its_caller() -> None:
    called = {**CALL, "caller": {"type": "program", "caller_id": "call_0"}, "namespace": "shop"}
    said = await heard(make, stream(added({**called, "arguments": ""}), done(called), completed(called)))
    sent_call, sent_result = await body_after(said, ["ok"])
    kept = {name: called[name] for name in ("type", "call_id", "name", "caller", "namespace")}
    assert sent_call == {**kept, "arguments": '{"at":1}'}
    assert sent_result["caller"] == called["caller"]


# -- reasoning and phases ------------------------------------------------------------------------------------


def reasoning(ident: str, *texts: str, **fields: Any) -> dict[str, Any]:
    return {
        "id": ident,
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": t} for t in texts],
        **fields,
    }


async def test_summaries_of_a_whole_answer_go_back_one_by_one() -> None:
    item = reasoning("rs_1", "One.", "Two.", encrypted_content="gAAA")
    said = await heard(make, stream(completed(item, CALL)))
    assert "".join(said.reasoning) == "One.\n\nTwo."
    body = await body_after(said, ["ok"])
    assert body[0] == item


async def test_reasoning_of_open_models_goes_back_as_it_is() -> None:
    content = [{"type": "reasoning_text", "text": "Hm."}]
    item = reasoning("rs_1", content=content)
    deltas = [event("reasoning_text.delta", delta=text, output_index=0, content_index=0) for text in ("H", "m.")]
    said = await heard(make, stream(*deltas, done(item), done(CALL, 1), completed(item, CALL)))
    assert said.reasoning == ["H", "m."]
    assert (await body_after(said, ["ok"]))[0] == item


async def test_reasoning_before_a_server_tool_goes_back() -> None:
    tool, item = (
        ServerTool("ws_1", "web_search", vendor="openai", raw=(SEARCH,)),
        reasoning("rs_1", encrypted_content="g"),
    )
    answer = Heard.of([Thinking("", "rs_1", "g", "openai"), tool, Text("Hi")])
    (body,) = await sent(
        make, [ModelRequest("", [*HELLO.messages, answer, user_message("!")])], stream(completed())
    )
    assert body["input"][1:3] == [item, SEARCH]


async def test_phase_goes_back_with_its_message() -> None:
    first = {**MESSAGE, "id": "m1", "phase": "commentary", "content": [{**TEXT, "text": "I look."}]}
    last = {**MESSAGE, "id": "m2", "phase": "final_answer"}
    delta = event("output_text.delta", delta="I look.", output_index=0, content_index=0)
    said = await heard(make, stream(delta, done(first), done(last, 1), completed(first, last)))
    assert said.texts == ["I look.", "Hi"]
    marks = [part for part in said.message().content if isinstance(part, Thinking)]
    answer = Heard.of([Text("I look."), marks[0], Text("Hi"), marks[1]])
    (body,) = await sent(
        make, [ModelRequest("", [*HELLO.messages, answer, user_message("!")])], stream(completed())
    )
    assert [(item["content"], item["phase"]) for item in body["input"][1:3]] == [
        ("I look.", "commentary"),
        ("Hi", "final_answer"),
    ]


async def test_parts_of_a_result_keep_their_order() -> None:
    picture = Image(Base64("image/png", PNG))
    answer = Heard.of((await heard(make, stream(completed(CALL)))).message().content)
    reply = RESULT(answer.calls[0].id, "look", "before", parts=[picture, Text("after")])
    (body,) = await sent(make, [ModelRequest("", [*HELLO.messages, answer, reply])], stream(completed()))
    assert [part["type"] for part in body["input"][-1]["output"]] == ["input_text", "input_image", "input_text"]


# -- citations -----------------------------------------------------------------------------------------------


async def test_annotations_are_citations_of_the_whole_text() -> None:
    url = {"type": "url_citation", "start_index": 0, "end_index": 2, "url": "https://a.test", "title": "A"}
    file = {"type": "file_citation", "index": 1, "file_id": "f", "filename": "a.txt"}
    made = {
        "type": "container_file_citation",
        "start_index": 1,
        "end_index": 2,
        "container_id": "c",
        "file_id": "g",
    }
    second = {**MESSAGE, "id": "m2", "content": [{**TEXT, "annotations": [url, file, made]}]}
    streamed = [
        event("output_text.delta", delta="Hi", output_index=1, content_index=0),
        event("output_text.annotation.added", annotation=url, annotation_index=0, output_index=1, content_index=0),
    ]
    said = await heard(make, stream(done(MESSAGE), *streamed, done(second, 1), completed(MESSAGE, second)))
    assert said.parts == [
        Citation("url", 2, 4, url="https://a.test", title="A", vendor="openai", raw=url),
        Citation("document", title="a.txt", source="f", location={"index": 1}, vendor="openai", raw=file),
        Citation("document", 3, 4, source="g", location={"container_id": "c"}, vendor="openai", raw=made),
    ]


# -- anything else -------------------------------------------------------------------------------------------


def test_every_item_type_of_the_sdk_is_known() -> None:
    """Items that aren't of the client, a message or reasoning are kept as server tools."""
    from openai.types.responses import ResponseOutputItem

    kinds = {get_args(one.model_fields["type"].annotation)[0] for one in get_args(get_args(ResponseOutputItem)[0])}
    assert {"message", "reasoning", "function_call", "mcp_approval_request", "program"} <= kinds


WHOLE = [
    added({**CALL, "arguments": ""}, 2),
    event("reasoning_summary_text.delta", delta="Hm.", output_index=0, summary_index=0, item_id="rs_1"),
    done(reasoning("rs_1", "Hm.", encrypted_content="gAAA")),
    event("output_text.delta", delta="Hi", output_index=1, content_index=0),
    done({**MESSAGE, "phase": "final_answer"}, 1),
    event("function_call_arguments.delta", delta='{"at": 1}', output_index=2),
    done(CALL, 2),
    done(SEARCH, 3),
    done(CUSTOM, 4),
    completed(MESSAGE, CALL),
]


async def test_any_prefix_of_a_response_is_an_answer_or_an_error() -> None:
    body = stream(*WHOLE)
    for end in range(0, len(body), 7):
        found = await outcome(make, body[:end])
        assert isinstance(found, ModelError) or found.texts == ["Hi"]


async def test_any_odd_value_of_a_response_is_read_or_an_error() -> None:
    for place, one in enumerate(WHOLE[:-1]):
        for path in _paths(one):
            for odd in ODD:
                mutated = [*WHOLE[:place], _with(one, path, odd), *WHOLE[place + 1 :]]
                found = await outcome(make, events(*mutated, done=False))
                if not isinstance(found, ModelError):
                    assert all(isinstance(text, str) for text in [*found.texts, *found.reasoning, *found.pieces])
                    assert all(ident is None or isinstance(ident, str) for ident in found.vendor_ids)
