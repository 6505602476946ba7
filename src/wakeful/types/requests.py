"""Parts of a model request beside the conversation: settings, tools and the output schema."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

from msgspec import field
from msgspec.structs import replace

from ..errors.arguments import Checked
from .base import Data

__all__ = [
    "FOUND_TOOLS",
    "TOOL_SEARCH",
    "CodeExecution",
    "FileSearch",
    "ImageGeneration",
    "ModelSettings",
    "OutputSpec",
    "ServerToolSpec",
    "ToolSpec",
    "WebFetch",
    "WebSearch",
    "settings_problems",
]


TOOL_SEARCH = "tool_search"
"""The name of the tool that searches deferred tools."""

FOUND_TOOLS = "found_tools"
"""The names of the tools that a search found, in the metadata of its result."""


class ModelSettings(Data, metaclass=Checked, omit_defaults=True):
    """Settings of a model request, common to all vendors. Unset fields use the vendor's defaults.

    A vendor refuses a field that it lacks. `reasoning` is an effort such as `low`, or a number of tokens;
    `tool_choice` is `auto`, `required`, `none` or the name of a tool; `logprobs` is the number of alternatives for
    each token; `user` is an id of the end user; `timeout` is the seconds for one answer. `headers` and `body` are
    added to the HTTP request as they are. `extra` has the settings that one vendor has alone.
    """

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    reasoning: str | int | None = None
    stop: tuple[str, ...] = ()
    extra: dict[str, Any] = {}
    seed: int | None = None
    tool_choice: str | None = None
    parallel_tool_calls: bool | None = None
    logprobs: int | None = None
    service_tier: str | None = None
    user: str | None = None
    timeout: float | None = None
    headers: dict[str, str] = {}
    body: dict[str, Any] = {}

    def with_defaults(self, other: ModelSettings) -> ModelSettings:
        """Fill unset fields from `other`."""
        own = {f: v for f in self.__struct_fields__ if (v := getattr(self, f)) not in (None, (), {})}
        for name in ("extra", "headers", "body"):
            if name in own:
                own[name] = {**getattr(other, name), **own[name]}
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
        "seed": (lambda value: type(value) is int, "a whole number"),
        "tool_choice": (_is_text, "'auto', 'required', 'none' or the name of a tool"),
        "parallel_tool_calls": (lambda value: type(value) is bool, "True or False"),
        "logprobs": (lambda value: type(value) is int and 0 <= value <= 20, "a whole number from 0 to 20"),
        "service_tier": (_is_text, "one of the vendor's names of tiers"),
        "user": (_is_text, "an id of the end user, a text"),
        "timeout": (lambda value: _is_number(value) and 0 < value < math.inf, "a positive number of seconds"),
        "headers": (lambda value: _is_named(value) and _are_texts([*value.values()]), "a dict of texts"),
        "body": (_is_named, "a dict by the names of the vendor's fields"),
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


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _is_named(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(name, str) for name in cast(dict[Any, Any], value))


class WebSearch(Data, metaclass=Checked, omit_defaults=True, tag="web_search"):
    """The vendor's web search. `extra` is passed to the vendor's tool as is, as in the other server tools."""

    max_uses: int | None = None
    allowed_domains: tuple[str, ...] = ()
    blocked_domains: tuple[str, ...] = ()
    extra: dict[str, Any] = {}


class WebFetch(Data, metaclass=Checked, omit_defaults=True, tag="web_fetch"):
    """The vendor's reader of web pages."""

    max_uses: int | None = None
    allowed_domains: tuple[str, ...] = ()
    blocked_domains: tuple[str, ...] = ()
    extra: dict[str, Any] = {}


class CodeExecution(Data, metaclass=Checked, omit_defaults=True, tag="code_execution"):
    """The vendor's sandbox for code."""

    extra: dict[str, Any] = {}


class FileSearch(Data, metaclass=Checked, omit_defaults=True, tag="file_search"):
    """The vendor's search in files that were uploaded to it. `stores` are the vendor's ids of collections."""

    stores: tuple[str, ...]
    max_results: int | None = None
    extra: dict[str, Any] = {}


class ImageGeneration(Data, metaclass=Checked, omit_defaults=True, tag="image_generation"):
    """The vendor's image generator."""

    extra: dict[str, Any] = {}


ServerToolSpec = WebSearch | WebFetch | CodeExecution | FileSearch | ImageGeneration
"""A tool that the vendor runs within an answer."""


class OutputSpec(Data):
    """The JSON schema of a typed output."""

    name: str
    schema: dict[str, Any]


class ToolSpec(Data, omit_defaults=True):
    """A tool as shown to a model.

    The vendor keeps a `deferred` tool out of the prompt until a search result names it: only models with
    `defers_tools` are given such tools.
    """

    name: str
    description: str = ""
    parameters: dict[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    deferred: bool = False
