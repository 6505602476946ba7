"""Every member of the unions in the vendors' SDKs is content or a typed error, so that a new one is noticed.

The members are made from the SDKs' own types: OpenAI's events, items and annotations, Anthropic's blocks and
citations (also of the beta API), Gemini's parts and reasons, and the shapes of Bedrock's Converse.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any, get_args

import anthropic.types as plain
import anthropic.types.beta as beta
import botocore.session
import openai.types.chat as chat
import openai.types.responses as responses
import pytest
import test_wire_anthropic_answers as claude
import test_wire_bedrock_answers as converse
import test_wire_google_answers as gemini
import test_wire_responses_answers as openai
from google.genai import types as google
from openai.types.responses.response_output_message import Content
from openai.types.responses.response_output_text import Annotation
from test_wire_chat_answers import completion
from wire_bedrock import STREAM, event, frame
from wire_instances import instance, members, shape_value, single
from wire_openai import _chunk
from wire_replay import events, heard, outcome
from wire_server import Reply
from wire_suite import Heard

from wakeful.errors import ContentFiltered, ModelError
from wakeful.models.compatible import CompatibleModel
from wakeful.types.content import Citation

WHOLE = pytest.mark.parametrize("whole", [False, True], ids=["required", "all-fields"])


def has_content(found: Heard | ModelError) -> bool:
    """Whether an answer has anything, or is an error."""
    if isinstance(found, ModelError):
        return True
    thoughts = [part for part in found.message().content if type(part).__name__ == "Thinking"]
    return bool(found.texts or found.reasoning or found._names or found.parts or thoughts)


def stop_of(found: Heard | ModelError) -> str:
    """Why an answer stopped, or the kind of its error."""
    if isinstance(found, ModelError):
        return "filtered" if isinstance(found, ContentFiltered) else "failed"
    return found.stop


# -- the Responses API ---------------------------------------------------------------------------------------

# Events without content: progress, and pieces that the item of the event repeats.
SILENT = (
    *(
        "created",
        "queued",
        "in_progress",
        "audio.done",
        "audio.transcript.done",
        "compaction.compacting",
        "content_part.added",
    ),
    *("reasoning_summary_part.added", "output_item.added", "function_call_arguments.done"),
    *("web_search_call.", "file_search_call.", "code_interpreter_call", "image_generation_call.", "mcp_call"),
    *("mcp_list_tools.", "shell_call_", "custom_tool_call_input."),
)


@WHOLE
@pytest.mark.parametrize("kind", members(get_args(responses.ResponseStreamEvent)[0]), ids=lambda one: one.__name__)
async def test_every_event_of_responses_is_content_or_error(kind: Any, whole: bool) -> None:
    event = instance(kind, whole=whole)
    found = await outcome(openai.make, openai.stream(event, openai.completed()))
    if not event["type"].removeprefix("response.").startswith(SILENT):
        assert has_content(found)


@WHOLE
@pytest.mark.parametrize("kind", members(get_args(responses.ResponseOutputItem)[0]), ids=lambda one: one.__name__)
async def test_every_item_of_responses_is_content(kind: Any, whole: bool) -> None:
    item = instance(kind, whole=whole)
    ways = [
        [openai.done(item), openai.completed()],
        [openai.completed(item)],
        [openai.added(item), openai.done(item), openai.completed(item)],
    ]
    found = [await heard(openai.make, openai.stream(*way)) for way in ways]
    assert all(map(has_content, found))
    assert found[0].said == found[1].said
    assert found[0].said[:3] == found[2].said[:3]


@pytest.mark.parametrize("kind", members(Annotation), ids=lambda one: one.__name__)
async def test_every_annotation_of_responses_is_a_citation(kind: Any) -> None:
    text = {**openai.TEXT, "annotations": [instance(kind, whole=True)]}
    found = await heard(openai.make, openai.stream(openai.completed({**openai.MESSAGE, "content": [text]})))
    assert [type(part) for part in found.parts] == [Citation]


@pytest.mark.parametrize("kind", members(Content), ids=lambda one: one.__name__)
async def test_every_content_of_a_message_is_text(kind: Any) -> None:
    message = {**openai.MESSAGE, "content": [instance(kind, whole=True)]}
    assert (await heard(openai.make, openai.stream(openai.completed(message)))).texts


# -- Chat Completions ----------------------------------------------------------------------------------------

make_chat = partial(CompatibleModel, "m", base_url="http://vendor.test/v1")


@pytest.mark.parametrize(
    "field", [name for name in chat.chat_completion_chunk.ChoiceDelta.model_fields if name != "role"]
)
async def test_every_field_of_a_chat_delta_is_content(field: str) -> None:
    delta = instance(chat.chat_completion_chunk.ChoiceDelta, whole=True)
    found = await outcome(make_chat, events(_chunk({field: delta[field]}), _chunk({}, "stop")))
    assert has_content(found)


@pytest.mark.parametrize("field", [name for name in chat.ChatCompletionMessage.model_fields if name != "role"])
async def test_every_field_of_a_chat_message_is_content(field: str) -> None:
    message = instance(chat.ChatCompletionMessage, whole=True)
    if field == "audio":
        message["audio"]["data"] = "AAAA"
    found = await outcome(make_chat, completion({"content": None, field: message[field]}), kind="application/json")
    assert has_content(found)


@pytest.mark.parametrize(
    "reason", get_args(members(chat.chat_completion_chunk.Choice.model_fields["finish_reason"].annotation)[0])
)
async def test_every_finish_reason_of_chat_is_known(reason: str) -> None:
    found = await outcome(make_chat, events(_chunk({"content": "Hi"}), _chunk({}, reason)))
    assert stop_of(found) == "filtered" if reason == "content_filter" else stop_of(found) != "unknown"


# -- Anthropic -----------------------------------------------------------------------------------------------

BLOCKS = [*members(plain.ContentBlock), *members(beta.BetaContentBlock)]
CITATIONS = [*members(plain.TextCitation), *members(beta.BetaTextCitation)]


@WHOLE
@pytest.mark.parametrize("how", ["streamed", "whole"])
@pytest.mark.parametrize("kind", BLOCKS, ids=lambda one: one.__name__)
async def test_every_block_of_anthropic_is_content(kind: Any, how: str, whole: bool) -> None:
    block = instance(kind, whole=whole)
    found = await claude.read(how, claude.message(block))
    assert has_content(found)


@pytest.mark.parametrize("kind", CITATIONS, ids=lambda one: one.__name__)
async def test_every_citation_of_anthropic_is_read(kind: Any) -> None:
    block = {"type": "text", "text": "Hi", "citations": [instance(kind, whole=True)]}
    found = await claude.read("streamed", claude.message(block))
    assert [(type(part), part.start, part.end) for part in found.parts] == [(Citation, 0, 2)]


@pytest.mark.parametrize("kind", members(beta.BetaRawContentBlockDelta), ids=lambda one: one.__name__)
async def test_every_delta_of_anthropic_is_content(kind: Any) -> None:
    delta = instance(kind, whole=True)
    name = delta["type"].removesuffix("_delta")
    of = {"input_json": "tool_use", "citations": "text", "signature": "thinking"}.get(name, name)
    made = next(made for made in (instance(one, whole=False) for one in BLOCKS) if made["type"] == of)
    empty = {field: "" if field in ("text", "thinking", "signature") else given for field, given in made.items()}
    bare = claude.streamed(claude.message())
    opened = [
        {"type": "content_block_start", "index": 0, "content_block": empty},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
    ]
    assert has_content(await heard(claude.MODEL, claude.sent([*bare[:1], *opened, *bare[2:]])))


@pytest.mark.parametrize("reason", get_args(beta.BetaStopReason))
async def test_every_stop_reason_of_anthropic_is_known(reason: str) -> None:
    found = await outcome(
        claude.MODEL, claude.sent(claude.streamed(claude.message({"type": "text", "text": "Hi"}, stop=reason)))
    )
    assert stop_of(found) == "filtered" if reason == "refusal" else stop_of(found) != "unknown"


# -- Google --------------------------------------------------------------------------------------------------

# What describes a part, and what only requests have.
DESCRIPTIONS = {
    *("media_resolution", "video_metadata", "part_metadata", "media_processing", "speech_metadata", "thought"),
    "function_response",
}


@pytest.mark.parametrize("field", sorted({*google.Part.model_fields} - DESCRIPTIONS))
async def test_every_part_of_gemini_is_content(field: str) -> None:
    part = instance(google.Part, whole=True)
    name = google.Part.model_fields[field].alias or field
    found = await read_gemini(gemini.response({name: part[name]}, finish="STOP"))
    assert has_content(found)


@pytest.mark.parametrize("reason", [one.value for one in google.FinishReason])
async def test_every_finish_reason_of_gemini_is_read(reason: str) -> None:
    empty = await read_gemini(gemini.response(finish=reason))
    given = await read_gemini(gemini.response(gemini.text("Hi"), finish=reason))
    assert isinstance(empty, ModelError) or reason in ("STOP", "MAX_TOKENS", "CONTINUATION")
    assert isinstance(given, ModelError) or given.texts == ["Hi"]


@pytest.mark.parametrize("reason", [one.value for one in google.BlockedReason])
async def test_every_block_reason_of_gemini_is_filtered(reason: str) -> None:
    blocked = {"promptFeedback": {"blockReason": reason, "blockReasonMessage": "too hot"}}
    found = await read_gemini(blocked)
    assert isinstance(found, ContentFiltered)
    assert "too hot" in str(found)


@pytest.mark.parametrize("field", google.GroundingChunk.model_fields)
async def test_every_grounding_chunk_of_gemini_is_a_citation(field: str) -> None:
    chunk = instance(google.GroundingChunk, whole=True)
    name = google.GroundingChunk.model_fields[field].alias or field
    grounding = {"groundingChunks": [{name: chunk[name]}]}
    found = await read_gemini(gemini.response(gemini.text("Hi"), finish="STOP", groundingMetadata=grounding))
    assert isinstance(found, Heard)
    assert [type(part) for part in found.parts] == [Citation]


async def read_gemini(*given: dict[str, Any]) -> Heard | ModelError:
    try:
        return await gemini.read(gemini.WAYS["stream"], *given)
    except ModelError as error:
        return error


# -- Bedrock -------------------------------------------------------------------------------------------------


@cache
def service() -> Any:
    return botocore.session.get_session().get_service_model("bedrock-runtime")


def converse_shape(*path: str) -> Any:
    """A shape of Converse's stream, by the names of its members."""
    shape = service().operation_model("ConverseStream").output_shape.members["stream"]
    for name in path:
        shape = shape.members[name]
    return shape


