"""OpenAI's settings: the keys of `ModelSettings.extra`."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

__all__ = ["OpenAIChatSettings", "OpenAISettings"]

Tier = Literal["auto", "default", "flex", "scale", "priority", "fast", "ultrafast"]
Level = Literal["low", "medium", "high"]


class OpenAISettings(TypedDict, total=False):
    """Settings of the Responses API. `body` and `headers` are added to the request as is."""

    service_tier: Tier
    parallel_tool_calls: bool
    tool_choice: str | dict[str, Any]
    verbosity: Level
    reasoning_summary: Literal["auto", "concise", "detailed"]
    image_detail: Literal["auto", "low", "high", "original"]
    prompt_cache_key: str
    prompt_cache_options: dict[str, Any]
    prompt_cache_retention: Literal["in_memory", "24h"]
    safety_identifier: str
    metadata: dict[str, str]
    truncation: Literal["auto", "disabled"]
    store: bool
    tools: list[dict[str, Any]]
    max_tool_calls: int
    body: dict[str, Any]
    headers: dict[str, str]


class OpenAIChatSettings(TypedDict, total=False):
    """Settings of Chat Completions. `body` and `headers` are added to the request as is."""

    service_tier: Tier
    parallel_tool_calls: bool
    tool_choice: str | dict[str, Any]
    verbosity: Level
    frequency_penalty: float
    presence_penalty: float
    logit_bias: dict[str, int]
    seed: int
    image_detail: Literal["auto", "low", "high", "original"]
    prompt_cache_key: str
    prompt_cache_options: dict[str, Any]
    prompt_cache_retention: Literal["in_memory", "24h"]
    safety_identifier: str
    metadata: dict[str, str]
    modalities: list[Literal["text", "audio"]]
    audio: dict[str, Any]
    prediction: dict[str, Any]
    store: bool
    user: str
    web_search_options: dict[str, Any]
    body: dict[str, Any]
    headers: dict[str, str]
