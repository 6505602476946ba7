"""wakeful's threads of many messages, as conversations with summaries leave them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.long_threads import SHOWN, TEXT, LongThread
from benchmarks.measures import INSTRUCTIONS, Plan, Tally
from wakeful import Agent, Message, ModelRequest, Runtime, Text, Usage
from wakeful.context import SummaryKey, SummaryState
from wakeful.models import Chunk, ModelFacts, StopChunk, TextChunk, UsageChunk
from wakeful.stores import Commit, StateWrite, Store
from wakeful.types.codec import encode
from wakeful.types.ids import new_id, now_ms
from wakeful.types.runs import Identity, NaturalEnd, Outcome, RunRecord


class Counting:
    """Counts the characters that it is shown, as the floors' models do."""

    name = "counting"
    live = False
    facts = ModelFacts(context_window=128_000, max_output=4096)

    def __init__(self, plan: Plan, tally: Tally) -> None:
        self.plan, self.tally, self.shown = plan, tally, 0

    async def stream(self, request: ModelRequest) -> list[Chunk]:
        self.tally.models += 1
        self.shown = sum([len(message.content[0].text) for message in request.messages])
        usage = Usage(self.shown // 4, 5)
        return [TextChunk(self.plan.text), UsageChunk(usage), StopChunk("end_turn")]


async def _seed(store: Store, thread: str, messages: int) -> None:
    """Write messages, of which a summary covers all but the newest."""
    for start in range(0, messages, 1000):
        known, run_id, now = await store.thread(thread), new_id(), now_ms()
        identity = Identity(run_id, thread, "bench", run_id)
        times = {"created_at": now, "started_at": now, "updated_at": now, "finished_at": now}
        outcome = Outcome(NaturalEnd())
        run = RunRecord(
            identity=identity, status="done", agent_id="bench", first_seq=start + 1, outcome=outcome, **times
        )
        roles: Any = ("user", "assistant")
        log = [Message(new_id(), roles[number % 2], (Text(TEXT),), now) for number in range(1000)]
        state: list[StateWrite] = []
        if start + 1000 >= messages:
            last = messages - SHOWN
            summary = Message(
                new_id(), "user", (Text("A summary."),), now, visibility="internal", covers=(1, last)
            )
            log.append(summary)
            state = [StateWrite(SummaryKey.name, encode(SummaryState(summary.id, last)))]
        version = 0 if known is None else known.version
        await store.commit(
            Commit(thread, identity, version=version, claim="seed", release=True, runs=[run], log=log, state=state)
        )


@asynccontextmanager
async def long_thread(store: Store, plan: Plan, tally: Tally, messages: int) -> AsyncIterator[LongThread]:
    thread, model = f"of-{messages}", Counting(plan, tally)
    await _seed(store, thread, messages)
    async with Runtime([Agent("bench", model=model, instructions=INSTRUCTIONS)], store=store) as runtime:

        async def turn(prompt: str) -> str:
            return (await runtime.run("bench", prompt, thread=thread)).text

        yield LongThread(turn, lambda: model.shown)
