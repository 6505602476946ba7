"""Failures of a model: the request is retried, the partial answer is kept, or the run ends."""

from __future__ import annotations

from msgspec.structs import replace

from ...clock import sleep
from ...errors import ConfigurationError, ModelError, PoolExhausted
from ...models import PoolModel, RetryPolicy
from ...types.content import Thinking
from ...types.events import ErrorRaised, InferenceComplete
from ...types.messages import Message, Producer
from ...types.runs import Failed, Stopped
from ..activation import Activation
from ..commits import flush
from ..disclosure import disclose, note_error
from .answer import Answer
from .assembler import NO_USAGE
from .inference import Inference

__all__ = ["abandon", "handle_failure", "keep_partial", "take_complete_calls"]


def take_complete_calls(act: Activation, answer: Answer, reason: str) -> None:
    """Accept a broken answer for its complete calls; a hint after their results names the dropped ones."""
    if dropped := answer.end_here(reason):
        names = ", ".join(dropped)
        hint = f"Your last answer broke off in the middle of a call, which was not made: {names}."
        act.set_run(news=(*act.view.run.news, hint))


async def handle_failure(act: Activation, inference: Inference, error: ModelError, *, restart: bool) -> None:
    """Wait before a retry, or end the run. With `restart` a partial answer can't be continued or kept."""
    retry = act.agent.agent.retry or act.env.retry
    run = act.view.run
    failures = run.failures + 1
    act.set_run(failures=failures)
    if run.ending is not None or run.cancel is not None:  # A hook ended the run.
        note_error(act, error, "model")
        abandon(act)
        return
    limit, text = act.agent.errors, disclose(act, error, "the model").partition(": ")[2]
    if limit is not None and error.transient and failures >= limit:
        _log(act, inference, error, text)
        keep_partial(act, inference, keep=not restart)
        detail = f"{failures} failures in a row; the last: {text}"
        act.set_run(ending=Stopped("consecutive_errors", detail))
        return
    pause = _pause(inference, error, retry, counted=limit is None)
    if pause is None:
        _fail(act, inference, error, text, retry, restart)
        return
    inference.is_retry = True
    inference.answer.break_off(text, restart=restart or not error.transient)
    _log(act, inference, error, text, act.now + round(pause * 1000))
    await flush(act)
    if act.view.run.cancel is None:
        await sleep(act.clock, pause)
        act.now = act.clock.now()
    else:
        abandon(act)


def _fail(
    act: Activation, inference: Inference, error: ModelError, text: str, retry: RetryPolicy, restart: bool
) -> None:
    """End the run with the model's error."""
    _log(act, inference, error, text)
    act.failure = error
    keep = not restart and (error.transient or isinstance(error, PoolExhausted))
    if keep_partial(act, inference, keep=keep) and error.transient:
        why = "the answer broke off and could not be continued; its text is kept. Last error: "
        why += f"{type(error).__name__}: {text}"
        act.set_run(ending=Failed("StreamBroken", why))
    else:
        act.set_run(ending=Failed(_name(error), text + _wait_note(error, retry)))


def _log(act: Activation, inference: Inference, error: ModelError, text: str, retry_at: int | None = None) -> None:
    digest = inference.digest
    act.log(ErrorRaised(act.identity, 0, act.now, _name(error), text, "model", retry_at, digest))


def _name(error: ModelError) -> str:
    """The name of a failure: that of its cause if the model is configured wrongly."""
    return type(error.__cause__ if isinstance(error.__cause__, ConfigurationError) else error).__name__


def _wait_note(error: ModelError, retry: RetryPolicy) -> str:
    longest = retry.max_retry_after
    if not error.transient or retry.allows_retry(error) or "max_retry_after" in str(error):
        return ""
    return f"; a wait of {error.retry_after:g} s is more than RetryPolicy(max_retry_after={longest:g})"


def _pause(inference: Inference, error: ModelError, retry: RetryPolicy, *, counted: bool) -> float | None:
    """Seconds to wait before the model, or another member of its pool, is asked; None for no retry."""
    pool = inference.wanted
    if not isinstance(pool, PoolModel) or inference.model is None:
        pool = None
    if pool is not None and pool.should_switch(inference, error):
        pool.give_up(inference, error)
        return 0.0
    if not error.transient:
        return None
    if inference.has_chunks:
        inference.failures, inference.breaks = 0, inference.breaks + 1
        is_spent = inference.breaks > retry.stream_retries
    else:
        inference.failures += 1
        is_spent = inference.failures > retry.retries
    if retry.allows_retry(error) and not (counted and is_spent):
        return retry.backoff_after(inference.failures + inference.breaks, error)
    if pool is None:
        return None
    pool.give_up(inference, error)
    return 0.0


def abandon(act: Activation) -> None:
    """Give up the inference of a run that ends for another reason; its partial answer is kept."""
    if act.inference is not None:
        keep_partial(act, act.inference)


def keep_partial(act: Activation, inference: Inference, *, keep: bool = True) -> bool:
    """Keep the text of an unfinished answer in the conversation, without its calls, and count its usage.

    Returns whether anything was kept; reasoning alone is not, nor an answer that guardrails would have judged.
    """
    act.inference = None
    answer, run, now = inference.answer, act.view.run, act.now
    if (used := answer.total) is not NO_USAGE:
        act.view.tree.usage += used
        run = replace(run, usage=run.usage + used, updated_at=now)
        act.put_run(run)
    content = answer.content(keep_calls=False) if keep and not act.agent.withholds else ()
    if all(isinstance(part, Thinking) for part in content):
        answer.withdraw("the model failed")
        return False
    producer = Producer(run.identity.run_id, run.steps, act.identity.agent_id)
    message = Message(answer.message_id, "assistant", content, now, producer)
    stop = "cancelled" if act.cancellation.is_pending or run.cancel is not None else "unknown"
    model, took = inference.current.name, now - inference.started
    act.view.answer = message
    sent = (inference.instructions, inference.digest, inference.offered)
    act.log(message, InferenceComplete(act.identity, 0, now, model, message.id, stop, used, took, *sent))
    act.put_run(replace(run, stage="acting", answer_id=message.id))
    return True
