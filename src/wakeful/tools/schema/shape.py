"""Shapes: the JSON schema of a type or of a function's parameters, and conversion from JSON."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from ...errors import InvalidArguments, ShapeError
from .convert import REFUSALS, convert, problems_of, revive
from .hints import format_hint, hint_error
from .lowering import Lowering
from .polish import NULL, Polisher, remove_null
from .pydantic_models import dump_model
from .text import parse_json
from .wording import Problem, format_names, format_problems

__all__ = ["Parameter", "Parameters", "Shape"]


class Shape:
    """A type as JSON: its schema for a model, and conversion of decoded JSON to values."""

    __slots__ = ("_decoder", "_lowering", "_schema", "_target", "name", "type")

    def __init__(self, type_: Any, *, name: str | None = None) -> None:
        self.type: Any = type_
        self.name: str = name or getattr(type_, "__name__", None) or "value"
        self._lowering = Lowering()
        try:
            self._target = self._lowering.lower_root(type_)
        except (TypeError, NameError, re.error) as error:
            raise ShapeError(hint_error(error)) from error
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(self._target, dec_hook=revive)
        self._schema: dict[str, Any] | None = None

    def __repr__(self) -> str:
        return f"Shape({format_hint(self.type)})"

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema, with keywords that vendors accept."""
        if self._schema is None:
            (schema,), definitions = self._lowering.schemas([self._target])
            self._schema = Polisher(definitions).root(schema)
        return self._schema

    def convert(self, value: Any) -> Any:
        """Convert decoded JSON to the type; raises InvalidArguments."""
        try:
            return convert(value, self._target)
        except REFUSALS as error:
            problems = problems_of(error, value, self._target)
        raise InvalidArguments(format_problems(problems, self.schema))

    def decode(self, text: str | bytes) -> Any:
        """Convert JSON text, bare or in a Markdown fence, to the type; raises InvalidArguments."""
        try:
            return self._decoder.decode(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError, TypeError):
            pass  # The slow path finds the error text, or a fence around the JSON.
        return self.convert(parse_json(text))


class Parameter(Struct, frozen=True):
    """A parameter that takes an argument."""

    name: str
    target: Any
    required: bool
    default: Any
    description: str | None


class Parameters:
    """A function's parameters as one JSON object."""

    __slots__ = ("_lowering", "_parameters", "_plain", "_schema", "_target", "context", "deps")

    def __init__(
        self, parameters: Sequence[Parameter], lowering: Lowering, context: str | None, deps: Any = None
    ) -> None:
        self.context = context
        # The type of dependencies that the context's annotation names.
        self.deps = deps
        self._parameters = {parameter.name: parameter for parameter in parameters}
        self._lowering = lowering
        self._plain = lowering.plain
        # Only given arguments are read back: the default None of an absent one is never seen.
        self._target = msgspec.defstruct(
            "Arguments",
            [(p.name, p.target) if p.required else (p.name, p.target, None) for p in parameters],
            kw_only=True,
            forbid_unknown_fields=True,
        )
        self._schema: dict[str, Any] | None = None

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of the object, with keywords that vendors accept."""
        if self._schema is None:
            parameters = list(self._parameters.values())
            schemas, definitions = self._lowering.schemas([parameter.target for parameter in parameters])
            polish = Polisher(definitions)
            properties = {
                parameter.name: _property(parameter, polish.schema(schema))
                for parameter, schema in zip(parameters, schemas, strict=True)
            }
            self._schema = polish.with_definitions(
                {
                    "type": "object",
                    "properties": properties,
                    "required": self._required(),
                    "additionalProperties": False,
                }
            )
        return self._schema

    def bind(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Check and convert the given arguments; raises InvalidArguments."""
        try:
            # msgspec's own function, without keyword arguments, takes half the time.
            make = msgspec.convert if self._plain else convert
            bound = make(arguments, self._target)
        except REFUSALS as error:
            problems = self._problems(error, arguments)
        else:
            if len(arguments) == len(self._parameters):
                return asdict(bound)
            return {name: getattr(bound, name) for name in arguments}
        raise InvalidArguments(format_problems(problems, self.schema))

    def _required(self) -> list[str]:
        return [name for name, parameter in self._parameters.items() if parameter.required]

    def _problems(self, error: Exception, arguments: Any) -> list[Problem]:
        """All problems of the arguments; `error` is the first that was found."""
        if not isinstance(arguments, dict):
            return problems_of(error, arguments, self._target)
        given = cast(dict[str, Any], arguments)
        problems: list[Problem] = []
        if unknown := [name for name in given if name not in self._parameters]:
            expected = ", ".join(self._parameters) or "none"
            problems.append(("$", f"unknown {format_names(unknown)} (expected: {expected})"))
        if missing := [name for name in self._required() if name not in given]:
            problems.append(("$", f"missing required {format_names(missing)}"))
        for name, parameter in self._parameters.items():
            if name not in given:
                continue
            try:
                convert(given[name], parameter.target)
            except REFUSALS as fault:
                found = problems_of(fault, given[name], parameter.target)
                problems += [(f"$.{name}{path[1:]}", reason) for path, reason in found]
        return problems or problems_of(error, given, self._target)


def _property(parameter: Parameter, schema: dict[str, Any]) -> dict[str, Any]:
    if parameter.default is None:
        schema = remove_null(schema)
    if parameter.description:
        schema["description"] = parameter.description
    if parameter.required:
        return schema
    if parameter.default is None:
        if NULL in schema.get("anyOf", ()):
            schema["default"] = None
        return schema
    try:
        encoded = msgspec.json.encode(parameter.default, enc_hook=dump_model, order="deterministic")
        default = msgspec.json.decode(encoded)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return schema
    if default is not None:  # A NaN becomes null.
        schema["default"] = default
    return schema
