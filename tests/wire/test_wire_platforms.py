"""Claude on Vertex and Bedrock, and Gemini on Vertex: addresses, credentials and formats of the platforms.

Sources: the pages "Claude on Vertex AI" and "Claude on Amazon Bedrock (legacy)", the SDK's clients, and Vertex
AI's reference of `streamGenerateContent`.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from test_wire_anthropic_answers import CASES, message, sent, streamed
from wire_bedrock import frame
from wire_google import Google
from wire_script import Says, Script
from wire_server import Reply, WireServer
from wire_suite import HELLO, listen

from wakeful.errors import BadCredentials, ConfigurationError
from wakeful.models import ModelRegistry
from wakeful.models.anthropic import AnthropicBedrockModel, AnthropicVertexModel
from wakeful.models.google import GoogleVertexModel

CALL = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "sky"}}
EVENTS = streamed(message({"type": "text", "text": "Tea."}, *CASES["web search"][0], CALL, stop="tool_use"))


def framed(events: list[dict[str, Any]]) -> Reply:
    """The events in AWS's binary frames."""
    pieces = [
        frame(
            {":event-type": "chunk", ":content-type": "application/json", ":message-type": "event"},
            {"bytes": base64.b64encode(json.dumps(event).encode()).decode()},
        )
        for event in events
    ]
    return Reply(pieces, headers={"content-type": "application/vnd.amazon.eventstream"})


async def test_claude_on_vertex_has_its_address_and_token() -> None:
    async with WireServer(Reply([sent(EVENTS)], headers={"content-type": "text/event-stream"})) as server:
        model = AnthropicVertexModel(
            "claude-sonnet-5", region="global", project="p", access_token="ya29.t", base_url=f"{server.url}/v1"
        )
        found = await listen(model, HELLO)
        await model.close()
    (request,) = server.requests
    assert request.path.endswith(
        "/projects/p/locations/global/publishers/anthropic/models/claude-sonnet-5:streamRawPredict"
    )
    assert request.headers["authorization"] == "Bearer ya29.t"
    assert "anthropic_version" in request.body
    assert (found.calls, found.parts[-1].name) == ([("look", {"at": "sky"})], "web_search")


async def test_claude_on_bedrock_has_its_address_and_frames() -> None:
    name = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
    async with WireServer(framed(EVENTS)) as server:
        model = AnthropicBedrockModel(name, region="us-east-1", api_key="k1", base_url=server.url)
        found = await listen(model, HELLO)
        await model.close()
    (request,) = server.requests
    assert request.path.endswith("/invoke-with-response-stream")
    assert request.headers["authorization"] == "Bearer k1"
    assert "anthropic_version" in request.body
    assert (found.texts, found.calls, found.stop) == (["Te", "a."], [("look", {"at": "sky"})], "tool_use")


async def test_gemini_on_vertex_has_its_address_and_token() -> None:
    from google.oauth2.credentials import Credentials

    credentials: Any = Credentials("ya29.t")  # pyright: ignore[reportUnknownVariableType]
    async with WireServer(Google().answer(Script([Says(["Tea."])]))) as server:
        model = GoogleVertexModel(
            "gemini-3.8-flash", project="p", location="global", credentials=credentials, base_url=server.url
        )
        found = await listen(model, HELLO)
        await model.close()
    assert "/projects/p/locations/global/publishers/google/models/gemini-3.8-flash" in server.requests[0].path
    assert server.requests[0].headers["authorization"] == "Bearer ya29.t"
    assert found.texts == ["Tea."]


async def test_vertex_without_a_region_says_how(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLOUD_ML_REGION", raising=False)
    with pytest.raises(ConfigurationError, match="CLOUD_ML_REGION"):
        await listen(AnthropicVertexModel("claude-sonnet-5"), HELLO)


async def test_missing_credentials_say_how(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_BEARER_TOKEN_BEDROCK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    with pytest.raises(BadCredentials, match="AWS_ACCESS_KEY_ID"):
        await listen(AnthropicBedrockModel("anthropic.claude-x", region="us-east-1"), HELLO)
    with pytest.raises(BadCredentials, match="gcloud auth"):
        await listen(AnthropicVertexModel("claude-sonnet-5", region="global", project="p"), HELLO)


@pytest.mark.parametrize("vendor", ["anthropic-vertex", "anthropic-bedrock", "google-vertex"])
def test_platform_is_a_vendor_with_facts(vendor: str) -> None:
    name = "gemini-2.5-pro" if vendor == "google-vertex" else "claude-sonnet-4-5"
    registry = ModelRegistry()
    model = registry.resolve(f"{vendor}:{name}")
    assert model.name == f"{vendor}:{name}"
    assert registry.facts_of(model) is not None
