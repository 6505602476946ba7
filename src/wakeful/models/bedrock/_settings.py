"""What Bedrock can be told beyond what all vendors can, and what the families of its models differ in."""

from __future__ import annotations

import re
from typing import Any, Literal, TypedDict

from ...errors import InvalidRequest
from .._vendor import settings_of

__all__ = ["BedrockSettings", "caches", "family_of", "holds_to_schemas", "reasoning_fields", "settings"]


class BedrockSettings(TypedDict, total=False):
    """What `ModelSettings(extra=...)` may hold. `fields` are the model's own request fields, `cache` says whether
    the conversation is cached; the rest is Converse's own."""

    cache: bool
    fields: dict[str, Any]
    guardrail: dict[str, Any]
    latency: Literal["standard", "optimized"]
    service_tier: str
    metadata: dict[str, str]
    tool_choice: str


def settings(extra: dict[str, Any]) -> BedrockSettings:
    """The settings, checked."""
    return settings_of("bedrock", extra, BedrockSettings)


def family_of(model: str) -> str:
    """Whose model it is, such as `anthropic`: without the region that a profile's name begins with, or an ARN."""
    name = model.rpartition("/")[2]
    parts = name.split(".")
    return parts[1] if len(parts) > 2 and len(parts[0]) <= 6 else parts[0]


def caches(model: str) -> bool:
    """Whether marks for the cache are understood; others refuse them."""
    return (
        re.search(r"claude-(3-7-|(opus|sonnet|haiku|fable|mythos)-)", model) is not None or "amazon.nova" in model
    )


def holds_to_schemas(model: str) -> bool:
    """Whether the answer can be held to a schema; others are told in words."""
    return family_of(model) not in ("amazon", "meta", "cohere", "ai21") and not re.search(
        r"claude-(v2|instant|3-|(opus|sonnet)-4(-1)?-2025)", model
    )


def reasoning_fields(name: str, model: str, effort: str | int) -> tuple[dict[str, Any], str | None]:
    """The model's own request fields that say how much to reason, and the effort where Converse takes it."""
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
                f"{name}: how this model is told to reason isn't known; "
                "give its own request fields with ModelSettings(extra={'fields': ...})"
            )
