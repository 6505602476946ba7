"""Tools that the vendor runs within an answer, and the citations of its sources."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest

from wakeful import Agent, ConfigurationError, Plugin, Runtime
from wakeful.events import MessageAdded, ServerToolUpdate
from wakeful.models import Chunk, ModelRequest, PartChunk, StopChunk, TextChunk, WebSearch
from wakeful.plugins import BeforeInference
from wakeful.types import Citation, ServerTool, Text

SEARCH = ServerTool("s1", "web_search", {"query": "tea"}, status="running", vendor="acme")
FOUND = ServerTool("s1", "web_search", {"query": "tea"}, [{"url": "https://tea"}], vendor="acme", raw=({"a": 1},))
SOURCE = Citation("url", 0, 7, "https://tea", "Tea", vendor="acme")


class Searching:
    """A model that searches before it answers."""

    name = "acme:searching"
    live = False

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        self.chunks = chunks
        self.requests: list[ModelRequest] = []

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        self.requests.append(request)
        for chunk in self.chunks:
            yield chunk


class Masks(Plugin):
    async def before_inference(self, ctx: BeforeInference) -> None:
        ctx.plan.replace_messages([message.with_text(message.text) for message in ctx.messages])


CHUNKS = [
    PartChunk(SEARCH),
    PartChunk(FOUND),
    TextChunk("Tea is "),
    PartChunk(SOURCE),
    TextChunk("good."),
    StopChunk("end_turn"),
]


async def test_server_tool_and_citation_are_content(tmp_path):
    async with Runtime([Agent("a", model=Searching(CHUNKS))], store=tmp_path / "a.db") as runtime:
        result = await runtime.run("a", "Tea?", thread="t")
    async with Runtime([Agent("a", model=Searching(CHUNKS))], store=tmp_path / "a.db") as runtime:
        answer = (await runtime.threads.messages("t"))[-1]
    assert result.text == "Tea is good."
    assert answer.content == (FOUND, Text("Tea is good."), SOURCE)
    assert answer.citations == (SOURCE,)


async def test_server_tool_is_shown_while_it_runs():
    async with Runtime([Agent("a", model=Searching(CHUNKS))]) as runtime:
        events = [event async for event in runtime.stream("a", "Tea?")]
    assert [event.tool for event in events if isinstance(event, ServerToolUpdate)] == [SEARCH, FOUND]
    messages = [event.message for event in events if isinstance(event, MessageAdded)]
    assert messages[-1].citations == (SOURCE,)


async def test_server_tools_of_agent_are_in_request():
    model = Searching(CHUNKS)
    async with Runtime([Agent("a", model=model, server_tools=[WebSearch(max_uses=2)])]) as runtime:
        await runtime.run("a", "Tea?")
    assert model.requests[0].server_tools == (WebSearch(max_uses=2),)


def test_server_tools_are_checked():
    with pytest.raises(ConfigurationError, match=r"server_tools takes tools of the vendor such as WebSearch\(\)"):
        Runtime([Agent("a", model="openai:gpt-5", server_tools=["web_search"])])


async def test_lone_surrogates_in_citation_are_replaced(tmp_path):
    chunks = [TextChunk("Tea."), PartChunk(Citation("url", title="\ud800")), StopChunk("end_turn")]
    async with Runtime([Agent("a", model=Searching(chunks))], store=tmp_path / "a.db") as runtime:
        await runtime.run("a", "Tea?", thread="t")
        assert (await runtime.threads.messages("t"))[-1].citations[0].title == "\ufffd"


async def test_citation_of_continued_answer_counts_from_its_start():
    class Breaking(Searching):
        async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
            self.requests.append(request)
            if len(self.requests) == 1:
                yield TextChunk("Tea is ")
                yield StopChunk("max_tokens")
            else:
                yield TextChunk("good.")
                yield PartChunk(Citation("url", 0, 5))
                yield StopChunk("end_turn")

    async with Runtime([Agent("a", model=Breaking(()))]) as runtime:
        await runtime.run("a", "Tea?", thread="t")
        answer = (await runtime.threads.messages("t"))[-1]
    (cited,) = answer.citations
    assert answer.text[cited.start : cited.end] == "good."


@pytest.mark.parametrize("plugins", [[], [Masks()]], ids=["plain", "masked"])
async def test_paused_answer_is_continued_without_prompt(plugins):
    class Pausing(Searching):
        async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
            self.requests.append(request)
            if len(self.requests) == 1:
                yield TextChunk("Let me see. ")
                yield PartChunk(FOUND)
                yield StopChunk("pause_turn")
            else:
                yield TextChunk("Tea is good.")
                yield StopChunk("end_turn")

    model = Pausing(())
    async with Runtime([Agent("a", model=model, plugins=plugins)]) as runtime:
        assert (await runtime.run("a", "Tea?")).text == "Let me see. Tea is good."
    assert [message.role for message in model.requests[1].messages] == ["user", "assistant"]
