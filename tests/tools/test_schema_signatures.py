"""Signatures and docstrings become the parameters in a model's schema."""

from __future__ import annotations

import dataclasses
import functools
import json
import typing
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal, Optional

import pytest
from annotated_types import Predicate
from msgspec import Meta, Struct
from pydantic import AfterValidator, BeforeValidator, Field
from schema_samples import (
    Cat,
    Context,
    Dog,
    Line,
    Order,
    Tags,
    Unit,
    WideContext,
    parameters,
    refusal,
    taking,
)

from wakeful.errors import ShapeError
from wakeful.tools.schema import description_of


def forecast(
    city: str,
    unit: Unit = Unit.CELSIUS,
    *,
    context: Context,
    days: Annotated[int, "How many days.", Meta(ge=1)] = 3,
    tag: str | None = None,
    near: int | str | None = None,
    order: Optional[Order] = None,  # noqa: UP045
    extra=None,
) -> str:
    """Tell the weather.

    It is often right.

    Args:
        city: The city,
            by name.
        days: This is not what the annotation says.
        order (Order, optional): What to order.

    Returns:
        A forecast.
    """
    return f"{city} {unit} {context} {days} {tag} {near} {order} {extra}"


def test_signature_becomes_object_in_its_order() -> None:
    schema = parameters(forecast).schema
    assert list(schema) == ["type", "properties", "required", "additionalProperties"]
    assert schema["required"] == ["city"]
    assert schema["additionalProperties"] is False
    assert list(schema["properties"]) == ["city", "unit", "days", "tag", "near", "order", "extra"]
    order = schema["properties"].pop("order")
    assert schema["properties"] == {
        "city": {"type": "string", "description": "The city, by name."},
        "unit": {"type": "string", "enum": ["c", "f"], "default": "c"},
        "days": {"type": "integer", "minimum": 1, "description": "How many days.", "default": 3},
        "tag": {"type": "string"},
        "near": {"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "null"}], "default": None},
        "extra": {},
    }
    assert order["type"] == "object"
    assert order["description"] == "What to order."


@pytest.mark.parametrize(
    ("hint", "default", "schema"),
    [
        (int | None, None, {"type": "integer"}),
        (int | None, 3, {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": 3}),
        (int, None, {"type": "integer"}),
        (Literal["a", None], None, {"type": "string", "enum": ["a"]}),
        (Annotated[str | None, "Why."], None, {"type": "string", "description": "Why."}),
        (Annotated[str, "Why."] | None, None, {"type": "string", "description": "Why."}),
        (Annotated[int | None, Meta(ge=0)], None, {"type": "integer", "minimum": 0}),
        (list[int], [1], {"type": "array", "items": {"type": "integer"}, "default": [1]}),
        (
            set[int],
            {2, 1},
            {"type": "array", "items": {"type": "integer"}, "uniqueItems": True, "default": [1, 2]},
        ),
        (date, date(2024, 1, 2), {"type": "string", "format": "date", "default": "2024-01-02"}),
        (float, float("nan"), {"type": "number"}),
        (int, 2**80, {"type": "integer", "default": 2**80}),
        (Any, object(), {}),
        (str, "\ud800", {"type": "string"}),
        (Tags, Tags(["a"]), {"type": "array", "items": {"type": "string"}, "default": ["a"]}),
    ],
)
def test_default_shows_when_json_can_hold_it(hint: Any, default: Any, schema: dict[str, Any]) -> None:
    bound = taking(hint, default=default)
    assert bound.schema["properties"]["x"] == schema
    assert bound.schema["required"] == []


def test_optional_without_default_is_required_and_nullable() -> None:
    bound = taking(int | None)
    assert bound.schema["properties"]["x"] == {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    assert bound.schema["required"] == ["x"]
    assert bound.bind({"x": None}) == {"x": None}


def test_null_is_accepted_for_none_default() -> None:
    assert taking(int, default=None).bind({"x": None}) == {"x": None}
    assert taking(Cat | Dog, default=None).bind({"x": None}) == {"x": None}


def test_function_without_parameters_takes_empty_object() -> None:
    def function() -> None: ...

    bound = parameters(function)
    assert bound.schema == {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    assert bound.bind({}) == {}
    assert refusal(bound, {"a": 1}) == "$: unknown argument 'a' (expected: none)"


def first(context: Context, a: int) -> None: ...
def last(a: int, context: Context) -> None: ...
def narrower(a: int, context: WideContext) -> None: ...
def optional(a: int, context: Context | None = None) -> None: ...
def annotated(a: int, *, context: Annotated[Context, "The call's."]) -> None: ...


@pytest.mark.parametrize("function", [first, last, narrower, optional, annotated])
def test_context_parameter_is_not_in_schema(function: Callable[..., Any]) -> None:
    bound = parameters(function)
    assert bound.context == "context"
    assert list(bound.schema["properties"]) == ["a"]
    assert refusal(bound, {"a": 1, "context": 1}) == "$: unknown argument 'context' (expected: a)"


def test_context_under_type_checking_is_recognized() -> None:
    scope = {"__name__": "elsewhere"}
    exec("def function(context: 'Context', a: 'int') -> 'Nothing': ...", scope)
    bound = parameters(typing.cast(Any, scope["function"]))
    assert bound.context == "context"
    assert list(bound.schema["properties"]) == ["a"]


def test_untyped_context_is_refused() -> None:
    def look(ctx, city: str = "Rome") -> str:  # type: ignore[no-untyped-def]
        return city

    with pytest.raises(ShapeError, match="parameter 'ctx' has no type; write 'ctx: Context'"):
        parameters(look)


def test_two_contexts_are_refused() -> None:
    def function(a: Context, b: Context) -> None: ...

    with pytest.raises(ShapeError, match=r"function\(\): parameters 'a' and 'b' both take the context"):
        parameters(function)


def test_local_type_of_caller_is_resolved() -> None:
    class Local(Struct):
        a: int

    def function(local: Local) -> None: ...

    assert parameters(function).bind({"local": {"a": 1}}) == {"local": Local(1)}


def test_closure_type_is_resolved() -> None:
    def make() -> Callable[..., Any]:
        class Local(Struct):
            a: int

        def function(local: Local) -> Any:
            return Local

        return function

    assert parameters(make()).bind({"local": {"a": 1}})["local"].a == 1


def test_methods_partials_and_callable_objects_have_parameters() -> None:
    class Thing:
        """A thing."""

        def method(self, a: int, b: str = "b") -> None:
            """Do it.

            :param a: The first.
            """

        def __call__(self, c: float) -> None:
            """Call it."""

    assert list(parameters(Thing().method).schema["properties"]) == ["a", "b"]
    unbound = parameters(Thing.method, is_method=True)
    assert unbound.schema["properties"]["a"] == {"type": "integer", "description": "The first."}
    assert list(unbound.schema["properties"]) == ["a", "b"]
    assert parameters(functools.partial(Thing().method, 1)).schema["required"] == []
    assert description_of(functools.partial(Thing().method, 1)) == "Do it."
    assert parameters(Thing()).schema["properties"] == {"c": {"type": "number"}}
    assert description_of(Thing()) == "Call it."


def test_absent_arguments_are_left_to_function() -> None:
    bound = parameters(forecast)
    assert bound.bind({"city": "Rome"}) == {"city": "Rome"}
    assert bound.bind({"city": "Rome", "unit": "f", "order": {"id": 1, "lines": [{"price": 2}]}}) == {
        "city": "Rome",
        "unit": Unit.FAHRENHEIT,
        "order": Order(1, [Line(2.0)]),
    }


def test_omitted_argument_has_function_default_each_call() -> None:
    def function(values: list[int] = []) -> list[int]:  # noqa: B006
        return values

    bound = parameters(function)
    assert bound.bind({}) == {}
    assert bound.schema["properties"]["values"]["default"] == []


def test_arguments_are_not_changed_by_binding() -> None:
    arguments = {"city": "Rome", "order": {"id": 1, "lines": [{"price": 2}]}}
    before = json.dumps(arguments)
    parameters(forecast).bind(arguments)
    assert json.dumps(arguments) == before


def star(*values: int) -> None: ...
def stars(**options: int) -> None: ...
def slash(a: int, /) -> None: ...
def unresolved(a: int, b: Nowhere) -> None: ...  # noqa: F821 # pyright: ignore
def fielded(a: int = Field(default=3, ge=0)) -> None: ...
def called(a: Callable[[], int]) -> None: ...
def complicated(a: complex) -> None: ...
def limited(a: Annotated[str, Meta(ge=1)]) -> None: ...


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (star, "star(): parameter '*values' cannot be given by name; declare a list instead, "
               "such as 'values: list[str]'"),
        (stars, "stars(): parameter '**options' has no schema; name each parameter, or declare a dict instead, "
                "such as 'options: dict[str, str]'"),
        (slash, "slash(): parameter 'a' is positional-only and cannot be given by name; "
                "remove the '/' that follows it"),
        (unresolved, "unresolved(): parameter 'b': its annotation 'Nowhere' cannot be resolved: "
                     "name 'Nowhere' is not defined; define or import it at the module's top level, not in a "
                     "function and not for type checkers alone"),
        (fielded, "fielded(): parameter 'a': a pydantic Field isn't read as a default; put it into the type, "
                  "'a: Annotated[int, Field(...)]', and the default itself behind that, as in '= 3'"),
        (called, "called(): parameter 'a': collections.abc.Callable[[], int] has no JSON form; use builtin types, "
                 "a dataclass, a TypedDict, a msgspec Struct or a pydantic model"),
        (complicated, "complicated(): parameter 'a': complex has no JSON form; use builtin types, "
                      "a dataclass, a TypedDict, a msgspec Struct or a pydantic model"),
    ],
)  # fmt: skip
def test_signature_without_json_form_is_refused(function: Callable[..., Any], reason: str) -> None:
    with pytest.raises(TypeError) as caught:
        parameters(function)
    assert isinstance(caught.value, ShapeError)
    assert str(caught.value) == reason


def test_record_field_without_json_form_is_refused() -> None:
    record = dataclasses.make_dataclass("Record", [("a", complex)])
    with pytest.raises(ShapeError, match="complex has no JSON form"):
        taking(record)


def test_unresolvable_local_type_is_named() -> None:
    @dataclass
    class Inner:
        a: int

    @dataclass
    class Outer:
        inner: Inner

    def function(outer: Outer) -> None: ...

    with pytest.raises(
        ShapeError, match=r"parameter 'outer': name 'Inner' is not defined; define or import it at"
    ):
        parameters(function)


def test_invalid_pattern_is_refused() -> None:
    def function(a: Annotated[str, Meta(pattern="[")], b: int = 0) -> None: ...

    with pytest.raises(ShapeError, match=r"function\(\): parameter 'a': .* unterminated character set"):
        parameters(function)
    with pytest.raises(ShapeError, match="parameter 'x': unterminated character set"):
        taking(Annotated[str, Field(pattern="[")])


@pytest.mark.parametrize("rule", [AfterValidator(str.upper), BeforeValidator(str), Predicate(str.isupper)])
def test_unchecked_constraint_is_refused(rule: Any) -> None:
    with pytest.raises(ShapeError, match=f"parameter 'x': {type(rule).__name__} would not be asked here; check"):
        taking(list[Annotated[str, rule]])


def test_limit_of_wrong_type_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"limited\(\): parameter 'a': Can only set `ge` on a numeric type"):
        parameters(limited)


# Docstrings


GOOGLE = """Find things.

    More about it.

    Args:
        city (str, optional): The city:
            its name.

            And more.
        *rest: Others.
        days: How many.

    Returns:
        dict: Things.

    Raises:
        ValueError: When not.

    Example:
        find("x")
    """
NUMPY = """Find things.

    More about it.

    Parameters
    ----------
    city : str, optional
        The city:
        its name.

        And more.
    days, hours
        How many.
    nothing : int

    Returns
    -------
    dict
        Things.

    Example
    -------
    find("x")
    """
SPHINX = """Find things.

    More about it.

    :param str city: The city:
        its name. And more.
    :param days: How many.
    :type days: int
    :returns: Things,
        many.
    :rtype: dict
    :raises ValueError: When not.
    """


@pytest.mark.parametrize(
    ("text", "description", "days"),
    [
        (GOOGLE, 'Find things.\n\nMore about it.\n\nExample:\n    find("x")', "How many."),
        (NUMPY, 'Find things.\n\nMore about it.\n\nExample\n-------\nfind("x")', "How many."),
        (SPHINX, "Find things.\n\nMore about it.", "How many."),
        ("Find things.", "Find things.", None),
        ("Find things.\nArgs: none to speak of.", "Find things.\nArgs: none to speak of.", None),
        ("Returns: the thing.", "Returns: the thing.", None),
        ("Find.\n\nArgs:\nnot indented: text", "Find.\n\nArgs:\nnot indented: text", None),
        ("Find.\n\nArgs:\n    days: x\nAfter.", "Find.\n\nAfter.", "x"),
        ("", "", None),
        (None, "", None),
    ],
)
def test_docstrings_describe_function_and_its_parameters(
    text: str | None, description: str, days: str | None
) -> None:
    def function(city: str, days: int, hours: int = 1) -> None: ...

    function.__doc__ = text
    assert description_of(function) == description
    properties = parameters(function).schema["properties"]
    assert properties["days"].get("description") == days
    if text in (GOOGLE, NUMPY, SPHINX):
        assert properties["city"]["description"] == "The city: its name. And more."
