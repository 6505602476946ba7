"""Questions that the remote of a backend settles: polls of a waiting run, and answers that were refused."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from ..agents import Backend, BackendHandles
from ..errors import explain
from ..types.runs import BackendEnd
from ..types.tickets import NotTaken, Ticket
from .contract import ExecutionBackend, PollRequest
from .requests import answered_calls, saved_state

if TYPE_CHECKING:
    from ..loop import Activation

__all__ = ["next_poll", "poll_remote", "record_refusal"]

# Milliseconds between two polls: the age of the oldest question, within these bounds.
MIN_INTERVAL = 60_000
MAX_INTERVAL = 3_600_000
# Milliseconds after a deadline, in which the remote acts on it.
SLACK = 1_000

_log = logging.getLogger("wakeful")


def next_poll(backend: Any, asked_at: int, deadlines: Iterable[int | None], now: int) -> int | None:
    """The time of the next poll: a deadline, or the end of an interval. None if the backend has no `poll`."""
    if getattr(backend.poll, "__func__", None) is ExecutionBackend.poll:
        return None
    interval = min(max(now - asked_at, MIN_INTERVAL), MAX_INTERVAL)
    times = [deadline + SLACK for deadline in deadlines if deadline is not None]
    return min([time for time in times if time > now] + [now + interval])


async def poll_remote(act: Activation) -> bool:
    """Look whether the remote of a waiting run continued by itself; its state then replaces the saved one.

    Else the next poll is scheduled, also after a failure, which is logged.
    """
    backend = cast(Backend, act.agent.backend)
    found: Any = None
    try:
        request = PollRequest(
            agent_id=act.agent.id, identity=act.identity, state=saved_state(act), deps=act.env.deps.value
        )
        found = await backend.poll(request)
    except Exception as error:
        _log.warning("agent %r: polling for run %s failed: %s", act.agent.id, act.identity.run_id, explain(error))
    act.now = act.clock.now()
    if isinstance(found, dict):
        act.state.apply([(BackendHandles, (act.identity.thread_id, act.agent.id, cast(dict[str, Any], found)))])
        return True
    tickets = act.view.tickets.values()
    asked_at = min([ticket.created_at for ticket in tickets], default=act.now)
    poll_at = next_poll(backend, asked_at, [ticket.deadline for ticket in tickets], act.now)
    act.set_run(backend=replace(cast(BackendEnd, act.view.run.backend), poll_at=poll_at))
    return False


async def record_refusal(act: Activation, reason: str) -> list[Ticket]:
    """Record that the remote did not take the answers that it was sent; returns their tickets."""
    store, calls = act.env.store, answered_calls(act)
    tickets = [t for t in await store.tickets(act.identity.run_id) if t.call_id in calls]
    cause = NotTaken("refused", None, reason, act.now)
    for ticket in tickets:
        for decision in await store.decisions(ticket.id):
            if decision.verdict != "reassign" and decision.not_taken is None:
                act.draft.put_decision(replace(decision, not_taken=cause))
    return tickets
