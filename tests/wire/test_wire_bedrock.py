"""Bedrock's specifics: AWS signatures, frames with checksums, model families, document names."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest
from wire_bedrock import Bedrock
from wire_script import Calls, Says, Script
from wire_server import Reply, WireServer
from wire_suite import DOCUMENT, HELLO, LOOK, RESULT, asked, history, listen

from wakeful.errors import ConfigurationError, InvalidRequest, StreamBroken
from wakeful.models import ModelRequest
from wakeful.models.bedrock import BedrockModel
from wakeful.models.bedrock.settings import family_of, supports_cache, supports_schemas
from wakeful.types.content import Base64, Document, Image, Text, ToolCall, Url
from wakeful.types.messages import user_message
from wakeful.types.requests import ModelSettings, OutputSpec

BEDROCK = Bedrock()


async def sent(model: str, request: ModelRequest = HELLO, **options: Any) -> Any:
    async with WireServer(BEDROCK.answer(Script([Says(["ok"])]))) as server:
        made = BedrockModel(model, **{"base_url": server.url, "api_key": "k", "region": "us-east-1", **options})
        await listen(made, request)
        await made.close()
    BEDROCK.check(server.requests[0].body)
    return server.requests[0]


async def test_bedrock_request_is_signed_with_aws_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_BEARER_TOKEN_BEDROCK", raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    request = await sent("amazon.nova-lite-v1:0", api_key=None, headers={"x-team": "blue"})
    assert request.headers["authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKIAEXAMPLE/")
    assert request.headers["x-team"] == "blue"
    assert request.path == "/model/amazon.nova-lite-v1%3A0/converse-stream"


async def test_bedrock_key_is_sent_as_a_token() -> None:
    request = await sent("amazon.nova-lite-v1:0", api_key="abc")
    assert request.headers["authorization"] == "Bearer abc"


async def test_bedrock_missing_region_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    with pytest.raises(ConfigurationError, match="AWS_REGION"):
        await listen(BedrockModel("amazon.nova-lite-v1:0", api_key="k"), HELLO)


@pytest.mark.parametrize("place", [6, 40, -1])
async def test_bedrock_wrong_checksum_breaks_the_stream(place: int) -> None:
    whole = BEDROCK.answer(Script([Says(["Hel", "lo"])]))
    pieces = list(whole.pieces)
    bad = bytearray(pieces[2])
    bad[place] ^= 0xFF
    async with WireServer(replace(whole, pieces=[*pieces[:2], bytes(bad), *pieces[3:]])) as server:
        model = BEDROCK.model(server.url)
        with pytest.raises(StreamBroken):
            await listen(model, HELLO)
        await model.close()  # pyright: ignore[reportAttributeAccessIssue]


async def test_bedrock_answers_leave_no_threads() -> None:
    import asyncio

    reply: Reply = BEDROCK.answer(Script([Says(["a", "b"]), Calls("look", ["{}"])], stop="tool_use"))
    async with WireServer(answer=lambda _: reply) as server:
        model = BEDROCK.model(server.url)
        heard = await asyncio.gather(*[listen(model, HELLO) for _ in range(20)])
        await model.close()  # pyright: ignore[reportAttributeAccessIssue]
    assert [h.texts for h in heard] == [["a", "b"]] * 20
    assert not [t for t in threading.enumerate() if t.name == "wakeful-bedrock"]


async def test_bedrock_documents_have_valid_names_and_text() -> None:
    pdf = Base64("application/pdf", DOCUMENT)
    request = ModelRequest(
        "", [user_message([Document(pdf, "Terms & conditions (v2).pdf"), Document(pdf), Document(pdf)])]
    )
    body = await asked(BEDROCK, request)
    blocks = body["messages"][0]["content"]
    assert [b["document"]["name"] for b in blocks if "document" in b] == [
        "Terms conditions (v2) pdf",
        "document",
        "document 2",
    ]
    assert "text" in blocks[0]


@pytest.mark.parametrize(("url", "kind"), [("s3://bucket/cat.jpg", None), ("s3://bucket/cat", "image/jpeg")])
async def test_bedrock_media_may_be_in_s3(url: str, kind: str | None) -> None:
    image = Image(Url(url, kind))
    body = await asked(BEDROCK, ModelRequest("", [user_message([Text("Look"), image])]))
    image_block = body["messages"][0]["content"][1]["image"]
    assert image_block == {"format": "jpeg", "source": {"s3Location": {"uri": url}}}


async def test_bedrock_declares_tools_of_earlier_calls() -> None:
    call = ToolCall("1", "look", {"at": "sky"})
    body = await asked(BEDROCK, ModelRequest("", history(call, RESULT("1", "look"))))
    assert [tool["toolSpec"]["name"] for tool in body["toolConfig"]["tools"]] == ["look"]


@pytest.mark.parametrize(("model", "marks"), [("anthropic.claude-sonnet-5", 2), ("mistral.mistral-large-3", 0)])
async def test_bedrock_cache_is_marked_when_supported(model: str, marks: int) -> None:
    request = await sent(model, ModelRequest("Be brief.", HELLO.messages, [LOOK]))
    assert request.raw.count(b"cachePoint") == marks


@pytest.mark.parametrize(
    ("model", "reasoning", "expected"),
    [
        (
            "anthropic.claude-sonnet-4-5-20250929-v1:0",
            2048,
            {"thinking": {"type": "enabled", "budget_tokens": 2048}},
        ),
        ("global.anthropic.claude-opus-5", "high", {"thinking": {"type": "adaptive"}}),
        ("amazon.nova-2-lite-v1:0", "low", {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "low"}}),
        ("openai.gpt-oss-120b-1:0", "medium", {"reasoning_effort": "medium"}),
    ],
)
async def test_bedrock_reasoning_fits_the_family(model: str, reasoning: Any, expected: Any) -> None:
    request = await sent(model, ModelRequest("", HELLO.messages, settings=ModelSettings(reasoning=reasoning)))
    assert request.body["additionalModelRequestFields"] == expected


async def test_bedrock_unknown_reasoning_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="'fields'"):
        await sent("meta.llama4", ModelRequest("", HELLO.messages, settings=ModelSettings(reasoning="low")))
    settings = ModelSettings(extra={"fields": {"own": 1}})
    request = await sent("meta.llama4", ModelRequest("", HELLO.messages, settings=settings))
    assert request.body["additionalModelRequestFields"] == {"own": 1}


async def test_bedrock_models_without_schemas_get_instructions() -> None:
    output = OutputSpec("output", {"type": "object", "properties": {"a": {"type": "string"}}})
    request = await sent("amazon.nova-lite-v1:0", ModelRequest("", HELLO.messages, output=output))
    assert "outputConfig" not in request.body
    assert "JSON schema" in BEDROCK.read(request.body).system


def test_bedrock_family_is_known_by_the_name() -> None:
    assert family_of("us.anthropic.claude-opus-5") == "anthropic"
    assert family_of("us-gov.amazon.nova-lite-v1:0") == "amazon"
    assert family_of("meta.llama3-1-8b-instruct-v1:0") == "meta"
    assert family_of("arn:aws:bedrock:us-east-1:1:inference-profile/eu.anthropic.claude-opus-5") == "anthropic"
    assert not supports_schemas("anthropic.claude-3-haiku-20240307-v1:0")
    assert supports_schemas("anthropic.claude-opus-4-5-20251101-v1:0")
    assert not supports_cache("anthropic.claude-3-haiku-20240307-v1:0")
