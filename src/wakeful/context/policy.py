"""Window policies: how much of a conversation a model is shown, and when it is compacted."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from ..errors.arguments import Checked
from ..models import ModelFacts
from ..models.shared.secrets import redact_repr
from ..types.base import Data
from ..types.content import clean_text
from ..types.requests import ModelSettings

__all__ = ["Compaction", "Room", "WindowPolicy", "room_of", "window_problems"]


class Compaction(Data, metaclass=Checked, kw_only=True, repr_omit_defaults=True):
    """When and how the older part of a conversation is replaced by a summary.

    - `threshold`: the share of the room that a request must fill before compaction starts.
    - `keep`: the newest messages that are never summarised; neither is the last user message.
    - `model`: the model that writes the summary; by default the agent's.
    - `prompt`: replaces the built-in instructions.
    - `max_tokens`: the length limit of a summary.
    - `min_savings`: a summary that saves less than this share is discarded.
    """

    threshold: float = 0.75
    keep: int = 4
    model: str | None = None
    prompt: str | None = None
    max_tokens: int = 1024
    min_savings: float = 0.3

    def __repr__(self) -> str:
        return redact_repr(Struct.__repr__(self))


class WindowPolicy(Data, metaclass=Checked, kw_only=True, repr_omit_defaults=True):
    """How much of a conversation an agent's model is shown.

    - `max_tokens`: the limit of request and answer together, at most the model's context window, which is the
      default. If neither is known, messages are cut only after the vendor rejected a request as too long.
    - `reserve`: tokens of it that are reserved for the answer.
    - `min_recent`: the newest messages, which are left out last.
    - `offload`: a tool result of more tokens is shown as a preview, and a tool reads the rest. The default is an
      eighth of the room.
    - `compaction`: None leaves older messages out without a summary.
    """

    max_tokens: int | None = None
    reserve: int | None = None
    min_recent: int = 10
    offload: int | None = None
    compaction: Compaction | None = Compaction()


class Room(Data):
    """Token limits of a request: its size, the compaction threshold, and the size of a full tool result."""

    tokens: int
    threshold: int
    offload: int


_RESERVE = 4096
_LEAST_OFFLOAD = 64


def room_of(
    policy: WindowPolicy, settings: ModelSettings, facts: ModelFacts | None, refused: int | None
) -> Room | None:
    """Compute the room of a request from the policy, the model's facts and a limit that its vendor `refused`."""
    window, most = (None, None) if facts is None else (facts.context_window, facts.max_output)
    limit = min([n for n in (policy.max_tokens, window) if n], default=None)
    tokens = refused
    if limit is not None:
        reserve = policy.reserve or settings.max_tokens or most or min(_RESERVE, limit // 4)
        if most:
            reserve = min(reserve, most)
        # An answer gets at most half of the room.
        left = max(limit - reserve, limit // 2)
        tokens = left if refused is None else min(left, refused)
    if tokens is None:
        return None
    share = 1.0 if policy.compaction is None else policy.compaction.threshold
    offload = policy.offload or max(tokens // 8, _LEAST_OFFLOAD)
    return Room(tokens, max(int(tokens * share), 1), offload)


def window_problems(policy: Any) -> list[str]:
    """List the problems of a window policy."""
    if policy is None:
        return []
    if not isinstance(policy, WindowPolicy):
        return [f"window is a WindowPolicy(...) or None, not {policy!r:.80}"]
    found: list[str] = []
    for name, lowest in (("max_tokens", 256), ("reserve", 1), ("min_recent", 1), ("offload", _LEAST_OFFLOAD)):
        value = getattr(policy, name)
        if (value is not None or name == "min_recent") and not _is_whole(value, lowest):
            found.append(f"window.{name} is a whole number of at least {lowest}, not {value!r}")
    if not found and policy.max_tokens is not None:
        if policy.reserve is not None and policy.reserve * 2 > policy.max_tokens:
            found.append(
                f"window.reserve ({policy.reserve:,}) is more than half of window.max_tokens "
                f"({policy.max_tokens:,}); leave more of it for the conversation"
            )
        if policy.offload is not None and policy.offload > policy.max_tokens:
            found.append("window.offload is more than window.max_tokens: no result would fit; lower it")
    return found + _compaction_problems(policy.compaction)


def _compaction_problems(compaction: Any) -> list[str]:
    if compaction is None:
        return []
    if not isinstance(compaction, Compaction):
        return [f"window.compaction is a Compaction(...) or None, not {compaction!r:.80}"]
    found: list[str] = []
    if not _is_share(compaction.threshold) or compaction.threshold == 0:
        found.append(f"compaction.threshold is a share of the room, over 0 up to 1, not {compaction.threshold!r}")
    if not _is_share(compaction.min_savings):
        found.append(f"compaction.min_savings is a share, 0 to 1, not {compaction.min_savings!r}")
    for name, lowest in (("keep", 0), ("max_tokens", 64)):
        if not _is_whole(value := getattr(compaction, name), lowest):
            found.append(f"compaction.{name} is a whole number of at least {lowest}, not {value!r}")
    prompt: Any = compaction.prompt
    if prompt is not None and not isinstance(prompt, str):
        found.append(f"compaction.prompt is a text, the instructions for a summary; not {prompt!r:.80}")
    elif prompt is not None and not prompt.strip():
        found.append("compaction.prompt is empty; omit it to use the built-in one")
    elif prompt is not None and clean_text(prompt) != prompt:
        found.append(f"compaction.prompt has a lone surrogate in it, {prompt!r:.80}; remove it")
    return found


def _is_whole(value: Any, lowest: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= lowest


def _is_share(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
