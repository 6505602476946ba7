"""Windows of long threads: loaded from the end of the log, cut where later turns cut, and cached."""

from __future__ import annotations

from cProfile import Profile
from pathlib import Path
from typing import Any

import pytest

from wakeful import (
    Agent,
    Decision,
    FunctionModel,
    MemoryStore,
    ModelRequest,
    Plugin,
    Runtime,
    SqliteStore,
    WindowPolicy,
    call,
    tool,
)
from wakeful.context import SummaryKey
from wakeful.errors import UsageError
from wakeful.models import ModelFacts
from wakeful.plugins import BeforeInference

from .helpers import Reader, facts_in
from .seeding import Reads, append, seed
from .test_compaction import talk
from .test_long_conversations import WORDS, agent, known

UNCOMPACTED: dict[str, Any] = {"compaction": None}


def ok(request: ModelRequest) -> str:
    return "ok"


async def test_cached_window_has_turns_of_another_process(tmp_path: Path) -> None:
    model = Reader(ok, window=8000)
    agents = [agent(model)]
    one, other = (Runtime(agents, store=SqliteStore(tmp_path / "a.db")) for _ in range(2))
    await seed(one.store, 60, "Words.")
    for turn, runtime in enumerate([one, one, other, one]):
        await runtime.run("a", f"Turn {turn}.", thread="t")
    asked = [message.text for message in model.requests[-1].messages if message.text.startswith("Turn")]
    assert asked == ["Turn 0.", "Turn 1.", "Turn 2.", "Turn 3."]
    await one.close()
    await other.close()


async def _calls_of_warm_turn(count: int) -> int:
    """The function calls of a turn at the end of a thread that ran here before."""
    model = FunctionModel(ok)
    model.facts = ModelFacts(context_window=1_000_000)
    runtime = Runtime([Agent("a", model=model)])
    await seed(runtime.store, count, "Words.")
    for _ in range(3):
        await runtime.run("a", "Go.", thread="t")
    profile = Profile()
    profile.enable()
    await runtime.run("a", "Go.", thread="t")
    profile.disable()
    return sum(entry.callcount for entry in profile.getstats())


async def test_warm_turn_does_no_work_for_each_message_shown() -> None:
    assert await _calls_of_warm_turn(1000) < await _calls_of_warm_turn(100) + 300


async def test_deleted_thread_is_not_shown_from_the_cache() -> None:
    model = Reader(ok, window=8000)
    runtime = Runtime([agent(model)])
    await seed(runtime.store, 60, "Words.")
    await runtime.run("a", "Go.", thread="t")
    await runtime.threads.delete("t")
    await seed(runtime.store, 60, "Others.")
    await runtime.run("a", "Go.", thread="t")
    assert not any("Words." in message.text for message in model.requests[-1].messages)


async def test_failed_turn_leaves_no_message_in_the_cache() -> None:
    model = Reader(lambda request: 1 / 0 if "Fail" in request.messages[-1].text else "ok", window=8000)
    runtime = Runtime([agent(model)])
    await seed(runtime.store, 60, "Words.")
    for text in ("Go.", "Fail.", "Go on."):
        await runtime.run("a", text, thread="t", check=False)
    log = await runtime.threads.messages("t")
    assert [message.id for message in model.requests[-1].messages] == [message.id for message in log[:-1]]


async def test_newest_user_message_is_shown_after_a_long_turn(tmp_path: Path) -> None:
    """A run that a fresh process resumes far from its start, without summaries."""
    model = Reader(lambda request: call("look") if len(model.requests) < 40 else call("spend"))

    @tool(effect="pure")
    async def look() -> str:
        """Look."""
        return WORDS

    @tool(approval=True)
    async def spend() -> str:
        """Spend."""
        return "spent"

    def opened(model: Reader) -> Runtime:
        own = Agent("a", model=model, tools=[look, spend], window=WindowPolicy(**UNCOMPACTED))
        return Runtime([own], store=SqliteStore(tmp_path / "a.db"))

    runtime = opened(model)
    await seed(runtime.store, 100, WORDS)
    waiting = await runtime.run("a", "fact-1: do it all.", thread="t")
    assert waiting.status == "waiting"
    await runtime.close()
    again = Reader(ok)
    runtime = opened(again)
    await runtime.resume(waiting.run_id, Decision(waiting.tickets[0].id, mode="proceed"))
    await runtime.close()
    texts = [message.text for message in again.requests[0].messages]
    assert "not shown" in texts[0]
    assert texts[1] == "fact-1: do it all."


