"""The sources of an answer reach A2A clients in the metadata of its artifact."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from a2a.types import a2a_pb2 as pb
from a2a_serving import BINDINGS, connect, said, send, serve
from google.protobuf.json_format import MessageToDict

from wakeful import Agent, FunctionModel, Runtime
from wakeful.models import Chunk, ModelRequest, PartChunk, StopChunk, TextChunk
from wakeful.types import Citation

pytestmark = pytest.mark.parametrize("binding", BINDINGS)


async def cite(request: ModelRequest) -> AsyncIterator[Chunk]:
    yield TextChunk("Tea is green.")
    yield PartChunk(Citation("url", 7, 12, "https://tea.example", "Tea", vendor="acme", raw={"secret": 1}))
    yield StopChunk("end_turn")


async def test_artifact_names_the_sources_of_the_answer(binding: str) -> None:
    runtime = Runtime([Agent("a", model=FunctionModel(cite))])
    async with serve(runtime) as url, connect(url, binding, streaming=False) as client:
        task = await send(client, "Tea?")
    cited = MessageToDict(task.artifacts[0].metadata)["citations"]
    assert [(one["url"], one["start"], one["end"], "raw" in one) for one in cited] == [
        ("https://tea.example", 7, 12, False)
    ]


async def test_streamed_artifact_ends_with_its_sources(binding: str) -> None:
    runtime = Runtime([Agent("a", model=FunctionModel(cite))])
    async with serve(runtime) as url, connect(url, binding, streaming=True) as client:
        request = pb.SendMessageRequest(message=said("Tea?"))
        events = [event async for event in client.send_message(request)]
    found = [event.artifact_update.artifact for event in events if event.HasField("artifact_update")]
    assert "citations" in MessageToDict(found[-1].metadata)
