"""What a model is known not to take is refused before it is asked, or told in its place where it is old."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from ..errors import InvalidRequest
from ..types.content import Audio, Document, Image, ToolReply, Video
from ..types.messages import newest_turn
from ._facts import ModelFacts
from ._history import Media, kind_of, without_old
from ._protocol import Model, ModelRequest

__all__ = ["lacks", "media_in", "with_modalities"]

_MEDIA = (Image, Audio, Video, Document)


def with_modalities(model: Model, facts: ModelFacts, request: ModelRequest) -> ModelRequest:
    """The request, with notes in place of the media of earlier turns that the model's facts say it can't take;
    those of the newest turn are refused. Text always goes; where nothing is known, all does."""
    known = facts.input_modalities
    if known is None:
        return request
    if (kind := lacks(facts, media_in(request))) is not None:
        taken = ", ".join(sorted({"text", *known}))
        raise InvalidRequest(
            f"model {model.name!r} takes no {kind} (it takes: {taken}); use a model that does, or leave it out"
        )

    def takes(part: Media) -> bool:
        return kind_of(part) in known

    messages = without_old(request.messages, takes)
    return request if messages is request.messages else replace(request, messages=messages)


def media_in(request: ModelRequest) -> tuple[str, ...]:
    """The kinds of media that the newest turn of a request has: the newest message of a user, and all since."""
    messages, found = request.messages, dict[str, None]()
    for place in range(newest_turn(messages) or 0, len(messages)):
        if messages[place].role != "assistant":
            _add_kinds(messages[place].content, found)
    return tuple(found)


def lacks(facts: ModelFacts | None, kinds: Iterable[str]) -> str | None:
    """The first of these kinds that a model is known not to take."""
    if facts is None or facts.input_modalities is None:
        return None
    known = facts.input_modalities
    return next((kind for kind in kinds if kind not in known), None)


def _add_kinds(content: Iterable[object], found: dict[str, None]) -> None:
    for part in content:
        if isinstance(part, _MEDIA):
            found[kind_of(part)] = None
        elif isinstance(part, ToolReply):
            _add_kinds(part.content, found)
