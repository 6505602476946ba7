"""In what Anthropic's models differ that a request must know."""

from __future__ import annotations

import re

__all__ = ["has_formats", "is_adaptive", "output_cap"]

# Pages "Models overview", "Adaptive thinking" and "Structured outputs". Models that come later are taken to be
# as the newest are.
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
    """Whether the model thinks by effort; older ones have a budget of tokens for it."""
    return _generation(model) >= (4, 6)


def has_formats(model: str) -> bool:
    """Whether the model can be held to a JSON schema; older ones are given a tool to answer with."""
    return _generation(model) >= (4, 5) or "opus-4-1" in model


def output_cap(model: str) -> int:
    """As many tokens as every model of its generation can answer with; the API wants a limit."""
    return _CAPS.get(_generation(model), 8192 if _generation(model)[0] == 3 else _CAP)
