"""Tool search: tools that the model is shown once it searched for them."""

from .index import ToolIndex as ToolIndex
from .plugin import FoundTools as FoundTools
from .plugin import ToolSearch as ToolSearch

# The public names.
__all__ = ["FoundTools", "ToolIndex", "ToolSearch"]
