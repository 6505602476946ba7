"""Chat Completions: the official SDK talks to agents."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from openai_serving import SHOW, bot, serve_openai

from wakeful import ConfigurationError, call
from wakeful.server import app
from wakeful.types.content import Image

HI: list[Any] = [{"role": "user", "content": "Hi"}]


async def contents(stream: Any) -> list[str]:
    """The texts of a stream's chunks."""
    chunks = [chunk async for chunk in stream]
    return [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]


async def test_agents_are_listed_as_models() -> None:
    async with serve_openai(bot([])) as client:
        assert [model.id for model in (await client.models.list()).data] == ["bot"]
        assert (await client.models.retrieve("bot")).owned_by == "wakeful"
        with pytest.raises(openai.NotFoundError, match="no model 'other'"):
            await client.models.retrieve("other")


async def test_answer_is_same_whole_and_streamed() -> None:
    async with serve_openai(bot(["Hello, how are you?"] * 2)) as client:
        whole = await client.chat.completions.create(model="bot", messages=HI)
        stream = await client.chat.completions.create(model="wakeful/bot", messages=HI, stream=True)
        assert "".join(await contents(stream)) == whole.choices[0].message.content == "Hello, how are you?"
        assert whole.choices[0].finish_reason == "stop"


async def test_usage_is_in_the_last_chunk_when_asked_for() -> None:
    async with serve_openai(bot(["Hello"])) as client:
        stream = await client.chat.completions.create(
            model="bot", messages=HI, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
        assert (chunks[-1].choices, chunks[-1].usage is None) == ([], False)


async def test_conversation_continues_on_one_thread() -> None:
    runtime = bot(["one", "two", "three", "four"])
    async with serve_openai(runtime) as client:
        messages, threads = [*HI], []
        for _ in range(4):
            answer = await client.chat.completions.with_raw_response.create(model="bot", messages=messages)
            threads.append(answer.headers["wakeful-thread"])
            messages += [{"role": "assistant", "content": answer.parse().choices[0].message.content}, *HI]
        # The first request has no answer to find its thread by.
        assert threads[1:] == [threads[1]] * 3
        stored = await runtime.threads.messages(threads[1])
        texts = [message.text for message in stored]
        assert texts == ["Hi", "one", "Hi", "two", "Hi", "three", "Hi", "four"]


async def test_edited_conversation_gets_a_thread_of_its_own() -> None:
    runtime = bot(["one", "two", "three"])
    async with serve_openai(runtime) as client:
        past: list[Any] = [*HI, {"role": "assistant", "content": "one"}]
        first = await client.chat.completions.with_raw_response.create(model="bot", messages=[*past, *HI])
        other = await client.chat.completions.with_raw_response.create(
            model="bot", messages=[*past, {"role": "user", "content": "Bye"}]
        )
        assert first.headers["wakeful-thread"] != other.headers["wakeful-thread"]
        assert [m.text for m in await runtime.threads.messages(other.headers["wakeful-thread"])][-2:] == [
            "Bye",
            "two",
        ]


async def test_named_thread_gets_new_messages_alone() -> None:
    runtime = bot(["one", "two"])
    async with serve_openai(runtime) as client:
        for _ in range(2):
            await client.chat.completions.create(
                model="bot", messages=[*HI, {"role": "assistant", "content": "?"}, *HI], metadata={"thread": "t"}
            )
        assert [m.text for m in await runtime.threads.messages("t")][-4:] == ["Hi", "one", "Hi", "two"]


async def test_thread_of_another_principal_is_not_continued() -> None:
    runtime = bot(["one", "two"])
    await runtime.run("bot", "Hi", thread="t")
    async with serve_openai(runtime, "ann") as client:
        with pytest.raises(openai.NotFoundError):
            await client.chat.completions.create(model="bot", messages=HI, metadata={"thread": "t"})


async def test_client_tool_is_called_and_its_result_continues_the_run() -> None:
    runtime = bot([call("show", page="/"), "It is shown."])
    async with serve_openai(runtime) as client:
        asked = await client.chat.completions.create(model="bot", messages=HI, tools=[SHOW])
        (requested,) = asked.choices[0].message.tool_calls or []
        assert (asked.choices[0].finish_reason, requested.function.name) == ("tool_calls", "show")
        reply: Any = {"role": "tool", "tool_call_id": requested.id, "content": "done"}
        messages = [*HI, asked.choices[0].message.model_dump(), reply]
        # The second request is a repetition, which reads the same answer.
        for _ in range(2):
            done = await client.chat.completions.create(model="bot", messages=messages, tools=[SHOW])
            assert done.choices[0].message.content == "It is shown."
        assert len(await runtime.runs.list()) == 1


async def test_client_tools_are_answered_in_parts() -> None:
    script = [[call("show", page="/a"), call("show", page="/b")], "Both are shown."]
    async with serve_openai(bot(script)) as client:
        asked = await client.chat.completions.create(model="bot", messages=HI, tools=[SHOW])
        first, second = asked.choices[0].message.tool_calls or []
        said = [*HI, asked.choices[0].message.model_dump()]
        replies: list[Any] = [
            {"role": "tool", "tool_call_id": each.id, "content": "ok"} for each in (first, second)
        ]
        rest = await client.chat.completions.create(model="bot", messages=[*said, replies[0]], tools=[SHOW])
        assert [each.id for each in rest.choices[0].message.tool_calls or []] == [second.id]
        done = await client.chat.completions.create(model="bot", messages=[*said, *replies], tools=[SHOW])
        assert done.choices[0].message.content == "Both are shown."


async def test_repeated_request_with_a_key_runs_once() -> None:
    runtime = bot(["one", "two"])
    async with serve_openai(runtime) as client:
        for _ in range(2):
            answer = await client.chat.completions.create(
                model="bot", messages=HI, extra_headers={"Idempotency-Key": "k"}
            )
            assert answer.choices[0].message.content == "one"
        stream = await client.chat.completions.create(
            model="bot", messages=HI, stream=True, extra_headers={"Idempotency-Key": "other"}
        )
        assert "".join(await contents(stream)) == "two"


async def test_cut_stream_is_read_again_with_the_same_key() -> None:
    runtime = bot(["Hello, how are you?", "never"])
    async with serve_openai(runtime) as client:
        headers = {"Idempotency-Key": "k"}
        for _ in range(2):
            stream = await client.chat.completions.create(
                model="bot", messages=HI, stream=True, extra_headers=headers
            )
            async for _ in stream:
                break
            await stream.close()
        stream = await client.chat.completions.create(model="bot", messages=HI, stream=True, extra_headers=headers)
        assert "".join(await contents(stream)) == "Hello, how are you?"


async def test_approval_is_named_with_its_ticket() -> None:
    async with serve_openai(bot([call("refund", order="A7")])) as client:
        answer = await client.chat.completions.create(model="bot", messages=HI)
        (ticket,) = (answer.model_extra or {})["wakeful"]["tickets"]
        assert ticket in (answer.choices[0].message.content or "")


async def test_images_reach_the_model() -> None:
    runtime = bot(["A cat."])
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    async with serve_openai(runtime) as client:
        message: Any = {"role": "user", "content": [{"type": "text", "text": "What?"}, picture]}
        await client.chat.completions.create(model="bot", messages=[message], metadata={"thread": "t"})
        (first, _) = await runtime.threads.messages("t")
        assert isinstance(first.content[1], Image)


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"model": "other"}, openai.NotFoundError, "no agent 'other'"),
        ({"n": 2}, openai.BadRequestError, "n: agents don't have that"),
        ({"messages": "Hi"}, openai.BadRequestError, "Expected `array`"),
        ({"messages": [{"role": "system", "content": "Be nice."}]}, openai.BadRequestError, "nothing to answer"),
        ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, openai.BadRequestError, "'video'"),
        ({"tools": [{"type": "custom"}]}, openai.BadRequestError, "'custom'"),
        (
            {"messages": [*HI, {"role": "tool", "tool_call_id": "no", "content": "x"}]},
            openai.NotFoundError,
            "no ticket 'no'",
        ),
    ],
)
async def test_bad_request_has_the_apis_error_shape(given: Any, error: Any, text: str) -> None:
    runtime = bot(["Hello"])
    async with serve_openai(runtime) as client:
        with pytest.raises(error, match=text) as caught:
            await client.chat.completions.create(**{"model": "bot", "messages": HI, **given})
        assert caught.value.body["message"]
        assert await runtime.runs.list() == []


async def test_caller_without_credential_is_refused_in_the_apis_shape() -> None:
    async with serve_openai(bot(["Hello"]), "ann") as client:
        stranger = client.with_options(api_key="wk_wrong")
        with pytest.raises(openai.AuthenticationError) as caught:
            await stranger.chat.completions.create(model="bot", messages=HI)
        assert caught.value.body["type"] == "authentication_error"  # type: ignore[index]


async def test_failed_run_is_an_error() -> None:
    async with serve_openai(bot([])) as client:
        with pytest.raises(openai.InternalServerError, match="the run failed"):
            await client.chat.completions.create(model="bot", messages=HI)
        stream = await client.chat.completions.create(model="bot", messages=HI, stream=True)
        with pytest.raises(openai.APIError, match="the run failed"):
            await contents(stream)


async def test_protocol_that_is_not_served_has_no_paths() -> None:
    runtime = bot(["Hello"])
    async with serve_openai(runtime, protocols=["a2a"]) as client:
        with pytest.raises(openai.NotFoundError):
            await client.models.list()
    with pytest.raises(ConfigurationError, match="no protocol 'soap'; there are a2a, agui, aisdk, openai"):
        app(runtime, protocols=["soap"])
