"""What Anthropic's API can be told besides what all vendors can: the keys of `ModelSettings.extra`."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

__all__ = ["AnthropicSettings"]


class AnthropicSettings(TypedDict, total=False):
    """For the Messages API. `cache` says how long the conversation is cached, `off` that it isn't; `thinking` is
    sent in place of what `ModelSettings.reasoning` stands for; `body` and `headers` are added as they are."""

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
