"""Differences between generations of Anthropic's models."""

from __future__ import annotations

import re

__all__ = ["can_defer_tools", "has_formats", "has_system_messages", "is_adaptive", "output_cap"]

# Sources: pages "Models overview", "Adaptive thinking" and "Structured outputs". Unknown models count as newest.
_GENERATION = re.compile(r"claude-(?:(?P<old>3(?:[-.][57])?)|[a-z]+-(?P<major>\d)(?:[-.](?P<minor>\d)(?!\d))?)")
_CAPS = {(3, 0): 4096, (3, 5): 8192, (4, 0): 32_000, (4, 1): 32_000}
_CAP = 64_000


def _generation(model: str) -> tuple[int, int]:
    found = _GENERATION.search(model)
    if found is None:
        return (9, 0)
    if old := found["old"]:
        return (3, int(old[2:] or 0))
    return (int(found["major"]), int(found["minor"] or 0))


def is_adaptive(model: str) -> bool:
    """Whether the model takes a thinking effort; older ones take a token budget."""
    return _generation(model) >= (4, 6)


def has_formats(model: str) -> bool:
    """Whether the model supports output schemas; older ones get a tool to answer with."""
    return _generation(model) >= (4, 5) or "opus-4-1" in model


def can_defer_tools(model: str) -> bool:
    """Whether the model takes tools that are loaded when a result refers to them."""
    return _generation(model) >= (4, 5)


def has_system_messages(model: str) -> bool:
    """Whether the model takes system messages within the conversation."""
    return _generation(model) >= (4, 8)


def output_cap(model: str) -> int:
    """The output limit that every model of the generation supports; the API requires one."""
    return _CAPS.get(_generation(model), 8192 if _generation(model)[0] == 3 else _CAP)
