"""Log probabilities of tokens, in the form that both APIs share."""

from __future__ import annotations

from typing import Any, cast

from ...types.content import Logprob

__all__ = ["logprobs_of"]


def logprobs_of(found: Any) -> list[Logprob]:
    """Convert the log probabilities of a text."""
    return [
        Logprob(str(token["token"]), float(token["logprob"]), _top(token))
        for token in cast(list[dict[str, Any]], found or [])
    ]


def _top(token: dict[str, Any]) -> tuple[tuple[str, float], ...]:
    others = cast(list[dict[str, Any]], token.get("top_logprobs") or [])
    return tuple([(str(other["token"]), float(other["logprob"])) for other in others])
