"""Requests: previews of long results, refusals before a call, and limits reported by the vendor."""

from __future__ import annotations

from typing import Any

import pytest

from wakeful import (
    Agent,
    Compaction,
    ConfigurationError,
    FunctionModel,
    ModelRequest,
    Plugin,
    Runtime,
    ScriptedModel,
    Usage,
    WindowPolicy,
    call,
    tool,
)
from wakeful.errors import ContextOverflow
from wakeful.events import Compacted
from wakeful.models import CallChunk, ModelFacts, StopChunk, Turn
from wakeful.plugins import BeforeInference, ContextMessage
from wakeful.types.content import text_of

from .helpers import Reader, tokens_of
from .test_long_conversations import WORDS, agent, events_of, known

LONG = "\n".join(f"line {number}: nothing to see" for number in range(2000)) + "\nthe end"


@tool(effect="pure")
async def fetch() -> str:
    """Fetch something long."""
    return LONG


def names(request: ModelRequest) -> list[str]:
    return [spec.name for spec in request.tools]


async def test_long_result_is_previewed_and_readable() -> None:
    def answer(request: ModelRequest) -> Any:
        replies = [m.reply for m in request.messages if m.reply is not None]
        if not replies:
            return call("fetch")
        if len(replies) == 1:
            assert len(text_of(replies[0].content)) < 3000
            assert "read_result(call_id=" in text_of(replies[0].content)
            return call("read_result", call_id=replies[0].call_id, offset=30_000, limit=200)
        if len(replies) == 2:
            return call("read_result", call_id=replies[0].call_id, search="LINE 1234")
        return "\n".join(text_of(reply.content) for reply in replies[1:])

    model = Reader(answer, 8000)
    runtime = Runtime([Agent("a", model=model, tools=[fetch])])
    result = await runtime.run("a", "Fetch it.", thread="t")
    assert f"[characters 30,000 to 30,200 of {len(LONG):,}; go on with offset=30200]" in result.text
    assert LONG[30_000:30_200] in result.text
    assert "line 1234: nothing" in result.text
    assert [names(request) for request in model.requests] == [["fetch"], *[["fetch", "read_result"]] * 3]
    (whole, *_) = [m.reply for m in await runtime.threads.messages("t") if m.reply is not None]
    assert text_of(whole.content) == LONG


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"call_id": "nope"}, "no result of a call 'nope'"),
        ({"offset": 10**9}, f"the result has {len(LONG):,} characters"),
        ({"search": "unheard of"}, "'unheard of' isn't in the result"),
        ({"offset": len(LONG) - 7}, "the end]\nthe end"),
    ],
)
async def test_read_result_errors_say_what_is_wrong(arguments: dict[str, Any], told: str) -> None:
    def answer(request: ModelRequest) -> Any:
        replies = [m.reply for m in request.messages if m.reply is not None]
        if len(replies) == 1:
            return call("read_result", **{"call_id": replies[0].call_id, **arguments})
        return text_of(replies[-1].content) if replies else call("fetch")

    result = await Runtime([Agent("a", model=Reader(answer, 8000), tools=[fetch])]).run("a", "Fetch it.")
    assert told in result.text


async def test_read_result_accepts_the_vendors_call_id() -> None:
    def answer(request: ModelRequest) -> Any:
        replies = [m.reply for m in request.messages if m.reply is not None]
        if not replies:
            return Turn(chunks=[CallChunk("fetch", {}, "call_7"), StopChunk("tool_use")])
        return text_of(replies[1].content) if replies[1:] else call("read_result", call_id="call_7", limit=20)

    result = await Runtime([Agent("a", model=Reader(answer, 8000), tools=[fetch])]).run("a", "Fetch it.")
    assert f"[characters 0 to 20 of {len(LONG):,};" in result.text


