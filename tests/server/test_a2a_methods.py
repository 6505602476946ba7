"""The A2A methods, called by the official SDK's client: both bindings, version 1.0."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest
from a2a.client import Client
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import (
    ContentTypeNotSupportedError,
    InvalidParamsError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from a2a_serving import (
    BINDINGS,
    Gate,
    answer_of,
    connect,
    get,
    said,
    send,
    serve,
    state,
    states,
    stream,
    text_of,
    tickets_in,
    until,
    updates,
)
from msgspec import Struct

from wakeful import Agent, Delegate, Image, Runtime, ScriptedModel, ToolContext, Turn, call, tool
from wakeful.models import PartChunk, StopChunk, TextChunk
from wakeful.types import Base64, Document, Url

pytestmark = pytest.mark.parametrize("binding", BINDINGS)


def assistant(*turns: object, **fields: object) -> Runtime:
    return Runtime([Agent("assistant", model=ScriptedModel(turns), description="Helps.", **fields)])


# -- cards ---------------------------------------------------------------------------------------------------


async def test_single_agent_has_card_at_root_and_under_its_path(binding: str) -> None:
    async with serve(assistant()) as url, httpx.AsyncClient() as http:
        for base in (url, f"{url}/a2a/assistant"):
            card = (await http.get(f"{base}/.well-known/agent-card.json")).json()
            assert (card["name"], card["description"]) == ("assistant", "Helps.")
            found = [(i["url"], i["protocolBinding"], i["protocolVersion"]) for i in card["supportedInterfaces"]]
            assert found == [
                (base, "JSONRPC", "1.0"),
                (base, "HTTP+JSON", "1.0"),
                (base, "JSONRPC", "0.3"),
                (f"{url}/a2a/assistant", "HTTP+JSON", "0.3"),  # Its paths at the root are the HTTP API's.
            ]
            assert card["capabilities"]["streaming"]


async def test_several_agents_have_separate_base_paths(binding: str) -> None:
    runtime = Runtime([Agent(name, model=ScriptedModel([f"I am {name}."])) for name in ("ann", "bob", "kept")])
    async with serve(runtime, agents=["ann", "bob"]) as url, httpx.AsyncClient() as http:
        assert (await http.get(f"{url}/.well-known/agent-card.json")).status_code == 404
        assert (await http.get(f"{url}/a2a/kept/.well-known/agent-card.json")).status_code == 404
        for name in ("ann", "bob"):
            async with connect(f"{url}/a2a/{name}", binding, streaming=False) as client:
                assert answer_of(await send(client, "Who?")) == f"I am {name}."


async def test_card_uses_public_url(binding: str) -> None:
    async with serve(assistant(), public_url="https://agents.example.com/x/") as url, httpx.AsyncClient() as http:
        card = (await http.get(f"{url}/a2a/assistant/.well-known/agent-card.json")).json()
        assert card["supportedInterfaces"][0]["url"] == "https://agents.example.com/x/a2a/assistant"


async def test_card_can_be_cached_and_revalidated(binding: str) -> None:
    async with serve(assistant()) as url, httpx.AsyncClient(base_url=url) as http:
        path = "/.well-known/agent-card.json"
        first = (await http.get(path)).headers
        assert first["cache-control"] == "public, max-age=300"
        known = {"If-None-Match": first["etag"]}, {"If-Modified-Since": first["last-modified"]}
        for condition in known:
            again = await http.get(path, headers=condition)
            assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first["etag"])
        stale = {"If-None-Match": '"other"', "If-Modified-Since": first["last-modified"]}
        assert (await http.get(path, headers=stale)).status_code == 200
        old = {"If-Modified-Since": "Thu, 01 Jan 1970 00:00:00 GMT"}
        assert (await http.get(path, headers=old)).json()["name"] == "assistant"
        # The card of another address is another card.
        assert (await http.get(f"/a2a/assistant{path}")).headers["etag"] != first["etag"]


# -- sending -------------------------------------------------------------------------------------------------


async def test_send_returns_finished_task(binding: str) -> None:
    async with serve(assistant("Sunny.")) as url, connect(url, binding, streaming=False) as client:
        task = await send(client, "Weather?")
        assert (state(task), answer_of(task)) == ("completed", "Sunny.")
        assert [(m.role, m.parts[0].text) for m in task.history] == [
            (pb.ROLE_USER, "Weather?"),
            (pb.ROLE_AGENT, "Sunny."),
        ]
        assert task == await get(client, task.id)


async def test_context_continues_its_conversation(binding: str) -> None:
    model = ScriptedModel(["One.", "Two."])
    runtime = Runtime([Agent("assistant", model=model)])
    async with serve(runtime) as url, connect(url, binding, streaming=False) as client:
        first = await send(client, said("a", context_id="my-context"))
        second = await send(client, said("b", context_id="my-context"))
        assert first.context_id == second.context_id == "my-context"
        assert first.id != second.id
        assert [m.text for m in model.requests[1].messages] == ["a", "One.", "b"]
        assert [m.parts[0].text for m in second.history] == ["b", "Two."]
        assert [m.parts[0].text for m in (await get(client, first.id)).history] == ["a", "One."]


async def test_send_returns_immediately_when_asked(binding: str) -> None:
    gate = Gate()
    async with (
        serve(assistant(call("slow"), "Ready.", tools=[gate.slow])) as url,
        connect(url, binding, streaming=False) as client,
        connect(url, binding) as watcher,
    ):
        task = await send(client, "Go", return_immediately=True)
        assert state(task) == "working"
        await gate.reached.wait()
        assert state(await get(client, task.id)) == "working"
        watching = aiter(watcher.subscribe(pb.SubscribeToTaskRequest(id=task.id)))
        assert states([await anext(watching)]) == ["working"]
        gate.opened.set()
        events = [event async for event in watching]
        assert states(events)[-1] == "completed"
        assert answer_of(await get(client, task.id)) == "Ready."


async def test_tokens_stream_as_updates_of_one_artifact(binding: str) -> None:
    model = [call("look"), Turn(text=["Sun", "ny", "."])]

    @tool
    def look() -> str:
        return "sun"

    async with serve(assistant(*model, tools=[look])) as url, connect(url, binding) as client:
        events = await stream(client, "Weather?")
        assert states(events) == ["submitted", "working", "completed"]
        assert [(u.artifact.parts[0].text, u.append, u.last_chunk) for u in updates(events)] == [
            ("Sun", False, False),
            ("ny", True, False),
            (".", True, False),
            ("", True, True),
        ]
        task = await get(client, events[0].task.id)
        assert text_of(events) == answer_of(task) == "Sunny."


async def test_text_before_call_is_replaced_by_answer(binding: str) -> None:
    @tool
    def look() -> str:
        return "sun"

    turns = [Turn(text="Let me see.", calls=[call("look")]), "Sunny."]
    async with serve(assistant(*turns, tools=[look])) as url, connect(url, binding) as client:
        events = await stream(client, "Weather?")
        assert text_of(events) == answer_of(await get(client, events[0].task.id)) == "Sunny."


async def test_typed_output_is_a_data_artifact(binding: str) -> None:
    class Weather(Struct):
        city: str
        degrees: int

    runtime = assistant('{"city": "Rome", "degrees": 21}', output=Weather)
    async with serve(runtime) as url, connect(url, binding) as client:
        events = await stream(client, "Weather?")
        (last,) = [u for u in updates(events) if u.artifact.artifact_id == "output"]
        assert last.last_chunk
        assert dict(last.artifact.parts[0].data.struct_value) == {"city": "Rome", "degrees": 21}
        task = await get(client, events[0].task.id)
        assert [artifact.artifact_id for artifact in task.artifacts] == ["answer", "output"]


async def test_files_are_sent_and_received(binding: str) -> None:
    picture = Image(Base64("image/png", "iVBORw0KGgo="))
    model = ScriptedModel([Turn(chunks=[TextChunk("Here."), PartChunk(picture), StopChunk("end_turn")])])
    runtime = Runtime([Agent("painter", model=model)])
    async with serve(runtime) as url, connect(url, binding) as client:
        message = said("Like this")
        message.parts.add(raw=b"\x00\x01", media_type="image/png")
        message.parts.add(url="https://example.com/a.pdf", media_type="application/pdf", filename="a.pdf")
        events = await stream(client, message)
        kinds = [type(part).__name__ for part in model.requests[0].messages[0].content]
        assert kinds == ["Text", "Image", "Document"]
        task = await get(client, events[0].task.id)
        text, file = task.artifacts[0].parts
        assert (text.text, file.raw, file.media_type) == ("Here.", b"\x89PNG\r\n\x1a\n", "image/png")
        assert updates(events)[-1].artifact.parts[0].raw == file.raw


async def test_media_type_of_url_survives(binding: str) -> None:
    sheet = Document(Url("https://example.com/out", "text/csv"), "out.csv")
    parts = [PartChunk(sheet), PartChunk(Image(Url("https://example.com/cat")))]
    model = ScriptedModel([Turn(chunks=[TextChunk("Here."), *parts, StopChunk("end_turn")])])
    async with (
        serve(Runtime([Agent("clerk", model=model)])) as url,
        connect(url, binding, streaming=False) as client,
    ):
        message = said("Like this")
        message.parts.add(url="https://example.com/in", media_type="application/pdf", filename="in.pdf")
        message.parts.add(url="https://example.com/dog", media_type="image/png")
        task = await send(client, message)
        assert list(model.requests[0].messages[0].content)[1:] == [
            Document(Url("https://example.com/in", "application/pdf"), "in.pdf"),
            Image(Url("https://example.com/dog", "image/png")),
        ]
        assert [(part.url, part.media_type) for part in task.history[0].parts[1:]] == [
            ("https://example.com/in", "application/pdf"),
            ("https://example.com/dog", "image/png"),
        ]
        assert [(part.url, part.media_type) for part in task.artifacts[0].parts[1:]] == [
            ("https://example.com/out", "text/csv"),
            ("https://example.com/cat", "image/*"),
        ]


# -- repeated messages ---------------------------------------------------------------------------------------


async def test_repeated_message_is_one_task(binding: str) -> None:
    model = ScriptedModel(["Once."])
    async with serve(Runtime([Agent("assistant", model=model)])) as url, connect(url, binding) as client:
        message = said("Go", message_id="same")
        first = await stream(client, message)
        again = await stream(client, message)
        assert again[0].task.id == first[0].task.id
        assert (states(again), text_of(again)) == (["completed"], "Once.")
        assert len(model.requests) == 1


async def test_repeated_message_joins_running_task(binding: str) -> None:
    gate = Gate()
    async with serve(assistant(call("slow"), "Once.", tools=[gate.slow])) as url, connect(url, binding) as client:
        message = said("Go", message_id="same")
        request = pb.SendMessageRequest(message=message)
        request.configuration.return_immediately = True
        first = aiter(client.send_message(request))
        task = (await anext(first)).task
        await gate.reached.wait()
        second = aiter(client.send_message(request))
        assert (await anext(second)).task.id == task.id
        gate.opened.set()
        assert text_of([event async for event in first]) == text_of([event async for event in second]) == "Once."


# -- tickets -------------------------------------------------------------------------------------------------


def shop() -> Runtime:
    @tool(approval=True)
    def refund(order: str) -> str:
        return f"refunded {order}"

    @tool(effect="idempotent")
    async def ask_size(ctx: ToolContext) -> str:
        return f"size {ctx.ask('Which size?', schema=int)}"

    turns = [[call("refund", order="7"), call("ask_size")], "All done."]
    return assistant(*turns, tools=[refund, ask_size])


@pytest.mark.parametrize("streaming", [True, False])
async def test_approval_is_answered_in_same_task(binding: str, streaming: bool) -> None:
    @tool(approval=True)
    def refund(order: str) -> str:
        return f"refunded {order}"

    runtime = assistant(call("refund", order="7"), "Refunded.", tools=[refund])
    async with serve(runtime) as url, connect(url, binding, streaming=streaming) as client:
        events = await stream(client, "Refund 7")
        assert states(events)[-1] == "input_required"
        task = await get(client, events[0].task.id)
        (asked,) = tickets_in(task)
        assert (asked["tool"], asked["arguments"], asked["askedBy"]) == ("refund", {"order": "7"}, "approval")
        assert "refund" in task.status.message.parts[0].text
        answer = said("approve", task_id=task.id, message_id="yes")
        events = await stream(client, answer)
        assert states(events)[-1] == "completed"
        assert {event.task.id for event in events if event.HasField("task")} == {task.id}
        assert answer_of(await get(client, task.id)) == "Refunded."
        again = await stream(client, answer)
        assert (states(again), again[0].task.id) == (["completed"], task.id)


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("streaming", [True, False])
async def test_question_of_delegate_reaches_caller(
    binding: str, streaming: bool, durable: bool, tmp_path: Path
) -> None:
    @tool(approval=True)
    def refund(order: str) -> str:
        return f"refunded {order}"

    asks = call("agent_run_payer", prompt="Refund 7")
    agents = [
        Agent("lead", ScriptedModel([asks, "Refunded."]), delegates=[Delegate("payer", durable=durable)]),
        Agent("payer", ScriptedModel([call("refund", order="7"), "done"]), tools=[refund]),
    ]
    runtime = Runtime(agents, store=tmp_path / "app.db")
    async with (
        serve(runtime, agents=["lead"]) as url,
        connect(url, binding, streaming=streaming) as client,
    ):
        events = await stream(client, "Refund 7")
        assert states(events)[-1] == "input_required"
        events = await stream(client, said("approve", task_id=events[0].task.id))
        assert states(events)[-1] == "completed"


async def test_tickets_are_answered_by_id(binding: str) -> None:
    async with serve(shop()) as url, connect(url, binding, streaming=False) as client:
        task = await send(client, "Refund 7")
        asked = {ticket["tool"]: ticket for ticket in tickets_in(task)}
        assert asked["ask_size"]["schema"]["type"] == "integer"
        with pytest.raises(InvalidParamsError, match="2 tickets"):
            await send(client, said("approve", task_id=task.id))
        size = said("42", task_id=task.id)
        size.metadata["ticketId"] = asked["ask_size"]["ticketId"]
        task = await send(client, size)
        assert (state(task), [t["tool"] for t in tickets_in(task)]) == ("input_required", ["refund"])
        denied = {"ticketId": asked["refund"]["ticketId"], "verdict": "deny", "reason": "too late"}
        task = await send(client, said(data=denied, task_id=task.id))
        assert (state(task), answer_of(task)) == ("completed", "All done.")


async def test_ticket_is_answered_while_another_answer_is_processed(binding: str) -> None:
    gate, refunded = Gate(), list[str]()

    @tool(approval=True)
    async def refund(order: str) -> str:
        if order == "1":
            await gate.wait()
        refunded.append(order)
        return "done"

    runtime = assistant([call("refund", order="1"), call("refund", order="2")], "Both.", tools=[refund])
    async with serve(runtime) as url, connect(url, binding, streaming=False) as client:
        task = await send(client, "Refund 1 and 2")
        first, second = [
            said(data={"ticketId": t["ticketId"], "verdict": "approve"}, task_id=task.id) for t in tickets_in(task)
        ]
        assert state(await send(client, first, return_immediately=True)) == "working"
        await gate.reached.wait()
        assert state(await send(client, second, return_immediately=True)) == "working"
        await until(lambda: refunded == ["2"])
        with pytest.raises(UnsupportedOperationError, match="waits for no answer"):
            await send(client, said("approve", task_id=task.id))
        gate.opened.set()
        assert state(await send(client, second)) == "completed"
    assert refunded == ["2", "1"]


@pytest.mark.parametrize("durable", [False, True])
async def test_answer_to_delegate_returns_immediately_when_asked(
    binding: str, durable: bool, tmp_path: Path
) -> None:
    gate = Gate()

    @tool(approval=True)
    async def refund() -> str:
        await gate.wait()
        return "done"

    asks = call("agent_run_payer", prompt="Refund")
    agents = [
        Agent("lead", ScriptedModel([asks, "Refunded."]), delegates=[Delegate("payer", durable=durable)]),
        Agent("payer", ScriptedModel([call("refund"), "done"]), tools=[refund]),
    ]
    runtime = Runtime(agents, store=tmp_path / "app.db")
    async with serve(runtime, agents=["lead"]) as url, connect(url, binding, streaming=False) as client:
        task = await send(client, "Refund")
        async with asyncio.timeout(120):
            task = await send(client, said("approve", task_id=task.id), return_immediately=True)
        assert state(task) == "working"
        gate.opened.set()
        await until(lambda: is_over(client, task.id))


async def is_over(client: Client, task_id: str) -> bool:
    return state(await get(client, task_id)) == "completed"


async def test_one_of_two_concurrent_answers_is_refused(binding: str, tmp_path: Path) -> None:
    gate = Gate()

    @tool(approval=True)
    async def refund(order: str) -> str:
        await gate.wait()
        return "done"

    turns = [[call("refund", order="1"), call("refund", order="2")], "Both."]
    helper = Agent("helper", model=ScriptedModel(turns), tools=[refund])
    runtime = Runtime([helper], store=tmp_path / "app.db")
    async with serve(runtime) as url, connect(url, binding, streaming=False) as client:
        task = await send(client, "Refund 1 and 2")
        ticket_id = tickets_in(task)[0]["ticketId"]
        answers = [
            send(client, said(data={"ticketId": ticket_id, "verdict": verdict}, task_id=task.id))
            for verdict in ("approve", "deny")
        ]
        gate.opened.set()
        results = await asyncio.gather(*answers, return_exceptions=True)
        assert sorted(type(result).__name__ for result in results) == ["InvalidParamsError", "Task"]


async def test_message_may_carry_several_decisions(binding: str) -> None:
    async with serve(shop()) as url, connect(url, binding, streaming=False) as client:
        task = await send(client, "Refund 7")
        asked = {ticket["tool"]: ticket["ticketId"] for ticket in tickets_in(task)}
        both = [
            {"ticketId": asked["refund"], "verdict": "approve"},
            {"ticketId": asked["ask_size"], "value": 42},
        ]
        task = await send(client, said(data={"decisions": both}, task_id=task.id))
        assert (state(task), answer_of(task)) == ("completed", "All done.")


async def test_invalid_answer_changes_nothing(binding: str) -> None:
    async with serve(shop()) as url, connect(url, binding, streaming=False) as client:
        task = await send(client, "Refund 7")
        asked = {ticket["tool"]: ticket["ticketId"] for ticket in tickets_in(task)}
        with pytest.raises(InvalidParamsError, match="ask_size"):
            await send(client, said(data={"ticketId": asked["ask_size"], "value": "large"}, task_id=task.id))
        with pytest.raises(InvalidParamsError, match="approve or deny"):
            await send(client, said(data={"ticketId": asked["refund"], "verdict": "perhaps"}, task_id=task.id))
        with pytest.raises(InvalidParamsError, match="no open ticket"):
            await send(client, said(data={"ticketId": "k1", "verdict": "deny"}, task_id=task.id))
        assert len(tickets_in(await get(client, task.id))) == 2


async def test_message_to_task_is_refused_unless_waiting(binding: str) -> None:
    async with serve(assistant("Done.")) as url, connect(url, binding, streaming=False) as client:
        task = await send(client, "Go")
        with pytest.raises(UnsupportedOperationError, match="is over"):
            await send(client, said("more", task_id=task.id))
        with pytest.raises(TaskNotFoundError):
            await send(client, said("more", task_id="mine"))
        with pytest.raises(InvalidParamsError, match="of context"):
            await send(client, said("more", task_id=task.id, context_id="other"))


# -- ends ----------------------------------------------------------------------------------------------------


async def test_failure_is_the_status_message(binding: str) -> None:
    async with serve(assistant(ValueError("boom"))) as url, connect(url, binding) as client:
        events = await stream(client, "Go")
        assert states(events)[-1] == "failed"
        text = events[-1].status_update.status.message.parts[0].text
        assert "boom" not in text
        assert "ValueError: unexpected error, reference " in text


async def test_running_task_is_cancelled(binding: str) -> None:
    gate = Gate()
    async with serve(assistant(call("slow"), tools=[gate.slow])) as url, connect(url, binding) as client:
        events = aiter(client.send_message(pb.SendMessageRequest(message=said("Go"))))
        task = (await anext(events)).task
        await gate.reached.wait()
        cancelled = await client.cancel_task(pb.CancelTaskRequest(id=task.id))
        assert state(cancelled) == "canceled"
        assert states([event async for event in events])[-1] == "canceled"
        with pytest.raises(TaskNotCancelableError):
            await client.cancel_task(pb.CancelTaskRequest(id=task.id))


async def test_waiting_task_is_cancelled(binding: str) -> None:
    async with serve(shop()) as url, connect(url, binding, streaming=False) as client:
        task = await send(client, "Go")
        assert state(await client.cancel_task(pb.CancelTaskRequest(id=task.id))) == "canceled"


async def test_new_input_supersedes_waiting_task(binding: str) -> None:
    @tool(approval=True)
    def refund() -> str:
        return "never"

    runtime = assistant(call("refund"), "Never mind.", tools=[refund])
    async with serve(runtime) as url, connect(url, binding, streaming=False) as client:
        first = await send(client, said("Refund", context_id="c"))
        second = await send(client, said("Forget it", context_id="c"))
        assert (state(await get(client, first.id)), state(second)) == ("canceled", "completed")


# -- getting, listing, subscribing ---------------------------------------------------------------------------


async def test_unknown_task_is_not_found(binding: str) -> None:
    async with serve(assistant()) as url, connect(url, binding) as client:
        with pytest.raises(TaskNotFoundError):
            await get(client, "nope")
        with pytest.raises(TaskNotFoundError):
            await client.cancel_task(pb.CancelTaskRequest(id="nope"))
        with pytest.raises(TaskNotFoundError):
            [event async for event in client.subscribe(pb.SubscribeToTaskRequest(id="nope"))]


async def test_history_has_requested_length(binding: str) -> None:
    async with serve(assistant("Sunny.")) as url, connect(url, binding, streaming=False) as client:
        task = await send(client, "Weather?", history_length=0)
        assert not task.history
        assert [m.parts[0].text for m in (await get(client, task.id, history_length=1)).history] == ["Sunny."]


async def test_tasks_are_listed_in_pages(binding: str) -> None:
    async with serve(assistant(*["ok"] * 5)) as url, connect(url, binding, streaming=False) as client:
        sent = [await send(client, said("x", context_id=f"c{n % 2}")) for n in range(5)]
        newest = [task.id for task in reversed(sent)]
        found, token, pages = [], "", 0
        while pages == 0 or token:
            page = await client.list_tasks(pb.ListTasksRequest(page_size=2, page_token=token))
            found += [task.id for task in page.tasks]
            assert (page.total_size, page.page_size) == (5, 2)
            token, pages = page.next_page_token, pages + 1
        assert (found, pages) == (newest, 3)
        of_context = await client.list_tasks(pb.ListTasksRequest(context_id="c1"))
        assert [task.id for task in of_context.tasks] == [sent[3].id, sent[1].id]
        assert not any(task.artifacts or task.history for task in of_context.tasks)
        with_all = await client.list_tasks(
            pb.ListTasksRequest(include_artifacts=True, history_length=5, page_size=1)
        )
        assert (answer_of(with_all.tasks[0]), len(with_all.tasks[0].history)) == ("ok", 2)


@pytest.mark.parametrize("token", ["zzz", "0", "01a1e8b1-f6f8-7001-8ec2", "x" * 100])
async def test_invalid_page_token_is_refused(binding: str, token: str) -> None:
    async with serve(assistant("ok")) as url, connect(url, binding, streaming=False) as client:
        await send(client, "x")
        with pytest.raises(InvalidParamsError, match="pageToken is the last page's nextPageToken"):
            await client.list_tasks(pb.ListTasksRequest(page_token=token))


async def test_tasks_are_listed_by_state(binding: str) -> None:
    @tool(approval=True)
    def refund() -> str:
        return "never"

    runtime = assistant("ok", call("refund"), tools=[refund])
    async with serve(runtime) as url, connect(url, binding, streaming=False) as client:
        done, waits = await send(client, "a"), await send(client, "b")

        async def listed(wanted: pb.TaskState) -> list[str]:
            return [t.id for t in (await client.list_tasks(pb.ListTasksRequest(status=wanted))).tasks]

        assert await listed(pb.TASK_STATE_COMPLETED) == [done.id]
        assert await listed(pb.TASK_STATE_INPUT_REQUIRED) == [waits.id]
        assert await listed(pb.TASK_STATE_FAILED) == []


async def test_subscribe_is_refused_when_task_is_over(binding: str) -> None:
    async with serve(assistant("Done.")) as url, connect(url, binding) as client:
        task = (await stream(client, "Go"))[0].task
        with pytest.raises(UnsupportedOperationError, match="is over"):
            [event async for event in client.subscribe(pb.SubscribeToTaskRequest(id=task.id))]


async def test_subscriber_to_waiting_task_sees_it_resume(binding: str) -> None:
    async with serve(shop()) as url, connect(url, binding) as client:
        task = (await stream(client, "Go"))[0].task
        watching = aiter(client.subscribe(pb.SubscribeToTaskRequest(id=task.id)))
        assert states([await anext(watching)]) == ["input_required"]
        asked = {ticket["tool"]: ticket["ticketId"] for ticket in tickets_in(await get(client, task.id))}
        both = [{"ticketId": asked["refund"], "verdict": "approve"}, {"ticketId": asked["ask_size"], "value": 1}]
        await stream(client, said(data={"decisions": both}, task_id=task.id))
        seen = [event async for event in watching]
        assert (states(seen), text_of(seen)) == (["working", "completed"], "All done.")


async def test_unsupported_output_mode_is_refused(binding: str) -> None:
    async with serve(assistant()) as url, connect(url, binding, streaming=False) as client:
        with pytest.raises(ContentTypeNotSupportedError, match="text/plain"):
            await send(client, "Sing", accepted_output_modes=["audio/wav"])
