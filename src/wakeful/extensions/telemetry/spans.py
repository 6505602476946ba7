"""The spans of an activation, a request to a model and a tool call: their attributes and their ends."""

from __future__ import annotations

from contextvars import Token
from time import perf_counter, time_ns
from types import CoroutineType
from typing import Any

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer

from ...errors import ToolError
from ...loop import Activation
from ...models import Model, ModelRequest
from ...traces import trace_carrier
from ...types.calls import Call
from ...types.content import text_of
from ...types.runs import Failed, Identity, Principal, TraceContext, Usage
from . import names
from .content import AnswerParts, dump
from .guard import guarded
from .instruments import Instruments, Labels
from .propagation import present_headers, span_context

__all__ = ["CallSpan", "ChatSpan", "RunSpan", "call_attributes", "fail", "run_attributes"]

Attributes = dict[str, Any]


def fail(span: Span, error: str, text: str = "") -> None:
    """Mark a span as failed."""
    span.set_attribute(names.ERROR_TYPE, error)
    span.set_status(Status(StatusCode.ERROR, text or None))


def _shared(operation: str, thread_id: str, principal: Principal | None) -> Attributes:
    """The attributes of all spans: some back ends read the session and the user of each."""
    found = {names.OPERATION: operation, names.CONVERSATION: thread_id, names.SESSION: thread_id}
    return found if principal is None else {**found, names.USER: principal.id}


# -- activations ---------------------------------------------------------------------------------------------


def run_attributes(act: Activation) -> Attributes:
    """The attributes of an activation at its start."""
    run, agent = act.view.run, act.agent.agent
    found = _shared(names.INVOKE_AGENT, run.thread_id, run.principal)
    found |= {names.AGENT_NAME: agent.id, names.RUN_ID: run.id, names.TRIGGER: act.trigger}
    if act.agent.backend is None:
        found[names.PROVIDER], found[names.REQUEST_MODEL] = names.model_names(_name_of(agent.model))
    if agent.description:
        found[names.AGENT_DESCRIPTION] = agent.description
    return found


def _name_of(model: Any) -> str:
    return model if isinstance(model, str) else str(getattr(model, "name", "unknown"))


class RunSpan:
    """The span of an activation."""

    def __init__(self, span: Span, act: Activation, instruments: Instruments) -> None:
        self._span = span
        self._act = act
        self._instruments = instruments
        self._labels: Labels = {names.OPERATION: names.INVOKE_AGENT, names.AGENT_NAME: act.agent.id}
        self._began = perf_counter()
        self._kept: list[tuple[Span, int]] = []
        # The task of the activation goes on after it: both are taken back at its end.
        self._context: Token[Context] = contexts.attach(trace.set_span_in_context(span))
        self._carrier = trace_carrier.set(present_headers)

    @guarded
    def link(self, trace: TraceContext) -> None:
        """Link to the sender of an item."""
        for one in (*trace.links, trace.parent):
            if (found := span_context(one)) is not None:
                self._span.add_link(found)

    def keep(self, span: Span) -> None:
        """End a span of no duration together with this one, unless the activation never begins."""
        self._kept.append((span, time_ns()))

    @guarded
    def end(self, error: BaseException | None) -> None:
        """End the span; a run that waits has neither failed nor succeeded."""
        trace_carrier.reset(self._carrier)
        contexts.detach(self._context)
        if error is not None and self._act.draft.fence is None:
            return  # Another activation claimed the thread first: this one never began.
        for kept, at in self._kept:
            kept.end(at)
        run, span = self._act.view.run, self._span
        usage = run.usage
        span.set_attributes(
            {
                names.STATUS: run.status,
                names.RUN_INPUT_TOKENS: usage.input_tokens,
                names.RUN_OUTPUT_TOKENS: usage.output_tokens,
                names.RUN_COST: usage.cost,
            }
        )
        if run.waiting is not None:
            span.set_attribute(names.WAITS_FOR, run.waiting.reason)
        outcome = None if run.outcome is None else run.outcome.termination
        if isinstance(outcome, Failed):
            fail(span, outcome.error, outcome.text)
            self._labels[names.ERROR_TYPE] = outcome.error
        elif error is not None:
            fail(span, type(error).__name__)
            self._labels[names.ERROR_TYPE] = type(error).__name__
        span.end()
        self._instruments.agent.record(perf_counter() - self._began, self._labels)


# -- requests to models --------------------------------------------------------------------------------------


