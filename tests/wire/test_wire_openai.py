"""OpenAI's specifics (strict schemas, encrypted reasoning, refusals) and the dialects of other servers."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from wire_openai import STREAM, Chat, Responses, Vllm, _chunk
from wire_script import Calls, Says, Script, Thinks, sse
from wire_server import Reply, WireServer
from wire_suite import HELLO, LOOK, RESULT, Heard, ask, asked, history, listen

from wakeful.errors import BadCredentials, ConfigurationError, ContentFiltered, InvalidRequest, StreamBroken
from wakeful.models import ModelRequest
from wakeful.models.compatible import AzureModel, CompatibleModel
from wakeful.models.openai import OpenAIModel
from wakeful.models.openai.schema import strict_schema
from wakeful.types.content import Audio, Base64, Text, Thinking, ToolCall
from wakeful.types.messages import user_message
from wakeful.types.requests import ModelSettings, OutputSpec, ToolSpec

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
LOOSE = {"type": "object", "properties": {"city": {"type": "string"}}}


# -- Responses -----------------------------------------------------------------------------------------------


async def test_responses_requests_encrypted_reasoning_unstored() -> None:
    body = await asked(Responses(), HELLO)
    assert body["store"] is False
    assert body["include"] == ["reasoning.encrypted_content"]


async def test_responses_sends_no_reasoning_to_plain_models() -> None:
    async with WireServer(Responses().answer(Script([Says(["ok"])]))) as server:
        model = OpenAIModel("gpt-4.1", base_url=server.url, api_key="k")
        answer = Heard.of([Thinking("Hm.", "rs_1", "gAAA", "openai"), Text("Yes.")])
        await listen(model, ModelRequest("", [user_message("?"), answer, user_message("!")]))
        await model.close()
    body = server.requests[0].body
    assert "include" not in body
    assert [item["type"] for item in body["input"]] == ["message"] * 3


async def test_responses_drops_reasoning_without_result() -> None:
    cut_off = Heard.of([Thinking("Hm.", "rs_1", "gAAA", "openai")])
    body = await asked(Responses(), ModelRequest("", [user_message("?"), cut_off, user_message("!")]))
    assert "rs_1" not in json.dumps(body)


async def test_responses_sends_only_the_last_reasoning_of_a_text() -> None:
    """A continued answer has the reasoning of both requests before its text."""
    thoughts = [Thinking("Hm.", f"rs_{n}", f"gAAA{n}", "openai") for n in range(2)]
    answer = Heard.of([*thoughts, Text("Well.")])
    body = await asked(Responses(), ModelRequest("", [user_message("?"), answer, user_message("!")]))
    assert [item.get("id") or item["type"] for item in body["input"]] == ["message", "rs_1", "message", "message"]


async def test_responses_separates_reasoning_summary_parts() -> None:
    codec = Responses()
    whole = codec.answer(Script([Thinks(["One."], "rs_1", "gAAA-finished"), Says(["ok"])]))
    second = {"item_id": "rs_1", "output_index": 0, "summary_index": 1, "sequence_number": 7}
    part = {
        "type": "response.reasoning_summary_part.added",
        "part": {"type": "summary_text", "text": ""},
        **second,
    }
    delta = {"type": "response.reasoning_summary_text.delta", "delta": "Two.", **second}
    at = next(i for i, p in enumerate(whole.pieces) if b"reasoning_summary_part.done" in p) + 1
    pieces = [*whole.pieces[:at], sse(part, part["type"]), sse(delta, delta["type"]), *whole.pieces[at:]]
    async with WireServer(replace(whole, pieces=pieces)) as server:
        model = codec.model(server.url)
        heard = await listen(model, HELLO)
        await model.close()  # pyright: ignore[reportAttributeAccessIssue]
    answer = heard.message()
    assert "".join(heard.reasoning) == "One.\n\nTwo."
    body = await asked(codec, ModelRequest("", [*HELLO.messages, answer, user_message("!")]))
    texts = [{"type": "summary_text", "text": text} for text in ("One.", "Two.")]
    assert body["input"][1] == {
        "type": "reasoning",
        "id": "rs_1",
        "summary": texts,
        "encrypted_content": "gAAA-finished",
    }


@pytest.mark.parametrize(("schema", "strict"), [(CITY, True), (LOOSE, False)])
async def test_strict_schema_keeps_the_meaning(schema: dict[str, Any], strict: bool) -> None:
    tools = [ToolSpec("find", "Find it.", schema)]
    request = ModelRequest("", history(), tools, output=OutputSpec("output", schema))
    body = await asked(Responses(), request)
    assert body["text"]["format"]["strict"] is body["tools"][0]["strict"] is strict
    assert body["text"]["format"]["schema"].get("additionalProperties", True) is not strict


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"type": "string", "default": "x"}}, "required": ["a"]},
        {"type": "object", "properties": {}, "additionalProperties": {"type": "string"}},
        {"type": "object", "properties": {"a": {"allOf": [CITY]}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"type": "object"}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"type": "array"}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"type": "string", "format": "uri"}}, "required": ["a"]},
        {"type": "array", "items": {"type": "string"}},
    ],
)
def test_strict_schema_is_none_when_unsupported(schema: dict[str, Any]) -> None:
    assert strict_schema(schema) is None


def test_strict_schema_closes_every_object() -> None:
    schema = {
        "type": "object",
        "properties": {
            "many": {"type": "array", "items": {"$ref": "#/$defs/City"}},
            "one": {"anyOf": [CITY, CITY]},
        },
        "required": ["many", "one"],
        "$defs": {"City": CITY},
    }
    assert json.dumps(strict_schema(schema)).count('"additionalProperties": false') == 4


@pytest.mark.parametrize("codec", [Responses(), Chat()], ids=["responses", "chat"])
async def test_refusal_is_text_unless_the_answer_is_typed(codec: Any) -> None:
    whole = codec.answer(Script([Says(["I can't help with that."])]))
    pieces = [
        p.replace(b"response.output_text.delta", b"response.refusal.delta").replace(
            b'"delta": {"content":', b'"delta": {"refusal":'
        )
        for p in whole.pieces
    ]
    async with WireServer(*[replace(whole, pieces=pieces)] * 2) as server:
        model = codec.model(server.url)
        assert "".join((await listen(model, HELLO)).texts) == "I can't help with that."
        with pytest.raises(ContentFiltered, match="I can't help"):
            await listen(model, replace_output(HELLO))
        await model.close()


def replace_output(request: ModelRequest) -> ModelRequest:
    return ModelRequest(request.system, request.messages, request.tools, output=OutputSpec("output", CITY))


async def test_openai_extra_settings_are_sent() -> None:
    extra = {
        "verbosity": "low",
        "reasoning_summary": "auto",
        "prompt_cache_key": "k",
        "metadata": {"team": "blue"},
    }
    settings = ModelSettings(reasoning="low", service_tier="flex", body={"background": False}, extra=extra)
    body = await asked(Responses(), ModelRequest("", history(), settings=settings))
    assert body["reasoning"] == {"effort": "low", "summary": "auto"}
    assert body["text"] == {"verbosity": "low"}
    assert (body["service_tier"], body["prompt_cache_key"], body["metadata"]) == ("flex", "k", {"team": "blue"})
    assert body["background"] is False


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (ModelSettings(reasoning=2000), "as an effort"),
        (ModelSettings(stop=("END",)), "takes no stop"),
        (ModelSettings(extra={"verbosity": "loud"}), "verbosity"),
        (ModelSettings(extra={"verbosty": "low"}), "did you mean 'verbosity'"),
    ],
)
async def test_openai_invalid_setting_is_refused(settings: ModelSettings, text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        await asked(Responses(), ModelRequest("", history(), settings=settings))


# -- Chat Completions ----------------------------------------------------------------------------------------


async def test_chat_audio_is_read_with_its_transcript() -> None:
    deltas = [{"audio": {"id": "a", "transcript": "Hi"}}, {"audio": {"data": "AAAA"}}, {"audio": {"data": "AQ=="}}]
    chunks = [*[_chunk(delta) for delta in deltas], _chunk({}, "stop")]
    reply = Reply([*[sse(chunk) for chunk in chunks], sse("[DONE]")], headers=dict(STREAM))
    async with WireServer(reply) as server:
        model = Chat().model(server.url)
        heard = await listen(model, HELLO)
        await model.close()  # pyright: ignore[reportAttributeAccessIssue]
    assert heard.texts == ["Hi"]
    assert heard.parts == [Audio(Base64("audio/pcm;rate=24000", "AAAAAQ=="))]


def _piece(index: int, ident: str | None, name: str, arguments: str) -> dict[str, Any]:
    return {"index": index, "id": ident, "function": {"name": name, "arguments": arguments}}


@pytest.mark.parametrize(
    "calls",
    [
        # Ollama and others: one index for all calls, with different ids.
        [_piece(0, "a", "look", '{"at": 1}'), _piece(0, "b", "look", '{"at": 2}')],
        # Some repeat id and name with every chunk.
        [
            _piece(0, "a", "look", '{"at"'),
            _piece(0, "a", "look", ": 1}"),
            _piece(1, "b", "look", '{"at": 2}'),
        ],
        # Some have no ids.
        [_piece(0, None, "look", '{"at": 1}'), _piece(1, None, "look", '{"at": 2}')],
    ],
    ids=["one-index", "repeated", "no-ids"],
)
async def test_chat_calls_are_separate_for_any_numbering(calls: list[dict[str, Any]]) -> None:
    chunks = [*[_chunk({"tool_calls": [call]}) for call in calls], _chunk({}, "stop")]
    async with WireServer(Reply([*map(sse, chunks), sse("[DONE]")], headers=dict(STREAM))) as server:
        model = Vllm().model(server.url)
        heard = await listen(model, HELLO)
        await model.close()  # pyright: ignore[reportAttributeAccessIssue]
    assert heard.calls == [("look", {"at": 1}), ("look", {"at": 2})]
    assert heard.stop == "tool_use"


async def test_chat_arguments_without_a_call_break_the_stream() -> None:
    chunks = [_chunk({"tool_calls": [{"index": 3, "function": {"arguments": "{}"}}]}), _chunk({}, "stop")]
    async with WireServer(Reply([sse(chunk) for chunk in chunks], headers=dict(STREAM))) as server:
        model = Chat().model(server.url)
        with pytest.raises(StreamBroken, match="never started"):
            await listen(model, HELLO)
        await model.close()  # pyright: ignore[reportAttributeAccessIssue]


async def test_chat_answer_without_done_is_complete() -> None:
    whole = Chat().answer(Script([Says(["ok"])]))
    async with WireServer(replace(whole, pieces=whole.pieces[:-1], framing="close")) as server:
        model = Chat().model(server.url)
        assert (await listen(model, HELLO)).texts == ["ok"]
        await model.close()  # pyright: ignore[reportAttributeAccessIssue]


async def test_complete_answer_is_not_waited_for() -> None:
    whole = Responses().answer(Script([Says(["ok"])]))
    async with WireServer(replace(whole, ends="stall", cut_at=whole.size)) as server:
        model = Responses().model(server.url)
        assert (await listen(model, HELLO)).texts == ["ok"]
        await model.close()  # pyright: ignore[reportAttributeAccessIssue]


# -- others --------------------------------------------------------------------------------------------------


async def _sent(make: Any, request: ModelRequest) -> dict[str, Any]:
    async with WireServer(Chat().answer(Script([Says(["ok"])]))) as server:
        model = make(server.url)
        await listen(model, request)
        await model.close()
    return {**server.requests[0].body, ":path": server.requests[0].path, ":headers": server.requests[0].headers}


async def test_compatible_servers_use_their_dialect() -> None:
    settings = ModelSettings(max_tokens=9, extra={"top_k": 4}, body={"guided_regex": "a+"})
    request = ModelRequest("", history(), [LOOK], settings, OutputSpec("output", CITY))
    plain = await _sent(lambda url: CompatibleModel("m", base_url=f"{url}/v1"), request)
    assert (plain["max_tokens"], plain["top_k"], plain["guided_regex"]) == (9, 4, "a+")
    assert "strict" not in plain["tools"][0]["function"]
    assert plain[":path"] == "/v1/chat/completions"
    seek = await _sent(lambda url: CompatibleModel("m", base_url=url, api_key="k", server="deepseek"), request)
    assert seek["response_format"] == {"type": "json_object"}
    assert "JSON schema" in seek["messages"][0]["content"]
    thinks = ModelRequest("", history(), settings=ModelSettings(reasoning=2000))
    router = await _sent(lambda url: CompatibleModel("m", base_url=url, api_key="k", server="openrouter"), thinks)
    assert router["reasoning"] == {"max_tokens": 2000}


async def test_deepseek_gets_its_reasoning_back() -> None:
    call = ToolCall("c", "look", {})
    answer = Heard.of([Thinking("I look.", "reasoning_content", None, "deepseek"), call])
    messages = [user_message("?"), answer, RESULT("c", "look")]
    body = await _sent(
        lambda url: CompatibleModel("m", base_url=url, api_key="k", server="deepseek"), ModelRequest("", messages)
    )
    assert body["messages"][1]["reasoning_content"] == "I look."


async def test_chat_reasoning_is_read_under_both_names() -> None:
    chunks = [_chunk({"reasoning": "Hm. "}), _chunk({"reasoning_content": "Yes."}), _chunk({}, "stop")]
    async with WireServer(Reply([sse(chunk) for chunk in chunks], headers=dict(STREAM))) as server:
        model = Vllm().model(server.url)
        assert (await listen(model, HELLO)).reasoning == ["Hm. ", "Yes."]
        await model.close()  # pyright: ignore[reportAttributeAccessIssue]


async def test_base_url_may_be_in_the_name_or_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    body = await _sent(lambda url: CompatibleModel(f"org/m:8b@{url}/v1"), HELLO)
    assert body["model"] == "org/m:8b"
    with pytest.raises(ConfigurationError, match="needs a base URL"):
        CompatibleModel("m")

    def from_environment(url: str) -> CompatibleModel:
        monkeypatch.setenv("OPENAI_COMPATIBLE_BASE_URL", url)
        return CompatibleModel("m")

    assert (await _sent(from_environment, HELLO))["model"] == "m"


async def test_key_env_names_the_variable_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOUSE_KEY", "sk-house")
    body = await _sent(lambda url: CompatibleModel("m", base_url=url, key_env="HOUSE_KEY"), HELLO)
    assert body[":headers"]["authorization"] == "Bearer sk-house"
    monkeypatch.delenv("HOUSE_KEY")
    with pytest.raises(BadCredentials, match="HOUSE_KEY"):
        await _sent(lambda url: CompatibleModel("m", base_url=url, key_env="HOUSE_KEY"), HELLO)


async def test_azure_uses_deployment_and_version() -> None:
    body = await _sent(lambda url: AzureModel("dep", endpoint=url, api_version="2025-01-01", api_key="k"), HELLO)
    assert body[":path"] == "/openai/deployments/dep/chat/completions?api-version=2025-01-01"
    assert body[":headers"]["api-key"] == "k"


async def test_proxy_is_used() -> None:
    async with WireServer(Chat().answer(Script([Says(["ok"])]))) as proxy:
        model = CompatibleModel("m", base_url="http://gpu.invalid/v1", proxy=proxy.url)
        await listen(model, HELLO)
        await model.close()
    assert proxy.requests[0].path == "http://gpu.invalid/v1/chat/completions"


async def test_chat_usage_may_come_with_the_last_choice() -> None:
    heard, _ = await ask(Chat(), Script([Calls("look")], stop="tool_use"))
    assert heard.usage.input_tokens == 20
