"""Execution of a step by a backend instead of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ..agents import Backend
from ..loop import flush
from ..types.content import clean_text
from ..types.runs import BackendEnd
from .exchange import Exchange
from .grace import abort
from .outcomes import apply_result, check_result, failure_of
from .polls import record_refusal
from .requests import plan_of, record_attempt
from .status import CancelledStatus, FailedStatus, TimedOut

if TYPE_CHECKING:
    from ..loop import Activation

__all__ = ["abort_remote", "execute_remote"]


async def execute_remote(act: Activation, cut_off: tuple[str, int] | None = None) -> None:
    """Execute the step by the agent's backend, and commit the result before the step is closed."""
    if act.view.run.ending is not None or act.view.run.cancel is not None:
        return
    backend = cast(Backend, act.agent.backend)
    plan = await plan_of(act, backend.capabilities)
    await flush(act)
    # A hook ended the run, or the commit found a cancellation in the inbox.
    if act.view.run.ending is not None or act.view.run.cancel is not None:
        return
    exchange = Exchange(act, plan, cut_off)
    started = act.now
    failed = True
    try:
        result = check_result(await exchange.run(), exchange.capabilities)
        failed = isinstance(result.status, FailedStatus | CancelledStatus | TimedOut)
    except Exception as error:
        act.failure = error
        result = failure_of(act, error)
    except BaseException:
        await exchange.close()
        exchange.record_usage(started, failed)
        exchange.keep_partial()
        raise
    await exchange.close()
    act.now = act.clock.now()
    exchange.record_usage(started, failed)
    message_id, content = exchange.settle(clean_text(result.text), failed)
    result = exchange.with_artifacts(result)
    sent = act.history[-1].id if exchange.called and act.history else None
    refused = await record_refusal(act, result.refused) if result.refused else ()
    answered = apply_result(act, result, message_id, content, (started, exchange.usage), refused)
    if not answered and sent is not None:
        record_attempt(act, sent)
    await flush(act)


async def abort_remote(act: Activation) -> None:
    """Stop the remote work of a cancelled run within the cancel grace; a failure is logged, not raised."""
    act.set_run(backend=BackendEnd("cancelled", "cancelled"))
    await abort(act)