async def test_read_result_reads_summarised_results() -> None:
    model = Reader(lambda request: call("fetch") if len(request.messages) == 1 else known(request), 3000)
    runtime = Runtime([Agent("a", model=model, tools=[fetch])])
    for turn in range(20):
        await runtime.run("a", f"fact-{turn}. {WORDS}", thread="t")
    (summary, *_) = [m for m in model.requests[-1].messages if m.covers is not None]
    assert f"fetch, {len(LONG):,} characters" in summary.text
    assert names(model.requests[-1]) == ["fetch", "read_result"]
    call_id = summary.text.partition("call_id='")[2].partition("'")[0]
    model._say = lambda request: (
        call("read_result", call_id=call_id, limit=20)
        if request.messages[-1].reply is None
        else text_of(request.messages[-1].reply.content)
    )
    result = await runtime.run("a", "What was it?", thread="t")
    assert LONG[:20] in result.text


async def test_plugin_can_exclude_read_result() -> None:
    class Strict(Plugin):
        async def before_inference(self, ctx: BeforeInference) -> None:
            ctx.plan.exclude_tools("read_result")

    model = Reader(lambda request: call("fetch") if len(request.messages) == 1 else "ok", 8000)
    runtime = Runtime([Agent("a", model=model, tools=[fetch], plugins=[Strict()])])
    assert (await runtime.run("a", "Fetch it.")).text == "ok"
    assert names(model.requests[-1]) == ["fetch"]
    assert "read_result" not in str(model.requests[-1].messages)


async def test_application_tool_replaces_read_result() -> None:
    @tool(effect="pure")
    async def read_result(of: str) -> str:
        """Read an exam's result."""
        return f"{of}: passed"

    model = ScriptedModel([call("read_result", of="Ann"), "ok"])
    runtime = Runtime([Agent("a", model=model, tools=[read_result])])
    await runtime.run("a", "Go.", thread="t")
    assert names(model.requests[0]) == ["read_result"]
    (reply,) = [m.reply for m in await runtime.threads.messages("t") if m.reply is not None]
    assert text_of(reply.content) == "Ann: passed"


# -- what is too long ----------------------------------------------------------------------------------------


async def test_oversized_request_is_refused_before_the_call() -> None:
    model = Reader(known)
    result = await Runtime([agent(model)]).run("a", "word " * 3000, check=False)
    assert model.requests == []
    assert result.error is not None
    assert "ContextOverflow" in result.error
    assert "room for 1,500 tokens" in result.error
    assert "has about 3,763 (instructions and tools 9, the newest user message 3,754);" in result.error


async def test_own_refusal_teaches_no_vendor_limit() -> None:
    model = Reader(known)
    runtime = Runtime([agent(model)])
    await runtime.run("a", "word " * 3000, check=False)
    assert runtime._scope.env.gauges.get(model).refused is None


async def test_results_of_one_step_are_shortened_together() -> None:
    """Each result fits by itself, but not all of them together."""

    @tool(effect="pure")
    async def part(number: int) -> str:
        """A part."""
        return "word " * 130

    model = Reader(
        lambda request: [call("part", number=n) for n in range(16)] if len(request.messages) == 1 else "ok"
    )
    result = await Runtime([Agent("a", model=model, tools=[part])]).run("a", "Go.")
    assert result.text == "ok"
    assert len(model.requests[-1].messages) == 18 or "not shown" in model.requests[-1].messages[0].text


async def test_context_and_newest_user_message_are_never_cut() -> None:
    class Rules(Plugin):
        async def before_inference(self, ctx: BeforeInference) -> None:
            ctx.add_context(ContextMessage("house", "The rules of the house.", target="session"))
            ctx.add_context(ContextMessage("now", "It is Monday.", target="conversation"))
            ctx.add_context(ContextMessage("end", "Be brief.", target="end"))

    model = Reader(lambda request: call("look") if len(model.requests) < 30 else "done")

    @tool(effect="pure")
    async def look() -> str:
        """Look."""
        return WORDS

    window = WindowPolicy(compaction=None, min_recent=2)
    runtime = Runtime([Agent("a", model=model, tools=[look], plugins=[Rules()], window=window)])
    assert (await runtime.run("a", "Look around.")).text == "done"
    for request in model.requests:
        told = [message.text for message in request.messages]
        assert told[0] == "The rules of the house."
        assert told[-1] == "Be brief."
        assert told.index("It is Monday.") + 1 == told.index("Look around.")