async def test_summary_is_shown_before_a_window_that_is_full() -> None:
    model = Reader(known)
    runtime = Runtime([agent(model)])
    await talk(runtime, 10)
    assert model.summaries
    await append(runtime.store, [f"{number} {WORDS}" for number in range(60)])
    reads, later = Reads(runtime.store), Reader(known)
    await Runtime([agent(later, **UNCOMPACTED)], store=runtime.store).run("a", "And?", thread="t")
    shown = [message.text for message in later.requests[0].messages]
    assert "fact-0 fact-1" in shown[0]
    assert "not shown" in shown[1]
    assert "59 These" in " ".join(shown)
    assert reads.rows < 60


async def test_lost_summary_mark_is_ignored() -> None:
    model = Reader(ok, window=8000)
    store = MemoryStore()
    await seed(store, 40, "Words.")
    runtime = Runtime([agent(model)], store=store)
    store._threads["t"].state[SummaryKey.name] = b'{"message_id":"gone","last":20}'
    await runtime.run("a", "And?", thread="t")
    assert "fact-0" in facts_in(model.requests[0])


async def test_fork_of_long_thread_is_shown_its_window() -> None:
    model = Reader(ok)
    runtime = Runtime([agent(model, **UNCOMPACTED)])
    await seed(runtime.store, 300, WORDS)
    at = (await runtime.threads.messages("t"))[149].seq
    fork = await runtime.threads.fork("t", at=at)
    await runtime.run("a", "And?", thread=fork)
    facts = facts_in(model.requests[0])
    assert {"fact-148", "fact-149"} <= facts
    assert "fact-150" not in facts
    assert "not shown" in model.requests[0].messages[0].text


async def test_fork_reads_no_more_than_the_last_answer() -> None:
    @tool(approval=True)
    async def spend(euros: int) -> str:
        """Spend."""
        return "spent"

    model = Reader(lambda request: [call("spend", euros=n) for n in range(20)], window=100_000)
    runtime = Runtime([Agent("a", model=model, tools=[spend])])
    await seed(runtime.store, 300, "Words.")
    waiting = await runtime.run("a", "Spend.", thread="t")
    assert len(waiting.tickets) == 20
    answer = (await runtime.threads.messages("t"))[-1]
    reads = Reads(runtime.store)
    with pytest.raises(UsageError, match=f"the tool calls of message {answer.seq} would have no results there"):
        await runtime.threads.fork("t")
    fork = await runtime.threads.fork("t", at=answer.seq - 1)
    assert reads.rows < 40
    assert (await runtime.threads.messages(fork))[-1].text == "Spend."
    await runtime.cancel(waiting.run_id)
    assert (await runtime.threads.messages(await runtime.threads.fork("t")))[-1].role == "tool"


async def test_larger_model_of_a_plan_is_shown_more() -> None:
    small, large = Reader(ok), Reader(ok, window=20_000, name="large")

    class Choosing(Plugin):
        async def before_inference(self, ctx: BeforeInference) -> None:
            if "large" in ctx.messages[-1].text:
                ctx.plan.model = "house:large"

    own = Agent("a", model=small, plugins=[Choosing()], window=WindowPolicy(**UNCOMPACTED))
    runtime = Runtime([own], models={"house:large": large})
    await seed(runtime.store, 1000, WORDS)
    await runtime.run("a", "small", thread="t")
    await runtime.run("a", "large", thread="t")
    assert len(large.requests[0].messages) > 5 * len(small.requests[0].messages)


async def test_fresh_processes_cut_at_the_same_message() -> None:
    """Requests of several turns share a prefix, which vendors cache, whichever process makes them."""
    store, model = MemoryStore(), Reader(ok, window=4000)
    await seed(store, 300, "These are some words of a long conversation.")
    for _ in range(40):
        runtime = Runtime([agent(model, **UNCOMPACTED)], store=store)
        await runtime.run("a", "These are some words of a turn in it.", thread="t")
    starts = [request.messages[1].id for request in model.requests]
    assert all("not shown" in request.messages[0].text for request in model.requests)
    assert len(set(starts)) < 10
