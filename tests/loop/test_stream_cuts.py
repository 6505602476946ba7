"""Any cut of a stream, anywhere, by any error: the same answer as without it, or a clean failure."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from wakeful import Agent, MemoryStore, ModelRequest, Runtime, SqliteStore, Usage, tool
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
from wakeful.models import CallDeltaChunk, CallStartChunk, Chunk, ReasoningChunk, StopChunk, TextChunk, UsageChunk
from wakeful.stores import Store
from wakeful.testing import FakeClock, Recorder
from wakeful.types.content import Thinking
from wakeful.types.events import InferenceComplete
from wakeful.types.runs import Failed, NaturalEnd

from .faults import AT_ONCE, goes_on, shown
from .helpers import assert_settled, events_of, reply_text

PASSING = (RateLimited, ModelOverloaded, ModelUnavailable, ModelTimeout, StreamBroken)
LASTING = (ContextOverflow, InvalidRequest, BadCredentials, ModelNotFound, ContentFiltered, ModelError)

# A block is a thought with its signature, or a text.
Block = tuple[str, str | None] | str


def told_apart(blocks: list[Block]) -> list[Block]:
    """The blocks without those whose end nobody can tell: thoughts without a signature, before other thoughts."""
    after = [*blocks, ""][1:]
    return [b for b, n in zip(blocks, after, strict=False) if isinstance(b, str) or b[1] or isinstance(n, str)]


BLOCKS = st.lists(
    st.one_of(
        st.text("ab ", min_size=1, max_size=6),
        st.tuples(st.text("xy", min_size=1, max_size=4), st.sampled_from([None, "signed"])),
    ),
    max_size=4,
).map(told_apart)
CUTS = st.lists(
    st.tuples(st.integers(0, 30), st.sampled_from([*PASSING, *PASSING, *LASTING])), min_size=1, max_size=4
)


class Told:
    """A model with one answer, which continues it where it is asked to. Its first requests are cut. Asked again
    with results, it makes the calls that have none, and then is done.
    """

    name, live = "told", False

    def __init__(self, blocks: Sequence[Block], calls: int, cuts: Sequence[Any], slow: bool) -> None:
        self.blocks, self.calls, self.cuts = blocks, calls, list(cuts)
        self.billed = 0
        # Checkpoints are written as time passes.
        self.slow = slow
        self.clock = FakeClock()

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Answer, as far as the next cut."""
        done = [m.reply for m in request.messages if m.reply is not None]
        if done:
            made = [reply_text(reply) for reply in done]
            chunks, cut = self._calls([n for n in range(self.calls) if f"act {n}" not in made]), None
        else:
            chunks = [*self._rest(request), *self._calls(range(self.calls))]
            cut = self.cuts.pop(0) if self.cuts else None
        whole = [UsageChunk(Usage(input_tokens=1)), *chunks, StopChunk("tool_use" if self.calls else "end_turn")]
        for place, chunk in enumerate(whole):
            if cut is not None and place == cut[0]:
                raise cut[1]("cut")
            self.billed += isinstance(chunk, UsageChunk)
            if self.slow:
                await self.clock.advance(0.1)
            yield chunk
        if cut is not None:
            raise cut[1]("cut at the end")

    def _rest(self, request: ModelRequest) -> list[Chunk]:
        before = goes_on(request)
        said = "" if before is None else before.text
        thought = 0 if before is None else sum(isinstance(part, Thinking) for part in before.content)
        chunks: list[Chunk] = []
        for block in self.blocks:
            if isinstance(block, tuple):
                if thought:
                    thought -= 1
                    continue
                chunks += [ReasoningChunk(letter) for letter in block[0]]
                if block[1] is not None:
                    chunks.append(ReasoningChunk(signature=block[1]))
            else:
                assert block.startswith(said[: len(block)]), "it is asked to go on from what it never said"
                chunks += [TextChunk(letter) for letter in block[len(said) :]]
                said = said[len(block) :]
        return chunks

    def _calls(self, numbers: Sequence[int]) -> list[Chunk]:
        chunks: list[Chunk] = []
        for index, number in enumerate(numbers):
            pieces = ['{"', "x", f'": {number}', "}"]
            chunks += [CallStartChunk(index, "act"), *[CallDeltaChunk(index, piece) for piece in pieces]]
        return chunks


def thoughts(content: Sequence[Any]) -> list[Thinking]:
    return [part for part in content if isinstance(part, Thinking)]


async def cut_up(blocks: list[Block], calls: int, cuts: list[Any], store: Callable[[], Store]) -> None:
    ran: list[int] = []

    @tool
    async def act(x: int) -> str:
        """Act."""
        ran.append(x)
        return f"act {x}"

    kept = store()
    model = Told(blocks, calls, cuts, kept.durable)
    agent = Agent("agent", model=model, tools=[act], window=None)  # What is too long is not made shorter.
    runtime = Runtime([agent], retry=AT_ONCE, store=kept, clock=model.clock)
    recorder = await asyncio.wait_for(
        Recorder().record(runtime.stream("agent", "go", thread="t", check=False)), 120
    )
    await assert_settled(runtime, "t")
    (run,) = await runtime.runs.list(thread="t")
    ending = run.outcome.termination  # type: ignore[union-attr]
    said = "".join(block for block in blocks if isinstance(block, str))
    answers = [m for m in await runtime.threads.messages("t") if m.role == "assistant"]
    first = next((m for m in answers), None)
    told = "" if first is None else first.text

    assert run.usage == Usage(input_tokens=model.billed), "what was paid isn't what was counted"
    assert len(ran) == len(set(ran)), "a call was made twice"
    if ending == NaturalEnd():
        assert told == said
        assert sorted(ran) == list(range(calls))
        if first is not None and not calls:
            assert thoughts(first.content) == [Thinking(*b) for b in blocks if isinstance(b, tuple)]
        completed = next(i for i, e in enumerate(recorder.events) if isinstance(e, InferenceComplete))
        assert shown(recorder.events[:completed]) == said
        assert (await events_of(runtime, "t", InferenceComplete))[0].model == "told"
    else:
        assert isinstance(ending, Failed)
        assert ran == []
        assert said.startswith(told)
        assert ending.error == "StreamBroken" if told else ending.message.startswith("cut")
        assert not [call for m in answers for call in m.calls]
    await runtime.close()


@given(blocks=BLOCKS, calls=st.integers(0, 2), cuts=CUTS)
@example(blocks=["a"], calls=0, cuts=[(2, StreamBroken), (1, RateLimited), (0, StreamBroken)])
@example(blocks=["a", ("x", None), "b"], calls=0, cuts=[(3, StreamBroken)])
@example(blocks=["a"], calls=2, cuts=[(9, StreamBroken)])
@settings(max_examples=settings.default.max_examples * 6)
def test_any_cut_leaves_same_answer_or_clean_failure(blocks: Any, calls: int, cuts: Any) -> None:
    asyncio.run(cut_up(blocks, calls, cuts, MemoryStore))


@given(blocks=BLOCKS, calls=st.integers(0, 2), cuts=CUTS)
@settings(max_examples=max(1, settings.default.max_examples // 2))
def test_any_cut_is_as_clean_on_disk(blocks: Any, calls: int, cuts: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        asyncio.run(cut_up(blocks, calls, cuts, lambda: SqliteStore(path, synchronous="NORMAL")))
