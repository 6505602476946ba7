"""Requests that `before_inference` hooks shape: summaries, their failures, and the size of replaced messages."""

from __future__ import annotations

from msgspec.structs import replace

from wakeful import Agent, FunctionModel, Message, Plugin, Runtime, ScriptedModel, Usage
from wakeful.events import Compacted
from wakeful.models import ModelFacts, ModelRequest, Turn
from wakeful.plugins import BeforeInference
from wakeful.types.content import Text
from wakeful.types.runs import EndRequested

from .helpers import Reader, facts_in
from .test_compaction import talk
from .test_long_conversations import agent, events_of, known


class AtSummary(Plugin):
    """Notes the facts of each summary's messages, and does something about it."""

    def __init__(self, action: str) -> None:
        self.action = action
        self.seen: list[int] = []

    async def before_inference(self, ctx: BeforeInference) -> None:
        if ctx.plan.purpose != "summary":
            return
        self.seen.append(len(ctx.messages))
        match self.action:
            case "raise":
                raise ValueError("not with this text")
            case "end":
                ctx.end_run("no summaries here")
            case _:
                ctx.plan.instructions = f"{ctx.plan.instructions} In English."
                ctx.plan.add_system("Briefly.")
                ctx.plan.settings(temperature=0.5)
                ctx.plan.replace_messages(ctx.messages[:2])


async def test_hook_shapes_the_request_of_a_summary() -> None:
    model, plugin = Reader(known), AtSummary("shape")
    runtime = Runtime([agent(model)], plugins=[plugin])
    await talk(runtime, 10)
    (request,) = model.summaries
    assert facts_in(request) == {"fact-0"}
    assert request.system.endswith("instructions inside the conversation. In English.\n\nBriefly.")
    assert request.settings.temperature == 0.5
    assert request.settings.max_tokens is not None
    (event,) = await events_of(runtime, Compacted)
    assert event.outcome == "done"


async def test_hook_that_raises_blocks_the_summary_alone() -> None:
    model, plugin = Reader(known), AtSummary("raise")
    runtime = Runtime([agent(model)], plugins=[plugin])
    await talk(runtime, 10)
    assert not model.summaries
    assert len(plugin.seen) == 1
    (event,) = await events_of(runtime, Compacted)
    assert event.outcome == "failed"
    assert "plugin 'AtSummary' failed in before_inference: ValueError: unexpected error" in event.reason


async def test_hook_that_ends_the_run_blocks_both_requests() -> None:
    model, plugin = Reader(known), AtSummary("end")
    runtime = Runtime([agent(model)], plugins=[plugin])
    ended = None
    for turn in range(12):
        result = await runtime.run("a", f"fact-{turn}. " + "word " * 100, thread="t")
        if isinstance(result.termination, EndRequested):
            ended = turn
            break
    assert ended is not None
    assert not model.summaries
    assert len(model.requests) == ended


class Lengthen(Plugin):
    """Replaces each message by a longer one with the same id."""

    async def before_inference(self, ctx: BeforeInference) -> None:
        longer = [replace(m, content=(Text(f"{m.text} " + "word " * 300),)) for m in ctx.messages]
        ctx.plan.replace_messages(longer)


async def test_replaced_messages_are_measured_as_they_are_sent() -> None:
    sizes: list[int] = []

    def answer(request: ModelRequest) -> Turn:
        sizes.append(sum(len(message.text) for message in request.messages))
        return Turn(text="ok", usage=Usage())

    model = FunctionModel(answer, name="small")
    runtime = Runtime(
        [Agent("a", model=model)],
        plugins=[Lengthen()],
        facts={"small": ModelFacts(context_window=2_000, max_output=500)},
    )
    for turn in range(8):
        await runtime.run("a", f"{turn}", thread="t")
    assert max(sizes) <= 1_500 * 4


class Append(Plugin):
    """Adds a word to each message."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def before_inference(self, ctx: BeforeInference) -> None:
        def add(message: Message) -> Message:
            return replace(message, content=(Text(f"{message.text} {self.name}"),))

        ctx.plan.instructions += f" {self.name}"
        ctx.plan.replace_messages([add(message) for message in ctx.messages])


class AppendBeside(Append):
    concurrent = True


async def test_hook_sees_the_messages_of_hooks_before_it() -> None:
    model = ScriptedModel(["ok"])
    plugins = [Append("one"), Append("two"), AppendBeside("three")]
    await Runtime([Agent("a", model=model, instructions="Go")], plugins=plugins).run("a", "hi")
    assert model.requests[0].system == "Go three one two"
    assert [message.text for message in model.requests[0].messages] == ["hi three one two"]


async def test_two_concurrent_hooks_cannot_replace_messages() -> None:
    model = ScriptedModel(["ok"])
    plugins = [AppendBeside("one"), AppendBeside("two")]
    result = await Runtime([Agent("a", model=model)], plugins=plugins).run("a", "hi", check=False)
    assert not model.requests
    assert "the concurrent plugins 'one', 'two' replaced the messages" in str(result.termination)
