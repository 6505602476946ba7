"""Anthropic's settings: the keys of `ModelSettings.extra`."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from ..shared.support import Support

__all__ = ["SUPPORT", "AnthropicSettings"]

SUPPORT = Support(
    {
        "temperature": "temperature (API version 2023-06-01)",
        "top_p": "top_p (API version 2023-06-01)",
        "max_tokens": "max_tokens",
        "reasoning": "output_config.effort, thinking.budget_tokens",
        "stop": "stop_sequences",
        "tool_choice": "tool_choice",
        "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
        "service_tier": "service_tier",
        "user": "metadata.user_id",
        "headers": "added",
        "body": "added",
    },
    {
        "WebSearch": "web_search_20250305",
        "WebFetch": "web_fetch_20250910",
        "CodeExecution": "code_execution_20250825",
    },
    ("schema", "tool", "prompt"),
)


class AnthropicSettings(TypedDict, total=False):
    """Settings of the Messages API.

    `cache` is the lifetime of the prompt cache. `thinking` replaces the setting made from
    `ModelSettings.reasoning`.
    """

    cache: Literal["5m", "1h", "off"]
    thinking: dict[str, Any]
    speed: Literal["standard", "fast"]
    inference_geo: str
    metadata: dict[str, str]
    betas: list[str]
