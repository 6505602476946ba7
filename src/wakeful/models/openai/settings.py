"""OpenAI's settings: the keys of `ModelSettings.extra`."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from ..shared.support import Support

__all__ = ["CHAT", "RESPONSES", "OpenAIChatSettings", "OpenAISettings"]

RESPONSES = Support(
    {
        "temperature": "temperature",
        "top_p": "top_p",
        "max_tokens": "max_output_tokens",
        "reasoning": "reasoning.effort",
        "tool_choice": "tool_choice",
        "parallel_tool_calls": "parallel_tool_calls",
        "service_tier": "service_tier",
        "user": "safety_identifier",
        "logprobs": "top_logprobs",
        "headers": "added",
        "body": "added",
    },
    outputs=("schema", "prompt"),
)
CHAT = Support(
    {
        "temperature": "temperature",
        "top_p": "top_p",
        "max_tokens": "max_completion_tokens",
        "reasoning": "reasoning_effort",
        "stop": "stop",
        "seed": "seed",
        "tool_choice": "tool_choice",
        "parallel_tool_calls": "parallel_tool_calls",
        "service_tier": "service_tier",
        "user": "user",
        "logprobs": "logprobs, top_logprobs",
        "headers": "added",
        "body": "added",
    },
    outputs=("schema", "prompt"),
)

Level = Literal["low", "medium", "high"]


class OpenAISettings(TypedDict, total=False):
    """Settings of the Responses API."""

    verbosity: Level
    reasoning_summary: Literal["auto", "concise", "detailed"]
    image_detail: Literal["auto", "low", "high", "original"]
    prompt_cache_key: str
    prompt_cache_options: dict[str, Any]
    prompt_cache_retention: Literal["in_memory", "24h"]
    metadata: dict[str, str]
    truncation: Literal["auto", "disabled"]
    store: bool
    tools: list[dict[str, Any]]
    max_tool_calls: int


class OpenAIChatSettings(TypedDict, total=False):
    """Settings of Chat Completions."""

    verbosity: Level
    frequency_penalty: float
    presence_penalty: float
    logit_bias: dict[str, int]
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
    web_search_options: dict[str, Any]
