"""Hints of the watch feed."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from .numbers import Seconds

__all__ = ["Hint", "HintKind", "WatchQuery"]

HintKind = Literal["run", "thread", "ticket", "worker"]


class Hint(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A resource that changed, was made or was deleted: fetch it again. `status` is absent if it is gone."""

    kind: HintKind
    id: str
    status: str | None = None
    thread_id: str | None = None


class WatchQuery(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`seconds` is how long the feed lasts; without it, until the client leaves."""

    seconds: Seconds | None = None
