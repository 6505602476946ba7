"""The settings that all vendors share: each is mapped to the vendor's own, or refused by its name."""

from __future__ import annotations

from typing import Any

import pytest
from wire_script import Codec, Says, Script
from wire_server import WireServer
from wire_suite import LOOK, asked, history, listen
from wire_vendors import VENDORS

from wakeful.errors import InvalidRequest
from wakeful.models import ModelRequest
from wakeful.types import ModelSettings

# A value of each setting, and where it is in the vendors' requests. A header has no place in the body.
GIVEN: dict[str, tuple[Any, dict[str, dict[str, Any]]]] = {
    "temperature": (
        0.5,
        {
            "openai": {"temperature": 0.5},
            "openai-chat": {"temperature": 0.5},
            "google": {"generationConfig": {"temperature": 0.5}},
            "bedrock": {"inferenceConfig": {"temperature": 0.5}},
        },
    ),
    "top_p": (
        0.9,
        {
            "openai": {"top_p": 0.9},
            "openai-chat": {"top_p": 0.9},
            "google": {"generationConfig": {"topP": 0.9}},
            "bedrock": {"inferenceConfig": {"topP": 0.9}},
        },
    ),
    "max_tokens": (
        321,
        {
            "openai": {"max_output_tokens": 321},
            "openai-chat": {"max_completion_tokens": 321},
            "anthropic": {"max_tokens": 321},
            "google": {"generationConfig": {"maxOutputTokens": 321}},
            "bedrock": {"inferenceConfig": {"maxTokens": 321}},
        },
    ),
    "stop": (
        ("END",),
        {
            "openai-chat": {"stop": ["END"]},
            "anthropic": {"stop_sequences": ["END"]},
            "google": {"generationConfig": {"stopSequences": ["END"]}},
            "bedrock": {"inferenceConfig": {"stopSequences": ["END"]}},
        },
    ),
    "seed": (7, {"openai-chat": {"seed": 7}, "google": {"generationConfig": {"seed": 7}}}),
    "tool_choice": (
        "look",
        {
            "openai": {"tool_choice": {"type": "function", "name": "look"}},
            "openai-chat": {"tool_choice": {"type": "function", "function": {"name": "look"}}},
            "anthropic": {"tool_choice": {"type": "tool", "name": "look"}},
            "google": {"toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["look"]}}},
            "bedrock": {"toolConfig": {"toolChoice": {"tool": {"name": "look"}}}},
        },
    ),
    "parallel_tool_calls": (
        False,
        {
            "openai": {"parallel_tool_calls": False},
            "openai-chat": {"parallel_tool_calls": False},
            "anthropic": {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
        },
    ),
    "logprobs": (2, {"google": {"generationConfig": {"responseLogprobs": True, "logprobs": 2}}}),
    "service_tier": (
        "priority",
        {
            "openai": {"service_tier": "priority"},
            "openai-chat": {"service_tier": "priority"},
            "anthropic": {"service_tier": "priority"},
            "google": {"serviceTier": "priority"},
            "bedrock": {"serviceTier": {"type": "priority"}},
        },
    ),
    "user": (
        "u-1",
        {
            "openai": {"safety_identifier": "u-1"},
            "openai-chat": {"user": "u-1"},
            "anthropic": {"metadata": {"user_id": "u-1"}},
        },
    ),
    "timeout": (90.0, {}),
    "headers": ({"x-team": "blue"}, {}),
    "body": ({"metadata": {"a": "b"}}, {}),
}


def flat(value: Any) -> Any:
    """Google's SDK writes some fields in snake case."""
    if isinstance(value, dict):
        return {key.replace("_", "").lower(): flat(each) for key, each in value.items()}  # pyright: ignore
    return value


def holds(body: Any, part: dict[str, Any]) -> bool:
    return all(
        holds(body.get(key, {}), value) if isinstance(value, dict) else body.get(key) == value
        for key, value in part.items()  # pyright: ignore
    )


@pytest.fixture(params=[codec for codec in VENDORS if codec.name != "vllm"], ids=lambda codec: codec.name)
def codec(request: pytest.FixtureRequest) -> Codec:
    return request.param


def test_every_setting_has_a_case() -> None:
    assert {*GIVEN, "reasoning", "extra"} == set(ModelSettings.__struct_fields__)


@pytest.mark.parametrize("name", GIVEN)
async def test_setting_is_mapped_or_refused_by_name(codec: Codec, name: str) -> None:
    value, places = GIVEN[name]
    if codec.name == "bedrock" and name == "body":
        value = {"requestMetadata": {"a": "b"}}  # The SDK refuses fields that Converse lacks.
    request = ModelRequest("", history(), [LOOK], ModelSettings(**{name: value}))
    has_versions = codec.name == "anthropic" and name in ("temperature", "top_p")
    known = (*codec.model("http://127.0.0.1:9").support.settings, "timeout")  # pyright: ignore
    if name not in known or has_versions:
        with pytest.raises(InvalidRequest, match=f"takes no {name}"):
            await asked(codec, request)
        return
    async with WireServer(codec.answer(Script([Says(["ok"])]))) as server:
        model = codec.model(server.url)
        await listen(model, request)
        await model.close()  # pyright: ignore[reportAttributeAccessIssue]
    assert holds(flat(server.requests[0].body), flat(places.get(codec.name, {})))
    if name == "headers":
        assert server.requests[0].headers["x-team"] == "blue"


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (
            "required",
            {"openai": "required", "openai-chat": "required", "anthropic": {"type": "any"}, "google": "ANY"},
        ),
        ("none", {"openai": "none", "openai-chat": "none", "anthropic": {"type": "none"}, "google": "NONE"}),
        ("auto", {"openai": "auto", "openai-chat": "auto", "anthropic": {"type": "auto"}, "google": "AUTO"}),
    ],
)
async def test_tool_choice_has_the_vendors_word(codec: Codec, choice: str, expected: dict[str, Any]) -> None:
    request = ModelRequest("", history(), [LOOK], ModelSettings(tool_choice=choice))
    if codec.name == "bedrock":
        if choice == "none":
            with pytest.raises(InvalidRequest, match="no tool_choice 'none'"):
                await asked(codec, request)
        else:
            found = (await asked(codec, request))["toolConfig"]["toolChoice"]
            assert found == {"required": {"any": {}}, "auto": {"auto": {}}}[choice]
        return
    body = await asked(codec, request)
    found = body["toolConfig"]["functionCallingConfig"]["mode"] if codec.name == "google" else body["tool_choice"]
    assert found == expected[codec.name]


async def test_tool_choice_of_an_unknown_tool_is_refused(codec: Codec) -> None:
    with pytest.raises(InvalidRequest, match="'lok' is no tool of the request"):
        await asked(codec, ModelRequest("", history(), [LOOK], ModelSettings(tool_choice="lok")))


async def test_tool_choice_without_tools_isnt_sent(codec: Codec) -> None:
    body = await asked(codec, ModelRequest("", history(), settings=ModelSettings(tool_choice="auto")))
    assert not {"tool_choice", "toolConfig"} & set(body)
    with pytest.raises(InvalidRequest, match="needs tools"):
        await asked(codec, ModelRequest("", history(), settings=ModelSettings(tool_choice="required")))
