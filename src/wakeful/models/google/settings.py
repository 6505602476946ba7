"""Gemini's settings: what is supported, and the keys of `ModelSettings.extra`."""

from __future__ import annotations

from typing import Any, TypedDict

from ..shared.support import Support

__all__ = ["SUPPORT", "GoogleSettings"]

SUPPORT = Support(
    {
        "temperature": "temperature",
        "top_p": "topP",
        "max_tokens": "maxOutputTokens",
        "reasoning": "thinkingConfig.thinkingLevel, thinkingBudget",
        "stop": "stopSequences",
        "seed": "seed",
        "tool_choice": "functionCallingConfig.mode, allowedFunctionNames",
        "logprobs": "responseLogprobs, logprobs",
        "service_tier": "serviceTier",
        "headers": "added",
        "body": "added",
    },
    {
        "WebSearch": "googleSearch",
        "WebFetch": "urlContext",
        "CodeExecution": "codeExecution",
        "FileSearch": "fileSearch",
    },
    ("schema", "prompt"),
)


class GoogleSettings(TypedDict, total=False):
    """The keys of `ModelSettings.extra`; names and values are Gemini's own."""

    top_k: float
    presence_penalty: float
    frequency_penalty: float
    safety_settings: list[dict[str, Any]]
    cached_content: str
    labels: dict[str, str]
    media_resolution: str
    response_modalities: list[str]
    speech_config: dict[str, Any]
    image_config: dict[str, Any]
    include_thoughts: bool
