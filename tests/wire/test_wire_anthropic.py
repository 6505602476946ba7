"""Anthropic's specifics: cache marks, thinking, answers by a tool, sampling settings."""

from __future__ import annotations

from typing import Any

import pytest
from wire_anthropic import Anthropic
from wire_script import Calls, Says, Script, Thinks
from wire_server import WireServer
from wire_suite import HELLO, LOOK, RESULT, Heard, asked, history, listen

from wakeful.errors import InvalidRequest
from wakeful.models import ModelRequest
from wakeful.models.anthropic import AnthropicModel
from wakeful.models.anthropic.generations import has_formats, is_adaptive, output_cap
from wakeful.types.content import Text, ToolCall
from wakeful.types.messages import user_message
from wakeful.types.requests import ModelSettings, OutputSpec

CITY = {"type": "object", "properties": {"city": {"type": "string", "minLength": 2}}, "required": ["city"]}


async def _asked(model: str, request: ModelRequest, **options: Any) -> dict[str, Any]:
    codec = Anthropic()
    async with WireServer(codec.answer(Script([Says(["ok"])]))) as server:
        made = AnthropicModel(model, base_url=server.url, api_key="k", **options)
        await listen(made, request)
        await made.close()
    return server.requests[0].body


def _marked(body: Any) -> list[Any]:
    """All blocks with a cache mark."""
    if isinstance(body, dict):
        own = [body] if "cache_control" in body else []
        return [*own, *[found for value in body.values() for found in _marked(value)]]
    return [found for value in body for found in _marked(value)] if isinstance(body, list) else []


async def test_cache_marks_tools_system_and_two_turns() -> None:
    call = ToolCall("c", "look", {})
    messages = [*history(call, RESULT("c", "look")), Heard.of([Text("Red.")]), user_message("Sure?")]
    body = await asked(Anthropic(), ModelRequest("Be brief.", messages, [LOOK]))
    marked = _marked(body)
    assert len(marked) == 4
    shown = {block.get("text") or block.get("name") for block in marked}
    assert shown == {"look", "Be brief.", "And now?", "Sure?"}
    assert all(block["cache_control"] == {"type": "ephemeral"} for block in marked)


async def test_cache_prefix_is_kept_by_the_next_request() -> None:
    first = await asked(Anthropic(), ModelRequest("s", history(), [LOOK]))
    later = [*history(), Heard.of([Text("Red.")]), user_message("Sure?")]
    second = await asked(Anthropic(), ModelRequest("s", later, [LOOK]))
    assert second["messages"][: len(first["messages"])][-1] == first["messages"][-1]


@pytest.mark.parametrize(("cache", "mark"), [("1h", {"type": "ephemeral", "ttl": "1h"}), ("off", None)])
async def test_cache_lifetime_can_be_set(cache: str, mark: Any) -> None:
    settings = ModelSettings(extra={"cache": cache})
    body = await asked(Anthropic(), ModelRequest("s", history(), [LOOK], settings))
    assert [block["cache_control"] for block in _marked(body)] == ([mark] * 4 if mark else [])


@pytest.mark.parametrize(
    ("model", "reasoning", "thinking", "effort"),
    [
        ("claude-sonnet-5", "high", {"type": "adaptive", "display": "summarized"}, "high"),
        ("claude-opus-4-6", "minimal", {"type": "adaptive", "display": "summarized"}, "low"),
        ("claude-haiku-4-5", "medium", {"type": "enabled", "budget_tokens": 8192}, None),
        ("claude-haiku-4-5-20251001", 2000, {"type": "enabled", "budget_tokens": 2000}, None),
        ("claude-sonnet-5", "none", {"type": "disabled"}, None),
        ("claude-sonnet-5", None, None, None),
    ],
)
async def test_reasoning_setting_fits_the_generation(
    model: str, reasoning: Any, thinking: Any, effort: Any
) -> None:
    body = await _asked(model, ModelRequest("", history(), settings=ModelSettings(reasoning=reasoning)))
    assert body.get("thinking") == thinking
    assert body.get("output_config", {}).get("effort") == effort


async def test_thinking_budget_leaves_room_for_the_answer() -> None:
    settings = ModelSettings(reasoning=8000, max_tokens=500)
    assert (await _asked("claude-haiku-4-5", ModelRequest("", history(), settings=settings)))["max_tokens"] == 8500


@pytest.mark.parametrize("tokens", [-1, 0, 1023])
async def test_small_thinking_budget_is_refused(tokens: int) -> None:
    request = ModelRequest("", history(), settings=ModelSettings(reasoning=tokens))
    with pytest.raises(InvalidRequest, match="at least 1,024 tokens"):
        await _asked("claude-haiku-4-5", request)


