"""What becomes of an answer when its model fails: asked for again, taken as far as it came, or the end of the
run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..clock import sleep
from ..errors import ConfigurationError, ModelError, NoModelLeft, explain
from ..models import Patience, PoolModel
from ..types.content import Thinking, clean_text
from ..types.events import ErrorRaised, InferenceComplete
from ..types.messages import Message, Producer
from ..types.runs import Failed, Stopped
from ._taking import NO_USAGE

if TYPE_CHECKING:
    from ._activation import Activation
    from ._answer import Answer
    from ._asking import Asking

__all__ = ["end_whole", "failed", "give_up", "keep_partial"]


def end_whole(act: Activation, answer: Answer, reason: str) -> None:
    """Take an answer as far as it came: it has calls to carry out. The model is told of those that it hadn't
    written to their end, once it has the results of the others."""
    if dropped := answer.end_here(reason):
        names = ", ".join(dropped)
        hint = f"Your last answer broke off in the middle of a call, which was not made: {names}."
        act.set_run(news=(*act.view.run.news, hint))


async def failed(act: Activation, asking: Asking, error: ModelError, patience: Patience, *, anew: bool) -> None:
    """The model failed: wait and be ready to ask again, or end the run. With `anew` a half answer is no use."""
    run = act.view.run
    failures = run.failures + 1
    act.set_run(failures=failures)
    if run.ending is not None or run.cancel is not None:  # A hook had enough.
        act.note(error, "model")
        give_up(act)
        return
    errors = act.agent.errors
    if errors is not None and error.transient and failures >= errors:
        _log(act, error)
        keep_partial(act, asking, keep=not anew)
        detail = f"{failures} failures in a row; the last: {clean_text(str(error))}"
        act.set_run(ending=Stopped("consecutive_errors", detail))
        return
    pause = _pause(asking, error, patience, counted=errors is None)
    if pause is None:
        _log(act, error)
        kept = keep_partial(act, asking, keep=not anew and (error.transient or isinstance(error, NoModelLeft)))
        if kept and error.transient:
            why = (
                f"the answer broke off, and nobody went on with it; what came is kept. The last: {explain(error)}"
            )
            act.set_run(ending=Failed("StreamBroken", why))
        else:
            act.set_run(ending=Failed(_name(error), clean_text(str(error)) + _unwaited(error, patience)))
        return
    asking.again = True
    asking.answer.break_off(str(error), anew=anew or not error.transient)
    _log(act, error, act.now + round(pause * 1000))
    await act.flush()
    if act.view.run.cancel is None:
        await sleep(act.clock, pause)
        act.now = act.clock.now()
    else:
        give_up(act)


def _log(act: Activation, error: ModelError, retry_at: int | None = None) -> None:
    act.log(ErrorRaised(act.identity, 0, act.now, _name(error), clean_text(str(error)), "model", retry_at))


def _name(error: ModelError) -> str:
    """What the failure is called: a model that was set up wrongly fails by that name."""
    return type(error.__cause__ if isinstance(error.__cause__, ConfigurationError) else error).__name__


def _unwaited(error: ModelError, patience: Patience) -> str:
    longest = patience.longest_retry_after
    if not error.transient or patience.waits_for(error) or "longest_retry_after" in str(error):
        return ""
    return f"; a wait of {error.retry_after:g} s is more than Patience(longest_retry_after={longest:g})"


def _pause(asking: Asking, error: ModelError, patience: Patience, *, counted: bool) -> float | None:
    """How long to wait before the model, or another member of its pool, is asked; None for not at all."""
    pool = asking.asked
    if not isinstance(pool, PoolModel) or asking.model is None:
        pool = None
    if pool is not None and pool.leaves(asking, error):
        pool.leave(asking, error)
        return 0.0
    if not error.transient:
        return None
    if asking.began:
        asking.failures, asking.breaks = 0, asking.breaks + 1
        spent = asking.breaks > patience.stream_retries
    else:
        asking.failures += 1
        spent = asking.failures > patience.retries
    if patience.waits_for(error) and not (counted and spent):
        return patience.pause_after(asking.failures + asking.breaks, error)
    if pool is None:
        return None
    pool.leave(asking, error)
    return 0.0


def give_up(act: Activation) -> None:
    """Ask no more, since the run ends for another reason."""
    if act.asking is not None:
        keep_partial(act, act.asking)


def keep_partial(act: Activation, asking: Asking, *, keep: bool = True) -> bool:
    """What was streamed of an answer that won't be finished stays in the conversation, without its tool calls; and
    what it cost stays in the account. Thoughts alone are no answer. Returns whether anything was kept."""
    act.asking = None
    answer, run, now = asking.answer, act.view.run, act.now
    if (used := answer.total) is not NO_USAGE:
        act.view.tree.usage += used
        run = replace(run, usage=run.usage + used, updated_at=now)
        act.put_run(run)
    content = answer.content(keep_calls=False) if keep else ()
    if all(isinstance(part, Thinking) for part in content):
        answer.withdraw("the model failed")
        return False
    producer = Producer(run.identity.run_id, run.steps, act.identity.agent_id)
    message = Message(answer.message_id, "assistant", content, now, producer)
    stop = "cancelled" if act.being_cancelled() or run.cancel is not None else "unknown"
    took = now - asking.started
    act.view.answer = message
    act.log(message, InferenceComplete(act.identity, 0, now, asking.answerer, message.id, stop, used, took))
    act.put_run(replace(run, stage="acting", answer_id=message.id))
    return True
