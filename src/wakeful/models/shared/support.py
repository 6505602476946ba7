"""Declarations of support by the adapters: the source of refusals, and of the tables in the docs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from ...errors import InvalidRequest
from ...types.base import Data
from ...types.requests import ModelSettings, ServerToolSpec
from ..protocol import ModelRequest

__all__ = ["OutputMode", "Support", "check_server_tools", "check_settings", "tool_choice_of"]

OutputMode = Literal["schema", "tool", "prompt"]

# The runtime applies the timeout; `parse_extra` checks `extra`.
_OF_NO_VENDOR = ("timeout", "extra")


class Support(Data):
    """The vendor's names of our settings and server tools, and the ways to a typed output.

    A name in parentheses is a condition. `outputs` are in the order of preference.
    """

    settings: Mapping[str, str]
    server_tools: Mapping[str, str] = {}
    outputs: tuple[OutputMode, ...] = ("prompt",)


def check_settings(shown: str, settings: ModelSettings, support: Support) -> None:
    """Refuse a setting that the vendor lacks. `shown` is the model's name in errors."""
    for name in settings.__struct_fields__:
        value = getattr(settings, name)
        if value in (None, (), {}) or name in support.settings or name in _OF_NO_VENDOR:
            continue
        known = ", ".join(support.settings)
        raise InvalidRequest(
            f"{shown} takes no {name} ({value!r:.80}); omit it from ModelSettings (known: {known})"
        )


def check_server_tools(shown: str, specs: Sequence[ServerToolSpec], support: Support) -> None:
    """Refuse a server tool that the vendor lacks. `shown` is the model's name in errors."""
    for spec in specs:
        if type(spec).__name__ not in support.server_tools:
            known = ", ".join(support.server_tools)
            has = f"its server tools are {known}" if known else "its vendor runs no tools; remove it"
            raise InvalidRequest(f"{shown} has no {type(spec).__name__}; {has}")


def tool_choice_of(shown: str, request: ModelRequest) -> str | None:
    """The choice of a request: `auto`, `required`, `none`, the name of a tool, or None for the default."""
    choice = request.settings.tool_choice
    if choice in (None, "auto", "none"):
        return choice if request.tools else None
    names = [tool.name for tool in request.tools]
    if choice != "required" and choice not in names:
        known = ", ".join(names) or "it has none"
        raise InvalidRequest(
            f"{shown}: tool_choice {choice!r} is no tool of the request ({known}); name one of its tools, or say "
            "'auto', 'required' or 'none'"
        )
    if not (names or request.server_tools):
        raise InvalidRequest(f"{shown}: tool_choice 'required' needs tools, and the request has none; omit it")
    return choice