async def test_unknown_effort_error_lists_known_ones() -> None:
    with pytest.raises(InvalidRequest, match="known: none, minimal, low"):
        await _asked("claude-sonnet-5", ModelRequest("", history(), settings=ModelSettings(reasoning="huge")))


async def test_sampling_requires_an_older_api_version() -> None:
    request = ModelRequest("", history(), settings=ModelSettings(temperature=0.2, top_p=0.9))
    with pytest.raises(InvalidRequest, match=r"no temperature and no top_p.*anthropic-version"):
        await _asked("claude-haiku-4-5", request)
    body = await _asked("claude-haiku-4-5", request, headers={"anthropic-version": "2023-06-01"})
    assert (body["temperature"], body["top_p"]) == (0.2, 0.9)


async def test_typed_answer_uses_an_enforced_schema() -> None:
    body = await asked(Anthropic(), ModelRequest("", history(), output=OutputSpec("output", CITY)))
    schema = body["output_config"]["format"]["schema"]
    assert schema["additionalProperties"] is False
    assert "minLength" not in schema["properties"]["city"]


async def test_older_model_answers_by_a_tool_as_text() -> None:
    codec = Anthropic()
    script = Script([Calls("give_answer", ['{"city":', ' "Rome"}'])], stop="tool_use")
    async with WireServer(codec.answer(script)) as server:
        model = AnthropicModel("anthropic/claude-sonnet-4", base_url=server.url, api_key="k")
        heard = await listen(model, ModelRequest("", history(), output=OutputSpec("output", CITY)))
        await model.close()
    assert ("".join(heard.texts), heard.calls, heard.stop) == ('{"city": "Rome"}', [], "end_turn")
    body = server.requests[0].body
    codec.check(body)
    assert body["tool_choice"] == {"type": "tool", "name": "give_answer"}


async def test_older_model_with_tools_must_call_or_answer() -> None:
    request = ModelRequest("", history(), [LOOK], output=OutputSpec("output", CITY))
    body = await _asked("anthropic/claude-3.7-sonnet", request)
    assert body["tool_choice"] == {"type": "any"}
    assert [tool["name"] for tool in body["tools"]] == ["look", "give_answer"]


async def test_older_thinking_model_gets_schema_instructions() -> None:
    settings = ModelSettings(reasoning="low")
    request = ModelRequest("", history(), [], settings, OutputSpec("output", CITY))
    body = await _asked("anthropic/claude-sonnet-4", request)
    assert "tool_choice" not in body
    assert "JSON schema" in body["system"][0]["text"]


async def test_usage_is_reported_before_the_end() -> None:
    whole = Anthropic().answer(Script([Says(["ok"])]))
    async with WireServer(whole) as server:
        model = Anthropic().model(server.url)
        stream = model.stream(HELLO)
        first: Any = await anext(aiter(stream))
        await stream.aclose()  # pyright: ignore[reportAttributeAccessIssue]
        await model.close()  # pyright: ignore[reportAttributeAccessIssue]
    assert first.usage.input_tokens == 20


async def test_thinking_without_text_keeps_its_signature() -> None:
    codec = Anthropic()
    async with WireServer(codec.answer(Script([Thinks([], "sig-9"), Says(["ok"])]))) as server:
        model = codec.model(server.url)
        answer = (await listen(model, HELLO)).message()
        await model.close()  # pyright: ignore[reportAttributeAccessIssue]
    body = await asked(codec, ModelRequest("", [user_message("?"), answer, user_message("!")]))
    assert body["messages"][1]["content"][0] == {"type": "thinking", "thinking": "", "signature": "sig-9"}


@pytest.mark.parametrize(
    ("model", "adaptive", "formats", "cap"),
    [
        ("claude-3-haiku-20240307", False, False, 4096),
        ("claude-3-5-sonnet-latest", False, False, 8192),
        ("claude-opus-4-20250514", False, False, 32_000),
        ("claude-opus-4-1-20250805", False, True, 32_000),
        ("claude-sonnet-4-5-20250929", False, True, 64_000),
        ("claude-opus-4-8", True, True, 64_000),
        ("claude-haiku-5-5", True, True, 64_000),
        ("a-name-of-ones-own", True, True, 64_000),
    ],
)
def test_generation_is_known_by_the_model_name(model: str, adaptive: bool, formats: bool, cap: int) -> None:
    assert (is_adaptive(model), has_formats(model), output_cap(model)) == (adaptive, formats, cap)
