"""A run at a remote agent: streaming, polling, questions, failures, artifacts."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from a2a.helpers import new_data_part, new_raw_part, new_text_message, new_url_part
from a2a.types import Role

from wakeful.backends import CancelledStatus, Completed, FailedStatus, TimedOut, WaitingAuth, WaitingInput
from wakeful.backends.a2a.objects import RemoteMessage, RemotePart
from wakeful.backends.a2a.questions import questions_in
from wakeful.errors import ExecutionFailed, RemoteError
from wakeful.types.content import Artifact, Base64, Document, Image, Text, ToolReply, Url
from wakeful.types.ids import new_id
from wakeful.types.messages import Message

from .requests import thread
from .servers import App, Receive, Scope, Send, Turn, serving

BINDINGS = [("JSONRPC", "1.0"), ("HTTP+JSON", "1.0"), ("JSONRPC", "0.3"), ("HTTP+JSON", "0.3")]


async def streams(turn: Turn) -> None:
    await turn.open()
    await turn.write("Sunny ")
    await turn.write("in ", append=True)
    await turn.write(f"{turn.text}.", append=True, last=True)
    await turn.updater.complete()


@pytest.mark.parametrize("binding", BINDINGS)
async def test_remote_text_streams(binding: tuple[str, str]) -> None:
    with serving(streams, bindings=[binding]) as remote:
        talk = thread(remote.url)
        result = await talk.ask("Paris")
    assert result.status == Completed()
    assert result.text == "Sunny in Paris."
    assert talk.shown == ["Sunny ", "in ", "Paris."]
    assert [saved["stage"] for saved in talk.saved] == ["intent", "sent"]
    assert result.state is not None
    assert result.state["stage"] == "done"
    assert len(remote.messages) == 1


@pytest.mark.parametrize("binding", BINDINGS)
async def test_remote_without_streams_is_polled(binding: tuple[str, str]) -> None:
    with serving(streams, bindings=[binding], streaming=False) as remote:
        talk = thread(remote.url)
        result = await talk.ask("Paris")
    assert result.text == "Sunny in Paris."
    assert "".join(talk.shown) == "Sunny in Paris."
    assert [saved["stage"] for saved in talk.saved] == ["intent", "sent"]
    assert len(remote.messages) == 1


async def test_polling_lasts_until_task_is_over() -> None:
    async def slow(turn: Turn) -> None:
        await turn.open()
        await turn.reached("work")
        await turn.updater.complete(turn.says("done"))

    with serving(slow, streaming=False) as remote:
        talk = thread(remote.url)

        async def save(state: dict[str, object]) -> None:
            if state["stage"] == "sent":
                remote.gate("work").set()

        talk.save = save  # type: ignore[method-assign]
        result = await talk.ask("go")
    assert result.text == "done"
    assert talk.shown == ["done"]


async def test_direct_message_is_the_answer() -> None:
    async def replies(turn: Turn) -> None:
        await turn.queue.enqueue_event(
            new_text_message("Hello!", context_id=turn.context.context_id, role=Role.ROLE_AGENT)
        )

    for streaming in (True, False):
        with serving(replies, streaming=streaming) as remote:
            talk = thread(remote.url)
            result = await talk.ask("hi")
        assert result.status == Completed()
        assert result.text == "Hello!"
        assert talk.shown == ["Hello!"]
        assert result.state is not None
        assert result.state["stage"] == "done"


@pytest.mark.parametrize("streaming", [True, False])
async def test_answer_goes_to_task_of_question(streaming: bool) -> None:
    async def asks(turn: Turn) -> None:
        updater = await turn.open()
        if turn.is_new:
            options = new_data_part({"options": ["Paris", "Rome"]})
            await updater.requires_input(turn.says("Which city?", options))
        else:
            await turn.write(f"Sunny in {turn.text}.")
            await updater.complete()

    with serving(asks, streaming=streaming) as remote:
        talk = thread(remote.url)
        asked = await talk.ask("Weather?")
        assert asked.status == WaitingInput("Which city?")
        assert asked.output.raw == {"data": [{"options": ["Paris", "Rome"]}]}
        assert asked.output.text is None
        assert talk.shown == []
        assert talk.state is not None
        task = talk.state["task_id"]
        answered = await talk.ask(reply("Rome"))
        assert answered.text == "Sunny in Rome."
        assert talk.state["task_id"] == task
    assert len(remote.messages) == 2


def reply(text: str, data: object = None) -> Message:
    """The answer to a ticket, as the loop passes it on."""
    raw = {} if data is None else {"data": msgspec.Raw(msgspec.json.encode(data))}
    content = ToolReply("call-1", "input_required", (Text(text),), **raw)  # type: ignore[arg-type]
    return Message(new_id(), "tool", (content,), 0)


async def test_answer_may_be_json() -> None:
    async def asks(turn: Turn) -> None:
        updater = await turn.open()
        if turn.is_new:
            await updater.requires_input(turn.says("Approve?"))
        else:
            (part,) = turn.parts
            await updater.complete(turn.says(f"approved={part.data.struct_value['approved']}"))

    with serving(asks) as remote:
        talk = thread(remote.url)
        await talk.ask("Refund")
        result = await talk.ask(reply('{"approved": true}', {"approved": True}))
    assert result.text == "approved=True"


async def test_run_waits_for_authorization() -> None:
    async def asks(turn: Turn) -> None:
        updater = await turn.open()
        if turn.is_new:
            await updater.requires_auth(turn.says("Log in at https://example.com"))
        else:
            await updater.complete(turn.says("Thanks."))

    with serving(asks) as remote:
        talk = thread(remote.url)
        assert (await talk.ask("go")).status == WaitingAuth("Log in at https://example.com")
        assert (await talk.ask(reply("done"))).text == "Thanks."


async def test_new_task_reuses_context_of_finished_one() -> None:
    with serving(streams) as remote:
        talk = thread(remote.url)
        await talk.ask("Paris")
        first = talk.state
        await talk.ask("Rome", run="run-2")
        second = talk.state
    assert first is not None
    assert second is not None
    assert first["context_id"] == second["context_id"]
    assert first["task_id"] != second["task_id"]


async def test_next_run_does_not_answer_cancelled_question() -> None:
    async def asks(turn: Turn) -> None:
        updater = await turn.open()
        if turn.text == "first":
            await updater.requires_input(turn.says("Which?"))
        else:
            await updater.complete(turn.says(f"new task: {turn.is_new}"))

    with serving(asks) as remote:
        talk = thread(remote.url)
        await talk.ask("first")
        await talk.abort()
        assert len(remote.cancelled) == 1
        assert (await talk.ask("second", run="run-2")).text == "new task: True"


@pytest.mark.parametrize("ending", ["failed", "reject"])
async def test_failure_has_message_of_remote(ending: str) -> None:
    async def fails(turn: Turn) -> None:
        updater = await turn.open()
        await getattr(updater, ending)(turn.says("The data is gone."))

    with serving(fails) as remote:
        talk = thread(remote.url)
        result = await talk.ask("go")
    assert result.status == FailedStatus("The data is gone.")
    assert talk.shown == []  # The failure's text is no answer.
    assert result.state is not None  # The handle is kept.
    assert result.state["task_id"]


@pytest.mark.parametrize(
    ("ending", "words"), [("failed", "remote run failed"), ("reject", "the remote agent rejected the message")]
)
async def test_failure_without_message_gets_a_default(ending: str, words: str) -> None:
    async def fails(turn: Turn) -> None:
        updater = await turn.open()
        await getattr(updater, ending)()

    with serving(fails, streaming=False) as remote:
        assert (await thread(remote.url).ask("go")).status == FailedStatus(words)


async def test_raising_agent_is_a_failure() -> None:
    async def raises(turn: Turn) -> None:
        await turn.open()
        raise RuntimeError("no luck")

    with serving(raises) as remote:
        result = await thread(remote.url).ask("go")
    assert isinstance(result.status, FailedStatus)


async def test_task_cancelled_by_remote_is_cancelled() -> None:
    async def stops(turn: Turn) -> None:
        updater = await turn.open()
        await updater.cancel()

    with serving(stops) as remote:
        assert (await thread(remote.url).ask("go")).status == CancelledStatus()


async def test_timeout_cancels_remote_task() -> None:
    async def hangs(turn: Turn) -> None:
        await turn.open()
        await turn.reached("never")

    for streaming in (True, False):
        with serving(hangs, streaming=streaming) as remote:
            talk = thread(remote.url, timeout=3)
            result = await talk.ask("go")
            assert result.status == TimedOut()
            assert result.termination is not None
            said = getattr(result.termination, "message", "")
            assert said.startswith(
                "agent 'analyst' wasn't done within 3 s, its `timeout`; its task was cancelled."
            )
            assert "Give Agent.remote(...) a longer timeout" in said
            assert len(remote.cancelled) == 1


@pytest.mark.parametrize("streaming", [True, False])
async def test_task_is_cancelled_when_answer_is_too_large(
    streaming: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wakeful.backends.a2a.progress._MAX_CHARACTERS", 10)

    async def floods(turn: Turn) -> None:
        await turn.open()
        await turn.write("x" * 11)
        await turn.reached("never")

    with serving(floods, streaming=streaming) as remote:
        talk = thread(remote.url)
        with pytest.raises(RemoteError, match=r"more than .* the limits; its task was cancelled") as failure:
            await talk.ask("go")
    assert failure.value.detail.startswith("agent 'analyst': ")
    assert talk.state is not None
    assert remote.cancelled == [talk.state["task_id"]]


@pytest.mark.parametrize("keeps_task", [True, False])
async def test_unstreamed_artifacts_are_fetched_once(keeps_task: bool) -> None:
    """The remote streams no artifact updates, and may not know the task any more when it is over."""
    message = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "Done."}]}
    ids, done = {"taskId": "t", "contextId": "c"}, {"state": "TASK_STATE_COMPLETED", "message": message}
    made = {"artifactId": "a", "parts": [{"text": "Sunny."}, {"data": {"degrees": 21}}]}
    events: list[Any] = [
        {"task": {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}},
        {"statusUpdate": {**ids, "status": done}},
    ]
    stream = b"".join([b"data: " + json.dumps(event).encode() + b"\r\n\r\n" for event in events])
    task = json.dumps({"id": "t", "contextId": "c", "status": done, "artifacts": [made]}).encode()
    replies = {"/rest/message:stream": (b"text/event-stream", stream)}
    if keeps_task:
        replies["/rest/tasks/t"] = (b"application/json", task)

    async def wrap(app: App, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] not in replies:
            return await app(scope, receive, send)
        kind, body = replies[scope["path"]]
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
        return await send({"type": "http.response.body", "body": body})

    with serving(streams, bindings=[("HTTP+JSON", "1.0")], wrap=wrap) as remote:
        talk = thread(remote.url)
        result = await talk.ask("Paris")
    assert result.status == Completed()
    assert remote.calls("/rest/tasks/t") == 1
    assert talk.shown == [result.text] == ["Sunny." if keeps_task else "Done."]
    assert [artifact.content for artifact in result.output.artifacts] == ([{"degrees": 21}] if keeps_task else [])


async def test_artifacts_take_precedence_over_status_messages() -> None:
    async def reports(turn: Turn) -> None:
        updater = await turn.open()
        await updater.start_work(turn.says("Looking it up."))
        await turn.write("Sunny.")
        await updater.complete(turn.says("Done."))

    for streaming in (True, False):
        with serving(reports, streaming=streaming) as remote:
            talk = thread(remote.url)
            assert (await talk.ask("Paris")).text == "Sunny."
            assert "".join(talk.shown) == "Sunny."


async def test_newest_history_message_is_the_fallback_answer() -> None:
    async def reports(turn: Turn) -> None:
        updater = await turn.open()
        await updater.start_work(turn.says("First."))
        await updater.start_work(turn.says("Second."))
        await updater.complete()

    for streaming in (True, False):
        with serving(reports, streaming=streaming) as remote:
            assert (await thread(remote.url).ask("Paris")).text == "Second."


async def test_streamed_artifacts_equal_polled_ones() -> None:
    async def makes(turn: Turn) -> None:
        updater = await turn.open()
        await turn.write("draft", id="a")
        await turn.write("one", id="b")
        await turn.write("final", id="a")
        await turn.write(" more", id="b", append=True)
        await updater.complete()

    texts: list[str] = []
    for streaming in (True, False):
        with serving(makes, streaming=streaming) as remote:
            texts.append((await thread(remote.url).ask("go")).text)
    assert texts == ["final\n\none more"] * 2


async def test_files_and_data_are_artifacts() -> None:
    async def makes(turn: Turn) -> None:
        updater = await turn.open()
        parts = [
            new_raw_part(b"\x89PNG", media_type="image/png", filename="plot.png"),
            new_url_part("https://example.com/report.pdf", media_type="application/pdf"),
            new_data_part({"rows": 3}),
        ]
        await updater.add_artifact(parts, artifact_id="report", name="Report")
        await updater.complete(turn.says("Here it is."))

    for streaming in (True, False):
        with serving(makes, streaming=streaming) as remote:
            result = await thread(remote.url).ask("go")
        assert result.text == "Here it is."
        assert result.output.artifacts == (
            Artifact({"bytes": "iVBORw=="}, "report", "plot.png", "image/png"),
            Artifact({"url": "https://example.com/report.pdf"}, "report", "Report", "application/pdf"),
            Artifact({"rows": 3}, "report", "Report", "application/json"),
        )


async def test_integral_numbers_are_ints() -> None:
    async def makes(turn: Turn) -> None:
        updater = await turn.open()
        await updater.add_artifact([new_data_part({"rows": [3, 0.5, {"at": 2**40}]})])
        await updater.complete()

    with serving(makes) as remote:
        result = await thread(remote.url).ask("go")
    (made,) = result.output.artifacts
    assert repr(made.content) == "{'rows': [3, 0.5, {'at': 1099511627776}]}"


async def test_media_is_sent_as_files() -> None:
    async def counts(turn: Turn) -> None:
        updater = await turn.open()
        text, file = turn.parts
        await updater.complete(turn.says(f"{text.text}: {len(file.raw)} bytes of {file.media_type}"))

    with serving(counts) as remote:
        content = (Text("A picture"), Image(Base64("image/png", "iVBORw==")))
        message = Message(new_id(), "user", content, 0)
        assert (await thread(remote.url).ask(message)).text == "A picture: 4 bytes of image/png"


async def test_media_type_of_url_is_sent() -> None:
    async def lists(turn: Turn) -> None:
        updater = await turn.open()
        await updater.complete(turn.says(", ".join([f"{part.url} {part.media_type}" for part in turn.parts])))

    report, cat = Document(Url("https://x/1", "application/pdf"), "report"), Image(Url("https://x/2"))
    with serving(lists) as remote:
        said = (await thread(remote.url).ask(Message(new_id(), "user", (report, cat), 0))).text
    assert said == "https://x/1 application/pdf, https://x/2 image/*"


async def test_empty_input_is_not_sent() -> None:
    with serving(streams) as remote, pytest.raises(ExecutionFailed, match="no user message content to send"):
        await thread(remote.url).ask(Message(new_id(), "user", (), 0))
    assert remote.requests == []


def test_unsupported_schema_is_left_to_remote() -> None:
    ticket = {"ticketId": "1", "askedBy": "tool", "tool": "ask", "accepts": ["deny", "result"]}
    odd, plain = {"type": "string", "pattern": r"^\p{L}+$"}, {"type": "integer"}
    tickets = [{**ticket, "schema": odd}, {**ticket, "ticketId": "2", "schema": plain}]
    first, second = questions_in(RemoteMessage(parts=(RemotePart(data={"tickets": tickets}),)))
    assert (first.schema, first.data["schema"]) == (None, odd)
    assert (second.schema, "schema" in second.data) == (plain, False)
