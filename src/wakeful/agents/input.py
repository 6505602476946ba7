"""Typed input of agents: validation, and encoding as text for the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast, get_args

import msgspec

from ..errors import InvalidArguments, InvalidInput
from ..tools import Shape
from ..types.content import Content
from .agent import Agent

__all__ = ["convert_input", "encode_input", "input_shape"]

_PARTS = get_args(Content)


def input_shape(agent: Agent) -> Shape | None:
    """The shape of an agent's input; None for text."""
    return None if agent.input in (None, str) else Shape(agent.input)


def encode_input(shape: Shape, value: Any) -> str:
    """Encode decoded JSON as text for the agent; raises `InvalidArguments` if it doesn't fit the shape."""
    shape.convert(value)
    return msgspec.json.encode(value).decode()


def convert_input(agent_id: str, shape: Shape | None, given: Any) -> Any:
    """Convert an agent's input to text or content parts. A value of its declared type becomes text.

    Raises `InvalidInput` if the value doesn't fit.
    """
    if isinstance(given, str) or _has_parts(given):
        return given
    if shape is not None:
        try:
            return encode_input(shape, _to_json(given))
        except InvalidArguments as error:
            raise InvalidInput(f"the input of agent {agent_id!r}: {error}") from None
    if not isinstance(given, list | tuple) and not _is_of_another_api(given):
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


def _is_of_another_api(given: Any) -> bool:
    """Whether the input is a message or part as other APIs have them, for which there is an error of its own."""
    return isinstance(given, dict) and bool({"role", "messages", "type"} & cast(dict[Any, Any], given).keys())


def _to_json(value: Any) -> Any:
    """Convert a value to decoded JSON."""
    try:
        return msgspec.json.decode(msgspec.json.encode(value, enc_hook=_dump_model))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise InvalidArguments(f"{type(value).__name__} can't be stored as JSON: {error}") from error


def _dump_model(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"{type(value).__name__} has no JSON form")
    return dump(mode="json", by_alias=True)  # The names of the schema.
