"""Answers with data parts, and with messages in place of tasks."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from a2a.types import a2a_pb2 as pb
from a2a_serving import BINDINGS, connect, get, said, send, serve, state, stream, updates
from google.protobuf.json_format import MessageToDict

from wakeful import Agent, Runtime, ScriptedModel, Turn, call, tool
from wakeful.backends import BackendOutput, BackendResult, Capabilities, ExecutionBackend
from wakeful.errors import ConfigurationError
from wakeful.models import PartChunk, StopChunk, TextChunk
from wakeful.server import app
from wakeful.types import Artifact, Base64, Document

pytestmark = pytest.mark.parametrize("binding", BINDINGS)


def json_document(data: bytes, title: str | None = None) -> Document:
    return Document(Base64("application/json", base64.b64encode(data).decode()), title)


async def test_untyped_agent_answers_with_data(binding: str) -> None:
    parts = [json_document(b'{"degrees": 21}'), json_document(b"{}", "empty.json"), json_document(b"no JSON")]
    chunks = [TextChunk("Here."), *[PartChunk(part) for part in parts], StopChunk("end_turn")]
    runtime = Runtime([Agent("clerk", model=ScriptedModel([Turn(chunks=chunks)]))])
    async with serve(runtime) as url, connect(url, binding) as client:
        events = await stream(client, "Weather?", accepted_output_modes=["application/json"])
        (answer,) = (await get(client, events[0].task.id)).artifacts
        text, data, file, broken = answer.parts
        assert (text.text, MessageToDict(data.data)) == ("Here.", {"degrees": 21})
        assert (file.raw, file.filename, broken.raw) == (b"{}", "empty.json", b"no JSON")
        assert list(updates(events)[-1].artifact.parts) == [data, file, broken]


class Reporter(ExecutionBackend):
    """A backend that answers with a text, data and a file."""

    capabilities = Capabilities()

    async def execute_root(self, request: Any) -> BackendResult:
        made = (
            Artifact({"rows": [1, 2]}, id="data"),
            Artifact([3], media_type="application/json"),
            Artifact({"bytes": "aGk="}, name="hi.txt", media_type="text/plain"),
        )
        return BackendResult(request.agent_id, output=BackendOutput("Here.", made))


async def test_data_of_backend_is_served(binding: str) -> None:
    runtime = Runtime([Agent("far", backend=Reporter())])
    async with serve(runtime) as url, connect(url, binding, streaming=False) as client:
        (answer,) = (await send(client, "Report")).artifacts
        assert [part.WhichOneof("content") for part in answer.parts] == ["text", "raw", "data", "data"]
        assert [MessageToDict(part.data) for part in answer.parts[2:]] == [{"rows": [1, 2]}, [3]]


# -- messages in place of tasks --------------------------------------------------------------------------------


@tool(approval=True)
def refund() -> str:
    return "refunded"


def greeter(*turns: Any) -> Runtime:
    return Runtime([Agent("greeter", model=ScriptedModel(turns), tools=[refund])])


@pytest.mark.parametrize("streaming", [True, False])
async def test_agent_answers_with_message(binding: str, streaming: bool) -> None:
    runtime = greeter("Hello!", "Hello again!")
    async with (
        serve(runtime, messages=["greeter"]) as url,
        connect(url, binding, streaming=streaming) as client,
    ):
        hi = said("Hi")
        (first,) = await stream(client, hi)
        assert (first.message.role, first.message.parts[0].text) == (pb.ROLE_AGENT, "Hello!")
        assert await stream(client, hi) == [first]
        (second,) = await stream(client, said("Hi", context_id=first.message.context_id))
        assert second.message.parts[0].text == "Hello again!"
        assert second.message.message_id != first.message.message_id


async def test_agent_answers_with_task_where_message_is_not_enough(binding: str) -> None:
    runtime = greeter(call("refund"), "Refunded.", "Hello!")
    async with (
        serve(runtime, messages=["greeter"]) as url,
        connect(url, binding, streaming=False) as client,
    ):
        task = await send(client, "Refund")
        assert state(task) == "input_required"
        assert state(await send(client, said("approve", task_id=task.id))) == "completed"
        assert (await send(client, "Hi", return_immediately=True)).id


async def test_messages_name_agents_of_the_runtime(binding: str) -> None:
    with pytest.raises(ConfigurationError, match="no agent 'nobody'"):
        app(greeter("Hello!"), messages=["nobody"])