async def read_converse(reply: Any) -> Heard | ModelError:
    try:
        return await converse.read(reply)
    except ModelError as error:
        return error


@pytest.mark.parametrize("kind", converse_shape("contentBlockDelta", "delta").members)
async def test_every_delta_of_converse_is_content(kind: str) -> None:
    shape = converse_shape("contentBlockDelta", "delta").members[kind]
    starts = converse_shape("contentBlockStart", "start")
    start = single(starts, kind) if kind in starts.members else None
    ways = [shape_value(shape, kind)]
    if getattr(shape, "is_tagged_union", False):
        ways = [single(shape, name) for name in shape.members]
    for given in ways:
        found = await read_converse(converse.reply(converse.answer(converse.block(0, start, {kind: given}))))
        assert has_content(found)


@pytest.mark.parametrize("kind", converse_shape("contentBlockDelta", "delta", "citation", "location").members)
async def test_every_citation_of_converse_is_read(kind: str) -> None:
    cited = shape_value(converse_shape("contentBlockDelta", "delta", "citation"))
    cited["location"] = {kind: cited["location"][kind]}
    found = await read_converse(
        converse.reply(converse.answer(converse.block(0, None, {"text": "Hi"}, {"citation": cited})))
    )
    assert isinstance(found, Heard)
    assert [type(part) for part in found.parts] == [Citation]


