"""The backend of agents behind A2A. The SDK and the HTTP client are loaded by the first exchange."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from .._contract import (
    AbortRequest,
    BackendFactory,
    BackendResult,
    Capabilities,
    DelegateRequest,
    ExecutionBackend,
    RootRequest,
)
from ._settings import Settings, settings_of

if TYPE_CHECKING:
    from ._client import A2AClient

__all__ = ["A2ABackend", "A2AFactory"]


class A2ABackend(ExecutionBackend):
    """Runs at a remote agent: what is new in the conversation goes there, and the answer comes back.

    The remote's handle is saved before anything waits on it, so that another process can go on with it.
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
    )

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def __repr__(self) -> str:
        return f"A2ABackend({self.settings.url!r})"

    @cached_property
    def _client(self) -> A2AClient:
        from ._client import A2AClient

        return A2AClient(self.settings)

    async def execute_root(self, request: RootRequest) -> BackendResult:
        """Say what is new to the remote, and follow what it makes of it."""
        return await self._client.execute(request)

    async def execute_delegate(self, request: DelegateRequest) -> BackendResult:
        """The same for a child."""
        return await self._client.execute(request)

    async def abort(self, request: AbortRequest) -> None:
        """Cancel the remote task that the run began, by its saved handle."""
        await self._client.abort(request.agent_id, request.identity.run_id, request.state)

    async def refresh(self, agent_id: str, state: dict[str, Any]) -> BackendResult | None:
        """What a saved handle's task has come to, without waiting for it; None while the remote is at work."""
        return await self._client.refresh(agent_id, state)

    async def stop(self, agent_id: str, state: dict[str, Any]) -> BackendResult | None:
        """Cancel a saved handle's task, and tell what it has come to; None if the remote is still at work."""
        return await self._client.stop(agent_id, state)


class A2AFactory(BackendFactory):
    """Builds it from data: `url`, and `auth`, `effect`, `timeout`, `patience`, `allow_private`, as of an agent."""

    name: ClassVar[str] = "a2a"

    def build(self, endpoint: Mapping[str, Any]) -> A2ABackend:
        """The backend for an endpoint."""
        return A2ABackend(settings_of(endpoint))
