"""The spans of a run: their names, parents, attributes and content."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from opentelemetry.trace import SpanKind, StatusCode
from recorded import Recorded, attribute, parent_id, span_id, trace_id

from wakeful import (
    Agent,
    ModelError,
    ModelSettings,
    Principal,
    RetryPolicy,
    RunFailed,
    Runtime,
    ScriptedModel,
    ToolError,
    Turn,
    Usage,
    call,
    tool,
)
from wakeful.extensions.telemetry import trace_headers
from wakeful.models import FunctionModel


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def adder(*tools: Any, **options: Any) -> Agent[str]:
    answer = Turn(text="It is 3.", usage=Usage(input_tokens=50, output_tokens=7, cached_tokens=40, cost=9))
    asked = Turn(calls=[call("add", a=1, b=2)], usage=Usage(input_tokens=20, output_tokens=5, cost=2))
    return Agent("adder", model=ScriptedModel([asked, answer]), tools=[add, *tools], **options)


async def test_run_has_one_span_with_its_requests_and_calls_below() -> None:
    recorded = Recorded()
    result = await recorded.runtime(adder()).run("adder", "1 + 2?", principal=Principal("ann"), thread="sums")
    run, tool_span = recorded.one("invoke_agent adder"), recorded.one("execute_tool add")
    chats = recorded.named("chat scripted")
    assert len(recorded.spans) == 4
    assert parent_id(run) is None
    assert {parent_id(span) for span in (tool_span, *chats)} == {span_id(run)}
    assert (run.kind, chats[0].kind) == (SpanKind.INTERNAL, SpanKind.CLIENT)
    for span in recorded.spans:  # Back ends read them of each span.
        assert attribute(span, "gen_ai.conversation.id") == attribute(span, "session.id") == "sums"
        assert attribute(span, "user.id") == "ann"
        assert span.status.status_code is StatusCode.UNSET
    assert attribute(run, "wakeful.run.id") == result.run_id
    assert attribute(run, "wakeful.status") == "done"
    assert attribute(tool_span, "gen_ai.tool.name") == "add"
    assert attribute(tool_span, "gen_ai.tool.description") == "Add two numbers."
    assert attribute(chats[0], "gen_ai.response.finish_reasons") == ("tool_call",)
    assert attribute(chats[1], "gen_ai.response.finish_reasons") == ("stop",)


async def test_usage_is_on_chat_spans_alone() -> None:
    """Back ends add up the standard names over all spans of a trace."""
    recorded = Recorded()
    await recorded.runtime(adder()).run("adder", "1 + 2?")
    used = [
        span.name
        for span in recorded.spans
        if any(key.startswith("gen_ai.usage") for key in span.attributes or {})
    ]
    assert used == ["chat scripted"] * 2
    chats = recorded.named("chat scripted")
    assert [attribute(chat, "gen_ai.usage.input_tokens") for chat in chats] == [20, 50]
    assert [attribute(chat, "gen_ai.usage.output_tokens") for chat in chats] == [5, 7]
    assert attribute(chats[1], "gen_ai.usage.cache_read.input_tokens") == 40
    run = recorded.one("invoke_agent adder")
    assert attribute(run, "wakeful.usage.input_tokens") == 70
    assert attribute(run, "wakeful.usage.cost") == 11


async def test_provider_and_settings_are_on_the_request() -> None:
    recorded = Recorded()
    model = ScriptedModel(["hi"], name="azure:gpt-9")
    agent = Agent("a", model=model, settings=ModelSettings(temperature=0.5, max_tokens=30, stop=("END",)))
    await recorded.runtime(agent).run("a", "hi")
    chat = recorded.one("chat gpt-9")
    assert attribute(chat, "gen_ai.provider.name") == "azure.ai.openai"
    assert attribute(chat, "gen_ai.request.temperature") == 0.5
    assert attribute(chat, "gen_ai.request.max_tokens") == 30
    assert attribute(chat, "gen_ai.request.stop_sequences") == ("END",)
    assert attribute(recorded.one("invoke_agent a"), "gen_ai.request.model") == "gpt-9"


async def test_user_spans_nest_in_tools_and_in_threads() -> None:
    recorded = Recorded()

    @tool
    async def outer() -> str:
        """Look."""
        with recorded.tracer.start_as_current_span("in a task"):
            await asyncio.gather(inside("one"), inside("two"))
        return "ok"

    async def inside(name: str) -> None:
        with recorded.tracer.start_as_current_span(name):
            pass

    @tool
    def sync() -> str:
        """Look."""
        with recorded.tracer.start_as_current_span("in a thread"):
            return "ok"

    agent = Agent("a", model=ScriptedModel([[call("outer"), call("sync")], "done"]), tools=[outer, sync])
    await recorded.runtime(agent).run("a", "go")
    in_task = recorded.one("in a task")
    assert parent_id(in_task) == span_id(recorded.one("execute_tool outer"))
    assert parent_id(recorded.one("one")) == parent_id(recorded.one("two")) == span_id(in_task)
    assert parent_id(recorded.one("in a thread")) == span_id(recorded.one("execute_tool sync"))


async def test_spans_of_the_model_nest_in_its_request() -> None:
    recorded = Recorded()

    def answer(request: Any) -> str:
        with recorded.tracer.start_as_current_span("POST"):
            return "hi"

    await recorded.runtime(Agent("a", model=FunctionModel(answer))).run("a", "hi")
    (chat,) = [span for span in recorded.spans if span.name.startswith("chat")]
    assert parent_id(recorded.one("POST")) == span_id(chat)


async def test_run_is_below_the_span_of_its_caller() -> None:
    recorded = Recorded()
    runtime = recorded.runtime(adder())
    with recorded.tracer.start_as_current_span("request") as request:
        await runtime.run("adder", "1 + 2?")
        with recorded.tracer.start_as_current_span("after") as after:
            pass
    run = recorded.one("invoke_agent adder")
    assert parent_id(run) == request.get_span_context().span_id
    # The run's context ended with it.
    assert parent_id(recorded.one("after")) == parent_id(run) != after.get_span_context().span_id


async def test_content_is_recorded_on_request_only() -> None:
    silent, loud = Recorded(), Recorded(content=True)
    for recorded in (silent, loud):
        agent = adder(instructions="Add up.")
        await recorded.runtime(agent).run("adder", "1 + 2?")
    assert not any("1 + 2?" in str(span.attributes) or "Add up." in str(span.attributes) for span in silent.spans)
    first, second = loud.named("chat scripted")
    assert json.loads(attribute(first, "gen_ai.input.messages")) == [
        {"role": "user", "parts": [{"type": "text", "content": "1 + 2?"}]}
    ]
    assert json.loads(attribute(first, "gen_ai.system_instructions"))[0]["content"] == "Add up."
    asked = json.loads(attribute(first, "gen_ai.output.messages"))[0]
    assert asked["parts"] == [{"type": "tool_call", "name": "add", "arguments": {"a": 1, "b": 2}}]
    roles = [message["role"] for message in json.loads(attribute(second, "gen_ai.input.messages"))]
    assert roles == ["user", "assistant", "tool"]
    assert json.loads(attribute(second, "gen_ai.output.messages"))[0]["parts"][0]["content"] == "It is 3."
    tool_span = loud.one("execute_tool add")
    assert json.loads(attribute(tool_span, "gen_ai.tool.call.arguments")) == {"a": 1, "b": 2}
    assert attribute(tool_span, "gen_ai.tool.call.result") == "3"


async def test_content_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "span_only")
    recorded = Recorded()
    await recorded.runtime(adder()).run("adder", "1 + 2?")
    assert attribute(recorded.named("chat scripted")[0], "gen_ai.input.messages") is not None


async def test_failures_are_errors_of_their_spans() -> None:
    recorded = Recorded()

    class NoSuchThing(ToolError):
        kind = "not_found"

    @tool
    async def fails() -> str:
        """Fail."""
        raise NoSuchThing("no luck")

    model = ScriptedModel([call("fails"), ModelError("the vendor is down")])
    runtime = recorded.runtime(Agent("a", model=model, tools=[fails]), retry=RetryPolicy(retries=0))
    with pytest.raises(RunFailed):
        await runtime.run("a", "go")
    assert attribute(recorded.one("execute_tool fails"), "error.type") == "not_found"
    chats = recorded.named("chat scripted")
    assert [attribute(chat, "error.type") for chat in chats] == [None, "ModelError"]
    run = recorded.one("invoke_agent a")
    assert run.status.status_code is StatusCode.ERROR
    assert attribute(run, "error.type") == "ModelError"


async def test_each_request_of_a_retried_answer_has_a_span() -> None:
    recorded = Recorded()
    model = ScriptedModel([ModelError("busy", transient=True), "hi"])
    runtime = recorded.runtime(Agent("a", model=model), retry=RetryPolicy(backoff=0))
    await runtime.run("a", "hi")
    assert [attribute(chat, "error.type") for chat in recorded.named("chat scripted")] == ["ModelError", None]


async def test_headers_name_the_present_span() -> None:
    """Extensions send them with their own requests."""
    recorded, seen = Recorded(), list[dict[str, str]]()

    @tool
    async def fetch() -> str:
        """Fetch."""
        seen.append(trace_headers())
        return "ok"

    runtime = recorded.runtime(Agent("a", model=ScriptedModel([call("fetch"), "done"]), tools=[fetch]))
    await runtime.run("a", "go")
    span = recorded.one("execute_tool fetch")
    _, trace, parent, flags = seen[0]["traceparent"].split("-")
    assert (int(trace, 16), int(parent, 16)) == (trace_id(span), span_id(span))
    assert int(flags, 16) & 1
    assert trace_headers() == {}


async def test_headers_are_empty_without_telemetry() -> None:
    recorded, seen = Recorded(), list[dict[str, str]]()

    @tool
    async def fetch() -> str:
        """Fetch."""
        seen.append(trace_headers())
        return "ok"

    runtime = Runtime([Agent("a", model=ScriptedModel([call("fetch"), "done"]), tools=[fetch])])
    with recorded.tracer.start_as_current_span("request"):
        await runtime.run("a", "go")
    assert seen == [{}]


async def test_broken_telemetry_never_fails_a_run(caplog: pytest.LogCaptureFixture) -> None:
    recorded = Recorded()

    class Broken:
        def start_span(self, *_: Any, **__: Any) -> Any:
            raise ValueError("no span today")

    recorded.telemetry.tracer._tracer = Broken()  # type: ignore[attr-defined]
    result = await recorded.runtime(adder()).run("adder", "1 + 2?")
    assert result.text == "It is 3."
    assert "telemetry failed in begin_run" in caplog.text


async def test_metrics_follow_the_conventions() -> None:
    recorded = Recorded()
    await recorded.runtime(adder()).run("adder", "1 + 2?")
    tokens = {
        labels["gen_ai.token.type"]: point.sum for labels, point in recorded.metric("gen_ai.client.token.usage")
    }
    assert tokens == {"input": 70, "output": 12}
    ((labels, point),) = recorded.metric("gen_ai.client.operation.duration")
    assert labels["gen_ai.operation.name"] == "chat"
    assert labels["gen_ai.request.model"] == "scripted"
    assert point.count == 2
    assert point.explicit_bounds[:3] == pytest.approx((0.01, 0.02, 0.04))
    assert [point.count for _, point in recorded.metric("gen_ai.client.operation.time_to_first_chunk")] == [2]
    ((labels, point),) = recorded.metric("gen_ai.execute_tool.duration")
    assert (labels["gen_ai.tool.name"], point.count) == ("add", 1)
    ((labels, point),) = recorded.metric("gen_ai.invoke_agent.duration")
    assert (labels["gen_ai.agent.name"], point.count) == ("adder", 1)
    # Ours are beside them.
    assert [point.value for _, point in recorded.metric("wakeful.runs_started")] == [1]
