"""Anthropic's settings: the keys of `ModelSettings.extra`."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

__all__ = ["AnthropicSettings"]


class AnthropicSettings(TypedDict, total=False):
    """Settings of the Messages API.

    `cache` is the lifetime of the prompt cache. `thinking` replaces the setting made from
    `ModelSettings.reasoning`. `body` and `headers` are added to the request as is.
    """

    cache: Literal["5m", "1h", "off"]
    thinking: dict[str, Any]
    tool_choice: dict[str, Any]
    parallel_tool_calls: bool
    service_tier: Literal["auto", "standard_only"]
    speed: Literal["standard", "fast"]
    inference_geo: str
    metadata: dict[str, str]
    betas: list[str]
    body: dict[str, Any]
    headers: dict[str, str]
