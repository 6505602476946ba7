"""One request to a model: fitted into its window, rate-limited, watched by the clock, and read chunk by chunk."""

from __future__ import annotations

from types import CoroutineType
from typing import Any

from msgspec.structs import replace

from ...models import Model, ModelAccess, ModelRequest, stream_type_error, with_modalities
from ...types.messages import Message, user_message
from ..activation import Activation
from ..stop_policies import Tree, budget_spent
from .assembler import APPEND, NO_USAGE
from .checkpoints import Checkpoints
from .fitting import fit, fits_unmeasured
from .inference import Inference
from .watchdog import Watch

__all__ = ["prepare_continuation", "stream"]

GO_ON = (
    "Your last answer broke off. Go on exactly where it stopped: don't repeat anything, and don't mention the "
    "interruption."
)
CUT_OFF = (
    "Your last answer was cut off at the output limit. Go on exactly where it stopped; don't repeat anything."
)
TOO_LONG = (
    "Your last answer was cut off at the output limit, and nothing of it can be kept. Answer again, shorter."
)


async def stream(act: Activation, inference: Inference) -> None:
    """Ask the model once, and read its answer."""
    env, answer = act.env, inference.answer
    models, retry = env.registry.models, act.agent.agent.retry or env.retry
    model, line, request = await _prepare(act, inference)
    grant, checkpoints, now = None, None, act.now
    # Without waits and commits, no time has passed since the last look at the clock.
    if line.must_wait or env.store.durable:
        if line.prepare is not None:
            await line.prepare()
        if line.guard is not None:
            grant = await line.guard.enter(request, retry.max_retry_after)
        if env.store.durable:
            checkpoints = Checkpoints(act, answer.unsaved)
        now = act.clock.now()
    watch = act.watch
    if watch is None:
        watch = act.watch = Watch(env.watches, act.cancellation.task)
    watch.begin(model, request.settings, retry, now)
    try:
        if inference.is_retry:
            answer.resume(act.head)
        await _read(inference, model.stream(request), watch, checkpoints)
    except BaseException as raised:
        error = watch.end(raised) or raised
        if grant is not None:
            grant.failed(error)
        if checkpoints is not None and isinstance(error, Exception):
            await checkpoints.write()  # A takeover continues from what is kept here.
        if error is raised:
            raise
        raise error from raised
    finally:
        if answer.usage is not NO_USAGE:
            answer.usage = models.with_cost(model, answer.usage)
    if grant is not None:
        grant.succeeded(answer.usage)


async def _prepare(act: Activation, inference: Inference) -> tuple[Model, ModelAccess, ModelRequest]:
    """Choose the model, and make the request fit it."""
    request, model = inference.request, inference.model
    if model is None or inference.is_retry:
        model = inference.choose(request)
    messages = request.messages
    if inference.is_retry or (messages and messages[-1].role == "assistant"):
        request = _continue(act, inference, request)
    line = act.env.registry.models.access(model)
    # A history in order stays in order while it grows; without a known limit there is nothing to measure.
    is_unlimited = line.facts is None and act.window is None and not act.env.gauges.known
    if not ((messages is act.ordered and is_unlimited) or fits_unmeasured(act, line, request)):
        request = await fit(act, line, request)
        act.now = act.clock.now()
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
    if checkpoints is not None and answer.stop == "max_tokens":
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


def _continue(act: Activation, inference: Inference, request: ModelRequest) -> ModelRequest:
    """Add the part of the answer that was streamed before, and the prompt to continue it."""
    messages = request.messages
    if inference.is_retry and (prefix := inference.answer.prefix()):
        begun = Message(inference.answer.message_id, "assistant", prefix, act.now)
        prompt = CUT_OFF if inference.is_truncated else GO_ON
        return replace(request, messages=[*messages, begun, _prompt(act, prompt)])
    if inference.is_truncated:
        return replace(request, messages=[*messages, _prompt(act, TOO_LONG)])
    if messages and messages[-1].role == "assistant":
        # The retry of a failed run, which kept a partial answer.
        return replace(request, messages=[*messages, _prompt(act, GO_ON)])
    return request


def _prompt(act: Activation, text: str) -> Message:
    return user_message(text, visibility="internal", at=act.now)


def prepare_continuation(act: Activation, inference: Inference) -> bool:
    """Prepare to continue an answer that reached the output limit.

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
    answer.break_off("cut off at the output limit")
    inference.is_retry = inference.is_truncated = True
    return True
