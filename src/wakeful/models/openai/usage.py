"""Usage in the forms of OpenAI's two APIs, and of the servers that speak them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from ...types.runs import Usage

__all__ = ["chat_usage", "responses_usage"]


def chat_usage(found: Mapping[str, Any]) -> Usage:
    """Convert the usage of Chat Completions.

    Servers differ in where they count cached tokens, and in whether reasoning is part of `completion_tokens`: what
    only `total_tokens` includes is output, too.
    """
    before, after = _part(found, "prompt_tokens_details"), _part(found, "completion_tokens_details")
    given, made = _count(found.get("prompt_tokens")), _count(found.get("completion_tokens"))
    thoughts = _count(after.get("reasoning_tokens")) or _count(found.get("reasoning_tokens"))
    rest = _count(found.get("total_tokens")) - given - made
    if rest > 0 and rest == (thoughts or rest):
        made, thoughts = made + rest, thoughts or rest
    return Usage(
        input_tokens=given,
        output_tokens=made,
        cached_tokens=_first(
            before.get("cached_tokens"),
            found.get("prompt_cache_hit_tokens"),
            found.get("cached_tokens"),
            found.get("cache_read_input_tokens"),
        ),
        cache_write_tokens=_first(
            before.get("cache_write_tokens"),
            before.get("cache_creation_tokens"),
            before.get("cache_creation_input_tokens"),
            found.get("cache_creation_input_tokens"),
        ),
        reasoning_tokens=thoughts,
        cost=_cost(found),
    )


def responses_usage(found: Mapping[str, Any], searches: int) -> Usage:
    """Convert the usage of the Responses API, whose searches are items of the answer."""
    before, after = _part(found, "input_tokens_details"), _part(found, "output_tokens_details")
    return Usage(
        input_tokens=_count(found.get("input_tokens")),
        output_tokens=_count(found.get("output_tokens")),
        cached_tokens=_count(before.get("cached_tokens")),
        cache_write_tokens=_first(before.get("cache_write_tokens"), before.get("cache_creation_input_tokens")),
        reasoning_tokens=_count(after.get("reasoning_tokens")),
        cost=_cost(found),
        searches=searches,
    )


def _cost(found: Mapping[str, Any]) -> int:
    """The cost in micro-units, as OpenRouter and Perplexity say it in dollars and xAI in ticks."""
    cost: Any = found.get("cost")
    if isinstance(cost, dict):
        cost = cast(dict[str, Any], cost).get("total_cost")
    if isinstance(cost, int | float) and not isinstance(cost, bool) and cost > 0:
        return round(cost * 1_000_000)
    return _count(found.get("cost_in_usd_ticks")) // 10_000


def _part(found: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = found.get(name)
    return cast(dict[str, Any], part) if isinstance(part, dict) else {}


def _first(*values: Any) -> int:
    return next((count for value in values if (count := _count(value))), 0)


def _count(value: Any) -> int:
    """A number of tokens. Anything else, such as a vendor's null, is none."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
        return 0
    return int(min(value, 2**53))