async def test_nothing_is_cut_without_a_known_window() -> None:
    model = ScriptedModel([WORDS] * 30)
    runtime = Runtime([Agent("a", model=model)])
    for _ in range(30):
        await runtime.run("a", WORDS * 5, thread="t")
    assert len(model.requests[-1].messages) == 59


async def test_nothing_is_cut_without_a_policy() -> None:
    model = ScriptedModel([WORDS] * 12)
    model.facts = ModelFacts(context_window=1000, max_output=100)  # type: ignore[attr-defined]
    runtime = Runtime([Agent("a", model=model, window=None)])
    for _ in range(12):
        await runtime.run("a", WORDS * 5, thread="t")
    assert len(model.requests[-1].messages) == 23


class Vendor(FunctionModel):
    """A vendor that rejects long requests and has no known window."""

    def __init__(self, limit: int, said: str = "prompt is too long") -> None:
        super().__init__(self._reply, name="vendor")
        self.limit, self.said = limit, said
        self.refused = self.summaries = 0
        self.sent: list[ModelRequest] = []

    def _reply(self, request: ModelRequest) -> Any:
        if tokens_of(request) > self.limit:
            self.refused += 1
            raise ContextOverflow(self.said.format(limit=self.limit, tokens=tokens_of(request)))
        if "<conversation>" in request.messages[0].text:
            self.summaries += 1
            return "The code is fact-0."
        self.sent.append(request)
        return known(request)


@pytest.mark.parametrize(
    "said",
    ["too long", "prompt is too long: {tokens} tokens > {limit} maximum", "at most {limit} tokens, not {tokens}"],
)
async def test_overflow_leads_to_a_summary_and_a_retry(said: str) -> None:
    model = Vendor(2000, said)
    runtime = Runtime([Agent("a", model=model)])
    for turn in range(40):
        fact = "fact-0 is the code." if turn == 0 else ""
        result = await runtime.run("a", f"{fact} Turn {turn}. {WORDS}", thread="t")
        assert result.text.startswith("True"), result.error
    assert model.refused == 1
    assert model.summaries >= 1
    assert (await events_of(runtime, Compacted))[0].outcome == "done"


async def test_overflow_in_a_first_run_is_retried_shorter() -> None:
    refused = list[int]()

    def reply(request: ModelRequest) -> Any:
        if tokens_of(request) > 2000:
            refused.append(tokens_of(request))
            raise ContextOverflow("too long")
        return "done" if request.messages[-1].role == "tool" else call("fetch")

    model = FunctionModel(reply, name="vendor")
    result = await Runtime([Agent("a", model=model, tools=[fetch])]).run("a", "Fetch it.")
    assert (result.text, len(refused)) == ("done", 1), result.error


async def test_second_overflow_ends_the_run() -> None:
    model = Vendor(10)
    result = await Runtime([Agent("a", model=model)]).run("a", WORDS, check=False)
    assert model.refused <= 2
    assert result.error is not None
    assert "ContextOverflow" in result.error


# -- counting ------------------------------------------------------------------------------------------------


