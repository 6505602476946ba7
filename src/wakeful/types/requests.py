"""Parts of a model request beside the conversation: settings, tools and the output schema."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

from msgspec import field
from msgspec.structs import replace

from ..errors.arguments import Checked
from .base import Data

__all__ = ["ModelSettings", "OutputSpec", "ToolSpec", "settings_problems"]


class ModelSettings(Data, metaclass=Checked, omit_defaults=True):
    """Settings of a model request. Unset fields use the vendor's defaults; `extra` is passed to its API as is."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    reasoning: str | int | None = None
    stop: tuple[str, ...] = ()
    extra: dict[str, Any] = {}

    def with_defaults(self, other: ModelSettings) -> ModelSettings:
        """Fill unset fields from `other`."""
        own = {f: v for f in self.__struct_fields__ if (v := getattr(self, f)) not in (None, (), {})}
        if "extra" in own:
            own["extra"] = {**other.extra, **self.extra}
        return replace(other, **own) if own else other


def settings_problems(settings: ModelSettings) -> list[str]:
    """List the values that no vendor accepts. Vendor-specific limits are checked by the vendor."""
    rules: dict[str, tuple[Callable[[Any], bool], str]] = {
        "temperature": (lambda value: _is_number(value) and 0 <= value < math.inf, "a number and not negative"),
        "top_p": (lambda value: _is_number(value) and 0 <= value <= 1, "a share, 0 to 1"),
        "max_tokens": (lambda value: type(value) is int and value >= 1, "a whole number of at least 1"),
        "reasoning": (lambda value: type(value) in (str, int), "an effort such as 'low', or a number of tokens"),
        "stop": (_are_texts, "a tuple of texts that aren't empty"),
        "extra": (_is_named, "a dict by the names of the vendor's settings"),
    }
    return [
        f"settings.{name} is {what}, not {value!r:.80}; omit it to use the vendor's default"
        for name, (fits, what) in rules.items()
        if (value := getattr(settings, name)) is not None and not fits(value)
    ]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _are_texts(value: Any) -> bool:
    if not isinstance(value, tuple | list):
        return False
    return all(isinstance(text, str) and text for text in cast(tuple[Any, ...], value))


def _is_named(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(name, str) for name in cast(dict[Any, Any], value))


class OutputSpec(Data):
    """The JSON schema of a typed output."""

    name: str
    schema: dict[str, Any]


class ToolSpec(Data, omit_defaults=True):
    """A tool as shown to a model."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
