"""Summaries of a history: a task writes one beside the run, and the run's own commit lands it at a step boundary.

The task never outlives its activation. A run that ends waits for it, since the next run would start over; a run
that fails, is cancelled, handed over or waits drops it.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

from msgspec.structs import replace

from ...context import (
    SUMMARY_PROMPT,
    Compaction,
    Gauge,
    Room,
    Span,
    SummaryKey,
    SummaryState,
    WindowPolicy,
    choose_span,
    fold,
    is_left_out_note,
    make_summary,
    room_of,
    summary_request,
)
from ...errors import ConfigurationError, HookFailed, UnknownModel, WakefulError
from ...models import Model, ModelRequest, TextChunk, UsageChunk, check_live, stream_guarded
from ...models.shared.secrets import redact
from ...plugins import InferencePlan
from ...stores import UsageEntry
from ...types.events import Compacted
from ...types.messages import Message, Producer
from ...types.requests import ModelSettings
from ...types.runs import Usage
from ..activation import Activation
from ..commits import flush
from ..disclosure import disclose
from .assembler import NO_USAGE
from .pieces import check_usage
from .request import shape_plan
from .watchdog import Watch
from .window import PendingSummary

__all__ = ["begin_summary", "drop_summary", "land_summary", "wait_and_land", "wait_for_summary"]


async def begin_summary(act: Activation, policy: WindowPolicy, model: Model, gauge: Gauge, room: Room) -> None:
    """Start to write a summary, unless one is pending, was refused lately, or would gain nothing.

    `before_inference` hooks shape the request first, here: they may change the run's state.
    """
    window, compaction = act.window, policy.compaction
    if window is None or compaction is None or window.pending is not None:
        return
    state = _summary_state(act)
    if state.retry_at > act.clock.now():
        return
    try:
        writer = model if compaction.model is None else act.env.registry.models.resolve(compaction.model)
    except WakefulError as error:
        _record_failure(act, error, redact(str(compaction.model)))
        return
    span = choose_span(
        act.history,
        gauge,
        room,
        keep=compaction.keep,
        most=_span_limit(act, policy, writer, room),
        tried=state.tried,
        whole=act.agent.agent.limits.history is None,
    )
    if span is None:
        return
    limit = min(compaction.max_tokens, max(room.tokens // 4, 64))
    plan = InferencePlan(
        ModelSettings(max_tokens=limit), "summary", compaction.prompt or SUMMARY_PROMPT, span.messages
    )
    try:
        await shape_plan(act, plan)
        if plan.model is not None:
            writer = act.env.registry.models.resolve(plan.model)
    except (HookFailed, UnknownModel, ConfigurationError) as error:
        _record_failure(act, error, writer.name, span)
        return
    if act.view.run.ending is None and act.view.run.cancel is None:
        request = summary_request(plan.messages, plan.system_text, plan.settings, limit)
        task = asyncio.create_task(_write(act, writer, request), name=f"summary up to {span.last}")
        window.pending = PendingSummary(span, writer, gauge, room.offload, task)


async def _write(act: Activation, writer: Model, request: ModelRequest) -> tuple[str, Usage]:
    """Ask for a summary with the limits, prices and timeouts of any answer, but without retries."""
    check_live(writer)
    models, retry = act.env.registry.models, act.agent.agent.retry or act.env.retry
    pieces: list[str] = []
    usage = NO_USAGE
    answer = stream_guarded(models.guard(writer), writer, request, retry.max_retry_after)
    tracer, failure = act.env.tracer, None
    span = None if tracer is None else tracer.begin_chat(act, writer, request, "summary")
    watch = Watch(act.env.watches, asyncio.current_task())
    began, is_failed = act.clock.now(), False
    watch.begin(writer, request.settings, retry, began)
    try:
        async with aclosing(answer) as chunks:
            async for chunk in chunks if span is None else span.observe(chunks):
                watch.has_chunk = True
                if type(chunk) is TextChunk:
                    pieces.append(chunk.text)
                elif type(chunk) is UsageChunk:
                    usage = models.with_cost(writer, check_usage(chunk.usage))
        watch.end()
    except BaseException as raised:
        late = watch.end(raised)
        failure = late or raised
        is_failed = isinstance(failure, Exception)
        if late is not None:
            raise late from raised
        raise
    finally:
        watch.close()
        if span is not None:
            span.end(usage, "unknown" if failure is not None else "end_turn", failure)
        ended = act.clock.now()
        act.draft.usage.append(UsageEntry(act.agent.id, writer.name, ended, ended - began, usage, is_failed))
    return "".join(pieces), usage


def _span_limit(act: Activation, policy: WindowPolicy, writer: Model, room: Room) -> int:
    """The weight that the writer can read at once: three quarters of its room."""
    gauge = act.env.gauges.get(writer)
    facts = act.env.registry.models.facts_of(writer)
    its = room_of(replace(policy, max_tokens=None), act.agent.agent.settings, facts, gauge.refused)
    return gauge.unscaled(room.tokens if its is None else min(room.tokens, its.tokens)) * 3 // 4


def _summary_state(act: Activation) -> SummaryState:
    return act.state.snapshot()[SummaryKey] if SummaryKey.name in act.state.values else SummaryState()


# -- landing -------------------------------------------------------------------------------------------------


async def wait_and_land(act: Activation) -> bool:
    """Wait for the pending summary and commit it; returns whether there is one now."""
    window = act.window
    if window is None or window.pending is None:
        return False
    await asyncio.wait([window.pending.task])
    act.now = act.clock.now()
    summary = land_summary(act)
    await flush(act)
    return summary is not None


async def wait_for_summary(act: Activation) -> None:
    """Wait for the pending summary of a run that ends."""
    if act.window is not None and act.window.pending is not None:
        await asyncio.wait([act.window.pending.task])
        act.now = act.clock.now()
        land_summary(act)


async def drop_summary(act: Activation) -> None:
    """Cancel the pending summary of a run that fails or waits."""
    window = act.window
    if window is not None and window.pending is not None:
        task, window.pending = window.pending.task, None
        task.cancel()
        await asyncio.wait([task])


def land_summary(act: Activation) -> Message | None:
    """Put a finished summary into the draft, at a step boundary; returns it unless it failed or was discarded."""
    window, policy = act.window, act.agent.agent.window
    if window is None or window.pending is None or not window.pending.task.done():
        return None
    pending, window.pending = window.pending, None
    if pending.task.cancelled():
        return None
    if (error := pending.task.exception()) is not None:
        _record_failure(act, error, pending.writer.name, pending.span)
        return None
    span, (text, usage) = pending.span, pending.task.result()
    if usage is not NO_USAGE:
        act.set_run(usage=act.view.run.usage + usage)
        act.view.tree.usage += usage
    producer = Producer(act.identity.run_id, act.view.run.steps, act.identity.agent_id)
    summary = make_summary(span, text, producer, act.now, pending.offload, pending.gauge)
    weight = pending.gauge.weigh_uncached(summary)
    compaction = None if policy is None else policy.compaction
    reason = discard_reason(act.history, span, text, weight, compaction)
    if reason is not None:
        act.state.apply([(SummaryKey, replace(_summary_state(act), tried=span.last, failures=0, retry_at=0))])
        _log(act, pending, "skipped", usage=usage, summary_tokens=weight, reason=reason)
        return None
    act.log(summary)
    _log(act, pending, "done", message_id=summary.id, usage=usage, summary_tokens=weight)
    act.history = fold(act.history)
    if span.first == 1:
        act.history = [message for message in act.history if not is_left_out_note(message)]
        act.cut = None
        act.state.apply([(SummaryKey, SummaryState(summary.id, span.last))])
    elif (state := _summary_state(act)).failures:
        act.state.apply([(SummaryKey, replace(state, failures=0, retry_at=0))])
    return summary


def _record_failure(act: Activation, error: BaseException, model: str, span: Span | None = None) -> None:
    """Log a failed summary, and try no other one for a while."""
    now = act.clock.now()
    state = _summary_state(act).failed(now, getattr(error, "retry_after", None))
    act.state.apply([(SummaryKey, state)])
    reason = (
        f"{disclose(act, error, 'the summary')}; it isn't tried again for {(state.retry_at - now) / 1000:.0f} s"
    )
    first, last, weight = (0, 0, 0) if span is None else (span.first, span.last, span.weight)
    act.log(Compacted(act.identity, 0, act.now, "failed", model, first, last, tokens=weight, reason=reason))


def discard_reason(
    history: list[Message], span: Span, text: str, weight: int, compaction: Compaction | None
) -> str | None:
    """Why a summary is discarded; None if it is kept."""
    if not text.strip():
        return "the summary is empty"
    if compaction is None:
        return "the agent that has taken over keeps no summaries"
    if weight > span.weight * (1 - compaction.min_savings):
        return f"it would save too little: {span.weight:,} tokens, and {weight:,} as a summary"
    ids = [message.id for message in history if not is_left_out_note(message)]
    wanted = [message.id for message in span.messages]
    start = ids.index(wanted[0]) if wanted[0] in ids else len(ids)
    return None if ids[start : start + len(wanted)] == wanted else "the conversation is no longer as it was"


def _log(act: Activation, pending: PendingSummary, outcome: Any, **details: Any) -> None:
    span, model = pending.span, pending.writer.name
    details = {"tokens": span.weight, **details}
    act.log(Compacted(act.identity, 0, act.now, outcome, model, span.first, span.last, **details))
