"""What a model is known not to take is refused before it is asked."""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import InvalidRequest
from ..types.content import Audio, Document, Image, ToolReply, Video
from ._facts import ModelFacts
from ._protocol import Model, ModelRequest

__all__ = ["check_modalities"]

_KINDS: dict[type, str] = {Image: "image", Audio: "audio", Video: "video", Document: "document"}


def check_modalities(model: Model, facts: ModelFacts, request: ModelRequest) -> None:
    """Refuse media that the model's facts say it can't take. Text always goes; where nothing is known, all
    does."""
    known = facts.input_modalities
    if known is None:
        return
    for message in request.messages:
        if (kind := _foreign(message.content, known)) is not None:
            taken = ", ".join(sorted({"text", *known}))
            raise InvalidRequest(
                f"model {model.name!r} takes no {kind} (it takes: {taken}); use a model that does, or leave it out"
            )


def _foreign(content: Iterable[object], known: Iterable[str]) -> str | None:
    for part in content:
        kind = _KINDS.get(type(part))
        if kind is not None and kind not in known:
            return kind
        if isinstance(part, ToolReply) and (inner := _foreign(part.content, known)) is not None:
            return inner
    return None
