"""Summaries: written beside a run, landed at a step boundary by the run's own commit.

The task that writes one never outlives its activation: a run that ends waits for it, since the next run would only
begin again; one that fails, is cancelled, handed over or waits for others drops it.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ..context import (
    Compaction,
    Context,
    Folded,
    Gauge,
    Mark,
    Part,
    Room,
    fold,
    part_to_summarise,
    room_of,
    summary_of,
    summary_request,
)
from ..errors import WakefulError, explain
from ..models import Model, ModelRequest, TextChunk, UsageChunk, check_live, guarded
from ..models._secrets import public
from ..types.events import Compacted
from ..types.messages import Message, Producer
from ..types.runs import Usage
from ._pieces import kept_usage
from ._taking import NO_USAGE
from ._watch import Watch

if TYPE_CHECKING:
    from ._activation import Activation

__all__ = ["Writing", "begin_summary", "drop_summary", "land_summary", "summary_landed", "wait_for_summary"]


class Writing:
    """A summary that is being written."""

    __slots__ = ("gauge", "offload", "part", "task", "writer")

    def __init__(
        self, act: Activation, part: Part, writer: Model, request: ModelRequest, gauge: Gauge, offload: int
    ) -> None:
        self.part = part
        self.writer = writer
        self.gauge = gauge
        self.offload = offload
        self.task = asyncio.create_task(_written(act, writer, request), name=f"summary up to {part.last}")


async def _written(act: Activation, writer: Model, request: ModelRequest) -> tuple[str, Usage]:
    """Ask for the summary as for any answer: with the same limits, prices and patience, but once."""
    check_live(writer)
    models, patience = act.env.registry.models, act.agent.agent.patience or act.env.patience
    pieces: list[str] = []
    usage = NO_USAGE
    answer = guarded(models.guard(writer), writer, request, patience.longest_retry_after)
    watch = Watch(act.env.watches, asyncio.current_task())
    watch.begin(writer, request.settings, patience, act.clock.now())
    try:
        async with aclosing(answer) as chunks:
            async for chunk in chunks:
                watch.fresh = True
                if type(chunk) is TextChunk:
                    pieces.append(chunk.text)
                elif type(chunk) is UsageChunk:
                    usage = models.priced(writer, kept_usage(chunk.usage))
        watch.end()
    except BaseException as raised:
        if (late := watch.end(raised)) is not None:
            raise late from raised
        raise
    finally:
        watch.close()
    return "".join(pieces), usage


def begin_summary(act: Activation, policy: Context, model: Model, gauge: Gauge, room: Room) -> None:
    """Begin to write a summary beside the run, unless one is being written or there is nothing to gain."""
    own, how = act.fitting, policy.compaction
    if own is None or how is None or own.writing is not None:
        return
    mark = _mark(act)
    if mark.retry_at > act.clock.now():
        return
    try:
        writer = model if how.model is None else act.env.registry.models.resolve(how.model)
    except WakefulError as error:
        _failed(act, error, public(str(how.model)))
        return
    part = part_to_summarise(
        act.history,
        gauge,
        room,
        keep=how.keep,
        most=_most(act, policy, writer, room),
        tried=mark.tried,
        whole=act.agent.agent.limits.history is None,
    )
    if part is not None:
        request = summary_request(part, how.prompt, min(how.max_tokens, max(room.tokens // 4, 64)))
        own.writing = Writing(act, part, writer, request, gauge, room.offload)


def _most(act: Activation, policy: Context, writer: Model, room: Room) -> int:
    """How much the writer of a summary reads at once: three quarters of its room are for what it is told."""
    gauge = act.env.gauges.of(writer)
    facts = act.env.registry.models.facts_of(writer)
    its = room_of(replace(policy, max_tokens=None), act.agent.agent.settings, facts, gauge.refused)
    return gauge.unscaled(room.tokens if its is None else min(room.tokens, its.tokens)) * 3 // 4


def _mark(act: Activation) -> Mark:
    return act.state.snapshot()[Folded] if Folded.name in act.state.values else Mark()


# -- when it is written --------------------------------------------------------------------------------------


async def summary_landed(act: Activation) -> bool:
    """Wait for the summary that is being written, and commit it; whether there is one now."""
    own = act.fitting
    if own is None or own.writing is None:
        return False
    await asyncio.wait([own.writing.task])
    act.now = act.clock.now()
    summary = land_summary(act)
    if summary is not None:
        own.landed.append(summary)
    await act.flush()
    return summary is not None


async def wait_for_summary(act: Activation) -> None:
    """The run ends: a summary that is being written is waited for."""
    if act.fitting is not None and act.fitting.writing is not None:
        await asyncio.wait([act.fitting.writing.task])
        act.now = act.clock.now()
        land_summary(act)


async def drop_summary(act: Activation) -> None:
    """The run fails or waits: a summary that is being written is let go of."""
    own = act.fitting
    if own is not None and own.writing is not None:
        task, own.writing = own.writing.task, None
        task.cancel()
        await asyncio.wait([task])


def land_summary(act: Activation) -> Message | None:
    """At a step boundary: what became of the summary goes into the draft; the summary, if there is one now."""
    own, context = act.fitting, act.agent.agent.context
    if own is None or own.writing is None or not own.writing.task.done():
        return None
    writing, own.writing = own.writing, None
    if writing.task.cancelled():
        return None
    if (error := writing.task.exception()) is not None:
        _failed(act, error, writing.writer.name, writing.part)
        return None
    part, (text, usage) = writing.part, writing.task.result()
    if usage is not NO_USAGE:
        act.set_run(usage=act.view.run.usage + usage)
        act.view.tree.usage += usage
    producer = Producer(act.identity.run_id, act.view.run.steps, act.identity.agent_id)
    summary = summary_of(part, text, producer, act.now, writing.offload, writing.gauge)
    weight = writing.gauge.weigh_anew(summary)
    reason = _why_not(act, part, text, weight, None if context is None else context.compaction)
    if reason is not None:
        act.state.apply([(Folded, replace(_mark(act), tried=part.last, failures=0, retry_at=0))])
        _say(act, writing, "skipped", usage=usage, summary_tokens=weight, reason=reason)
        return None
    act.log(summary)
    _say(act, writing, "done", message_id=summary.id, usage=usage, summary_tokens=weight)
    act.history = fold(act.history)
    if part.first == 1:
        act.state.apply([(Folded, Mark(summary.id, part.last))])
    elif (mark := _mark(act)).failures:
        act.state.apply([(Folded, replace(mark, failures=0, retry_at=0))])
    return summary


def _failed(act: Activation, error: BaseException, model: str, part: Part | None = None) -> None:
    """A summary could not be written: say so, and leave the thread without one for a while."""
    now = act.clock.now()
    mark = _mark(act).failed(now, getattr(error, "retry_after", None))
    act.state.apply([(Folded, mark)])
    reason = f"{explain(error)}; it isn't tried again for {(mark.retry_at - now) / 1000:.0f} s"
    first, last, weight = (0, 0, 0) if part is None else (part.first, part.last, part.weight)
    act.log(Compacted(act.identity, 0, act.now, "failed", model, first, last, tokens=weight, reason=reason))


def _why_not(act: Activation, part: Part, text: str, weight: int, how: Compaction | None) -> str | None:
    """Why a summary is thrown away, if it is."""
    if not text.strip():
        return "the summary is empty"
    if how is None:
        return "the agent that has taken over keeps no summaries"
    if weight > part.weight * (1 - how.min_savings):
        return f"it would save too little: {part.weight:,} tokens, and {weight:,} as a summary"
    ids, wanted = [message.id for message in act.history], [message.id for message in part.messages]
    start = ids.index(wanted[0]) if wanted[0] in ids else len(ids)
    return None if ids[start : start + len(wanted)] == wanted else "the conversation is no longer as it was"


def _say(act: Activation, writing: Writing, outcome: Any, **details: Any) -> None:
    part, model = writing.part, writing.writer.name
    details = {"tokens": part.weight, **details}
    act.log(Compacted(act.identity, 0, act.now, outcome, model, part.first, part.last, **details))
