"""What an agent does about a conversation that outgrows its model's window, and how much room that leaves."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from ..errors._arguments import Checked
from ..models import ModelFacts
from ..models._secrets import veiled
from ..types.content import clean_text
from ..types.requests import ModelSettings

__all__ = ["Compaction", "Context", "Room", "problems_of", "room_of"]


class Compaction(Struct, metaclass=Checked, frozen=True, kw_only=True, repr_omit_defaults=True):
    """When and how the older part of a conversation is replaced by a summary.

    It begins once a request fills the share `threshold` of what it may have, and leaves at least the newest `keep`
    messages and the user's last one as they are. `model` writes the summary, by default the agent's own; `prompt`
    replaces the instructions it is given. A summary has at most `max_tokens`; one that saves less than the share
    `min_savings` is thrown away.
    """

    threshold: float = 0.75
    keep: int = 4
    model: str | None = None
    prompt: str | None = None
    max_tokens: int = 1024
    min_savings: float = 0.3

    def __repr__(self) -> str:
        return veiled(Struct.__repr__(self))


class Context(Struct, metaclass=Checked, frozen=True, kw_only=True, repr_omit_defaults=True):
    """How much of a conversation an agent's model is shown.

    `max_tokens` is how long a request and its answer may be together, by default, and at most, as long as the
    model's window; where neither is known, nothing is cut before the vendor says that it is too long. `reserve`
    tokens of it are left for the answer. The newest `min_recent` messages are left out last. A tool result of more
    than `offload` tokens, by default an eighth of the room, is shown as a preview and can be read on with a tool.
    Without `compaction` older messages are left out and not summarised.
    """

    max_tokens: int | None = None
    reserve: int | None = None
    min_recent: int = 10
    offload: int | None = None
    compaction: Compaction | None = Compaction()


class Room(Struct, frozen=True, gc=False):
    """How many tokens a request may have, from how many on it is compacted, and when a result is previewed."""

    tokens: int
    threshold: int
    offload: int


_RESERVE = 4096
_LEAST_OFFLOAD = 64


def room_of(
    context: Context, settings: ModelSettings, facts: ModelFacts | None, refused: int | None
) -> Room | None:
    """The room for a request, as narrow as the policy, the model's facts and what its vendor `refused` make it."""
    window, most = (None, None) if facts is None else (facts.context_window, facts.max_output)
    limit = min([n for n in (context.max_tokens, window) if n], default=None)
    tokens = refused
    if limit is not None:
        reserve = context.reserve or settings.max_tokens or most or min(_RESERVE, limit // 4)
        if most:
            reserve = min(reserve, most)
        # An answer never takes more than half of it, whatever it is said to need.
        left = max(limit - reserve, limit // 2)
        tokens = left if refused is None else min(left, refused)
    if tokens is None:
        return None
    share = 1.0 if context.compaction is None else context.compaction.threshold
    offload = context.offload or max(tokens // 8, _LEAST_OFFLOAD)
    return Room(tokens, max(int(tokens * share), 1), offload)


def problems_of(context: Any) -> list[str]:
    """What is wrong with a policy, in the words of whoever wrote it."""
    if context is None:
        return []
    if not isinstance(context, Context):
        return [f"context is a Context(...) or None, not {context!r:.80}"]
    found: list[str] = []
    for name, lowest in (("max_tokens", 256), ("reserve", 1), ("min_recent", 1), ("offload", _LEAST_OFFLOAD)):
        value = getattr(context, name)
        if (value is not None or name == "min_recent") and not _whole(value, lowest):
            found.append(f"context.{name} is a whole number of at least {lowest}, not {value!r}")
    if not found and context.max_tokens is not None:
        if context.reserve is not None and context.reserve * 2 > context.max_tokens:
            found.append(
                f"context.reserve ({context.reserve:,}) is more than half of context.max_tokens "
                f"({context.max_tokens:,}); leave more of it for the conversation"
            )
        if context.offload is not None and context.offload > context.max_tokens:
            found.append("context.offload is more than context.max_tokens: no result would fit; lower it")
    return found + _compaction_problems(context.compaction)


def _compaction_problems(compaction: Any) -> list[str]:
    if compaction is None:
        return []
    if not isinstance(compaction, Compaction):
        return [f"context.compaction is a Compaction(...) or None, not {compaction!r:.80}"]
    found: list[str] = []
    if not _share(compaction.threshold) or compaction.threshold == 0:
        found.append(f"compaction.threshold is a share of the room, over 0 up to 1, not {compaction.threshold!r}")
    if not _share(compaction.min_savings):
        found.append(f"compaction.min_savings is a share, 0 to 1, not {compaction.min_savings!r}")
    for name, lowest in (("keep", 0), ("max_tokens", 64)):
        if not _whole(value := getattr(compaction, name), lowest):
            found.append(f"compaction.{name} is a whole number of at least {lowest}, not {value!r}")
    prompt: Any = compaction.prompt
    if prompt is not None and not isinstance(prompt, str):
        found.append(f"compaction.prompt is a text, the instructions for a summary; not {prompt!r:.80}")
    elif prompt is not None and not prompt.strip():
        found.append("compaction.prompt is empty; leave it out to use the one that comes with wakeful")
    elif prompt is not None and clean_text(prompt) != prompt:
        found.append(f"compaction.prompt has half a character in it (a lone surrogate), {prompt!r:.80}; mend it")
    return found


def _whole(value: Any, lowest: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= lowest


def _share(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
