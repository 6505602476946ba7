"""What a model is told besides the conversation: settings, tools and the output it must have."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

__all__ = ["ModelSettings", "OutputSpec", "ToolSpec"]


class ModelSettings(Struct, frozen=True, gc=False, omit_defaults=True):
    """How a model is to answer. What isn't set is left to the vendor; `extra` goes to its API as it is."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    reasoning: str | int | None = None
    stop: tuple[str, ...] = ()
    extra: dict[str, Any] = {}

    def over(self, other: ModelSettings) -> ModelSettings:
        """These settings, and the other's where these are silent."""
        own = {f: v for f in self.__struct_fields__ if (v := getattr(self, f)) not in (None, (), {})}
        if "extra" in own:
            own["extra"] = {**other.extra, **self.extra}
        return replace(other, **own) if own else other


class OutputSpec(Struct, frozen=True, gc=False):
    """The typed output that the final answer must have."""

    name: str
    schema: dict[str, Any]


class ToolSpec(Struct, frozen=True, gc=False, omit_defaults=True):
    """A tool as a model sees it."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
