"""Settings of a request."""

from __future__ import annotations

from typing import Any

from ...types.requests import ModelSettings
from ..operations import Call

__all__ = ["settings_of"]


def settings_of(call: Call, agent: str, **given: Any) -> ModelSettings | None:
    """The settings that a request has; callers without the right to set them get the agent's own."""
    found = {name: value for name, value in given.items() if value is not None}
    return ModelSettings(**found) if found and call.caller.may("runs:settings", agent) else None
