"""The tool that hands the conversation to another agent."""

from __future__ import annotations

from ..errors import ToolDenied
from ..tools import Tool, ToolContext
from ..types.calls import Effect

__all__ = ["HandoffTool"]


class HandoffTool(Tool):
    """Hands over to one agent; offered as `handoff_to_<id>`."""

    effect: Effect = "pure"

    def __init__(self, agent_id: str, description: str, refusal: str | None = None) -> None:
        self.agent_id = agent_id
        self._refusal = refusal
        self.name = f"handoff_to_{agent_id}"
        about = f": {description}" if description else "."
        self.description = f"Hand the conversation over to {agent_id}{about}"

    async def run(self, ctx: ToolContext, reason: str = "") -> str:
        """Hand over.

        Args:
            reason: Why the other agent is the right one.
        """
        if self._refusal is not None:
            raise ToolDenied(self._refusal)
        ctx.handoff(self.agent_id)
        return f"Handed over to {self.agent_id}."
