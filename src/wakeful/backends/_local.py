"""The local backend: the loop itself, as a backend like any other."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from ..errors import ExecutionFailed
from ..loop import ended_as, match_decision
from ..stores import InboxItem
from ..types.ids import new_id
from ..types.runs import Termination
from ..types.tickets import Decision
from ._contract import (
    BackendOutput,
    BackendResult,
    Capabilities,
    Control,
    DelegateRequest,
    ExecutionBackend,
    RootRequest,
    check_delegate,
    check_root,
)
from ._status import BackendStatus, CancelledStatus, Completed, FailedStatus, Suspended

if TYPE_CHECKING:
    from ..agents import ResolvedAgent
    from ..loop import Activation

__all__ = ["LocalBackend", "backend_of", "local_result", "status_of"]


class LocalBackend(ExecutionBackend):
    """Runs an activation in this process. It has no state of its own: one is as good as another.

    The runtime drives the activations of local agents itself, and comes to the same; this is for whoever holds
    an agent's backend and doesn't want to know which it is.
    """

    capabilities = Capabilities.full()

    async def execute_root(self, request: RootRequest) -> BackendResult:
        """Drive the request's activation to its end."""
        if request.local is None:
            raise ExecutionFailed("local root execution requires a phase runtime context")
        check_root(self.capabilities, request)
        return await _drive(request)

    async def execute_delegate(self, request: DelegateRequest) -> BackendResult:
        """Drive the child's activation to its end."""
        check_delegate(self.capabilities, request)
        if request.local is None:
            raise ExecutionFailed("local delegated execution requires a phase runtime context")
        return await _drive(request)


class _Anywhere:
    """Where an activation runs whose caller sees to all else."""

    def began(self, act: Activation) -> None:
        """An activation begins."""

    def lost(self, act: Activation, error: BaseException) -> None:
        """An activation is given up."""

    def ended(self, act: Activation) -> None:
        """An activation is over."""


async def _drive(request: RootRequest | DelegateRequest) -> BackendResult:
    act = cast("Activation", request.local)
    if isinstance(request, RootRequest):
        # All of them are looked at before one is applied.
        for _, decision in [match_decision(d, act.view.tickets, {}) for d in request.decisions]:
            act.decide(decision)
    watchers = _watch(act, request.control)
    try:
        await act.drive(_Anywhere())
    finally:
        for watcher in watchers:
            watcher.cancel()
        await asyncio.gather(*watchers, return_exceptions=True)
    return local_result(act, request.agent_id)


def _watch(act: Activation, control: Control) -> list[asyncio.Task[None]]:
    """Tasks that bring the activation what comes in while it runs."""

    async def cancelled(event: asyncio.Event) -> None:
        await event.wait()
        act.cancel("cancelled by request")

    async def decided(queue: asyncio.Queue[Decision]) -> None:
        while True:
            _, decision = match_decision(await queue.get(), act.view.tickets, {})
            item = InboxItem(id=new_id(), thread_id=act.identity.thread_id, kind="decision", decision=decision)
            act.view.inbox[item.id] = item
            act.heed()

    loop = asyncio.get_running_loop()
    watchers = [] if control.cancelled is None else [loop.create_task(cancelled(control.cancelled))]
    return watchers if control.decisions is None else [*watchers, loop.create_task(decided(control.decisions))]


def local_result(act: Activation, agent_id: str) -> BackendResult:
    """What an activation that ended came to, as a backend says it."""
    run = act.view.run
    termination = None if run.outcome is None else run.outcome.termination
    text = act.view.answer.text if act.view.answer is not None else ""
    response = text or None
    output = BackendOutput(response)
    return BackendResult(
        agent_id, status_of(termination), termination, None, response, output, run.steps, act.identity.run_id
    )


def status_of(termination: Termination | None) -> BackendStatus:
    """The status that goes with how an activation ended; None is a run that waits."""
    if termination is None:
        return Suspended()
    ended = ended_as(termination)
    if ended.status == "completed":
        return Completed()
    return CancelledStatus() if ended.status == "cancelled" else FailedStatus(ended.error or "")


def backend_of(agent: ResolvedAgent) -> ExecutionBackend:
    """What an agent executes with: its own backend, or the local one."""
    return LocalBackend() if agent.backend is None else cast(ExecutionBackend, agent.backend)
