"""Responses: the official SDK talks to agents, reads their answers again, and answers their tickets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import openai
import pytest
from openai_serving import SHOW, ask, bot, serve_openai

from wakeful import Runtime, call
from wakeful.types.calls import Call

TOOLS: Any = [{"type": "function", **SHOW["function"]}]


async def listen(stream: Any) -> tuple[str, Any, list[int]]:
    """The text, the last event and the sequence numbers of a stream."""
    events = [event async for event in stream]
    text = "".join([event.delta for event in events if event.type == "response.output_text.delta"])
    return text, events[-1], [event.sequence_number for event in events]


async def outcomes(runtime: Runtime) -> list[str | None]:
    """The outcomes of all calls, in order."""
    found: list[Call] = []
    for run in await runtime.runs.list():
        found += await runtime.runs.calls(run.id)
    return [each.outcome for each in found]


async def test_answer_is_same_whole_streamed_and_read_again() -> None:
    async with serve_openai(bot(["Hello, how are you?"] * 2)) as client:
        whole = await client.responses.create(model="bot", input="Hi")
        assert (whole.output_text, whole.status) == ("Hello, how are you?", "completed")
        text, last, numbers = await listen(await client.responses.create(model="bot", input="Hi", stream=True))
        assert (text, last.type) == (whole.output_text, "response.completed")
        assert numbers == sorted(set(numbers))
        again = await client.responses.retrieve(last.response.id)
        assert (again.output, again.usage) == (last.response.output, last.response.usage)


async def test_stream_resumes_after_any_of_its_events() -> None:
    async with serve_openai(bot(["Hello, how are you?"])) as client:
        stream = await client.responses.create(model="bot", input="Hi", stream=True)
        events = [event async for event in stream]
        response = events[-1].response.id  # type: ignore[union-attr]
        for place, event in enumerate(events):
            number = event.sequence_number
            rest = await client.responses.retrieve(response, stream=True, starting_after=number)
            text, last, numbers = await listen(rest) if place < len(events) - 1 else ("", None, [])
            before = [each.delta for each in events[: place + 1] if each.type == "response.output_text.delta"]
            assert "".join(before) + text == "Hello, how are you?"
            assert last is None or last.type == "response.completed"
            assert all(number < each for each in numbers)


async def test_background_response_is_read_when_it_is_done() -> None:
    async with serve_openai(bot(["Hello"])) as client:
        begun = await client.responses.create(model="bot", input="Hi", background=True)
        text, last, _ = await listen(await client.responses.retrieve(begun.id, stream=True))
        assert (text, last.response.status) == ("Hello", "completed")
        assert (await client.responses.retrieve(begun.id)).output_text == "Hello"


async def test_previous_response_continues_its_thread() -> None:
    runtime = bot(["one", "two", "three"])
    async with serve_openai(runtime) as client:
        first = await client.responses.create(model="bot", input="a", instructions="Be brief.")
        second = await client.responses.create(model="bot", input="b", previous_response_id=first.id)
        run = await runtime.runs.get(second.id.removeprefix("resp_"))
        texts = [message.text for message in await runtime.threads.messages(run.thread_id)]
        assert texts == ["Be brief.", "a", "one", "b", "two"]
        # An older response is continued on a fork.
        other = await client.responses.create(model="bot", input="c", previous_response_id=first.id)
        run = await runtime.runs.get(other.id.removeprefix("resp_"))
        texts = [message.text for message in await runtime.threads.messages(run.thread_id)]
        assert texts == ["Be brief.", "a", "one", "c", "three"]


async def test_input_items_are_the_messages_before() -> None:
    async with serve_openai(bot(["one", "two"])) as client:
        first = await client.responses.create(model="bot", input="a")
        second = await client.responses.create(model="bot", input="b", previous_response_id=first.id)
        items = (await client.responses.input_items.list(second.id)).data
        assert [item.content[0].text for item in items] == ["b", "a"]  # type: ignore[union-attr]


async def test_client_tool_is_called_and_its_output_continues_the_run() -> None:
    runtime = bot([call("show", page="/"), "It is shown."])
    async with serve_openai(runtime) as client:
        stream = await client.responses.create(model="bot", input="Show it", tools=TOOLS, stream=True)
        events = [event async for event in stream]
        kinds = [event.type for event in events]
        assert "response.function_call_arguments.done" in kinds
        asked = events[-1].response  # type: ignore[union-attr]
        (requested,) = asked.output
        output: Any = {"type": "function_call_output", "call_id": requested.call_id, "output": "done"}
        # The second request is a repetition, which reads the same response.
        answers = [
            await client.responses.create(model="bot", input=[output], previous_response_id=asked.id, tools=TOOLS)
            for _ in range(2)
        ]
        assert [each.output_text for each in answers] == ["It is shown."] * 2
        assert answers[0].id == answers[1].id
        assert (await client.responses.retrieve(answers[0].id)).output_text == "It is shown."
        # The response that asked is as it was.
        assert (await client.responses.retrieve(asked.id)).output == [requested]


async def test_approvals_are_answered_in_parts_by_two_servers(tmp_path: Path) -> None:
    store = tmp_path / "app.db"

    def answer(request: Any, approve: bool) -> Any:
        return [{"type": "mcp_approval_response", "approval_request_id": request.id, "approve": approve}]

    async with serve_openai(bot([ask("pay", "A7", "B8")], store=store), "ann") as client:
        asked = await client.responses.create(model="bot", input="Pay")
        first, second = asked.output
        assert (first.type, first.name) == ("mcp_approval_request", "pay")  # type: ignore[union-attr]
        rest = await client.responses.create(model="bot", input=answer(first, True), previous_response_id=asked.id)
        assert [item.id for item in rest.output] == [second.id]
    runtime = bot(["Both are paid."], store=store)
    async with serve_openai(runtime, "ann") as client:
        done = await client.responses.create(
            model="bot", input=answer(second, False), previous_response_id=rest.id
        )
        assert done.output_text == "Both are paid."
        assert await outcomes(runtime) == ["ok", "blocked"]


async def test_requester_may_not_approve_a_plain_approval() -> None:
    runtime = bot([call("refund", order="A7"), "done"])
    async with serve_openai(runtime, "ann") as client:
        asked = await client.responses.create(model="bot", input="Refund")
        item: Any = {"type": "mcp_approval_response", "approval_request_id": asked.output[0].id, "approve": True}
        with pytest.raises(openai.PermissionDeniedError, match="requester"):
            await client.responses.create(model="bot", input=[item], previous_response_id=asked.id)
        assert (await runtime.tickets.get(asked.output[0].id or "")).status == "open"


async def test_running_response_is_cancelled() -> None:
    runtime = bot([call("refund", order="A7")])
    async with serve_openai(runtime) as client:
        asked = await client.responses.create(model="bot", input="Refund")
        cancelled = await client.responses.cancel(asked.id)
        assert cancelled.id == asked.id
        (run,) = await runtime.runs.list()
        assert run.status == "done"


async def test_deleted_response_is_gone_with_its_thread() -> None:
    runtime = bot(["Hello"])
    async with serve_openai(runtime) as client:
        answer = await client.responses.create(model="bot", input="Hi")
        await client.responses.delete(answer.id)
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(answer.id)
        assert await runtime.threads.list() == []


async def test_response_of_another_principal_is_unknown() -> None:
    runtime = bot(["Hello"])
    run = await runtime.run("bot", "Hi")
    async with serve_openai(runtime, "ann") as client:
        for an_id in (f"resp_{run.run_id}", "resp_none", "other"):
            with pytest.raises(openai.NotFoundError):
                await client.responses.retrieve(an_id)


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"model": "other"}, openai.NotFoundError, "no agent 'other'"),
        ({"input": []}, openai.BadRequestError, "nothing to answer"),
        ({"tools": [{"type": "web_search"}]}, openai.BadRequestError, "'web_search'"),
        ({"text": {"format": {"type": "json_object"}}}, openai.BadRequestError, "'json_object'"),
        ({"previous_response_id": "resp_no"}, openai.NotFoundError, "'no'"),
        (
            {"input": [{"type": "function_call_output", "call_id": "no", "output": ""}]},
            openai.NotFoundError,
            "'no'",
        ),
        ({"input": [{"type": "function_call_output", "output": ""}]}, openai.BadRequestError, "call_id"),
    ],
)
async def test_bad_request_starts_nothing(given: Any, error: Any, text: str) -> None:
    runtime = bot(["Hello"])
    async with serve_openai(runtime) as client:
        with pytest.raises(error, match=text):
            await client.responses.create(**{"model": "bot", "input": "Hi", **given})
        assert await runtime.runs.list() == []


async def test_failed_run_is_a_failed_response() -> None:
    async with serve_openai(bot([])) as client:
        answer = await client.responses.create(model="bot", input="Hi")
        assert (answer.status, answer.error is None) == ("failed", False)
