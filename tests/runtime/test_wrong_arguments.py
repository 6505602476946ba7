"""An argument that a constructor doesn't have is named, with the one that was perhaps meant."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import pytest

import wakeful
from wakeful import Agent, ConfigurationError, Runtime, ScriptedModel
from wakeful.errors import WrongArguments
from wakeful.models.compatible import CompatibleModel
from wakeful.models.google import GoogleModel
from wakeful.models.openai import OpenAIModel

SCRIPTED = Agent("a", model=ScriptedModel([]))


@pytest.mark.parametrize(
    ("make", "wrong", "meant"),
    [
        (lambda **given: Agent("a", **given), "instruction", "instructions"),
        (lambda **given: Runtime([Agent("a")], **given), "stroe", "store"),
        (lambda **given: Agent.remote("a", a2a="https://there.example", **given), "timeot", "timeout"),
        (wakeful.WindowPolicy, "max_token", "max_tokens"),
        (wakeful.Compaction, "promt", "prompt"),
        (wakeful.RetryPolicy, "retrys", "retries"),
        (wakeful.RateLimit, "request_per_minute", "requests_per_minute"),
        (lambda **given: wakeful.Pool(["a:b"], **given), "stiky", "sticky"),
        (lambda **given: wakeful.Delegate("b", **given), "durabel", "durable"),
        (wakeful.Limits, "stpes", "steps"),
        (wakeful.Capacity, "runing", "running"),
        (wakeful.Retention, "event", "events"),
        (wakeful.messaging.DeliveryPolicy, "attempt", "attempts"),
        (wakeful.ModelSettings, "temprature", "temperature"),
        (wakeful.MailPolicy, "acept", "accept"),
        (wakeful.ToolResult, "mesage", "message"),
        (lambda **given: wakeful.Principal("ada", **given), "claim", "claims"),
        (lambda **given: wakeful.Decision("t", **given), "reson", "reason"),
        (lambda **given: ScriptedModel([], **given), "nam", "name"),
        (lambda **given: wakeful.ClientTool("t", **given), "parameter", "parameters"),
        (wakeful.tool, "aproval", "approval"),
        (wakeful.task, "efect", "effect"),
        # Models hand what they share on to their base, and that knows what theirs are.
        (lambda **given: OpenAIModel("gpt-5", **given), "key", "api_key"),
        (lambda **given: GoogleModel("gemini", **given), "vertx", "vertex"),
        (lambda **given: CompatibleModel("m", base_url="http://gpu/v1", **given), "tmeout", "timeout"),
    ],
)
def test_unknown_keyword_is_named_with_nearest(make: Callable[..., Any], wrong: str, meant: str) -> None:
    with pytest.raises(WrongArguments) as raised:
        make(**{wrong: 1})
    assert f"has no argument {wrong!r}; did you mean {meant!r}?" in str(raised.value)


def test_unknown_option_of_sync_call_is_named_with_nearest() -> None:
    runtime = Runtime([Agent("a", model=ScriptedModel(["hi"]))])
    with pytest.raises(
        WrongArguments, match=r"run_sync\(...\) has no argument 'thread_id'; did you mean 'thread'\?"
    ):
        runtime.run_sync("a", "hello", thread_id="t")
    with pytest.raises(
        WrongArguments, match=r"resume_sync\(...\) has no argument 'anwsers'; did you mean 'answers'"
    ):
        runtime.resume_sync("r", anwsers={})
    assert runtime.run_sync("a", "hello", thread="t").text == "hi"


@pytest.mark.parametrize(
    ("verb", "wrong", "meant"),
    [
        ("run", "thread_id", "thread"),
        ("run", "conversation_id", "thread"),
        ("start", "message_history", "thread"),
        ("send", "thread_id", "thread"),
        ("resume", "anwsers", "answers"),
        ("wait", "run", "run_id"),
        ("threads.messages", "thread_id", "thread"),
        ("runs.list", "user", "principal"),
        ("runs.list", "colour", ""),
        ("tickets.answer", "ticket", "ticket_id"),
        ("tasks.spawn", "agent", "target"),
        ("mail.pending", "thread_id", "thread"),
    ],
)
async def test_unknown_keyword_of_verb_is_named(verb: str, wrong: str, meant: str) -> None:
    runtime = Runtime([Agent("a", model=ScriptedModel([]))])
    function = attrgetter(verb)(runtime)
    assert inspect.iscoroutinefunction(function)
    with pytest.raises(WrongArguments) as raised:
        await function(**{wrong: "x"})
    hint = f"did you mean {meant!r}?" if meant else "it has "
    assert f"{'Runtime' if '.' not in verb else 'runtime'}.{verb}(...) has no argument {wrong!r}; {hint}" in str(
        raised.value
    )


@pytest.mark.parametrize(
    ("make", "wrong", "meant"),
    [
        (lambda **given: Agent(**given), "name", "'id'"),
        (lambda **given: Agent("a", **given), "prompt", "'instructions'"),
        (lambda **given: Agent("a", **given), "system_prompt", "'instructions'"),
        (lambda **given: Agent("a", **given), "max_turns", "Agent(limits=Limits(steps=...))"),
        (lambda **given: Agent("a", **given), "deps_type", "Runtime(deps=...)"),
        (lambda **given: Runtime([SCRIPTED], **given), "checkpointer", "'store'"),
        (lambda **given: Runtime([SCRIPTED]).run_sync("a", "hi", **given), "deps", "Runtime(deps=...)"),
        (lambda **given: Runtime([SCRIPTED]).run_sync("a", "hi", **given), "output_type", "Agent(output=...)"),
        (lambda **given: Runtime([SCRIPTED]).run_sync("a", "hi", **given), "stream", "Runtime.stream(...)"),
        (lambda **given: Runtime([SCRIPTED]).run_sync("a", "hi", **given), "context", "Runtime(deps=...)"),
        (lambda **given: Runtime([SCRIPTED]).run_sync("a", "hi", **given), "config", "'thread'"),
        (lambda **given: Agent("a", **given), "middleware", "'plugins'"),
        (lambda **given: Agent("a", **given), "input_guardrails", "'guardrails'"),
    ],
)
def test_keyword_of_other_frameworks_is_translated(make: Callable[..., Any], wrong: str, meant: str) -> None:
    with pytest.raises(WrongArguments) as raised:
        make(**{wrong: 1})
    assert f"has no argument {wrong!r}; did you mean {meant}?" in str(raised.value)


def test_unknown_keyword_of_stream_is_named() -> None:
    runtime = Runtime([Agent("a", model=ScriptedModel([]))])
    with pytest.raises(WrongArguments, match=r"Runtime.events\(...\) has no argument 'cursor'; .* 'after'"):
        runtime.events("t", cursor="1")  # type: ignore[call-arg]
    with pytest.raises(WrongArguments, match=r"Runtime.stream\(...\) has no argument 'session_id'; .* 'thread'"):
        runtime.stream("a", "hi", session_id="1")  # type: ignore[call-arg]


def test_unknown_keywords_are_all_named_when_none_is_near() -> None:
    with pytest.raises(ConfigurationError) as raised:
        Agent("a", rpm=60, colour="red")  # type: ignore[call-arg]
    first, second = raised.value.problems
    assert first.startswith("Agent(...) has no argument 'rpm'; it has id, model, instructions,")
    assert "'colour'" in second


@pytest.mark.parametrize(("make", "says"), [(Agent, "Agent(...): "), (Runtime, "Runtime(...): ")])
def test_missing_argument_has_same_error(make: Callable[..., Any], says: str) -> None:
    with pytest.raises(WrongArguments) as raised:
        make()
    assert str(raised.value).startswith(says)
    assert isinstance(raised.value, TypeError)


def test_type_error_from_inside_is_unchanged() -> None:
    class Broken(ScriptedModel):
        def __init__(self) -> None:
            super().__init__(5)  # type: ignore[arg-type]

    with pytest.raises(TypeError, match="not iterable") as raised:
        Broken()
    assert not isinstance(raised.value, WrongArguments)


def test_signatures_are_kept() -> None:
    assert list(inspect.signature(Agent).parameters)[:2] == ["id", "model"]
    assert list(inspect.signature(Runtime).parameters)[:2] == ["agents", "tools"]
