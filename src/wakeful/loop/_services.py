"""What a running tool reaches through its context."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from ..state import AnyKey, Command
from ..tools import ChildRequest, ChildResult, ToolContext
from ..types.events import LiveEvent

if TYPE_CHECKING:
    from ._activation import Activation

__all__ = ["CallServices"]


class CallServices:
    """The services of one activation's calls; safe to use from a tool's thread."""

    __slots__ = ("_act", "_loop", "_thread")

    def __init__(self, act: Activation) -> None:
        self._act = act
        self._loop = act.executor.loop
        self._thread = threading.get_ident()

    def publish(self, event: LiveEvent) -> None:
        """Show a live event to whoever listens."""
        if threading.get_ident() == self._thread:
            self._act.channel.publish(event)
        else:
            self._loop.call_soon_threadsafe(self._act.channel.publish, event)

    def watched(self) -> bool:
        """Whether anybody listens."""
        return self._act.channel.watched()

    def now(self) -> int:
        """The time in milliseconds."""
        return self._act.clock.now()

    def head(self) -> int:
        """The last sequence number of the thread's log."""
        return self._act.head

    def check_key(self, key: AnyKey) -> None:
        """Refuse a state key that isn't registered."""
        self._act.env.registry.catalog.check_key(key)

    def check_agent(self, agent_id: str) -> None:
        """Refuse an agent that isn't registered."""
        self._act.env.registry.catalog.check_agent(agent_id)

    def notify(self, command: Command, name: str, payload: Any) -> None:
        """Put a notice into the command."""
        self._act.env.registry.catalog.notify(command, name, payload)

    def schedule(self, command: Command, name: str, payload: Any, phase: str) -> None:
        """Put an action into the command."""
        self._act.env.registry.catalog.schedule(command, name, payload, phase)

    async def run_agent(self, context: ToolContext, request: ChildRequest) -> ChildResult:
        """Run another agent as a child of this call."""
        self.check_agent(request.agent_id)
        return await self._act.env.run_child(self._act, context, request)
