"""A conversation with one vendor can continue with any other."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from wire_script import Calls, Codec, Says, Script, Thinks
from wire_server import WireServer
from wire_suite import AUDIO, DOCUMENT, IMAGE, LOOK, RESULT, Heard, asked, history, listen
from wire_vendors import VENDORS

from wakeful.errors import InvalidRequest
from wakeful.models import ModelRequest
from wakeful.types.content import Audio, Base64, Document, Image, Text, Thinking, ToolCall, Unknown, Url, Video
from wakeful.types.messages import Message, user_message

PICTURE = Image(Base64("image/png", IMAGE))


def _names(codec: Codec) -> str:
    return codec.name


async def _had_with(codec: Codec) -> list[Message]:
    """A conversation with a vendor: media, reasoning, parallel calls, results with media, an error."""
    thoughts: list[Any] = [Thinks(["I should look."], "sig-1"), Thinks(encrypted="gAAA")]
    if codec.name == "openai":
        thoughts = [Thinks(["I should look."], "rs_1", "gAAA1")]
    thoughts = thoughts if codec.can.signed_reasoning else [Thinks(["I should look."])]
    calls = [Calls("look", ['{"at": "sky"}'], id="call_1"), Calls("look", ['{"at": "sea"}'], id="call_2")]
    first = Script([*thoughts, Says(["I look."]), *calls], stop="tool_use")
    last = Script([Says(["Blue, both."])])
    asks = user_message([Text("What are these?"), PICTURE, Document(Base64("application/pdf", DOCUMENT), "Terms")])
    async with WireServer(codec.answer(first), codec.answer(last)) as server:
        model = codec.model(server.url)
        answer = (await listen(model, ModelRequest("Be brief.", [asks], [LOOK]))).message()
        one, two = answer.calls
        results = [RESULT(one.id, "look", "here", parts=[PICTURE]), RESULT(two.id, "look", "fog", error="failed")]
        end = (await listen(model, ModelRequest("Be brief.", [asks, answer, *results], [LOOK]))).message()
        await model.close()  # pyright: ignore[reportAttributeAccessIssue]
    return [asks, answer, *results, end]


@pytest.mark.parametrize("after", VENDORS, ids=_names)
@pytest.mark.parametrize("before", VENDORS, ids=_names)
async def test_conversation_continues_with_another_vendor(before: Codec, after: Codec) -> None:
    said = await _had_with(before)
    extra = Heard.of([Text("And this:"), PICTURE, Audio(Base64("audio/ogg", AUDIO)), Unknown("hologram", {})])
    request = ModelRequest("Be brief.", [*said, extra, user_message("Go on.")], [LOOK])
    seen = after.read(await asked(after, request))
    assert [value[1:] for value in seen.of("call")] == [("look", {"at": "sky"}), ("look", {"at": "sea"})]
    assert [value[0] for value in seen.of("call")] == [value[0] for value in seen.of("result", "error")]
    assert str(seen).count(IMAGE) == 3
    assert DOCUMENT in str(seen)
    texts = seen.of("text")
    assert texts[0] == "What are these?"
    assert texts[-1] == "Go on."
    thoughts = seen.of("thinking")
    if before is after and after.can.signed_reasoning:
        assert thoughts
    else:
        assert not thoughts


@pytest.mark.parametrize("after", VENDORS, ids=_names)
async def test_reasoning_without_signature_is_dropped(after: Codec) -> None:
    answer = Heard.of([Thinking("Hm."), Thinking("Hm.", vendor="elsewhere", signature="x"), Text("Yes.")])
    only = Heard.of([Thinking("Hm, again.", vendor="elsewhere", encrypted="x")])
    messages = [user_message("Is it?"), answer, user_message("Sure?"), only, user_message("Well?")]
    seen = after.read(await asked(after, ModelRequest("", messages)))
    assert [value for _, _, value in seen.parts] == ["Is it?", "Yes.", "Sure?", "Well?"]


@pytest.mark.parametrize("part", [Video(Url("https://example.com/a.mp4")), Audio(Base64("audio/ogg", AUDIO))])
@pytest.mark.parametrize("after", VENDORS, ids=_names)
async def test_unaccepted_user_media_is_refused_by_name(after: Codec, part: Any) -> None:
    kind = type(part).__name__.lower()
    if getattr(after.can, kind) and after.name not in ("openai-chat", "vllm"):
        pytest.skip(f"{after.name} takes {kind}")
    with pytest.raises(InvalidRequest, match=f"takes no {kind}"):
        await asked(after, ModelRequest("", [user_message([part])]))


@pytest.mark.parametrize(
    "signature",
    [
        '{"id": "ctc_1", "type": "custom_tool_call", "call_id": "c", "name": "look", "input": "x"}',
        '{"type": "function_call", "caller": {"type": "program", "caller_id": "c"}}',
        '{"caller": {"type": "code_execution_20250825", "tool_id": "t"}, "toolset_name": "s"}',
        "c2ln",
    ],
    ids=["openai", "openai-program", "anthropic", "google"],
)
@pytest.mark.parametrize("after", VENDORS, ids=_names)
async def test_signed_call_of_another_vendor_is_a_plain_call(after: Codec, signature: str) -> None:
    if after.name == "openai" and "custom_tool_call" in signature:
        pytest.skip("it is its own")
    call = ToolCall("0190-a", "look", {"at": "sky"}, "call_1", signature)
    seen = after.read(await asked(after, ModelRequest("", history(call, RESULT("0190-a", "look")), [LOOK])))
    plain = after.read(
        await asked(
            after, ModelRequest("", history(replace(call, signature=None), RESULT("0190-a", "look")), [LOOK])
        )
    )
    assert seen.of("call") == plain.of("call")
    assert seen.of("result") == plain.of("result")
