"""The local backend: the loop of this process, as a backend that an agent can name."""

from __future__ import annotations

from ..errors import ExecutionFailed
from .contract import BackendResult, Capabilities, DelegateRequest, ExecutionBackend, RootRequest

__all__ = ["LocalBackend"]


class LocalBackend(ExecutionBackend):
    """The loop of this process.

    `Agent(..., backend=LocalBackend())` is the same as an agent without a backend: it has a model, tools and
    delegates, and its capabilities are those of the loop. A runtime drives the loop itself, so a direct call of
    the backend is refused.
    """

    capabilities = Capabilities.full()

    async def execute_root(self, request: RootRequest) -> BackendResult:
        """Refuse the request: only a runtime can drive the loop."""
        raise ExecutionFailed(_REFUSAL.format("root"))

    async def execute_delegate(self, request: DelegateRequest) -> BackendResult:
        """Refuse the request: only a runtime can drive the loop."""
        raise ExecutionFailed(_REFUSAL.format("delegated"))


_REFUSAL = "local {} execution requires a phase runtime context; run the agent with a Runtime"