@pytest.mark.parametrize("reason", converse_shape("messageStop", "stopReason").enum)
async def test_every_stop_reason_of_converse_is_known(reason: str) -> None:
    found = await read_converse(
        converse.reply(converse.answer(converse.block(0, None, {"text": "Hi"}), stop=reason))
    )
    assert stop_of(found) != "unknown"


@pytest.mark.parametrize("name", [name for name in converse_shape().members if name.endswith("Exception")])
async def test_every_exception_of_converse_is_a_typed_error(name: str) -> None:
    headers = {":exception-type": name, ":content-type": "application/json", ":message-type": "exception"}
    body = [event("messageStart", {"role": "assistant"}), frame(headers, {"message": "too hot"})]
    found = await read_converse(Reply(body, headers=dict(STREAM)))
    assert isinstance(found, ModelError)
    assert "too hot" in str(found)
    assert type(found) is not ModelError


@pytest.mark.parametrize("kind", service().shape_for("ContentBlock").members)
async def test_every_block_of_a_whole_converse_answer_is_content(kind: str) -> None:
    inner = service().shape_for("ContentBlock").members[kind]
    ways = (
        [single(inner, name) for name in inner.members]
        if getattr(inner, "is_tagged_union", False)
        else [shape_value(inner, kind)]
    )
    for given in ways:
        message = {"role": "assistant", "content": [{kind: given}]}
        body = {"output": {"message": message}, "stopReason": "end_turn", "usage": converse.USAGE}
        found = await read_converse(converse.json_reply(200, body))
        if kind not in ("cachePoint", "guardContent"):
            assert has_content(found), given
