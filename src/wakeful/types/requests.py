"""What a model is told besides the conversation: settings, tools and the output it must have."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

from msgspec import Struct, field
from msgspec.structs import replace

from ..errors._arguments import Checked

__all__ = ["ModelSettings", "OutputSpec", "ToolSpec", "settings_problems"]


class ModelSettings(Struct, metaclass=Checked, frozen=True, gc=False, omit_defaults=True):
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


def settings_problems(settings: ModelSettings) -> list[str]:
    """What no vendor would take, in the words of whoever wrote it. What only some take is theirs to say."""
    right: dict[str, tuple[Callable[[Any], bool], str]] = {
        "temperature": (lambda value: _number(value) and 0 <= value < math.inf, "a number and not negative"),
        "top_p": (lambda value: _number(value) and 0 <= value <= 1, "a share, 0 to 1"),
        "max_tokens": (lambda value: type(value) is int and value >= 1, "a whole number of at least 1"),
        "reasoning": (lambda value: type(value) in (str, int), "an effort such as 'low', or a number of tokens"),
        "stop": (_texts, "a tuple of texts that aren't empty"),
        "extra": (_named, "a dict by the names of the vendor's settings"),
    }
    return [
        f"settings.{name} is {what}, not {value!r:.80}; leave it out to have the vendor's own"
        for name, (fits, what) in right.items()
        if (value := getattr(settings, name)) is not None and not fits(value)
    ]


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _texts(value: Any) -> bool:
    if not isinstance(value, tuple | list):
        return False
    return all(isinstance(text, str) and text for text in cast(tuple[Any, ...], value))


def _named(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(name, str) for name in cast(dict[Any, Any], value))


class OutputSpec(Struct, frozen=True, gc=False):
    """The typed output that the final answer must have."""

    name: str
    schema: dict[str, Any]


class ToolSpec(Struct, frozen=True, gc=False, omit_defaults=True):
    """A tool as a model sees it."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
