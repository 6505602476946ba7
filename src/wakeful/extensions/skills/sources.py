"""Sources of skills beside packages: the prompts of MCP servers, by a small protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from ...types.base import Data

__all__ = ["Prompt", "PromptSource"]


class Prompt(Data):
    """A prompt of a server: `arguments` are the names of its arguments, `required` those it can't do without."""

    name: str
    description: str = ""
    arguments: tuple[str, ...] = ()
    required: tuple[str, ...] = ()


class PromptSource(Protocol):
    """A server whose prompts are skills, as an MCP client offers it. Both methods may raise any exception."""

    @property
    def name(self) -> str:
        """The server's name: its prompts are the skills `name:prompt`."""
        ...

    async def prompts(self) -> Sequence[Prompt]:
        """The prompts that the server has now."""
        ...

    async def render(self, prompt: str, arguments: Mapping[str, str]) -> str:
        """The text of a prompt with these arguments."""
        ...
