"""The tool by which a model gives work to another agent and waits for the answer."""

from __future__ import annotations

from ..errors import InvalidArguments, ToolError
from ..tools import Tool, ToolContext, ToolResult

__all__ = ["DelegateTool"]


class DelegateTool(Tool):
    """Offered as `agent_run_<id>` for each agent in `delegates`."""

    def __init__(self, agent_id: str, description: str) -> None:
        self.agent_id = agent_id
        self.effect = "idempotent"
        self.one_child = True
        self.name = f"agent_run_{agent_id}"
        about = f": {description}" if description else "."
        self.description = f"Give a task to the agent {agent_id}{about}"

    async def run(self, prompt: str, ctx: ToolContext) -> ToolResult:
        """Run the agent.

        Args:
            prompt: The whole task; the agent sees nothing else of this conversation.
        """
        if not prompt.strip():
            raise InvalidArguments("prompt must not be empty")
        child = await ctx.run_agent(self.agent_id, prompt)
        if child.error is not None:
            raise ToolError(f"agent {self.agent_id} did not complete ({child.status}): {child.error}")
        data = {
            "agent_id": child.agent_id,
            "status": child.status,
            "response": child.text,
            "steps": child.steps,
        }
        return ToolResult(data=data, message=child.text, metadata={"child_run_id": child.run_id})
