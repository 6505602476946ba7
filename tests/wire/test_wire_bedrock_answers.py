"""Every block, delta and stop reason of Converse, streamed and whole.

Sources: the service model of `bedrock-runtime` in botocore (ConverseStreamOutput, ContentBlock, Citation,
StopReason, TokenUsage), and the guides "Nova system tools" and "Guardrails with Converse".
"""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from msgspec.structs import replace
from wire_bedrock import STREAM, Bedrock, event
from wire_mutations import mutate
from wire_script import json_reply
from wire_server import Reply, WireServer
from wire_suite import HELLO, Heard, asked, listen

from wakeful import Text
from wakeful.errors import ContentFiltered, InvalidRequest, ModelError, StreamBroken
from wakeful.models import CodeExecution, ModelRequest, WebSearch
from wakeful.models.bedrock import BedrockModel
from wakeful.types import ServerTool
from wakeful.types.messages import user_message
from wakeful.types.runs import Usage

USAGE = {
    "inputTokens": 9,
    "outputTokens": 4,
    "totalTokens": 113,
    "cacheReadInputTokens": 80,
    "cacheWriteInputTokens": 20,
}
Events = list[tuple[str, dict[str, Any]]]


def block(index: int, start: dict[str, Any] | None, *deltas: dict[str, Any]) -> Events:
    at = {"contentBlockIndex": index}
    begun: Events = [] if start is None else [("contentBlockStart", {**at, "start": start})]
    return [*begun, *[("contentBlockDelta", {**at, "delta": delta}) for delta in deltas], ("contentBlockStop", at)]


def answer(*blocks: Events, stop: str = "end_turn", **metadata: Any) -> Events:
    end: Events = [("messageStop", {"stopReason": stop}), ("metadata", {"usage": USAGE, **metadata})]
    return [("messageStart", {"role": "assistant"}), *[each for one in blocks for each in one], *end]


def reply(events: Events) -> Reply:
    return Reply([event(kind, payload) for kind, payload in events], headers=dict(STREAM))


async def read(given: Reply) -> Heard:
    async with WireServer(given) as server:
        model = Bedrock().model(server.url)
        try:
            return await listen(model, HELLO)
        finally:
            await model.close()  # pyright: ignore[reportAttributeAccessIssue]


USE = {"toolUseId": "t1", "name": "nova_grounding", "type": "server_tool_use"}
RESULT = {"toolUseId": "t1", "type": "nova_grounding_result", "status": "success"}
CITED = {"title": "Tea", "location": {"web": {"url": "https://tea.example", "domain": "tea.example"}}}


async def test_system_tool_is_content_with_citations() -> None:
    found = await read(
        reply(
            answer(
                block(0, {"toolUse": USE}, {"toolUse": {"input": '{"query":'}}, {"toolUse": {"input": '"tea"}'}}),
                block(1, {"toolResult": RESULT}, {"toolResult": [{"json": {"n": 1}}]}),
                block(2, None, {"text": "Tea "}),
                block(3, None, {"text": "is green"}, {"citation": CITED}),
                stop="tool_use",
            )
        )
    )
    begun, called, tool, cited = found.parts
    assert isinstance(tool, ServerTool)
    assert [begun.status, called.status, tool.status] == ["running", "running", "done"]
    assert (tool.name, tool.input, tool.result) == ("web_search", {"query": "tea"}, [{"json": {"n": 1}}])
    assert (cited.url, cited.start, cited.end, found.stop) == ("https://tea.example", 4, 12, "end_turn")
    history = [*HELLO.messages, Heard.of([tool, Text("Tea.")]), user_message("Sure?")]
    sent = (await asked(Bedrock(), ModelRequest("", history)))["messages"][1]["content"]
    assert sent[0]["toolUse"] == {**USE, "input": {"query": "tea"}}
    assert sent[1]["toolResult"] == {**RESULT, "content": [{"json": {"n": 1}}]}


@pytest.mark.parametrize(
    ("location", "kind", "source"),
    [
        ({"documentChar": {"documentIndex": 0, "start": 1, "end": 5}}, "document", "0"),
        ({"documentPage": {"documentIndex": 1, "start": 1, "end": 2}}, "document", "1"),
        ({"documentChunk": {"documentIndex": 2, "start": 1, "end": 2}}, "document", "2"),
        ({"searchResultLocation": {"searchResultIndex": 3, "start": 0, "end": 1}}, "search", "3"),
    ],
)
async def test_citation_has_its_location(location: Any, kind: str, source: str) -> None:
    raw = {"title": "T", "sourceContent": [{"text": "Green."}], "location": location}
    (found,) = (await read(reply(answer(block(0, None, {"text": "So."}, {"citation": raw}))))).parts
    assert (found.kind, found.source, found.quote, found.end) == (kind, source, "Green.", 3)


async def test_usage_includes_the_caches() -> None:
    assert (await read(reply(answer(block(0, None, {"text": "So"}))))).usage == Usage(109, 4, 80, 20)


