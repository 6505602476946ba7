"""The local backend: the loop behind the backend contract."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from ..errors import ExecutionFailed
from ..loop import apply_decision, drive, ended_as, match_decision
from ..types.ids import new_id
from ..types.inbox import DecisionItem
from ..types.runs import Termination
from ..types.tickets import Decision
from .contract import (
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
from .status import BackendStatus, CancelledStatus, Completed, FailedStatus, Suspended

if TYPE_CHECKING:
    from ..agents import ResolvedAgent
    from ..loop import Activation

__all__ = ["LocalBackend", "backend_of", "local_result", "status_of"]


class LocalBackend(ExecutionBackend):
    """Runs an activation in this process. It is stateless.

    The runtime drives the activations of local agents without it, with the same outcome. Use it in code that calls
    the backend of any agent.
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


class _NoHost:
    """A host that ignores an activation's lifecycle: the caller of the backend handles it."""

    def began(self, act: Activation) -> None:
        """Ignore the start."""

    def lost(self, act: Activation, error: BaseException) -> None:
        """Ignore the loss."""

    def ended(self, act: Activation) -> None:
        """Ignore the end."""


async def _drive(request: RootRequest | DelegateRequest) -> BackendResult:
    act = cast("Activation", request.local)
    if isinstance(request, RootRequest):
        # Match all decisions before applying any.
        for _, decision in [match_decision(d, act.view.tickets, {}) for d in request.decisions]:
            apply_decision(act, decision)
    watchers = _watch(act, request.control)
    try:
        await drive(act, _NoHost())
    finally:
        for watcher in watchers:
            watcher.cancel()
        await asyncio.gather(*watchers, return_exceptions=True)
    return local_result(act, request.agent_id)


def _watch(act: Activation, control: Control) -> list[asyncio.Task[None]]:
    """Start tasks that pass cancellation and decisions on to the activation."""

    async def watch_cancel(event: asyncio.Event) -> None:
        await event.wait()
        act.cancel("cancelled by request")

    async def watch_decisions(queue: asyncio.Queue[Decision]) -> None:
        while True:
            _, decision = match_decision(await queue.get(), act.view.tickets, {})
            item = DecisionItem(id=new_id(), thread_id=act.identity.thread_id, decision=decision)
            act.view.inbox[item.id] = item
            act.apply_inbox()

    loop = asyncio.get_running_loop()
    watchers: list[asyncio.Task[None]] = []
    if control.cancelled is not None:
        watchers.append(loop.create_task(watch_cancel(control.cancelled)))
    if control.decisions is not None:
        watchers.append(loop.create_task(watch_decisions(control.decisions)))
    return watchers


def local_result(act: Activation, agent_id: str) -> BackendResult:
    """The backend result of an activation that ended."""
    run = act.view.run
    termination = None if run.outcome is None else run.outcome.termination
    text = act.view.answer.text if act.view.answer is not None else ""
    response = text or None
    output = BackendOutput(response)
    return BackendResult(
        agent_id, status_of(termination), termination, None, response, output, run.steps, act.identity.run_id
    )


def status_of(termination: Termination | None) -> BackendStatus:
    """The backend status for a termination; None stands for a waiting run."""
    if termination is None:
        return Suspended()
    ended = ended_as(termination)
    if ended.status == "completed":
        return Completed()
    return CancelledStatus() if ended.status == "cancelled" else FailedStatus(ended.error or "")


def backend_of(agent: ResolvedAgent) -> ExecutionBackend:
    """The backend of an agent: its own, or the local one."""
    return LocalBackend() if agent.backend is None else cast(ExecutionBackend, agent.backend)
