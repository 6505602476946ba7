"""Media that a model doesn't accept: refused in the newest turn, replaced by placeholders in earlier ones."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from ...errors import InvalidRequest
from ...types.content import Audio, Document, Image, ToolReply, Video
from ...types.messages import newest_turn
from ..protocol import Model, ModelRequest
from .facts import ModelFacts
from .history import Media, media_kind, replace_old_media

__all__ = ["media_in", "unaccepted_kind", "with_modalities"]

_MEDIA = (Image, Audio, Video, Document)


def with_modalities(model: Model, facts: ModelFacts, request: ModelRequest) -> ModelRequest:
    """Adapt a request to the media that the model accepts by its facts; unchanged if they are unknown.

    Raises `InvalidRequest` for media of the newest turn.
    """
    known = facts.input_modalities
    if known is None:
        return request
    if (kind := unaccepted_kind(facts, media_in(request))) is not None:
        taken = ", ".join(sorted({"text", *known}))
        raise InvalidRequest(
            f"model {model.name!r} takes no {kind} (it takes: {taken}); use a model that does, or leave it out"
        )

    def takes(part: Media) -> bool:
        return media_kind(part) in known

    messages = replace_old_media(request.messages, takes)
    return request if messages is request.messages else replace(request, messages=messages)


def media_in(request: ModelRequest) -> tuple[str, ...]:
    """The kinds of media in the newest turn: the newest user message and all messages after it."""
    messages, found = request.messages, dict[str, None]()
    for place in range(newest_turn(messages) or 0, len(messages)):
        if messages[place].role != "assistant":
            _add_kinds(messages[place].content, found)
    return tuple(found)


def unaccepted_kind(facts: ModelFacts | None, kinds: Iterable[str]) -> str | None:
    """The first of these kinds that the model doesn't accept by its facts; None if there is none."""
    if facts is None or facts.input_modalities is None:
        return None
    known = facts.input_modalities
    return next((kind for kind in kinds if kind not in known), None)


def _add_kinds(content: Iterable[object], found: dict[str, None]) -> None:
    for part in content:
        if isinstance(part, _MEDIA):
            found[media_kind(part)] = None
        elif isinstance(part, ToolReply):
            _add_kinds(part.content, found)
