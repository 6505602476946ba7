"""What an agent is given where it declares a type for that: a value, as the text that its model reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast, get_args

import msgspec

from ..errors import InvalidArguments, InvalidInput
from ..tools import Shape
from ..types.content import Content
from ._agent import Agent

__all__ = ["input_shape", "packed_input", "said_to"]

_PARTS = get_args(Content)


def input_shape(agent: Agent) -> Shape | None:
    """What an agent's input must be; None where it is a text."""
    return None if agent.input in (None, str) else Shape(agent.input)


def packed_input(shape: Shape, value: Any) -> str:
    """Decoded JSON as what its agent is told; raises `InvalidArguments` if it isn't of the shape."""
    shape.convert(value)
    return msgspec.json.encode(value).decode()


def said_to(agent_id: str, shape: Shape | None, given: Any) -> Any:
    """What is given to an agent, as a text or content parts: a value of the type that it declares becomes a text.
    Raises `InvalidInput` for one that doesn't fit."""
    if isinstance(given, str) or _has_parts(given):
        return given
    if shape is not None:
        try:
            return packed_input(shape, _plain(given))
        except InvalidArguments as error:
            raise InvalidInput(f"the input of agent {agent_id!r}: {error}") from None
    if not isinstance(given, list | tuple):
        kind = type(given).__name__
        raise InvalidInput(
            f"the input is a text or a list of content parts, not {kind}; values of a type are for agents that "
            f"declare it: Agent({agent_id!r}, input=...)"
        )
    return cast(Any, given)


def _has_parts(given: Any) -> bool:
    if isinstance(given, list | tuple):
        return any(isinstance(part, _PARTS) for part in cast(Sequence[Any], given))
    return isinstance(given, _PARTS)


def _plain(value: Any) -> Any:
    """A value as decoded JSON."""
    try:
        return msgspec.json.decode(msgspec.json.encode(value, enc_hook=_dumped))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise InvalidArguments(f"{type(value).__name__} can't be kept as JSON: {error}") from error


def _dumped(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"{type(value).__name__} has no JSON form")
    return dump(mode="json", by_alias=True)  # As the schema names its fields.
