"""The A2A backend. The SDK and the HTTP client are imported on the first request."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from ..contract import (
    AbortRequest,
    BackendFactory,
    BackendResult,
    Capabilities,
    DelegateRequest,
    ExecutionBackend,
    PollRequest,
    RootRequest,
)
from .settings import Settings, settings_of

if TYPE_CHECKING:
    from .client import A2AClient

__all__ = ["A2ABackend", "A2AFactory"]


class A2ABackend(ExecutionBackend):
    """Executes runs at a remote agent: sends it the new messages and returns its answer.

    The task's handle is saved before its result is awaited, so that another process can continue.
    """

    capabilities = Capabilities(
        cancellation="abort",
        decisions=False,
        overrides=False,
        frontend_tools=False,
        continuation="remote",
        waits="input_and_auth",
        transcript="incremental",
        output="text_and_artifacts",
        persistence=("ephemeral", "durable"),
        steering=False,
    )

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def __repr__(self) -> str:
        return f"A2ABackend({self.settings.url!r})"

    @cached_property
    def _client(self) -> A2AClient:
        from .client import A2AClient

        return A2AClient(self.settings)

    async def execute_root(self, request: RootRequest) -> BackendResult:
        """Send the new messages to the remote and follow its task."""
        return await self._client.execute(request)

    async def execute_delegate(self, request: DelegateRequest) -> BackendResult:
        """Send the new messages of a child run to the remote and follow its task."""
        return await self._client.execute(request)

    async def abort(self, request: AbortRequest) -> None:
        """Cancel the remote task of the run's saved handle."""
        await self._client.abort(request.agent_id, request.identity.run_id, request.state)

    async def poll(self, request: PollRequest) -> dict[str, Any] | None:
        """Fetch the task of a waiting run; returns the state to follow it with if it no longer asks the same."""
        return await self._client.poll(request.agent_id, request.identity.run_id, request.state)

    async def refresh(self, agent_id: str, state: dict[str, Any]) -> BackendResult | None:
        """Fetch the result of a saved handle's task without waiting; None while the task runs."""
        return await self._client.refresh(agent_id, state)

    async def stop(self, agent_id: str, state: dict[str, Any]) -> BackendResult | None:
        """Cancel a saved handle's task and fetch its result; None if the task still runs."""
        return await self._client.stop(agent_id, state)


class A2AFactory(BackendFactory):
    """Builds A2A backends from the settings of `Agent.remote`, with the URL as `url`."""

    name: ClassVar[str] = "a2a"

    def build(self, endpoint: Mapping[str, Any]) -> A2ABackend:
        """Build the backend of an endpoint."""
        return A2ABackend(settings_of(endpoint))
