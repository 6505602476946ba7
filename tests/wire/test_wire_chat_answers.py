"""Answers of Chat Completions as vendors document them: fields in other places, left out, or of their own.

Sources: OpenAI's and Azure's API references, and the pages of vendors: OpenRouter "Reasoning Tokens", "Errors" and
"Multimodal", Mistral "Reasoning" and "Citations", Groq "Compound" and "Errors", Perplexity "Chat Completions",
xAI "Reasoning", Gemini "OpenAI compatibility", DeepSeek "Thinking Mode", Moonshot "Usage", vLLM's error object.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
from wire_openai import _chunk
from wire_replay import events, heard, outcome
from wire_script import sse

from wakeful.errors import (
    ContentFiltered,
    InvalidRequest,
    ModelError,
    ModelUnavailable,
    RateLimited,
    StreamBroken,
)
from wakeful.models.compatible import CompatibleModel
from wakeful.types.content import Audio, Base64, Citation, Image, ServerTool, Thinking, Unknown, Url
from wakeful.types.runs import Usage

make = partial(CompatibleModel, "m", base_url="http://vendor.test/v1")
END = _chunk({}, "stop")
PNG = "data:image/png;base64,iVBORw0KGgo="


def completion(message: dict[str, Any], finish: str | None = "stop", **fields: Any) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    body = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], **fields}
    return json.dumps(body).encode()


def call(index: int | None, name: str | None, arguments: Any, ident: str | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"function": {"name": name, "arguments": arguments}}
    return {**({} if index is None else {"index": index}), **({} if ident is None else {"id": ident}), **found}


# -- chunks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "odd",
    [
        {**_chunk({}), "choices": []},
        {**_chunk({}), "choices": [], "prompt_filter_results": [{"prompt_index": 0}]},
        {**_chunk({}), "choices": [{"index": 0, "finish_reason": None, "content_filter_offsets": {"start": 4}}]},
        {**_chunk({}), "choices": [{"index": 0, "delta": None, "finish_reason": None}]},
        {**_chunk({}), "choices": None},
        {"id": "c", "object": "chat.completion.chunk"},
        {**_chunk({"content": "other"}), "choices": [{"index": 1, "delta": {"content": "other"}}]},
        _chunk({"content": None, "reasoning_content": None, "tool_calls": None, "audio": None, "refusal": None}),
        _chunk({"content": ""}, ""),
    ],
    ids=[
        "empty",
        "azure-prompt",
        "azure-async",
        "null-delta",
        "null",
        "bare",
        "alternative",
        "nulls",
        "no-reason",
    ],
)
async def test_chat_chunk_without_content_is_skipped(odd: dict[str, Any]) -> None:
    said = await heard(make, events(odd, _chunk({"content": "Hi"}), odd, END, odd))
    assert (said.texts, said.stop) == (["Hi"], "end_turn")


@pytest.mark.parametrize(
    "body",
    [
        b": OPENROUTER PROCESSING\n\n" + events(_chunk({"content": "Hi"}), END),
        events(_chunk({"content": "Hi"}), END).replace(b"data: ", b"data:"),
        events(_chunk({"content": "Hi"}), END).replace(b"\n", b"\r\n"),
        b"\xef\xbb\xbf" + events(_chunk({"content": "Hi"}), END),
        events(_chunk({"content": "Hi"}), END, done=False).rstrip(),
        b"data:\n\n" + events(_chunk({"content": "Hi"}), END),
        b"event: message\nid: 1\nretry: 3\n" + events(_chunk({"content": "Hi"}), END),
    ],
    ids=["comments", "no-space", "crlf", "bom", "no-end", "empty-data", "fields"],
)
async def test_event_stream_is_read_in_any_form(body: bytes) -> None:
    assert (await heard(make, body)).texts == ["Hi"]


@pytest.mark.parametrize(
    "kind", ["application/json", "text/plain", "application/octet-stream", "application/x-ndjson"]
)
async def test_event_stream_is_read_under_any_media_type(kind: str) -> None:
    assert (await heard(make, events(_chunk({"content": "Hi"}), END), kind=kind)).texts == ["Hi"]


async def test_half_of_a_surrogate_pair_is_read() -> None:
    body = events(_chunk({"content": "?"}), END).replace(b'"?"', b'"\\ud83d"')
    assert (await heard(make, body)).texts == ["\ud83d"]


async def test_text_and_reasoning_of_one_delta_are_kept() -> None:
    said = await heard(make, events(_chunk({"content": "Hi", "reasoning_content": "Hm."}), END))
    assert (said.texts, said.reasoning) == (["Hi"], ["Hm."])


async def test_done_mark_ends_an_answer_without_reason() -> None:
    assert (await heard(make, events(_chunk({"content": "Hi"})))).stop == "end_turn"
    calls = _chunk({"tool_calls": [call(0, "look", "{}", "a")]})
    assert (await heard(make, events(calls))).stop == "tool_use"
    with pytest.raises(StreamBroken):
        await heard(make, events(_chunk({"role": "assistant"})))
    with pytest.raises(StreamBroken):
        await heard(make, events(_chunk({"content": "Hi"}), done=False))


# -- whole answers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
async def test_chat_json_body_is_a_whole_answer(kind: str) -> None:
    calls = [
        {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}},
        {"id": "b", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}},
    ]
    usage = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
    message = {"content": "Hi", "reasoning_content": "Hm.", "tool_calls": calls, "refusal": None}
    said = await heard(make, completion(message, "tool_calls", usage=usage), kind=kind)
    assert (said.texts, said.reasoning, said.stop) == (["Hi"], ["Hm."], "tool_use")
    assert said.calls == [("look", {"at": 1})] * 2
    assert said.vendor_ids == ["a", "b"]
    assert said.usage == Usage(7, 5)


async def test_json_body_of_another_api_is_no_answer() -> None:
    error = await outcome(make, b'{"models": []}', kind="application/json")
    assert isinstance(error, ModelError)
    assert "isn't the vendor's API" in str(error)


def older(text: str, finish: str | None = None) -> dict[str, Any]:
    """A chunk of the older API of completions."""
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}
    return {"id": "c", "object": "text_completion", "created": 1, "model": "m", "choices": [choice]}


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (events(older("Hi "), older("you"), older("", "stop")), "text/event-stream"),
        (events(older("Hi you", "stop"), done=False), "text/event-stream"),
        (json.dumps(older("Hi you", "stop")).encode(), "application/json"),
    ],
    ids=["chunks", "one-chunk", "body"],
)
async def test_text_of_the_older_api_is_read(body: bytes, kind: str) -> None:
    found = await heard(make, body, kind=kind)
    assert ("".join(found.texts), found.stop) == ("Hi you", "end_turn")


async def test_text_beside_a_delta_is_not_read_twice() -> None:
    both = _chunk({"content": "Hi"})
    both["choices"][0]["text"] = "Hi"
    assert (await heard(make, events(both, END))).texts == ["Hi"]


@pytest.mark.parametrize(
    "choice",
    [
        {"index": 0, "output": "Hi", "finish_reason": "stop"},
        {"index": 0, "delta": {}, "finish_reason": "tool_calls"},
        {"index": 0, "delta": {}, "finish_reason": "odd"},
    ],
    ids=["no-place", "no-call", "odd"],
)
async def test_end_that_has_no_content_by_mistake_is_an_error(choice: dict[str, Any]) -> None:
    found = await outcome(make, events({**_chunk({}), "choices": [choice]}))
    assert isinstance(found, StreamBroken)
    assert repr(choice["finish_reason"]) in str(found)


async def test_completed_answer_may_be_empty() -> None:
    found = await heard(make, events(_chunk({"content": ""}), END))
    assert (found.texts, found.stop) == ([], "end_turn")


async def test_legacy_function_call_is_a_call() -> None:
    body = completion(
        {"content": None, "function_call": {"name": "look", "arguments": '{"at": 1}'}}, "function_call"
    )
    said = await heard(make, body, kind="application/json")
    assert (said.calls, said.stop) == ([("look", {"at": 1})], "tool_use")
    pieces = [{"name": "look", "arguments": ""}, {"arguments": '{"at"'}, {"arguments": ": 1}"}]
    chunks = [_chunk({"function_call": piece}) for piece in pieces]
    assert (await heard(make, events(*chunks, _chunk({}, "function_call")))).calls == [("look", {"at": 1})]


async def test_custom_tool_call_has_its_input() -> None:
    custom = {"id": "a", "type": "custom", "custom": {"name": "run", "input": "print(1)"}}
    said = await heard(make, completion({"tool_calls": [custom]}, "tool_calls"), kind="application/json")
    assert said.calls == [("run", {"input": "print(1)"})]


# -- calls ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "calls",
    [
        [call(None, "look", '{"at": 1}'), call(None, "look", '{"at": 2}')],
        [call(0, "look", '{"at": 1}'), call(0, "look", '{"at": 2}')],
        [call(0, "look", {"at": 1}), call(1, "look", {"at": 2})],
        [call(0, None, "", "a"), call(0, "look", '{"at": 1}'), call(1, "look", '{"at": 2}', "b")],
        [call(0, "look", '{"at"', "a"), call(0, "", ": 1}", ""), call(1, "look", '{"at": 2}', "b")],
        [call(0, "look", '{"at"'), call(0, "look", ": 1}"), call(1, "look", '{"at": 2}')],
    ],
    ids=["no-index", "one-index", "objects", "late-name", "empty-names", "repeated-name"],
)
async def test_chat_calls_are_told_apart(calls: list[dict[str, Any]]) -> None:
    said = await heard(make, events(*[_chunk({"tool_calls": [one]}) for one in calls], END))
    assert said.calls == [("look", {"at": 1}), ("look", {"at": 2})]
    assert said.stop == "tool_use"


async def test_call_without_a_name_breaks_the_stream() -> None:
    with pytest.raises(StreamBroken, match="without a name"):
        await heard(make, events(_chunk({"tool_calls": [call(0, None, "{}", "a")]}), END))


# -- reasoning -----------------------------------------------------------------------------------------------


async def test_mistral_thinking_chunks_are_reasoning() -> None:
    content = [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}]
    chunks = [
        _chunk({"content": content}),
        _chunk({"content": [{"type": "text", "text": "Four"}]}),
        _chunk({"content": "."}),
    ]
    said = await heard(make, events(*chunks, END))
    assert (said.reasoning, said.texts) == (["Hm."], ["Four", "."])


async def test_openrouter_reasoning_details_are_joined() -> None:
    def detail(**fields: Any) -> dict[str, Any]:
        return {"type": "reasoning.text", "format": "anthropic-claude-v1", "index": 0, **fields}

    deltas = [
        {"content": "", "reasoning": "Hm", "reasoning_details": [detail(text="Hm")]},
        {"content": "", "reasoning": ".", "reasoning_details": [detail(text=".")]},
        {"content": "", "reasoning": None, "reasoning_details": [detail(signature="sig")]},
        {"content": "Four."},
        {"content": "", "reasoning_details": [{"type": "reasoning.encrypted", "data": "xx", "index": 1}]},
    ]
    said = await heard(make, events(*[_chunk(delta) for delta in deltas], END))
    thoughts = [part for part in said.message().content if isinstance(part, Thinking)]
    assert said.reasoning == ["Hm", "."]
    assert [json.loads(part.encrypted or "") for part in thoughts] == [
        {"reasoning_details": [detail(text="Hm.", signature="sig")]},
        {"reasoning_details": [{"type": "reasoning.encrypted", "data": "xx", "index": 1}]},
    ]


async def test_gemini_thoughts_and_signatures_are_read() -> None:
    extra = {"extra_content": {"google": {"thought_signature": "c2ln"}}}
    thought = {"content": "<thought>Hm.", "extra_content": {"google": {"thought": True}}}
    calls = {"tool_calls": [{**call(0, "look", "{}", "a"), **extra}]}
    said = await heard(make, events(_chunk(thought), _chunk(calls), END))
    assert (said.reasoning, said.texts, said.calls) == (["Hm."], [], [("look", {})])
    assert said.signatures == ["c2ln"]


# -- media and sources ---------------------------------------------------------------------------------------


async def test_images_of_a_delta_are_kept_once() -> None:
    images = {"images": [{"type": "image_url", "image_url": {"url": PNG}}]}
    said = await heard(make, events(_chunk({"content": "", **images}), _chunk(images), END))
    assert said.parts == [Image(Base64("image/png", "iVBORw0KGgo="))]


async def test_list_content_keeps_media_references_and_unknowns() -> None:
    content = [
        "Hi",
        {"type": "reference", "reference_ids": [1, 2]},
        {"type": "image_url", "image_url": "https://x.test/a.png"},
        {"type": "hologram", "data": "?"},
    ]
    said = await heard(make, completion({"content": content}), kind="application/json")
    source, image, unknown = said.parts
    assert (said.texts, source.source, image) == (["Hi"], "1, 2", Image(Url("https://x.test/a.png")))
    assert unknown == Unknown("hologram", {"type": "hologram", "data": "?"})


@pytest.mark.parametrize(
    "logprobs",
    [0.0, {"tokens": ["Hi"], "token_logprobs": [-1.0]}, {"content": [{"token": "Hi", "logprob": None}]}],
    ids=["number", "together", "null"],
)
async def test_log_probabilities_of_another_form_are_left_out(logprobs: Any) -> None:
    chunk = _chunk({"content": "Hi"})
    chunk["choices"][0]["logprobs"] = logprobs
    said = await heard(make, events(chunk, END))
    assert (said.texts, said.parts) == (["Hi"], [])


async def test_single_part_as_content_is_read() -> None:
    said = await heard(make, completion({"content": {"type": "text", "text": "Hi"}}), kind="application/json")
    assert said.texts == ["Hi"]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "reasoning_text", "thinking"])
async def test_reasoning_is_read_from_every_field(field: str) -> None:
    said = await heard(make, events(_chunk({field: "Hm."}), _chunk({"content": "Hi"}), END))
    assert (said.reasoning, said.texts) == (["Hm."], ["Hi"])


async def test_recording_of_a_json_body_has_its_media_type() -> None:
    audio = {"id": "a", "data": "UklGRgAA", "transcript": "Hi", "expires_at": 1}
    said = await heard(make, completion({"content": None, "audio": audio}), kind="application/json")
    assert (said.texts, said.parts) == (["Hi"], [Audio(Base64("audio/wav", "UklGRgAA"))])


async def test_url_citations_have_their_span() -> None:
    raw = {
        "type": "url_citation",
        "url_citation": {"start_index": 0, "end_index": 2, "url": "https://a.test", "title": "A"},
    }
    said = await heard(
        make,
        events(_chunk({"content": "Hi"}), _chunk({"annotations": [raw]}), _chunk({"annotations": [raw]}), END),
    )
    assert said.parts == [
        Citation("url", 0, 2, url="https://a.test", title="A", vendor="openai-compatible", raw=raw)
    ]


@pytest.mark.parametrize(
    "fields",
    [
        {
            "citations": ["https://a.test", "https://b.test"],
            "search_results": [
                {"title": "A", "url": "https://a.test", "snippet": "…"},
                {"title": "B", "url": "https://b.test"},
            ],
        },
        {"citations": ["https://a.test", "https://b.test"]},
        {"web_search": [{"title": "A", "link": "https://a.test"}, {"title": "B", "link": "https://b.test"}]},
        {"search_info": {"search_results": [{"url": "https://a.test"}, {"url": "https://b.test"}]}},
    ],
    ids=["perplexity", "xai", "zai", "alibaba"],
)
async def test_search_results_are_citations_once(fields: dict[str, Any]) -> None:
    chunks = [{**_chunk({"content": "Hi [1]"}), **fields}, {**END, **fields}]
    said = await heard(make, events(*chunks))
    assert [(part.url, part.source) for part in said.parts] == [("https://a.test", "1"), ("https://b.test", "2")]


async def test_perplexity_message_beside_the_delta_is_not_read_twice() -> None:
    first, last = _chunk({"role": "assistant", "content": "Hi"}), _chunk({"content": ""}, "stop")
    first["choices"][0]["message"] = last["choices"][0]["message"] = {"role": "assistant", "content": "Hi"}
    assert (await heard(make, events(first, last))).texts == ["Hi"]


async def test_groq_executed_tools_are_server_tools() -> None:
    tool = {"index": 0, "type": "search", "arguments": '{"query": "x"}'}
    chunks = [_chunk({"executed_tools": [tool]}), _chunk({"executed_tools": [{**tool, "output": "found"}]})]
    said = await heard(make, events(*chunks, _chunk({"content": "Hi"}), END))
    assert [(part.id, part.status) for part in said.parts] == [("executed_0", "running"), ("executed_0", "done")]
    assert said.parts[1] == ServerTool(
        "executed_0", "web_search", '{"query": "x"}', {"output": "found"}, "done", "openai-compatible"
    )


# -- usage ---------------------------------------------------------------------------------------------------

PLAIN = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


@pytest.mark.parametrize(
    ("fields", "usage"),
    [
        ({"usage": PLAIN}, Usage(10, 5)),
        ({"x_groq": {"id": "r", "usage": {**PLAIN, "prompt_time": 0.01}}}, Usage(10, 5)),
        (
            {"usage": {**PLAIN, "total_tokens": 22, "completion_tokens_details": {"reasoning_tokens": 7}}},
            Usage(10, 12, reasoning_tokens=7),
        ),
        ({"usage": {**PLAIN, "total_tokens": 22}}, Usage(10, 12, reasoning_tokens=7)),
        ({"usage": {**PLAIN, "prompt_cache_hit_tokens": 4}}, Usage(10, 5, cached_tokens=4)),
        ({"usage": {**PLAIN, "cached_tokens": 4}}, Usage(10, 5, cached_tokens=4)),
        ({"usage": {**PLAIN, "prompt_tokens_details": {"cache_creation_input_tokens": 4}}}, Usage(10, 5, 0, 4)),
        ({"usage": {**PLAIN, "cost": 0.0012, "is_byok": False}}, Usage(10, 5, cost=1200)),
        ({"usage": {**PLAIN, "cost": {"total_cost": 0.006}}}, Usage(10, 5, cost=6000)),
        (
            {"usage": {**PLAIN, "prompt_tokens_details": None, "completion_tokens": None}},
            Usage(10, 5, reasoning_tokens=5),
        ),
        ({"usage": {"prompt_tokens": "?", "completion_tokens": -1}}, Usage()),
    ],
    ids=[
        "plain",
        "groq",
        "xai",
        "gemini",
        "deepseek",
        "moonshot",
        "alibaba",
        "openrouter",
        "perplexity",
        "nulls",
        "nonsense",
    ],
)
async def test_usage_is_whole_wherever_it_is(fields: dict[str, Any], usage: Usage) -> None:
    said = await heard(make, events(_chunk({"content": "Hi"}), {**END, **fields}))
    assert said.usage == usage


async def test_usage_of_a_choice_is_read() -> None:
    last = {**END, "choices": [{**END["choices"][0], "usage": PLAIN}]}
    assert (await heard(make, events(_chunk({"content": "Hi"}), last))).usage == Usage(10, 5)


async def test_error_after_the_end_keeps_answer_and_usage() -> None:
    late = {**_chunk({"content": ""}), "error": {"code": 400, "message": "Token limit reached"}, "usage": PLAIN}
    said = await heard(make, events(_chunk({"content": "Hi"}), _chunk({}, "length"), late))
    assert (said.texts, said.stop, said.usage) == (["Hi"], "max_tokens", Usage(10, 5))
    error = await outcome(make, events(_chunk({"content": ""}), END, late))
    assert isinstance(error, InvalidRequest)
    assert "Token limit reached" in str(error)


# -- errors --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        ({"object": "error", "message": "too hot", "type": "BadRequestError", "code": 400}, InvalidRequest),
        ({"error": {"message": "too hot", "code": 502, "metadata": {"provider_name": "X"}}}, ModelUnavailable),
        (
            {"error": {"message": "too hot", "type": "insufficient_quota", "code": "insufficient_quota"}},
            RateLimited,
        ),
        ({"error": "too hot", "error_type": "overloaded"}, ModelUnavailable),
        ({"message": "too hot", "code": "InvalidParameter", "request_id": "r"}, ModelError),
        ({"detail": "too hot"}, ModelUnavailable),
        (_chunk({"content": ""}, "error") | {"error": {"code": 429, "message": "too hot"}}, RateLimited),
    ],
    ids=["vllm", "openrouter", "quota", "tgi", "alibaba", "fastapi", "with-choice"],
)
async def test_error_event_has_the_vendors_words(event: dict[str, Any], kind: type[ModelError]) -> None:
    error = await outcome(make, events(_chunk({"content": "Hi"}), event))
    assert isinstance(error, kind)
    assert "too hot" in str(error)


@pytest.mark.parametrize(
    "event",
    [
        {"base_resp": {"status_code": 1004, "status_msg": "too hot"}, "choices": None},
        {"code": "1", "msg": "too hot"},
    ],
)
async def test_what_came_instead_of_an_answer_is_quoted(event: dict[str, Any]) -> None:
    error = await outcome(make, events(event))
    assert isinstance(error, StreamBroken)
    assert "too hot" in str(error)


async def test_quota_within_a_stream_is_not_retried() -> None:
    event = {"error": {"message": "no money", "type": "insufficient_quota", "code": "insufficient_quota"}}
    error = await outcome(make, events(event))
    assert isinstance(error, RateLimited)
    assert not error.transient


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("content_filter", ContentFiltered),
        ("sensitive", ContentFiltered),
        ("SAFETY", ContentFiltered),
        ("abort", StreamBroken),
        ("error", StreamBroken),
        ("network_error", StreamBroken),
        ("insufficient_system_resource", StreamBroken),
    ],
)
async def test_abnormal_stop_is_an_error(reason: str, kind: type[ModelError]) -> None:
    assert isinstance(await outcome(make, events(_chunk({"content": "Hi"}), _chunk({}, reason))), kind)


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("stop", "end_turn"),
        ("length", "max_tokens"),
        ("model_length", "max_tokens"),
        ("eos", "end_turn"),
        ("odd", "unknown"),
    ],
)
async def test_stop_reasons_of_all_servers_are_known(reason: str, stop: str) -> None:
    assert (await heard(make, events(_chunk({"content": "Hi"}), _chunk({}, reason)))).stop == stop


@pytest.mark.parametrize(
    ("written", "calls"),
    [
        ('{"name": "look", "arguments": {"at": 3}}', [("look", {"at": 3})]),
        ('[{"name": "look", "parameters": {"at": 3}}]', [("look", {"at": 3})]),
        ('<tool_call>\n{"name": "look", "arguments": {"at": 3}}\n</tool_call>', [("look", {"at": 3})]),
        ('<function=look>{"at": 3}</function>', [("look", {"at": 3})]),
        ('<function=look{"at": 3}</function>', [("look", {"at": 3})]),
    ],
    ids=["object", "list", "tagged", "llama", "llama-broken"],
)
@pytest.mark.parametrize("status", [200, 400])
async def test_failed_call_of_groq_is_a_call(written: str, calls: Any, status: int) -> None:
    error = {
        "message": "Failed to call a function.",
        "type": "invalid_request_error",
        "code": "tool_use_failed",
        "failed_generation": written,
    }
    body = json.dumps({"error": error}).encode() if status == 400 else events({"error": error})
    kind = "application/json" if status == 400 else "text/event-stream"
    said = await heard(make, body, status=status, kind=kind)
    assert (said.calls, said.stop) == (calls, "tool_use")


async def test_text_in_place_of_a_forced_call_is_text() -> None:
    error = {"message": "the model did not call a tool", "code": "tool_use_failed", "failed_generation": "maybe"}
    said = await heard(make, json.dumps({"error": error}).encode(), status=400, kind="application/json")
    assert (said.texts, said.stop) == (["maybe"], "end_turn")
    said = await heard(make, events(_chunk({"content": "maybe"}), {"error": error}))
    assert (said.texts, said.stop) == (["maybe"], "end_turn")


async def test_failed_call_that_nobody_can_read_is_retried() -> None:
    error = {
        "message": "Failed to call a function.",
        "code": "tool_use_failed",
        "failed_generation": '<function=look {"at',
    }
    found = await outcome(make, json.dumps({"error": error}).encode(), status=400, kind="application/json")
    assert isinstance(found, ModelError)
    assert found.transient
    assert "Failed to call a function." in str(found)


# -- anything else -------------------------------------------------------------------------------------------

WHOLE = [
    _chunk({"role": "assistant", "content": "", "reasoning_content": "Hm."}),
    _chunk({"content": "Hi"}),
    _chunk({"content": [{"type": "text", "text": " you"}]}),
    _chunk({"tool_calls": [call(0, "look", '{"at": 1}', "a")]}),
    _chunk({"annotations": [{"type": "url_citation", "url_citation": {"url": "https://a.test"}}]}),
    {**_chunk({}, "stop"), "usage": PLAIN},
]
ODD: list[Any] = [None, 0, -1, 1.5, True, "", "x", [], [None], {}, {"x": 1}, [{}], "\ud83d"]


async def test_any_prefix_is_an_answer_or_a_typed_error() -> None:
    body = events(*WHOLE)
    for end in range(0, len(body), 3):
        found = await outcome(make, body[:end])
        assert isinstance(found, ModelError) or found.texts == ["Hi", " you"]


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            found += _paths(inner, (*path, key))
    return found


def _with(value: Any, path: tuple[Any, ...], odd: Any) -> Any:
    if not path:
        return odd
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = _with(value[path[0]], path[1:], odd)
    return copy


async def test_any_odd_value_is_read_or_a_typed_error() -> None:
    for place, chunk in enumerate(WHOLE):
        for path in _paths(chunk):
            for odd in ODD:
                mutated = json.dumps([*WHOLE[:place], _with(chunk, path, odd), *WHOLE[place + 1 :]])
                body = b"".join([sse(one) for one in json.loads(mutated)])
                found = await outcome(make, body)
                if not isinstance(found, ModelError):
                    assert all(isinstance(text, str) for text in [*found.texts, *found.reasoning, *found.pieces])
                    assert all(ident is None or isinstance(ident, str) for ident in found.vendor_ids)
