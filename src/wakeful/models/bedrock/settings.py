"""Bedrock's settings, and the differences between families of models."""

from __future__ import annotations

import re
from typing import Any, Literal, TypedDict

from ...errors import InvalidRequest
from ..shared.support import Support
from ..shared.vendor import parse_extra

__all__ = [
    "SUPPORT",
    "BedrockSettings",
    "family_of",
    "parse_settings",
    "reasoning_fields",
    "supports_cache",
    "supports_schemas",
]


SUPPORT = Support(
    {
        "temperature": "temperature",
        "top_p": "topP",
        "max_tokens": "maxTokens",
        "reasoning": "by family",
        "stop": "stopSequences",
        "tool_choice": "toolChoice (not `none`)",
        "service_tier": "serviceTier.type",
        "headers": "added",
        "body": "added",
    },
    {"WebSearch": "nova_grounding (Nova)", "CodeExecution": "nova_code_interpreter (Nova)"},
    ("schema", "prompt"),
)


class BedrockSettings(TypedDict, total=False):
    """The keys of `ModelSettings.extra`.

    `fields` are the model's own request fields. `cache` turns the prompt cache on or off. The others are
    Converse's.
    """

    cache: bool
    fields: dict[str, Any]
    guardrail: dict[str, Any]
    latency: Literal["standard", "optimized"]
    metadata: dict[str, str]


def parse_settings(extra: dict[str, Any]) -> BedrockSettings:
    """Validate the settings."""
    return parse_extra("bedrock", extra, BedrockSettings)


def family_of(model: str) -> str:
    """The vendor of a model, such as `anthropic`, without the region of a profile or an ARN."""
    name = model.rpartition("/")[2]
    parts = name.split(".")
    return parts[1] if len(parts) > 2 and len(parts[0]) <= 6 else parts[0]


def supports_cache(model: str) -> bool:
    """Whether the model accepts cache points; others refuse them."""
    return (
        re.search(r"claude-(3-7-|(opus|sonnet|haiku|fable|mythos)-)", model) is not None or "amazon.nova" in model
    )


def supports_schemas(model: str) -> bool:
    """Whether the model supports output schemas; others get instructions."""
    return family_of(model) not in ("amazon", "meta", "cohere", "ai21") and not re.search(
        r"claude-(v2|instant|3-|(opus|sonnet)-4(-1)?-2025)", model
    )


def reasoning_fields(name: str, model: str, effort: str | int) -> tuple[dict[str, Any], str | None]:
    """The model's own request fields for reasoning, and the effort if Converse takes it."""
    match family_of(model), effort:
        case "anthropic", int():
            return {"thinking": {"type": "enabled", "budget_tokens": effort}}, None
        case "anthropic", "none":
            return {"thinking": {"type": "disabled"}}, None
        case "anthropic", str():
            return {"thinking": {"type": "adaptive"}}, effort
        case "amazon", "none":
            return {"reasoningConfig": {"type": "disabled"}}, None
        case "amazon", str():
            return {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": effort}}, None
        case "openai", str():
            return {"reasoning_effort": effort}, None
        case _:
            raise InvalidRequest(
                f"{name}: the reasoning setting of this model is unknown; "
                "give its own request fields with ModelSettings(extra={'fields': ...})"
            )
