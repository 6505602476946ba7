"""MCP servers as sources of tools: connections, snapshots, durable calls, and questions as tickets."""

from .library import McpPrompt as McpPrompt
from .library import McpResource as McpResource
from .library import PromptArgument as PromptArgument
from .library import PromptMessage as PromptMessage
from .source import MCP as MCP

# The public names.
__all__ = ["MCP", "McpPrompt", "McpResource", "PromptArgument", "PromptMessage"]
