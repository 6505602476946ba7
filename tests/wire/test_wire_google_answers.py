"""Every part, kind of metadata, finish reason and block reason that Gemini documents, streamed and whole.

Sources: the API reference of GenerateContentResponse (Part, GroundingMetadata, UrlContextMetadata,
CitationMetadata, FinishReason, BlockReason), the guides "Grounding with Google Search", "URL context", "Code
execution", "File search", "Function calling" (streamed arguments) and Vertex AI's "Model Armor".
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace
from wire_google import Google
from wire_mutations import mutate
from wire_script import sse
from wire_server import Reply, WireServer
from wire_suite import HELLO, LOOK, Heard, asked, listen

from wakeful import Text
from wakeful.errors import ContentFiltered, InvalidRequest, ModelError, ModelOverloaded, StreamBroken
from wakeful.models import CodeExecution, FileSearch, ImageGeneration, ModelRequest, WebFetch, WebSearch
from wakeful.types import Base64, Citation, Document, Image, ServerTool, Url
from wakeful.types.content import Audio, Unknown
from wakeful.types.messages import user_message
from wakeful.types.runs import Usage

USAGE = {"promptTokenCount": 9, "candidatesTokenCount": 4, "totalTokenCount": 13}


def response(*parts: dict[str, Any], finish: str | None = None, **candidate: Any) -> dict[str, Any]:
    ends = {"finishReason": finish} if finish else {}
    made = {"content": {"role": "model", "parts": list(parts)}, "index": 0, **ends, **candidate}
    return {"candidates": [made], "usageMetadata": USAGE, "responseId": "r1", "modelVersion": "gemini-3.8-flash"}


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"text": value, **more}


Encode = Callable[[list[dict[str, Any]]], Reply]
WAYS: dict[str, Encode] = {
    "stream": lambda events: Reply(
        [sse(event) for event in events], headers={"content-type": "text/event-stream"}
    ),
    "list": lambda events: Reply([json.dumps(events).encode()], headers={"content-type": "application/json"}),
}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Encode:
    return WAYS[request.param]


async def read(encode: Encode, *events: dict[str, Any]) -> Heard:
    async with WireServer(encode(list(events))) as server:
        model = Google().model(server.url)
        try:
            return await listen(model, HELLO)
        finally:
            await model.close()  # pyright: ignore[reportAttributeAccessIssue]


async def test_code_execution_is_a_server_tool(way: Encode) -> None:
    code = {"executableCode": {"language": "PYTHON", "code": "print(1)"}, "thoughtSignature": "c2ln"}
    out = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1\n"}}
    found = await read(way, response(code), response(out), response(text("One."), finish="STOP"))
    begun, done = found.parts
    assert isinstance(done, ServerTool)
    assert (begun.id, begun.status, done.name) == (done.id, "running", "code_execution")
    assert (done.input, done.result, done.status) == (code["executableCode"], out["codeExecutionResult"], "done")
    assert "".join(found.texts) == "One."
    answer = Heard.of([done, Text("One.")])
    body = await asked(Google(), ModelRequest("", [*HELLO.messages, answer, user_message("Sure?")]))
    sent = body["contents"][1]["parts"]
    assert sent[0]["executableCode"]["code"] == "print(1)"
    assert sent[1]["codeExecutionResult"]["outcome"] == "OUTCOME_OK"


async def test_failed_code_execution_is_content(way: Encode) -> None:
    code = {"executableCode": {"language": "PYTHON", "code": "1/0", "id": "x1"}}
    out = {"codeExecutionResult": {"outcome": "OUTCOME_FAILED", "output": "ZeroDivisionError", "id": "x1"}}
    found = await read(way, response(code), response(out, text("It fails."), finish="STOP"))
    assert [(part.id, part.status) for part in found.parts] == [("x1", "running"), ("x1", "failed")]


async def test_shown_calls_of_server_tools_are_content(way: Encode) -> None:
    call = {"toolCall": {"toolType": "GOOGLE_SEARCH_WEB", "args": {"queries": ["tea"]}, "id": "t1"}}
    reply = {"toolResponse": {"toolType": "GOOGLE_SEARCH_WEB", "response": {"n": 1}, "id": "t1"}}
    found = await read(way, response(call), response(reply), response(text("Tea."), finish="STOP"))
    tool = found.parts[-1]
    assert (tool.name, tool.input, tool.result) == ("web_search", {"queries": ["tea"]}, {"n": 1})


GROUNDING = {
    "webSearchQueries": ["tea"],
    "searchEntryPoint": {"renderedContent": "<div>"},
    "groundingChunks": [
        {"web": {"uri": "https://tea.example", "title": "Tea"}},
        {"web": {"uri": "https://cup.example", "title": "Cup"}},
        {"retrievedContext": {"uri": "gs://b/doc", "title": "Doc", "text": "Tea.", "documentName": "d/1"}},
        {"maps": {"uri": "https://maps.example", "title": "Shop", "placeId": "places/1"}},
    ],
    "groundingSupports": [
        {"segment": {"startIndex": 7, "endIndex": 15, "text": "is green"}, "groundingChunkIndices": [0, 2]},
    ],
}


async def test_grounding_is_a_search_with_citations(way: Encode) -> None:
    last = response(text(" green."), finish="STOP", groundingMetadata=GROUNDING)
    found = await read(way, response(text("Té, é is")), last)
    tool, *cited = found.parts
    assert isinstance(tool, ServerTool)
    assert (tool.name, tool.input, tool.result[0]["url"]) == (
        "web_search",
        {"queries": ["tea"]},
        "https://tea.example",
    )
    assert [(one.kind, one.url, one.title) for one in cited] == [
        ("url", "https://tea.example", "Tea"),
        ("document", "gs://b/doc", "Doc"),
        ("url", "https://cup.example", "Cup"),
        ("url", "https://maps.example", "Shop"),
    ]
    said = "".join(found.texts)
    assert found.usage.searches == 1
    assert [said[one.start : one.end] for one in cited[:2]] == ["is green"] * 2
    assert cited[2].start is None


async def test_read_pages_are_a_server_tool(way: Encode) -> None:
    page = {"retrievedUrl": "https://tea.example", "urlRetrievalStatus": "URL_RETRIEVAL_STATUS_SUCCESS"}
    found = await read(way, response(text("Tea."), finish="STOP", urlContextMetadata={"urlMetadata": [page]}))
    (tool,) = found.parts
    assert (tool.name, tool.input, tool.result) == ("web_fetch", {"urls": ["https://tea.example"]}, [page])


@pytest.mark.parametrize("name", ["citations", "citationSources"])
async def test_recited_text_is_cited(way: Encode, name: str) -> None:
    cited = {name: [{"startIndex": 0, "endIndex": 3, "uri": "https://tea.example", "license": "mit"}]}
    (found,) = (await read(way, response(text("Tea."), finish="STOP", citationMetadata=cited))).parts
    assert isinstance(found, Citation)
    assert (found.start, found.end, found.url) == (0, 3, "https://tea.example")


async def test_media_is_read_inside_and_by_url(way: Encode) -> None:
    inside = {"inlineData": {"mimeType": "image/png", "data": "_-8="}}
    outside = {"fileData": {"mimeType": "application/pdf", "fileUri": "https://files/1"}}
    found = await read(way, response(inside, outside), response(text(""), finish="STOP"))
    assert found.parts == [
        Image(Base64("image/png", "/+8=")),
        Document(Url("https://files/1", "application/pdf")),
    ]


async def test_thoughts_other_than_text_are_content(way: Encode) -> None:
    """Models that draw think in images, and models with tools may run code in a thought."""
    ran = {"executableCode": {"language": "PYTHON", "code": "1"}}
    draft = {"inlineData": {"mimeType": "image/png", "data": "QUJD"}}
    given = [text("Hm", thought=True), {**draft, "thought": True}, {**ran, "thought": True}, text("Hi")]
    found = await read(way, response(*given, finish="STOP"))
    assert (found.texts, found.parts[0]) == (["Hi"], Image(Base64("image/png", "QUJD")))
    assert [part.name for part in found.parts[1:] if isinstance(part, ServerTool)] == ["code_execution"] * 2


async def test_completed_answer_may_be_empty(way: Encode) -> None:
    found = await read(way, response(finish="STOP"))
    assert (found.texts, found.stop, found.usage) == ([], "end_turn", Usage(9, 4))


async def test_chunk_of_a_corpus_is_quoted_with_its_pages(way: Encode) -> None:
    chunk = {"text": "Green.", "pageSpan": {"firstPage": 2, "lastPage": 3}}
    grounding = {"groundingChunks": [{"retrievedContext": {"uri": "gs://a", "title": "Tea", "ragChunk": chunk}}]}
    (cited,) = (await read(way, response(text("Hi"), finish="STOP", groundingMetadata=grounding))).parts
    assert isinstance(cited, Citation)
    assert (cited.quote, cited.location) == ("Green.", {"first_page": 2, "last_page": 3})


async def test_transcript_and_unknown_parts_are_content(way: Encode) -> None:
    spoken = {"inlineData": {"mimeType": "audio/wav", "data": "AAAA"}, "audioTranscription": {"text": "Hi"}}
    found = await read(way, response(spoken, {"hologram": {"x": 1}}, finish="STOP"))
    assert found.texts == ["Hi"]
    assert found.parts == [Audio(Base64("audio/wav", "AAAA")), Unknown("hologram", {"hologram": {"x": 1}})]


async def test_streamed_arguments_are_joined(way: Encode) -> None:
    def piece(path: str, **value: Any) -> dict[str, Any]:
        return {"functionCall": {"partialArgs": [{"jsonPath": path, **value}], "willContinue": True}}

    found = await read(
        way,
        response({"functionCall": {"name": "look", "id": "c1", "willContinue": True}, "thoughtSignature": "c2ln"}),
        response(piece("$.at", stringValue="New ", willContinue=True)),
        response(piece("$.at", stringValue="Delhi")),
        response(piece("$.deep.list[0].n", numberValue=1)),
        response(piece("$.deep.list[1]", boolValue=True)),
        response(piece("$.none", nullValue="NULL_VALUE")),
        response({"functionCall": {}}),
        response({"functionCall": {"name": "look", "args": {"at": "sea"}, "id": "c2"}}, finish="STOP"),
    )
    assert found.calls == [
        ("look", {"at": "New Delhi", "deep": {"list": [{"n": 1}, True]}, "none": None}),
        ("look", {"at": "sea"}),
    ]
    assert (found.vendor_ids, found.signatures, found.stop) == (["c1", "c2"], ["c2ln", None], "tool_use")


async def test_thoughts_and_signatures_are_kept(way: Encode) -> None:
    found = await read(
        way,
        response(text("Hm.", thought=True)),
        response(text("Four.")),
        response(text("", thoughtSignature="c2ln"), finish="STOP"),
    )
    assert (found.reasoning, found.texts, found.stop) == (["Hm."], ["Four."], "end_turn")


@pytest.mark.parametrize(
    ("reason", "stop"),
    [("STOP", "end_turn"), ("MAX_TOKENS", "max_tokens"), ("CONTINUATION", "pause_turn"), ("OTHER", "unknown")],
)
async def test_finish_reasons_are_read(way: Encode, reason: str, stop: str) -> None:
    assert (await read(way, response(text("So"), finish=reason))).stop == stop


@pytest.mark.parametrize(
    ("reason", "error"),
    [
        *[
            (name, ContentFiltered)
            for name in ("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "SPII", "MODEL_ARMOR")
        ],
        *[(name, ContentFiltered) for name in ("PROHIBITED_CONTENT", "IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT")],
        *[
            (name, StreamBroken)
            for name in ("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE")
        ],
        *[(name, StreamBroken) for name in ("TOO_MANY_TOOL_CALLS", "NO_IMAGE", "IMAGE_OTHER", "OTHER", "BOREDOM")],
        ("MISSING_THOUGHT_SIGNATURE", InvalidRequest),
    ],
)
async def test_abnormal_end_is_an_error_with_usage(reason: str, error: type[ModelError]) -> None:
    found = Heard()
    async with WireServer(WAYS["stream"]([response(finish=reason, finishMessage="Because.")])) as server:
        model = Google().model(server.url)

        async def collect() -> None:
            async for chunk in model.stream(HELLO):
                found.add(chunk)

        with pytest.raises(error, match=rf"{reason}|Because\."):
            await collect()
        await model.close()  # pyright: ignore[reportAttributeAccessIssue]
    assert found.usage == Usage(9, 4)


@pytest.mark.parametrize(
    "reason", ["SAFETY", "OTHER", "BLOCKLIST", "PROHIBITED_CONTENT", "MODEL_ARMOR", "JAILBREAK"]
)
async def test_blocked_prompt_is_filtered_with_its_words(way: Encode, reason: str) -> None:
    blocked = {
        "promptFeedback": {"blockReason": reason, "blockReasonMessage": "Not this."},
        "usageMetadata": USAGE,
    }
    with pytest.raises(ContentFiltered, match=rf"{reason}.*Not this"):
        await read(way, blocked)


async def test_error_in_a_stream_has_its_words() -> None:
    error = {"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}
    with pytest.raises(ModelOverloaded, match="The model is overloaded"):
        await read(WAYS["stream"], response(text("So")), error)


async def test_usage_is_summed_over_partial_counts(way: Encode) -> None:
    first = {**response(text("a")), "usageMetadata": {"promptTokenCount": 9, "cachedContentTokenCount": 5}}
    counts = {"candidatesTokenCount": 4, "thoughtsTokenCount": 6, "toolUsePromptTokenCount": 100}
    last = {**response(text("b"), finish="STOP"), "usageMetadata": counts}
    assert (await read(way, first, last)).usage == Usage(109, 10, 5, 0, 6)


async def test_other_candidates_are_left_out(way: Encode) -> None:
    both = response(text("one"), finish="STOP")
    both["candidates"].append({"content": {"parts": [text("two")]}, "index": 1, "finishReason": "STOP"})
    assert (await read(way, both)).texts == ["one"]


async def test_system_messages_are_instructions_or_marked() -> None:
    first, later = (replace(user_message(text), role="system") for text in ("Be kind.", "Be brief."))
    messages = [first, user_message("Hi"), Heard.of([Text("Yes?")]), later, user_message("Why?")]
    body = await asked(Google(), ModelRequest("You sell tea.", messages))
    assert body["systemInstruction"]["parts"] == [{"text": "You sell tea.\n\nBe kind."}]
    assert [each["parts"][0]["text"] for each in body["contents"]] == [
        "Hi",
        "Yes?",
        "<system>\nBe brief.\n</system>",
        "Why?",
    ]


async def test_server_tools_are_switched_on() -> None:
    tools = [WebSearch(), WebFetch(), CodeExecution(), FileSearch(("s/1",), 3)]
    body = await asked(Google(), ModelRequest("", HELLO.messages, [LOOK], server_tools=tools))
    found = {name: value for tool in body["tools"] for name, value in tool.items()}
    assert found["googleSearch"] == found["urlContext"] == found["codeExecution"] == {}
    assert [*found["fileSearch"].values()] == [["s/1"], 3]
    assert [*body["toolConfig"].values()] == [True]


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        (ImageGeneration(), "has no ImageGeneration"),
        (WebSearch(max_uses=1), "takes no max_uses"),
        (WebSearch(blocked_domains=("x.example",)), "the SDK refuses the request: exclude_domains"),
        (WebFetch(allowed_domains=("a",)), "takes no allowed_domains"),
    ],
)
async def test_missing_feature_of_a_tool_is_refused(tool: Any, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        await asked(Google(), ModelRequest("", HELLO.messages, server_tools=[tool]))


RICH = [
    response(text("Hm.", thought=True, thoughtSignature="c2ln")),
    response(
        {"executableCode": {"language": "PYTHON", "code": "1"}}, {"codeExecutionResult": {"outcome": "OUTCOME_OK"}}
    ),
    response({"functionCall": {"name": "look", "willContinue": True}}),
    response({"functionCall": {"partialArgs": [{"jsonPath": "$.at[0].x", "stringValue": "é"}]}}),
    response(text("Tea is green."), finish="STOP", groundingMetadata=GROUNDING),
]


@pytest.mark.parametrize("seed", range(3))
async def test_every_mutation_is_read_or_a_typed_error(seed: int) -> None:
    chance = random.Random(seed)
    async with WireServer(answer=lambda _: WAYS["stream"](some)) as server:
        model = Google().model(server.url)
        for _ in range(60):
            some = json.loads(json.dumps(RICH))
            mutate(some, chance)
            try:
                await listen(model, HELLO)
            except ModelError:
                pass
        await model.close()  # pyright: ignore[reportAttributeAccessIssue]


async def test_every_prefix_is_read_or_broken() -> None:
    body = b"".join(sse(event) for event in RICH)
    cuts = iter(range(0, len(body), 29))
    async with WireServer(answer=lambda _: Reply([body[: next(cuts)]], headers=STREAM)) as server:
        model = Google().model(server.url)
        for _ in range(len(body) // 29 - 1):
            with pytest.raises(StreamBroken):
                await listen(model, HELLO)
        await model.close()  # pyright: ignore[reportAttributeAccessIssue]


STREAM = {"content-type": "text/event-stream"}