async def test_reported_usage_corrects_the_estimate() -> None:
    """A vendor that counts twice as many tokens gets requests half as long."""

    def answer(request: ModelRequest) -> Any:
        assert tokens_of(request) * 2 <= 4000 or not model.requests[8:]
        return Turn(text=WORDS, usage=Usage(tokens_of(request) * 2, 50))

    model = Reader(answer, 16_000)
    model.facts = ModelFacts(context_window=5000, max_output=1000)
    runtime = Runtime([agent(model, compaction=None)])
    for _ in range(60):
        await runtime.run("a", WORDS, thread="t")
    assert max(tokens_of(request) for request in model.requests[8:]) * 2 > 2500


async def test_model_count_is_used_near_the_limit() -> None:
    class Counting(Reader):
        counted = 0

        async def count_tokens(self, request: ModelRequest) -> int:
            self.counted += 1
            return tokens_of(request) * 3

    model = Counting(known, 4000)
    runtime = Runtime([agent(model, compaction=None)])
    for _ in range(30):
        await runtime.run("a", WORDS, thread="t")
    assert 0 < model.counted < 30
    assert max(tokens_of(request) for request in model.requests[-5:]) * 3 <= 3000


# -- configuration -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("window", "problem"),
    [
        (WindowPolicy(max_tokens=10), "window.max_tokens is a whole number of at least 256, not 10"),
        (WindowPolicy(reserve=0), "window.reserve is a whole number of at least 1, not 0"),
        (WindowPolicy(max_tokens=1000, reserve=900), "more than half of window.max_tokens"),
        (WindowPolicy(min_recent=0), "window.min_recent is a whole number of at least 1, not 0"),
        (WindowPolicy(offload=True), "window.offload is a whole number of at least 64, not True"),
        (WindowPolicy(max_tokens=1000, offload=2000), "window.offload is more than window.max_tokens"),
        (WindowPolicy(compaction=Compaction(threshold=75)), "compaction.threshold is a share of the room"),
        (WindowPolicy(compaction=Compaction(min_savings=-1)), "compaction.min_savings is a share"),
        (WindowPolicy(compaction=Compaction(keep=-1)), "compaction.keep is a whole number of at least 0"),
        (WindowPolicy(compaction=Compaction(prompt=" ")), "compaction.prompt is empty"),
        (WindowPolicy(compaction=Compaction(prompt=5)), "compaction.prompt is a text"),  # type: ignore[arg-type]
        (WindowPolicy(compaction=Compaction(prompt="a\ud83d")), "compaction.prompt has a lone surrogate"),
        (WindowPolicy(compaction=Compaction(model="nope:x")), "compaction.model: "),
        (WindowPolicy(compaction=True), "window.compaction is a Compaction(...) or None"),  # type: ignore[arg-type]
        (4000, "window is a WindowPolicy(...) or None, not 4000"),
    ],
)
def test_invalid_window_policy_is_refused(window: Any, problem: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Runtime([Agent("a", model=ScriptedModel([]), window=window)])
    assert problem in str(caught.value)
    assert "agent 'a'" in str(caught.value)


async def test_plugin_replaces_the_messages() -> None:
    class LastTwo(Plugin):
        async def before_inference(self, ctx: BeforeInference) -> None:
            ctx.plan.replace_messages(ctx.messages[-2:])

    model = ScriptedModel(["one", "two", "three"])
    runtime = Runtime([Agent("a", model=model, plugins=[LastTwo()])])
    for prompt in ("1", "2", "3"):
        await runtime.run("a", prompt, thread="t")
    told = [message.text for message in model.requests[2].messages]
    assert told == ["[The beginning of the conversation is not shown.]", "two", "3"]
    assert len(await runtime.threads.messages("t")) == 6


async def test_plugin_replacing_with_non_messages_is_refused() -> None:
    class Wrong(Plugin):
        async def before_inference(self, ctx: BeforeInference) -> None:
            ctx.plan.replace_messages(["hello"])  # type: ignore[list-item]

    result = await Runtime([Agent("a", model=ScriptedModel([]), plugins=[Wrong()])]).run("a", "go", check=False)
    assert result.error is not None
    assert "plan.replace_messages takes messages" in result.error
