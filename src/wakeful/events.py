"""All event types, for `from wakeful.events import TextDelta`, and the reader of their JSON."""

import msgspec

from .errors import InvalidInput
from .types import events as _events
from .types.codec import decode_event
from .types.events import *  # noqa: F403
from .types.events import AnyEvent

__all__ = [*_events.__all__, "from_json"]  # pyright: ignore[reportUnsupportedDunderAll]


def from_json(data: str | bytes) -> AnyEvent:
    """Read an event from the JSON of `event.to_json()`; raises `InvalidInput` if it isn't one.

    A kind of event that this version doesn't know is an `UnknownEvent`.
    """
    try:
        return decode_event(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InvalidInput(f"this isn't the JSON of an event: {data!r:.80} ({error})") from error