@pytest.mark.parametrize(
    ("stop", "error", "said"),
    [
        ("guardrail_intervened", ContentFiltered, "Blocked topic"),
        ("content_filtered", ContentFiltered, "content_filtered"),
        ("malformed_model_output", StreamBroken, "malformed"),
        ("malformed_tool_use", StreamBroken, "malformed"),
    ],
)
async def test_abnormal_end_is_an_error_with_usage(stop: str, error: type[ModelError], said: str) -> None:
    found, trace = Heard(), {"guardrail": {"actionReason": "Blocked topic"}}
    async with WireServer(reply(answer(block(0, None, {"text": "So"}), stop=stop, trace=trace))) as server:
        model = Bedrock().model(server.url)

        async def collect() -> None:
            async for chunk in model.stream(HELLO):
                found.add(chunk)

        with pytest.raises(error, match=said):
            await collect()
        await model.close()  # pyright: ignore[reportAttributeAccessIssue]
    assert found.usage == Usage(109, 4, 80, 20)


async def test_whole_answer_is_read() -> None:
    content = [
        {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "sig"}}},
        {"reasoningContent": {"redactedContent": "Z0FB"}},
        {"text": "I look. "},
        {"citationsContent": {"content": [{"text": "Green."}], "citations": [CITED]}},
        {"toolUse": {"toolUseId": "c1", "name": "look", "input": {"at": "sky"}}},
    ]
    body = {
        "output": {"message": {"role": "assistant", "content": content}},
        "stopReason": "tool_use",
        "usage": USAGE,
    }
    found = await read(json_reply(200, body))
    assert ("".join(found.texts), found.calls, found.stop) == (
        "I look. Green.",
        [("look", {"at": "sky"})],
        "tool_use",
    )
    assert [part.start for part in found.parts] == [8]
    assert found.usage == Usage(109, 4, 80, 20)


@pytest.mark.parametrize("reason", ["tool_use", "odd"])
async def test_end_that_has_no_content_by_mistake_is_an_error(reason: str) -> None:
    with pytest.raises(StreamBroken, match=f"for the reason '{reason}'"):
        await read(reply(answer(stop=reason)))


async def test_completed_answer_may_be_empty() -> None:
    found = await read(reply(answer()))
    assert (found.texts, found.stop, found.usage.output_tokens) == ([], "end_turn", 4)


async def test_system_messages_are_instructions_or_marked() -> None:
    first, later = (replace(user_message(text), role="system") for text in ("Be kind.", "Be brief."))
    messages = [first, user_message("Hi"), Heard.of([Text("Yes?")]), later, user_message("Why?")]
    body = await asked(Bedrock(), ModelRequest("You sell tea.", messages))
    assert body["system"][0] == {"text": "You sell tea.\n\nBe kind."}
    assert body["messages"][2]["content"][:2] == [{"text": "<system>\nBe brief.\n</system>"}, {"text": "Why?"}]


async def test_conversation_begins_with_the_user() -> None:
    body = await asked(Bedrock(), ModelRequest("", [Heard.of([Text("Welcome.")]), user_message("Hi")]))
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]


async def test_system_tools_are_switched_on_for_nova() -> None:
    async with WireServer(*[reply(answer(block(0, None, {"text": "So"})))] * 2) as server:
        nova = BedrockModel("us.amazon.nova-2-lite-v1:0", base_url=server.url, api_key="k", region="us-east-1")
        tools = [WebSearch(), CodeExecution()]
        await listen(nova, ModelRequest("", HELLO.messages, server_tools=tools))
        with pytest.raises(InvalidRequest, match="no max_uses"):
            await listen(nova, ModelRequest("", HELLO.messages, server_tools=[WebSearch(max_uses=1)]))
        await nova.close()
    found = server.requests[0].body["toolConfig"]["tools"]
    assert [tool["systemTool"]["name"] for tool in found] == ["nova_grounding", "nova_code_interpreter"]


RICH = answer(
    block(0, None, {"reasoningContent": {"text": "Hm."}}, {"reasoningContent": {"signature": "s"}}),
    block(1, {"toolUse": USE}, {"toolUse": {"input": '{"query":"tea"}'}}),
    block(2, {"toolResult": RESULT}, {"toolResult": [{"text": "x"}]}),
    block(3, None, {"text": "é"}, {"citation": CITED}),
    block(4, {"toolUse": {"toolUseId": "c1", "name": "look"}}, {"toolUse": {"input": "{}"}}),
    stop="tool_use",
)


async def test_every_mutation_is_read_or_a_typed_error() -> None:
    chance = random.Random(7)
    async with WireServer(answer=lambda _: reply(some)) as server:
        model = Bedrock().model(server.url)
        for _ in range(80):
            payloads = json.loads(json.dumps([payload for _, payload in RICH]))
            mutate(payloads, chance)
            some = [(kind, payload) for (kind, _), payload in zip(RICH, payloads, strict=False)]
            try:
                await listen(model, HELLO)
            except ModelError:
                pass
        await model.close()  # pyright: ignore[reportAttributeAccessIssue]