class ChatSpan:
    """The span of one request to a model."""

    def __init__(
        self,
        tracer: Tracer,
        act: Activation,
        model: Model,
        request: ModelRequest,
        purpose: str,
        instruments: Instruments,
        content: dict[str, str] | None,
    ) -> None:
        provider, name = names.model_names(model.name)
        run, settings = act.view.run, request.settings
        found = _shared(names.CHAT, run.thread_id, run.principal)
        wanted = {
            names.TEMPERATURE: settings.temperature,
            names.TOP_P: settings.top_p,
            names.MAX_TOKENS: settings.max_tokens,
            names.STOP_SEQUENCES: settings.stop or None,
            names.SEED: settings.seed,
            names.REASONING_LEVEL: None if settings.reasoning is None else str(settings.reasoning),
            names.COMPACTED: True if any(message.covers for message in request.messages) else None,
        }
        found |= {key: value for key, value in wanted.items() if value is not None}
        found |= {names.PROVIDER: provider, names.REQUEST_MODEL: name, names.AGENT_NAME: act.agent.id}
        found |= {names.OUTPUT_TYPE: "text" if request.output is None else "json", names.PURPOSE: purpose}
        self._span = tracer.start_span(
            f"{names.CHAT} {name}", kind=SpanKind.CLIENT, attributes=found | (content or {})
        )
        self._instruments = instruments
        self._labels: Labels = {names.OPERATION: names.CHAT, names.PROVIDER: provider, names.REQUEST_MODEL: name}
        self._answer = None if content is None else AnswerParts()
        self._began = self._last = perf_counter()
        self._context: Token[Context] = contexts.attach(trace.set_span_in_context(self._span))
        self._has_chunk = False

    def observe(self, chunks: Any) -> Any:
        """Pass chunks on in the form in which they come."""
        if chunks.__class__ is CoroutineType:
            return self._observe_whole(chunks)
        return self._observe_stream(chunks) if hasattr(chunks, "__aiter__") else chunks

    async def _observe_whole(self, answer: Any) -> Any:
        whole = await answer
        if self._answer is not None and isinstance(whole, list):
            for chunk in whole:  # pyright: ignore[reportUnknownVariableType]
                self._answer.add(chunk)
        return whole  # pyright: ignore[reportUnknownVariableType]

    async def _observe_stream(self, chunks: Any) -> Any:
        try:
            async for chunk in chunks:
                self._count_chunk()
                if self._answer is not None:
                    self._answer.add(chunk)
                yield chunk
        finally:
            if (close := getattr(chunks, "aclose", None)) is not None:
                await close()

    def _count_chunk(self) -> None:
        now = perf_counter()
        if self._has_chunk:
            self._instruments.next_chunk.record(now - self._last, self._labels)
        else:
            self._has_chunk = True
            self._span.set_attribute(names.FIRST_CHUNK, now - self._began)
            self._instruments.first_chunk.record(now - self._began, self._labels)
        self._last = now

    @guarded
    def end(self, usage: Usage, stop: str, error: BaseException | None) -> None:
        """End the span with the usage of the request, which no other span has under the standard names."""
        contexts.detach(self._context)
        span, labels, reason = self._span, self._labels, names.finish_reason(stop)
        span.set_attribute(names.REQUEST_STREAM, self._has_chunk)
        tokens = {
            names.INPUT_TOKENS: usage.input_tokens,
            names.OUTPUT_TOKENS: usage.output_tokens,
            names.CACHE_READ_TOKENS: usage.cached_tokens,
            names.CACHE_WRITE_TOKENS: usage.cache_write_tokens,
            names.REASONING_TOKENS: usage.reasoning_tokens,
        }
        span.set_attributes({name: count for name, count in tokens.items() if count})
        if self._answer is not None:
            span.set_attribute(names.OUTPUT_MESSAGES, self._answer.dump(reason))
        if error is not None:
            labels = {**labels, names.ERROR_TYPE: type(error).__name__}
            fail(span, type(error).__name__)
        elif stop != "unknown":
            span.set_attribute(names.FINISH_REASONS, [reason])
        span.end()
        self._instruments.operation.record(perf_counter() - self._began, labels)
        for kind, count in (("input", usage.input_tokens), ("output", usage.output_tokens)):
            if count:
                self._instruments.tokens.record(count, {**self._labels, names.TOKEN_TYPE: kind})


# -- tool calls ----------------------------------------------------------------------------------------------


def call_attributes(call: Call, run: Identity, principal: Principal | None, with_content: bool) -> Attributes:
    """The attributes of a call at its start."""
    found = _shared(names.EXECUTE_TOOL, run.thread_id, principal)
    found |= {names.TOOL_NAME: call.name, names.TOOL_TYPE: "function", names.TOOL_CALL_ID: call.id}
    found |= {names.AGENT_NAME: run.agent_id, names.ATTEMPT: call.attempt}
    if with_content:
        found[names.TOOL_ARGUMENTS] = dump(call.effective_arguments)
    return found


# The types of errors of calls that ended without a result.
_STOPPED = {"timeout": "timeout", "interrupted": "cancelled"}


class CallSpan:
    """The span of one attempt at a tool call. A call that waits is no error."""

    def __init__(self, span: Span, started: Any, instruments: Instruments, with_content: bool) -> None:
        self._span = span
        self._instruments = instruments
        self._with_content = with_content
        self._labels: Labels = {
            names.TOOL_NAME: started.call.name,
            names.TOOL_TYPE: "function",
            names.AGENT_NAME: started.context.run.agent_id,
        }
        self._began = perf_counter()

    @guarded
    def end(self, end: Any) -> None:
        """End the span with the end of the call in this process."""
        span, labels = self._span, self._labels
        span.set_attribute(names.CALL_STATE, end.ended)
        kind = _error_type(end)
        if kind is not None:
            labels[names.ERROR_TYPE] = kind
            fail(span, kind)
        if self._with_content and end.reply is not None:
            span.set_attribute(names.TOOL_RESULT, text_of(end.reply.content))
        span.end()
        self._instruments.tool.record(perf_counter() - self._began, labels)


def _error_type(end: Any) -> str | None:
    if end.error is not None:
        return end.error.kind if isinstance(end.error, ToolError) else type(end.error).__name__
    if end.reply is not None and end.reply.error is not None:
        return end.reply.error
    return _STOPPED.get(end.ended)
