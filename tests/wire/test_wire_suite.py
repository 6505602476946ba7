"""The common behaviour of all vendors, in their own wire formats and through their official SDKs."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from wire_script import Calls, Codec, FaultKind, Says, Script, Thinks, json_reply
from wire_server import Reply, WireServer
from wire_suite import (
    AUDIO,
    DOCUMENT,
    HELLO,
    IMAGE,
    LOOK,
    RESULT,
    Heard,
    ask,
    asked,
    history,
    listen,
)
from wire_vendors import VENDORS

from wakeful.errors import (
    BadCredentials,
    ContentFiltered,
    ContextOverflow,
    InvalidRequest,
    ModelError,
    ModelNotFound,
    ModelOverloaded,
    ModelTimeout,
    ModelUnavailable,
    RateLimited,
    StreamBroken,
)
from wakeful.models import Chunk, ModelRequest, WebSearch
from wakeful.types.content import (
    Audio,
    Base64,
    Document,
    Image,
    Text,
    Thinking,
    ToolCall,
    Unknown,
    Url,
    Video,
)
from wakeful.types.messages import user_message
from wakeful.types.requests import ModelSettings, OutputSpec, ToolSpec
from wakeful.types.runs import Usage


@pytest.fixture(params=VENDORS, ids=lambda codec: codec.name)
def codec(request: pytest.FixtureRequest) -> Codec:
    return request.param


def needs(codec: Codec, what: str) -> None:
    if not getattr(codec.can, what):
        pytest.skip(f"{codec.name} has no {what}")


# -- what is heard -------------------------------------------------------------------------------------------


async def test_text_is_streamed_in_chunks(codec: Codec) -> None:
    heard, _ = await ask(codec, Script([Says(["Hel", "lo, ", "wörld ✓"])]))
    assert heard.texts == ["Hel", "lo, ", "wörld ✓"]
    assert heard.stop == "end_turn"


async def test_first_chunk_arrives_before_the_end(codec: Codec) -> None:
    whole = codec.answer(Script([Says(["first", "second"])]))
    async with WireServer(replace(whole, ends="stall", cut_at=_until(whole, b"first"))) as server:
        model = codec.model(server.url)
        stream = model.stream(HELLO)
        async for chunk in stream:
            if getattr(chunk, "text", "") == "first":
                break
        assert not server.gone.is_set()
        await _close(stream, model)


async def test_reasoning_precedes_the_text(codec: Codec) -> None:
    needs(codec, "reasoning")
    script = Script([Thinks(["Let me ", "think."], "sig-1", None), Says(["Four."])])
    if codec.name == "openai":
        script = Script([Thinks(["Let me ", "think."], "rs_1", "gAAA"), Says(["Four."])])
    heard, _ = await ask(codec, script)
    assert "".join(heard.reasoning) == "Let me think."
    assert heard.texts == ["Four."]


async def test_reasoning_is_sent_back_in_a_tool_turn(codec: Codec) -> None:
    needs(codec, "signed_reasoning")
    thoughts = [Thinks(["Let me look."], "sig-1"), Thinks(encrypted="gAAAredacted")]
    if codec.name == "openai":
        thoughts = [Thinks(["Let me look."], "rs_1", "gAAA1"), Thinks([], "rs_2", "gAAA2")]
    first = Script([*thoughts, Calls("look", ['{"at": "sky"}'], id="call_1")], stop="tool_use")
    async with WireServer(codec.answer(first), codec.answer(Script([Says(["Blue."])]))) as server:
        model = codec.model(server.url)
        heard = await listen(model, HELLO)
        answer = heard.message()
        reply = RESULT(answer.calls[0].id, "look")
        await listen(model, ModelRequest("", [*HELLO.messages, answer, reply], [LOOK]))
        await model.close()  # pyright: ignore[reportAttributeAccessIssue]
        body = server.requests[1].body
        codec.check(body)
        seen = codec.read(body)
    assert [value[0] for value in seen.of("thinking")] == ["Let me look.", ""]
    kept = [{value[1], value[2]} - {None} for value in seen.of("thinking")]
    assert kept == [{part.signature, part.encrypted} - {None} for part in thoughts]
    assert seen.of("call")[0][1:] == ("look", {"at": "sky"})


async def test_call_has_name_arguments_and_vendor_id(codec: Codec) -> None:
    script = Script([Says(["I look."]), Calls("look", ['{"at"', ': "sk', 'y"}'], id="call_9")], stop="tool_use")
    heard, _ = await ask(codec, script)
    assert heard.texts == ["I look."]
    assert heard.calls == [("look", {"at": "sky"})]
    assert heard.vendor_ids == ["call_9"]
    assert heard.stop == "tool_use"


async def test_arguments_are_streamed_in_chunks(codec: Codec) -> None:
    needs(codec, "partial_arguments")
    heard, _ = await ask(codec, Script([Calls("look", ['{"at"', ': "sky"}'])], stop="tool_use"))
    assert [piece for piece in heard.pieces if piece] == ['{"at"', ': "sky"}']


async def test_call_without_arguments_is_complete(codec: Codec) -> None:
    heard, _ = await ask(codec, Script([Calls("look", ["{}"])], stop="tool_use"))
    assert heard.calls == [("look", {})]


@pytest.mark.parametrize("interleaved", [False, True])
async def test_parallel_calls_are_separate(codec: Codec, interleaved: bool) -> None:
    needs(codec, "interleaved" if interleaved else "parallel")
    calls = [Calls("look", ['{"at": ', f'"{n}"}}'], id=f"call_{n}") for n in range(3)]
    heard, _ = await ask(codec, Script(calls, stop="tool_use", interleaved=interleaved))
    assert heard.calls == [("look", {"at": str(n)}) for n in range(3)]
    assert heard.vendor_ids == [f"call_{n}" for n in range(3)]


@pytest.mark.parametrize("stop", ["end_turn", "max_tokens"])
async def test_stop_reason_is_reported(codec: Codec, stop: Any) -> None:
    heard, _ = await ask(codec, Script([Says(["…"])], stop=stop))
    assert heard.stop == stop


async def test_filtered_answer_is_an_error(codec: Codec) -> None:
    needs(codec, "filtered_stop")
    with pytest.raises(ContentFiltered, match=codec.name):
        await ask(codec, Script([Says(["Here is how"])], stop="filtered"))


async def test_usage_includes_cached_and_reasoning_tokens(codec: Codec) -> None:
    thoughts = 300 if codec.can.reasoning_tokens else 0
    usage = Usage(input_tokens=1200, output_tokens=340, cached_tokens=1000, reasoning_tokens=thoughts)
    heard, _ = await ask(codec, Script([Says(["ok"])], usage=usage))
    assert heard.usage == usage


# -- what is sent --------------------------------------------------------------------------------------------


async def test_request_has_system_tools_and_conversation(codec: Codec) -> None:
    call = ToolCall("0190-a", "look", {"at": "sky"}, "call_1")
    request = ModelRequest("Be brief.", history(call, RESULT("0190-a", "look", "blue")), [LOOK])
    body = await asked(codec, request)
    seen = codec.read(body)
    assert seen.system == "Be brief."
    assert [name for name, _ in seen.tools] == ["look"]
    assert seen.tools[0][1]["properties"]["at"] == {"type": "string"}
    texts = [value for role, kind, value in seen.parts if role == "user" and kind == "text"]
    assert texts == ["What do you see?", "And now?"]
    (ident, name, arguments), (answered, content) = seen.of("call")[0], seen.of("result")[0]
    assert (name, arguments) == ("look", {"at": "sky"})
    assert ident == answered
    assert content == [("text", "blue")]


async def test_equal_requests_are_equal_bytes(codec: Codec) -> None:
    request = ModelRequest("Be brief.", history(), [LOOK], ModelSettings(max_tokens=99))
    async with WireServer(*[codec.answer(Script([Says(["ok"])]))] * 2) as server:
        model = codec.model(server.url)
        for _ in range(2):
            await listen(model, request)
        await model.close()  # pyright: ignore[reportAttributeAccessIssue]
    assert server.requests[0].raw == server.requests[1].raw


async def test_error_result_is_marked(codec: Codec) -> None:
    call = ToolCall("0190-a", "look", {}, "call_1")
    reply = RESULT("0190-a", "look", "it is dark", error="failed")
    seen = codec.read(await asked(codec, ModelRequest("", history(call, reply))))
    ((_, content),) = seen.of("error") if codec.can.errors_marked else seen.of("result")
    text = "".join(value for _, value in content)
    assert "it is dark" in text
    assert codec.can.errors_marked or "error" in text.lower()


async def test_results_follow_their_calls_in_order(codec: Codec) -> None:
    calls = [ToolCall(f"id-{n}", "look", {"at": str(n)}) for n in range(3)]
    replies = [RESULT(f"id-{n}", "look", f"result {n}") for n in (2, 0, 1)]
    late = user_message("steered in between")
    answer = Heard.of(calls)
    messages = [user_message("go"), answer, replies[0], late, replies[1], replies[2]]
    seen = codec.read(await asked(codec, ModelRequest("", messages)))
    kinds = [kind for _, kind, _ in seen.parts]
    assert kinds == ["text", "call", "call", "call", "result", "result", "result", "text"]
    assert [value[0] for value in seen.of("call")] == [value[0] for value in seen.of("result")]
    assert [value[1] for value in seen.of("result")] == [[("text", f"result {n}")] for n in range(3)]


async def test_unpaired_calls_and_results_are_repaired(codec: Codec) -> None:
    answer = Heard.of([ToolCall("id-0", "look", {})])
    messages = [user_message("go"), answer, RESULT("id-9", "look", "stray"), user_message("well?")]
    seen = codec.read(await asked(codec, ModelRequest("", messages)))
    assert len(seen.of("call")) == len(seen.of("result", "error")) == 1
    assert "stray" not in str(seen)


async def test_blank_texts_and_messages_are_dropped(codec: Codec) -> None:
    messages = [
        user_message("one"),
        Heard.of([Text("  \n"), Text("two")]),
        user_message(""),
        user_message("three"),
        user_message("four"),
    ]
    seen = codec.read(await asked(codec, ModelRequest("", messages)))
    assert [value for _, _, value in seen.parts] == ["one", "two", "three", "four"]


async def test_duplicate_call_ids_are_made_unique(codec: Codec) -> None:
    messages: list[Any] = []
    for n in range(2):
        call = ToolCall(f"0190-{n}", "look", {}, "call_0")
        messages += [user_message("go"), Heard.of([call]), RESULT(call.id, "look", "x")]
    seen = codec.read(await asked(codec, ModelRequest("", [*messages, user_message("on")])))
    ids = [value[0] for value in seen.of("call")]
    assert len(set(ids)) == 2
    assert [value[0] for value in seen.of("result")] == ids


async def test_invalid_call_id_is_replaced(codec: Codec) -> None:
    call = ToolCall("019c8d0e-4a1b-7c00-8abc-0123456789ab", "look", {}, "functions.look:0/" + "x" * 80)
    seen = codec.read(await asked(codec, ModelRequest("", history(call, RESULT(call.id, "look", "x")))))
    ident = seen.of("call")[0][0]
    if codec.name == "vllm":  # Kimi's models need their own ids, such as functions.look:0.
        assert ident == call.vendor_id
        return
    assert len(ident) <= 64
    assert ident.replace("-", "").replace("_", "").isalnum()


async def test_trailing_thinking_is_dropped(codec: Codec) -> None:
    """Vendors refuse thinking at the end, as of an answer that broke off before its text."""
    thought = Thinking("Hm.", "c2ln", "Z0FB", codec.name)
    messages = [user_message("one"), Heard.of([thought]), user_message("two")]
    seen = codec.read(await asked(codec, ModelRequest("", messages)))
    assert [(role, kind, value) for role, kind, value in seen.parts] == [
        ("user", "text", "one"),
        ("user", "text", "two"),
    ]
    messages = [user_message("one"), Heard.of([thought, Text("Well."), thought]), user_message("two")]
    kinds = [kind for _, kind, _ in codec.read(await asked(codec, ModelRequest("", messages))).parts]
    # Google's signatures follow the signed part.
    assert kinds[-2:] == (["thinking", "text"] if codec.name == "google" else ["text", "text"])


@pytest.mark.parametrize(
    ("part", "what"),
    [
        (Image(Base64("image/png", IMAGE)), "images"),
        (Image(Url("https://example.com/cat.png")), "image_urls"),
        (Document(Base64("application/pdf", DOCUMENT), "Terms"), "documents"),
        (Document(Base64("text/plain", "SGVsbG8="), "note.txt"), "documents"),
        (Audio(Base64("audio/wav", AUDIO)), "audio"),
        (Video(Base64("video/mp4", AUDIO)), "video"),
    ],
    ids=["image", "image-url", "pdf", "text-document", "audio", "video"],
)
async def test_media_is_sent_or_refused_by_name(codec: Codec, part: Any, what: str) -> None:
    request = ModelRequest("", [user_message([Text("Look:"), part])])
    if getattr(codec.can, what):
        seen = codec.read(await asked(codec, request))
        assert seen.parts[0][1] == "text"
        assert len(seen.parts) == 2
    else:
        with pytest.raises(InvalidRequest, match=f"takes no {type(part).__name__.lower()}"):
            await asked(codec, request)


@pytest.mark.parametrize(
    ("part", "what"),
    [(Video(Base64("video/mp4", AUDIO)), "video"), (Audio(Base64("audio/wav", AUDIO)), "audio")],
    ids=["video", "audio"],
)
async def test_old_unaccepted_media_becomes_a_placeholder(codec: Codec, part: Any, what: str) -> None:
    call = ToolCall("0190-a", "look", {}, "call_1")
    messages = [
        user_message([Text("Look:"), part]),
        Heard.of([call]),
        RESULT("0190-a", "look", "here:", parts=[part]),
        Heard.of([Text("I see.")]),
        user_message("And now?"),
    ]
    said = str(codec.read(await asked(codec, ModelRequest("", messages))).parts)
    article = "a" if what == "video" else "an"
    assert said.count(f"[{article} {what} was here]") == (0 if getattr(codec.can, what) else 2)


async def test_image_in_a_result_reaches_the_model(codec: Codec) -> None:
    needs(codec, "images_in_results")
    call = ToolCall("0190-a", "look", {}, "call_1")
    reply = RESULT("0190-a", "look", "here:", parts=[Image(Base64("image/png", IMAGE))])
    body = await asked(codec, ModelRequest("", history(call, reply)))
    seen = codec.read(body)
    assert seen.of("result")
    assert IMAGE in str(seen)


async def test_unknown_content_is_not_sent(codec: Codec) -> None:
    request = ModelRequest("", [user_message([Text("hi"), Unknown("hologram", {"x": "secret-stuff"})])])
    assert "secret-stuff" not in str(await asked(codec, request))


async def test_settings_are_sent(codec: Codec) -> None:
    settings = ModelSettings(
        max_tokens=321,
        temperature=0.5 if codec.can.temperature else None,
        top_p=0.9 if codec.can.temperature else None,
        stop=("END",) if codec.can.stop else (),
    )
    seen = codec.read(await asked(codec, ModelRequest("", history(), settings=settings)))
    assert seen.settings["max_tokens"] == 321
    if codec.can.temperature:
        assert (seen.settings["temperature"], seen.settings["top_p"]) == (0.5, 0.9)
    if codec.can.stop:
        assert seen.settings["stop"] == ["END"]


@pytest.mark.parametrize("setting", ["temperature", "stop"])
async def test_unsupported_setting_is_refused_by_name(codec: Codec, setting: str) -> None:
    if getattr(codec.can, setting):
        pytest.skip(f"{codec.name} has {setting}")
    settings = ModelSettings(temperature=0.5) if setting == "temperature" else ModelSettings(stop=("END",))
    with pytest.raises(InvalidRequest, match=setting):
        await asked(codec, ModelRequest("", history(), settings=settings))


async def test_unknown_extra_setting_is_refused_by_name(codec: Codec) -> None:
    async with WireServer() as server:
        model = codec.model(server.url)
        settings = ModelSettings(extra={"service_teir": "auto"})
        with pytest.raises(InvalidRequest, match="'service_teir'"):
            await listen(model, ModelRequest("", history(), settings=settings))
        assert server.requests == []


async def test_body_setting_overrides_the_request(codec: Codec) -> None:
    if codec.name == "bedrock":
        pytest.skip("Bedrock's tools have their own form")
    other = ToolSpec("other", "Another.", LOOK.parameters)
    tools = (await asked(codec, ModelRequest("", history(), [other])))["tools"]
    settings = ModelSettings(body={"tools": tools})
    body = await asked(codec, ModelRequest("", history(), [LOOK], settings))
    assert [name for name, _ in codec.read(body).tools] == ["other"]


async def test_typed_output_uses_the_vendors_feature(codec: Codec) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string"}, "people": {"type": "integer"}},
        "required": ["city", "people"],
    }
    request = ModelRequest("", history(), output=OutputSpec("output", schema))
    body = await asked(codec, request)
    output = codec.read(body).output
    assert output is not None
    assert set(output["properties"]) == {"city", "people"}


async def test_typed_output_of_no_object_uses_instructions(codec: Codec) -> None:
    schema = {"type": "array", "items": {"type": "integer"}}
    seen = codec.read(await asked(codec, ModelRequest("", history(), output=OutputSpec("output", schema))))
    assert seen.output is not None or "JSON schema" in seen.system


async def test_custom_headers_are_sent(codec: Codec) -> None:
    needs(codec, "headers")
    async with WireServer(codec.answer(Script([Says(["ok"])]))) as server:
        model = codec.model(server.url, headers={"x-team": "blue"})
        await listen(model, HELLO)
        await model.close()  # pyright: ignore[reportAttributeAccessIssue]
    assert server.requests[0].headers["x-team"] == "blue"


# -- what goes wrong -----------------------------------------------------------------------------------------

KINDS: list[tuple[FaultKind, type[ModelError], bool]] = [
    ("rate_limited", RateLimited, True),
    ("quota", RateLimited, False),
    ("overloaded", ModelOverloaded, True),
    ("unavailable", ModelUnavailable, True),
    ("timeout", ModelTimeout, True),
    ("bad_key", BadCredentials, False),
    ("forbidden", BadCredentials, False),
    ("not_found", ModelNotFound, False),
    ("overflow", ContextOverflow, False),
    ("filtered", ContentFiltered, False),
    ("invalid", InvalidRequest, False),
]


@pytest.mark.parametrize(("kind", "error", "transient"), KINDS, ids=[kind for kind, *_ in KINDS])
async def test_fault_maps_to_its_error_without_sdk_retries(
    codec: Codec, kind: FaultKind, error: type[ModelError], transient: bool
) -> None:
    reply = codec.fault(kind)
    async with WireServer(reply) as server:
        model = codec.model(server.url)
        with pytest.raises(error) as raised:
            await listen(model, HELLO)
        assert type(raised.value) is error
        assert raised.value.transient is transient
        assert raised.value.status == reply.status
        assert len(server.requests) == 1
        await model.close()  # pyright: ignore[reportAttributeAccessIssue]
    if codec.can.request_ids:
        assert raised.value.request_id == codec.request_id
        assert codec.request_id in str(raised.value)


@pytest.mark.parametrize(
    ("headers", "low", "high"),
    [
        ({"retry-after": "7"}, 7, 7),
        ({"retry-after": "0.25"}, 0.25, 0.25),
        ({"retry-after-ms": "1500"}, 1.5, 1.5),
        ({"retry-after": "DATE"}, 25, 31),
        ({"retry-after": "-3"}, 0, 0),
    ],
    ids=["seconds", "fraction", "milliseconds", "date", "negative"],
)
async def test_retry_after_is_in_seconds(codec: Codec, headers: dict[str, str], low: float, high: float) -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    headers = {name: soon if value == "DATE" else value for name, value in headers.items()}
    async with WireServer(codec.fault("rate_limited", headers)) as server:
        model = codec.model(server.url)
        with pytest.raises(RateLimited) as raised:
            await listen(model, HELLO)
        await model.close()  # pyright: ignore[reportAttributeAccessIssue]
    assert raised.value.retry_after is not None
    assert low <= raised.value.retry_after <= high


@pytest.mark.parametrize("nonsense", ["soon", "", "nan", "inf"])
async def test_invalid_retry_after_is_ignored(codec: Codec, nonsense: str) -> None:
    async with WireServer(codec.fault("rate_limited", {"retry-after": nonsense})) as server:
        model = codec.model(server.url)
        with pytest.raises(RateLimited) as raised:
            await listen(model, HELLO)
        await model.close()  # pyright: ignore[reportAttributeAccessIssue]
    assert raised.value.retry_after is None


async def test_error_within_a_stream_maps_to_its_error(codec: Codec) -> None:
    needs(codec, "errors_in_stream")
    async with WireServer(codec.fault_in_stream(Script([Says(["Hel", "lo"])]), "overloaded")) as server:
        model = codec.model(server.url)
        with pytest.raises(ModelOverloaded) as raised:
            await listen(model, HELLO)
        await model.close()  # pyright: ignore[reportAttributeAccessIssue]
    assert not codec.can.request_ids or raised.value.request_id == codec.request_id


async def test_unreachable_vendor_is_unavailable(codec: Codec) -> None:
    async with WireServer() as server:
        url = server.url
    model = codec.model(url)
    with pytest.raises(ModelUnavailable, match="can't be reached"):
        await listen(model, HELLO)
    await model.close()  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("ends", ["hold", "stall"])
async def test_timeout_is_a_model_timeout(codec: Codec, ends: str) -> None:
    whole = codec.answer(Script([Says(["Hel", "lo"])]))
    reply = replace(whole, hold=True) if ends == "hold" else replace(whole, ends="stall", cut_at=whole.size // 2)
    async with WireServer(reply) as server:
        model = codec.model(server.url, timeout=0.5)
        with pytest.raises(ModelTimeout):
            await listen(model, HELLO)
        await asyncio.wait_for(server.gone.wait(), 120)
        await model.close()  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("when", ["before", "during"])
async def test_cancellation_closes_the_connection(codec: Codec, when: str) -> None:
    whole = codec.answer(Script([Says(["Hel", "lo"])]))
    reply = replace(whole, hold=True) if when == "before" else replace(whole, ends="stall", cut_at=whole.size // 2)
    async with WireServer(reply) as server:
        model = codec.model(server.url)
        task = asyncio.create_task(listen(model, HELLO))
        await asyncio.wait_for(server.stalled.wait(), 120)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.gone.wait(), 120)
        await model.close()  # pyright: ignore[reportAttributeAccessIssue]


async def test_closed_stream_closes_the_connection(codec: Codec) -> None:
    whole = codec.answer(Script([Says(["first", "second"])]))
    async with WireServer(replace(whole, ends="stall", cut_at=_until(whole, b"first"))) as server:
        model = codec.model(server.url)
        stream = model.stream(HELLO)
        async for chunk in stream:
            if getattr(chunk, "text", "") == "first":
                break
        await stream.aclose()  # pyright: ignore[reportAttributeAccessIssue]
        await asyncio.wait_for(server.gone.wait(), 120)
        await model.close()  # pyright: ignore[reportAttributeAccessIssue]


async def test_connection_is_reused(codec: Codec) -> None:
    async with WireServer(*[codec.answer(Script([Says(["ok"])]))] * 3) as server:
        model = codec.model(server.url)
        for _ in range(3):
            await listen(model, HELLO)
        assert server.open == 1
        await model.close()  # pyright: ignore[reportAttributeAccessIssue]
        await asyncio.wait_for(_until_zero(server), 120)


CUT = Script([Says(["Hel", "lo"]), Calls("look", ['{"at": ', '"sky"}'], id="call_1")], stop="tool_use")


@pytest.mark.parametrize("framing", ["chunked", "close"])
async def test_cut_stream_is_never_silently_short(codec: Codec, framing: Any) -> None:
    """Cut at every event boundary, near both ends and in the middle of each event."""
    whole = replace(codec.answer(CUT), framing=framing)
    await _cut_everywhere(codec, whole, "cut", _cuts(whole))


async def test_reset_stream_is_broken_or_complete(codec: Codec) -> None:
    whole = codec.answer(CUT)
    await _cut_everywhere(codec, whole, "reset", _cuts(whole)[::5])


@pytest.mark.long
@pytest.mark.parametrize("framing", ["chunked", "close"])
@pytest.mark.parametrize("ends", ["cut", "reset"])
async def test_stream_cut_at_any_byte_is_broken_or_complete(codec: Codec, framing: Any, ends: Any) -> None:
    whole = replace(codec.answer(CUT), framing=framing)
    await _cut_everywhere(codec, whole, ends, range(0, whole.size + 1, 1 if ends == "cut" else 7))


async def _cut_everywhere(codec: Codec, whole: Reply, ends: Any, cuts: Sequence[int]) -> None:
    expected = await _outcome(codec, whole)
    assert isinstance(expected, Heard)
    broke = 0
    async with WireServer() as server:
        model = codec.model(server.url)
        for cut_at in cuts:
            server.replies.append(replace(whole, ends=ends, cut_at=cut_at))
            try:
                heard = await listen(model, HELLO)
            except (StreamBroken, ModelUnavailable):
                broke += 1
            else:
                assert heard.said == expected.said, f"cut at {cut_at} of {whole.size}"
        await model.close()  # pyright: ignore[reportAttributeAccessIssue]
    assert broke > len(cuts) / 2


async def test_invalid_json_breaks_the_stream(codec: Codec) -> None:
    outcome = await _outcome(codec, codec.odd("malformed"))
    assert type(outcome) is StreamBroken


async def test_two_calls_of_one_index_are_never_merged(codec: Codec) -> None:
    outcome = await _outcome(codec, codec.odd("duplicate_index"))
    if isinstance(outcome, Heard):
        assert [name for name, _ in outcome.calls] == ["look", "look"]
    else:
        assert type(outcome) is StreamBroken


@pytest.mark.parametrize("kind", ["empty", "unknown_event"])
async def test_empty_events_are_ignored(codec: Codec, kind: Any) -> None:
    outcome = await _outcome(codec, codec.odd(kind))
    assert isinstance(outcome, Heard)
    assert "".join(outcome.texts) == "Hello"


PAGE = b"<html><style>p{}</style><body>Sign in to the <b>guest</b> network</body></html>"


@pytest.mark.parametrize(
    ("kind", "body", "said"),
    [
        ("text/html; charset=utf-8", PAGE, "it sent text/html, not a stream (Sign in to the guest network)"),
        ("application/json", b'{"detail": "not here"}', 'it sent application/json, not a stream ({"detail"'),
        ("text/plain", b"", "it sent text/plain, not a stream; the base URL is wrong"),
    ],
    ids=["page", "json", "nothing"],
)
async def test_foreign_server_error_names_its_host(codec: Codec, kind: str, body: bytes, said: str) -> None:
    async with WireServer(Reply([body] if body else [], 200, {"content-type": kind})) as server:
        model = codec.model(server.url)
        with pytest.raises(ModelNotFound) as raised:
            await listen(model, HELLO)
        await model.close()  # pyright: ignore[reportAttributeAccessIssue]
        assert len(server.requests) == 1
        assert f"what answers at 127.0.0.1:{server.port} isn't the vendor's API: {said}" in str(raised.value)
    assert not raised.value.transient
    assert codec.key not in str(raised.value)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"type": "rate_limit_error", "message": "slow down"}, RateLimited),
        ({"code": 401, "message": "who are you?"}, BadCredentials),
        ("something broke", ModelUnavailable),
    ],
    ids=["limited", "key", "unknown"],
)
async def test_error_with_status_200_maps_to_its_error(codec: Codec, error: Any, kind: type[ModelError]) -> None:
    body = json.dumps({"error": error}).encode()
    outcome = await _outcome(codec, Reply([body], 200, {"content-type": "application/json"}))
    assert type(outcome) is kind
    assert (error if isinstance(error, str) else error["message"]) in str(outcome)


async def test_endless_page_is_not_waited_for(codec: Codec) -> None:
    page = Reply([PAGE, PAGE], 200, {"content-type": "text/html"}, ends="stall", cut_at=len(PAGE))
    assert type(await asyncio.wait_for(_outcome(codec, page), 120)) is ModelNotFound


# -- keys ----------------------------------------------------------------------------------------------------


async def test_key_is_never_shown(codec: Codec) -> None:
    async with WireServer(codec.fault("bad_key"), codec.answer(Script([Says(["ok"])]))) as server:
        model = codec.model(server.url)
        with pytest.raises(BadCredentials) as raised:
            await listen(model, HELLO)
        await listen(model, HELLO)
        shown = [repr(model), str(model), str(raised.value), repr(raised.value), model.name]
        shown += [repr(value) for value in vars(model).values()]
        await model.close()  # pyright: ignore[reportAttributeAccessIssue]
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__
    assert not any(codec.key in text for text in shown)


@pytest.mark.parametrize("shown", ["{0}***{1}", "{0}...{1}", "{0}…", "{0}xxxxxxxx{1}", "{0}********"])
async def test_abbreviated_key_is_hidden(codec: Codec, shown: str) -> None:
    masked = shown.format(codec.key[:8], codec.key[-4:])
    error = {"type": "authentication_error", "message": f"Incorrect key provided: {masked}. Get another."}
    outcome = await _outcome(codec, json_reply(401, {"error": error, "message": error["message"]}))
    assert type(outcome) is BadCredentials
    assert codec.key[:8] not in str(outcome)
    assert "Incorrect key provided: ***" in str(outcome)
    assert "Get another." in str(outcome)


async def test_short_key_is_hidden_as_a_word(codec: Codec) -> None:
    error = {"type": "authentication_error", "message": "abc is no key, says abcde"}
    async with WireServer(json_reply(401, {"error": error, "message": error["message"]})) as server:
        model = codec.model(server.url, api_key="abc")
        with pytest.raises(BadCredentials, match=r"\*\*\* is no key, says abcde"):
            await listen(model, HELLO)
        await model.close()  # pyright: ignore[reportAttributeAccessIssue]


async def test_missing_key_is_named_with_its_variable(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    needs(codec, "needs_key")
    for name in (
        "OPENAI_API_KEY",
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "GOOGLE_API_KEY",
        "GEMINI_API_KEY",
        "AWS_BEARER_TOKEN_BEDROCK",
        "AWS_ACCESS_KEY_ID",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    async with WireServer() as server:
        model = codec.model(server.url, api_key=None)
        with pytest.raises(BadCredentials, match=r"_API_KEY|AWS_ACCESS_KEY_ID"):
            await listen(model, HELLO)


# -- helpers -------------------------------------------------------------------------------------------------


async def _outcome(codec: Codec, reply: Reply) -> Heard | ModelError:
    async with WireServer(reply) as server:
        model = codec.model(server.url)
        try:
            return await listen(model, HELLO)
        except ModelError as error:
            return error
        finally:
            await model.close()  # pyright: ignore[reportAttributeAccessIssue]


def _cuts(reply: Reply) -> list[int]:
    cuts: set[int] = {0}
    start = 0
    for piece in reply.pieces:
        end = start + len(piece)
        cuts |= {start + 1, start + 6, (start + end) // 2, end - 3, end - 2, end - 1, end}
        start = end
    return sorted(cut for cut in cuts if cut <= reply.size)


def _until(reply: Reply, text: bytes) -> int:
    """The size of the reply up to the piece with the text."""
    size = 0
    for piece in reply.pieces:
        size += len(piece)
        if text in piece:
            return size
    raise AssertionError(f"{text!r} isn't in the reply")


async def _close(stream: AsyncIterator[Chunk], model: Any) -> None:
    await stream.aclose()  # pyright: ignore[reportAttributeAccessIssue]
    await model.close()


async def _until_zero(server: WireServer) -> None:
    while server.open:
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.sleep(0.005)


async def test_server_tools_are_switched_on_or_refused(codec: Codec) -> None:
    request = ModelRequest("", HELLO.messages, server_tools=[WebSearch()])
    if codec.name == "openai-chat":
        assert (await asked(codec, request))["web_search_options"] == {}
    elif codec.name in ("anthropic", "openai", "google"):
        assert "search" in str((await asked(codec, request))["tools"][0]).lower()
    else:
        with pytest.raises(InvalidRequest, match="has no WebSearch"):
            await asked(codec, request)
