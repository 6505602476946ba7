"""Gemini's specifics: signatures on calls, Vertex, named quotas, media in answers."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from wire_google import Google
from wire_script import Calls, Says, Script, json_reply, sse
from wire_server import Reply, WireServer
from wire_suite import HELLO, IMAGE, LOOK, Heard, ask, asked, listen

from wakeful import Agent, Image, Runtime, tool
from wakeful.errors import InvalidRequest, RateLimited, StreamBroken
from wakeful.models import ModelRequest, forbid_live_models
from wakeful.models.google import GoogleModel
from wakeful.types.content import Base64, Logprob, Logprobs, Text, Thinking, ToolCall
from wakeful.types.messages import user_message
from wakeful.types.requests import ModelSettings, OutputSpec

GOOGLE = Google()
SIGNATURE = base64.b64encode(b"\x12\xf3signed").decode()


def events(*parts: dict[str, Any], stop: str = "STOP") -> Reply:
    contents = [{"candidates": [{"content": {"role": "model", "parts": [part]}}]} for part in parts]
    return Reply([sse(e) for e in [*contents, {"candidates": [{"finishReason": stop}]}]])


async def test_signature_is_sent_back_with_its_part() -> None:
    @tool
    async def look(at: str) -> str:
        return "blue"

    call = {"functionCall": {"name": "look", "args": {"at": "sky"}}, "thoughtSignature": SIGNATURE}
    other = {"functionCall": {"name": "look", "args": {"at": "sea"}}}
    said = [{"text": "Bl"}, {"text": "ue."}, {"text": "", "thoughtSignature": SIGNATURE}]
    was = forbid_live_models(False)
    try:
        async with WireServer(events(call, other), events(*said), events({"text": "Yes."})) as server:
            agent = Agent("a", model=GOOGLE.model(server.url), tools=[look])
            async with Runtime([agent]) as runtime:
                assert (await runtime.run("a", "Look!", thread="t")).text == "Blue."
                await runtime.run("a", "Sure?", thread="t")
            bodies = [request.body for request in server.requests]
    finally:
        forbid_live_models(was)
    first, second = bodies[1]["contents"][1]["parts"]
    assert first["thoughtSignature"] == SIGNATURE
    assert "thoughtSignature" not in second
    _, call_turn, _, answer, _ = bodies[2]["contents"]
    assert call_turn["parts"][0]["thoughtSignature"] == SIGNATURE
    assert answer["parts"] == [{"text": "Blue."}, {"text": "", "thoughtSignature": SIGNATURE}]


@pytest.mark.parametrize(("model", "marked"), [("gemini-3.8-flash", True), ("gemini-2.5-pro", False)])
async def test_call_of_another_vendor_gets_a_placeholder_signature(model: str, marked: bool) -> None:
    foreign = Heard.of(
        [Thinking("hm", "sig", None, "anthropic"), ToolCall("1", "look", {}), ToolCall("2", "look", {})]
    )
    async with WireServer(GOOGLE.answer(Script([Says(["ok"])]))) as server:
        gemini = GoogleModel(model, base_url=server.url, api_key="k")
        await listen(gemini, ModelRequest("", [user_message("go"), foreign], [LOOK]))
        await gemini.close()
    parts = server.requests[0].body["contents"][1]["parts"]
    assert len(parts) == 2, "the other vendor's reasoning is its own"
    signatures = [base64.b64decode(part.get("thoughtSignature", "")) for part in parts]
    assert signatures == [b"skip_thought_signature_validator" if marked else b"", b""]


async def test_vertex_uses_a_token_for_the_project() -> None:
    from google.auth.credentials import Credentials

    class Token(Credentials):
        def refresh(self, request: Any) -> None:
            raise AssertionError("it is valid")

    token = Token()  # pyright: ignore[reportAbstractUsage]
    token.token = "ya29.secret"
    async with WireServer(GOOGLE.answer(Script([Says(["ok"])]))) as server:
        gemini = GoogleModel(
            "gemini-3.8-flash", project="p", location="europe-west4", credentials=token, base_url=server.url
        )
        heard = await listen(gemini, HELLO)
        await gemini.close()
    assert heard.texts == ["ok"]
    path = "/v1beta1/projects/p/locations/europe-west4/publishers/google/models/gemini-3.8-flash"
    assert server.requests[0].path == f"{path}:streamGenerateContent?alt=sse"
    assert server.requests[0].headers["authorization"] == "Bearer ya29.secret"
    assert "secret" not in repr(gemini)


async def test_google_retry_delay_is_read_from_the_body() -> None:
    error = {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "You exceeded your current quota"}
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "12.5s"}]
    async with WireServer(json_reply(429, {"error": {**error, "details": details}})) as server:
        model = GOOGLE.model(server.url)
        with pytest.raises(RateLimited) as raised:
            await listen(model, HELLO)
        await model.close()  # pyright: ignore[reportAttributeAccessIssue]
    assert raised.value.retry_after == 12.5
    assert raised.value.transient


async def test_google_malformed_answer_is_transient() -> None:
    async with WireServer(events({"text": "I"}, stop="MALFORMED_FUNCTION_CALL")) as server:
        model = GOOGLE.model(server.url)
        with pytest.raises(StreamBroken, match="MALFORMED_FUNCTION_CALL"):
            await listen(model, HELLO)
        await model.close()  # pyright: ignore[reportAttributeAccessIssue]


async def test_google_image_in_the_answer_is_a_part() -> None:
    picture = {"inlineData": {"mimeType": "image/png", "data": IMAGE}}
    async with WireServer(events({"text": "Here:"}, picture)) as server:
        model = GOOGLE.model(server.url)
        heard = await listen(model, HELLO)
        await model.close()  # pyright: ignore[reportAttributeAccessIssue]
    assert heard.parts == [Image(Base64("image/png", IMAGE))]


@pytest.mark.parametrize(
    ("model", "reasoning", "expected"),
    [
        ("gemini-3.8-flash", "high", {"thinkingLevel": "HIGH"}),
        ("gemini-3.8-flash", 512, {"thinkingBudget": 512}),
        ("gemini-2.5-flash", "medium", {"thinkingBudget": 8192}),
        ("gemini-2.5-flash", "none", {"thinkingBudget": 0}),
    ],
)
async def test_google_reasoning_is_a_level_or_a_budget(
    model: str, reasoning: Any, expected: dict[str, Any]
) -> None:
    async with WireServer(GOOGLE.answer(Script([Says(["ok"])]))) as server:
        gemini = GoogleModel(model, base_url=server.url, api_key="k")
        await listen(gemini, ModelRequest("", HELLO.messages, settings=ModelSettings(reasoning=reasoning)))
        await gemini.close()
    config = server.requests[0].body["generationConfig"]["thinkingConfig"]
    snake = {"thinkingLevel": "thinking_level", "thinkingBudget": "thinking_budget"}
    assert {key: config.get(key, config.get(snake[key])) for key in expected} == expected


async def test_google_unknown_effort_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="no reasoning 'extreme'"):
        await asked(GOOGLE, ModelRequest("", HELLO.messages, settings=ModelSettings(reasoning="extreme")))


async def test_google_older_models_with_tools_get_instructions() -> None:
    output = OutputSpec("output", {"type": "object", "properties": {"a": {"type": "string"}}})
    async with WireServer(GOOGLE.answer(Script([Says(["ok"])]))) as server:
        gemini = GoogleModel("gemini-2.5-flash", base_url=server.url, api_key="k")
        await listen(gemini, ModelRequest("Be brief.", HELLO.messages, [LOOK], output=output))
        await gemini.close()
    seen = GOOGLE.read(server.requests[0].body)
    assert seen.output is None
    assert "JSON schema" in seen.system


async def test_google_extra_settings_are_sent() -> None:
    extra = {"safety_settings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "OFF"}]}
    body = await asked(GOOGLE, ModelRequest("", HELLO.messages, [LOOK], ModelSettings(extra=extra)))
    assert body["safetySettings"] == extra["safety_settings"]


async def test_google_call_without_id_is_read() -> None:
    heard, _ = await ask(GOOGLE, Script([Calls("look", ["{}"], id="")], stop="tool_use"))
    assert heard.calls == [("look", {})]
    assert isinstance(heard.message().content[0], ToolCall | Text)


async def test_google_stop_reason_in_every_response_is_accepted() -> None:
    said = [{"candidates": [{"content": {"parts": [{"text": t}]}, "finishReason": "STOP"}]} for t in ("Bl", "ue.")]
    pieces = [sse(event) for event in said]
    async with WireServer(Reply(pieces), Reply(pieces, ends="cut", cut_at=len(pieces[0]))) as server:
        model = GOOGLE.model(server.url)
        assert (await listen(model, HELLO)).texts == ["Bl", "ue."]
        with pytest.raises(StreamBroken):
            await listen(model, HELLO)
        await model.close()  # pyright: ignore[reportAttributeAccessIssue]


async def test_google_logprobs_are_a_part() -> None:
    found = {
        "chosenCandidates": [{"token": "Blue", "tokenId": 5, "logProbability": -0.25}],
        "topCandidates": [
            {"candidates": [{"token": "Blue", "logProbability": -0.25}, {"token": "Red", "logProbability": -2}]}
        ],
    }
    candidate = {"content": {"parts": [{"text": "Blue"}]}, "finishReason": "STOP", "logprobsResult": found}
    async with WireServer(Reply([sse({"candidates": [candidate]})])) as server:
        model = GOOGLE.model(server.url)
        heard = await listen(model, HELLO)
        await model.close()  # pyright: ignore[reportAttributeAccessIssue]
    assert heard.parts == [Logprobs((Logprob("Blue", -0.25, (("Blue", -0.25), ("Red", -2.0))),))]
