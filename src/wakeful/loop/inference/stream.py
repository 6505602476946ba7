"""One request to a model: fitted into its window, rate-limited, watched by the clock, and read chunk by chunk."""

from __future__ import annotations

from types import CoroutineType
from typing import Any

from msgspec.structs import replace

from ...models import Model, ModelAccess, ModelRequest, Permit, stream_type_error, with_modalities
from ...stores import UsageEntry
from ..activation import Activation
from ..stop_policies import Tree, budget_spent
from .assembler import APPEND, NO_USAGE
from .checkpoints import Checkpoints
from .digest import RequestDigests
from .fitting import fit, fits_unmeasured
from .inference import Inference
from .watchdog import Watch

__all__ = ["UNFINISHED", "prepare_continuation", "stream"]

UNFINISHED = ("max_tokens", "pause_turn")
"""The stop reasons of an answer that another request continues."""


async def stream(act: Activation, inference: Inference) -> bool:
    """Ask the model once, and read its answer; False if the request must be made again, or the run ends."""
    env, answer = act.env, inference.answer
    models, retry = env.registry.models, act.agent.agent.retry or env.retry
    if (prepared := await _prepare(act, inference)) is None:
        return False
    model, line, request = prepared
    grant, checkpoints, now = None, None, act.now
    # Without waits and commits, no time has passed since the last look at the clock.
    if line.must_wait or env.store.durable:
        if line.prepare is not None:
            await line.prepare()
        if line.guard is not None:
            grant = await line.guard.enter(request, retry.max_retry_after)
        now = act.clock.now()
        if env.store.durable and not act.agent.withholds:
            checkpoints = Checkpoints(act, answer.unsaved, now)
    watch = act.watch
    if watch is None:
        watch = act.watch = Watch(env.watches, act.cancellation.task)
    watch.begin(model, request.settings, retry, now)
    digests = act.digests
    if digests is None:
        digests = act.digests = RequestDigests()
    inference.digest, inference.offered = digests.digest(request), digests.names
    is_failed, error = False, None
    span = None if env.tracer is None else env.tracer.begin_chat(act, model, request)
    try:
        if inference.is_retry:
            answer.resume(act.head)
        chunks = model.stream(request)
        await _read(inference, chunks if span is None else span.observe(chunks), watch, checkpoints)
    except BaseException as raised:
        error = watch.end(raised) or raised
        is_failed = isinstance(error, Exception)
        await _record_failure(error, grant, checkpoints)
        if error is raised:
            raise
        raise error from raised
    finally:
        if answer.usage is not NO_USAGE:
            answer.usage = models.with_cost(model, answer.usage)
        if span is not None:
            span.end(answer.usage, answer.stop, error)
        ended = act.clock.now()
        act.draft.usage.append(UsageEntry(act.agent.id, model.name, ended, ended - now, answer.usage, is_failed))
    if grant is not None:
        grant.succeeded(answer.usage)
    return True


async def _record_failure(error: BaseException, grant: Permit | None, checkpoints: Checkpoints | None) -> None:
    if grant is not None:
        grant.failed(error)
    if checkpoints is not None and isinstance(error, Exception):
        await checkpoints.write()  # A takeover continues from what is kept here.


async def _prepare(act: Activation, inference: Inference) -> tuple[Model, ModelAccess, ModelRequest] | None:
    """Choose the model, and make the request fit it; None if a summary landed, or a hook ended the run."""
    request, model = inference.request, inference.model
    if model is None or inference.is_retry:
        model = inference.choose(request)
    line = act.env.registry.models.access(model)
    # A history in order stays in order while it grows; without a known limit there is nothing to measure.
    is_unlimited = line.facts is None and act.window is None and not act.env.gauges.known
    if not ((request.messages is act.ordered and is_unlimited) or fits_unmeasured(act, line, request)):
        fitted = await fit(act, line, request)
        act.now = act.clock.now()
        if fitted is None or act.view.run.ending is not None or act.view.run.cancel is not None:
            return None
        request = fitted
    inference.request = request
    if line.facts is not None:
        request = with_modalities(model, line.facts, request)
    return model, line, request


async def _read(inference: Inference, chunks: Any, watch: Watch, checkpoints: Checkpoints | None) -> None:
    """Read an answer: a stream, or the list of chunks that a coroutine returns."""
    answer = inference.answer
    if chunks.__class__ is CoroutineType:
        whole = await chunks
        if whole.__class__ is not list and not hasattr(whole, "__iter__"):
            raise stream_type_error(whole)
        for chunk in whole:
            APPEND[type(chunk)](answer, chunk)
            inference.has_chunks = True
    else:
        await _read_stream(inference, chunks, watch, checkpoints)
    watch.end()
    if checkpoints is not None and answer.stop in UNFINISHED:
        await checkpoints.write()


async def _read_stream(inference: Inference, chunks: Any, watch: Watch, checkpoints: Checkpoints | None) -> None:
    answer, chunk = inference.answer, None
    try:
        async for chunk in chunks:
            APPEND[type(chunk)](answer, chunk)
            watch.has_chunk = True
            if checkpoints is not None and checkpoints.is_due():
                watch.is_held = True
                try:
                    await checkpoints.write()
                finally:
                    watch.is_held = False
    except TypeError as error:
        if not hasattr(chunks, "__aiter__"):
            raise stream_type_error(chunks) from error
        raise
    finally:
        inference.has_chunks = chunk is not None
        # A generator that ran to its end is closed; anything else may hold a connection.
        close = getattr(chunks, "aclose", None)
        if close is not None and getattr(chunks, "ag_frame", chunks) is not None:
            await close()


def prepare_continuation(act: Activation, inference: Inference) -> bool:
    """Prepare to continue an answer that reached the output limit, or that the vendor paused.

    False if it has calls to carry out, if it was continued often enough, or if the run's budget is spent.
    """
    answer, run, rules, tree = inference.answer, act.view.run, act.rules, act.view.tree
    if run.continuations >= rules.limits.continuations or answer.has_calls():
        return False
    used = answer.total
    after = Tree(tree.usage + used, tree.calls, tree.started_at)
    if budget_spent(replace(run, usage=run.usage + used), rules.stop, after, act.clock.now()):
        return False
    act.set_run(continuations=run.continuations + 1)
    if answer.stop == "pause_turn":
        answer.pause()
    else:
        answer.break_off("cut off at the output limit")
        inference.is_truncated = True
    inference.is_retry = True
    return True
