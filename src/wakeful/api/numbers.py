"""Numbers of the HTTP API, with their ranges."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from msgspec import Meta

__all__ = ["Priority", "Seconds", "Time", "time_of"]

Time = Annotated[int, Meta(ge=0, le=253_402_300_799_999, description="A time in milliseconds since 1970, UTC.")]
Seconds = Annotated[float, Meta(ge=0, le=3_155_760_000, description="Seconds.")]
Priority = Annotated[int, Meta(ge=0, le=255, description="Lower is claimed sooner.")]


def time_of(at: int | None) -> datetime | None:
    """A time as a datetime."""
    return None if at is None else datetime.fromtimestamp(at / 1000, UTC)
