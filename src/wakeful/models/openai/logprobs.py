"""Log probabilities of tokens, in the form that both APIs share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from ...types.content import Logprob

__all__ = ["logprobs_of"]


def logprobs_of(found: Any) -> list[Logprob]:
    """Convert the log probabilities of a text. Those of another form are left out."""
    return [
        Logprob(token, logprob, tuple(_pairs(raw.get("top_logprobs")))) for raw, token, logprob in _tokens(found)
    ]


def _pairs(found: Any) -> list[tuple[str, float]]:
    return [(token, logprob) for _, token, logprob in _tokens(found)]


def _tokens(found: Any) -> Iterator[tuple[dict[str, Any], str, float]]:
    for one in cast(list[Any], found) if isinstance(found, list) else ():
        raw = cast(dict[str, Any], one) if isinstance(one, dict) else {}
        token, logprob = raw.get("token"), raw.get("logprob")
        if isinstance(token, str) and isinstance(logprob, int | float):
            yield raw, token, float(logprob)
