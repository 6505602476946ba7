"""Types and signatures become schemas that vendors accept, and arguments become values or clear errors."""

from __future__ import annotations

import dataclasses
import functools
import json
import subprocess
import sys
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    TypedDict,
    TypeVar,
    Union,
)
from uuid import UUID

import msgspec
import pytest
from annotated_types import Ge, MinLen
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Meta, Struct
from pydantic import BaseModel, ConfigDict, Field, RootModel, field_validator
from typing_extensions import TypeAliasType

from wakeful.errors import InvalidArguments, ShapeError
from wakeful.tools._schema import Parameters, Shape, description_of, parameters_of


class Context:
    pass


class WideContext(Context):
    pass


def parameters(function: Callable[..., Any], **options: Any) -> Parameters:
    return parameters_of(function, context_type=Context, **options)


def taking(hint: Any, **default: Any) -> Parameters:
    """The parameters of a function whose one parameter, `x`, has a type."""
    if default:

        def function(x: Any = default["default"]) -> None: ...

    else:

        def function(x: Any) -> None: ...

    function.__annotations__ = {"x": hint}
    return parameters(function)


def refusal(shape: Shape | Parameters, value: Any) -> str:
    with pytest.raises(InvalidArguments) as caught:
        shape.bind(value) if isinstance(shape, Parameters) else shape.convert(value)
    return str(caught.value)


class Unit(Enum):
    CELSIUS = "c"
    FAHRENHEIT = "f"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Line(Struct):
    price: float
    sku: Annotated[str, "The stock number."] = "none"


@dataclass
class Order:
    """What somebody wants."""

    id: int
    lines: list[Line]
    when: datetime | None = None
    notes: list[str] = field(default_factory=list)


class Address(TypedDict):
    street: str
    city: NotRequired[Annotated[str, Meta(max_length=5)]]


class Point(NamedTuple):
    x: int
    y: int = 0


class Tree(Struct):
    value: int
    children: list[Tree] = []


@dataclass
class Person:
    name: str
    friend: Pet | None = None


@dataclass
class Pet:
    owner: Person | None = None


class Circle(Struct, tag="circle"):
    radius: float


class Square(Struct, tag="square"):
    side: float


class Renamed(Struct, rename="camel", forbid_unknown_fields=True):
    first_name: str
    last_name: str = ""


class Array(Struct, array_like=True):
    a: int
    b: str = "b"


@dataclass
class Checked:
    low: int
    high: int

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("Low must not be above high")


class Item(BaseModel):
    price: float
    count: Annotated[int, Field(ge=0, description="How many.")] = 1
    kind: Literal["a", "b"] = "a"


class Basket(BaseModel):
    model_config = ConfigDict(extra="forbid")

    items: list[Item]
    title: str = Field(default="basket", max_length=8, pattern="^b")
    pair: tuple[int, str] = (1, "a")
    either: int | list[int] = 0

    @field_validator("either")
    @classmethod
    def not_seven(cls, value: Any) -> Any:
        if value == 7:
            raise ValueError("Seven is unlucky")
        return value


class Node(BaseModel):
    value: int
    children: list[Node] = []


class Cat(BaseModel):
    kind: Literal["cat"]
    name: str


class Dog(BaseModel):
    kind: Literal["dog"]
    age: int


class Tags(RootModel[list[str]]):
    pass


@dataclass
class Owner:
    pet: Cat | Dog | str
    baskets: dict[str, Basket] = field(default_factory=dict)
    next: Owner | None = None


class StructOwner(Struct, rename="upper", forbid_unknown_fields=True, tag="owner"):
    pet: Cat | str
    count: int = 3


class DictOwner(TypedDict):
    pet: Cat | str
    age: NotRequired[int]


class TupleOwner(NamedTuple):
    pet: Cat | str
    age: int = 5


@dataclass
class PlainCat:
    name: str


@dataclass
class PlainDog:
    name: str
    bark: str


@dataclass
class Limited:
    count: Annotated[int, Ge(0)]
    maybe: Annotated[int | None, Meta(le=9)] = None


@dataclass
class Host:
    pet: Cat | str
    guest: Guest | None = None


@dataclass
class Guest:
    host: Host | None = None
    code: Annotated[str, Meta(pattern="^a")] | list[int] = "a"


T = TypeVar("T")


class Box(Struct, Generic[T]):
    item: T


class Page(BaseModel, Generic[T]):
    items: list[T]


UserId = NewType("UserId", int)
Numbers = TypeAliasType("Numbers", list[int])


# What vendors accept


def parts_of(schema: Any) -> Iterator[dict[str, Any]]:
    """Every schema within a schema, and not what stands in a default, an enum or an example."""
    if not isinstance(schema, dict):
        assert isinstance(schema, bool)
        return
    yield schema
    for key in ("properties", "$defs", "patternProperties"):
        for part in schema.get(key, {}).values():
            yield from parts_of(part)
    for key in ("anyOf", "allOf"):
        for part in schema.get(key, []):
            yield from parts_of(part)
    for key in ("items", "additionalProperties", "propertyNames"):
        if key in schema:
            yield from parts_of(schema[key])


REFUSED = {"const", "title", "discriminator", "prefixItems", "oneOf", "$schema"}


def check_vendor_rules(schema: dict[str, Any]) -> None:
    json.dumps(schema, allow_nan=False)
    defined = {f"#/$defs/{name}" for name in schema.get("$defs", {})}
    used: set[str] = set()
    for part in parts_of(schema):
        assert not REFUSED & part.keys()
        assert part is schema or "$defs" not in part
        if "$ref" in part:
            used.add(part["$ref"])
        if part.get("type") == "array":
            assert isinstance(part["items"], dict)
        if part.get("type") == "object":
            assert "properties" in part or "additionalProperties" in part
    assert used == defined


EVERY_TYPE: list[Any] = [
    str,
    int,
    float,
    bool,
    None,
    Any,
    object,
    bytes,
    list,
    dict,
    tuple,
    set,
    datetime,
    date,
    time,
    timedelta,
    UUID,
    Decimal,
    Unit,
    Level,
    UserId,
    Literal["a"],
    Literal["a", 1, None],
    list[int],
    Sequence[str],
    Mapping[str, int],
    dict[str, Any],
    dict[int, float],
    dict[UUID, Line],
    tuple[int, ...],
    tuple[int, str],
    tuple[int, int],
    tuple[()],
    set[str],
    frozenset[int],
    int | str,
    int | None,
    date | str,
    Line,
    Order,
    Address,
    Point,
    Tree,
    Person,
    Renamed,
    Array,
    Checked,
    Circle | Square,
    Circle | Square | str | None,
    PlainCat | PlainDog,
    Item,
    Basket,
    Node,
    Tags,
    Owner,
    StructOwner,
    DictOwner,
    TupleOwner,
    Limited,
    list[Basket],
    dict[str, Node | None],
    Cat | Dog,
    Cat | Dog | None,
    Cat | Line | int,
    Node | Tree,
    Host,
    Guest,
    Box[int],
    list[Box[Cat]],
    Page[Item],
    Numbers,
    Line | Array,
    Annotated[str, Meta(min_length=1)] | tuple[int, str],
    Annotated[Cat | Dog, Field(discriminator="kind")],
    Annotated[str, Meta(min_length=1, max_length=9, pattern="^a", examples=["ab"], title="T")],
    Annotated[list[int], Meta(min_length=1, max_length=3)],
]


def shown(hint: Any) -> str:
    return getattr(hint, "__name__", None) or str(hint).replace("typing.", "")


@pytest.mark.parametrize("hint", EVERY_TYPE, ids=shown)
def test_the_schema_of_any_type_keeps_to_what_vendors_accept(hint: Any) -> None:
    check_vendor_rules(Shape(hint).schema)
    check_vendor_rules(taking(hint).schema)
    check_vendor_rules(taking(hint, default=None).schema)


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (int, {"type": "integer"}),
        (None, {"type": "null"}),
        (Any, {}),
        (object, {}),
        (bytes, {"type": "string", "contentEncoding": "base64"}),
        (datetime, {"type": "string", "format": "date-time"}),
        (time, {"type": "string", "format": "time"}),
        (date, {"type": "string", "format": "date"}),
        (UUID, {"type": "string", "format": "uuid"}),
        (Decimal, {"type": "string", "format": "decimal"}),
        (Unit, {"type": "string", "enum": ["c", "f"]}),
        (Level, {"type": "integer", "enum": [1, 2]}),
        (UserId, {"type": "integer"}),
        (Literal["a"], {"type": "string", "enum": ["a"]}),
        (list, {"type": "array", "items": {}}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (set[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
        (dict, {"type": "object", "additionalProperties": True}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (tuple[int, int], {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}),
        (
            tuple[int, str],
            {
                "type": "array",
                "items": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
                "minItems": 2,
                "maxItems": 2,
            },
        ),
        (
            Point,
            {
                "type": "array",
                "items": {"anyOf": [{"type": "integer"}, {"type": "integer", "default": 0}]},
                "minItems": 1,
                "maxItems": 2,
            },
        ),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (date | str, {"anyOf": [{"type": "string", "format": "date"}, {"type": "string"}]}),
        (Annotated[int, "How many."], {"type": "integer", "description": "How many."}),
        (
            list[Annotated[int, "Each.", Meta(ge=1)]],
            {"type": "array", "items": {"type": "integer", "description": "Each.", "minimum": 1}},
        ),
        (
            Annotated[int, Field(description="Of Field.", gt=1)],
            {"type": "integer"} | {"description": "Of Field."} | {"exclusiveMinimum": 1},
        ),
        (Annotated[list[int], MinLen(2)], {"type": "array", "items": {"type": "integer"}, "minItems": 2}),
        (Tags, {"type": "array", "items": {"type": "string"}}),
        (
            Line,
            {
                "type": "object",
                "properties": {
                    "price": {"type": "number"},
                    "sku": {"type": "string", "description": "The stock number.", "default": "none"},
                },
                "required": ["price"],
            },
        ),
    ],
    ids=lambda value: shown(value) if not isinstance(value, dict) else "",
)
def test_a_type_has_the_schema(hint: Any, schema: dict[str, Any]) -> None:
    assert Shape(hint).schema == schema


def test_a_schema_is_computed_once() -> None:
    shape = Shape(Order)
    assert shape.schema is shape.schema
    bound = taking(Order)
    assert bound.schema is bound.schema


def test_types_that_are_not_recursive_are_put_in_place() -> None:
    schema = Shape(dict[str, Order]).schema
    assert "$defs" not in schema
    order = schema["additionalProperties"]
    assert order["description"] == "What somebody wants."
    assert order["properties"]["lines"]["items"]["properties"]["price"] == {"type": "number"}
    assert order["properties"]["when"] == {
        "anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}],
        "default": None,
    }


@pytest.mark.parametrize(("hint", "name"), [(Tree, "Tree"), (Node, "Node"), (Person, "Person"), (Owner, "Owner")])
def test_a_recursive_type_is_an_object_that_refers_to_its_definition(hint: Any, name: str) -> None:
    schema = Shape(hint).schema
    assert schema["type"] == "object"
    assert name in schema["$defs"]
    nested = taking(hint).schema
    assert nested["properties"]["x"] == {"$ref": f"#/$defs/{name}"}
    assert nested["$defs"][name]["type"] == "object"


def test_recursive_types_of_one_name_keep_apart() -> None:
    def another() -> Any:
        class Tree(BaseModel):
            leaves: list[Tree] = []

        Tree.model_rebuild(_types_namespace={"Tree": Tree})
        return Tree

    schema = Shape(Tree | another()).schema
    assert set(schema["$defs"]) == {"Tree", "Tree_2"}
    check_vendor_rules(schema)


def test_a_model_inside_a_dataclass_keeps_its_descriptions_and_defaults() -> None:
    items = Shape(Owner).schema["properties"]["baskets"]["additionalProperties"]["properties"]["items"]
    assert items["items"]["properties"] == {
        "price": {"type": "number"},
        "count": {"type": "integer", "minimum": 0, "description": "How many.", "default": 1},
        "kind": {"type": "string", "enum": ["a", "b"], "default": "a"},
    }


def test_a_field_that_is_called_like_a_keyword_stays() -> None:
    assert list(Shape(Basket).schema["properties"]) == ["items", "title", "pair", "either"]


# Parameters


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


def test_a_signature_becomes_an_object_in_its_order() -> None:
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
def test_a_default_shows_when_json_can_hold_it(hint: Any, default: Any, schema: dict[str, Any]) -> None:
    bound = taking(hint, default=default)
    assert bound.schema["properties"]["x"] == schema
    assert bound.schema["required"] == []


def test_an_optional_parameter_without_a_default_is_required_and_may_be_null() -> None:
    bound = taking(int | None)
    assert bound.schema["properties"]["x"] == {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    assert bound.schema["required"] == ["x"]
    assert bound.bind({"x": None}) == {"x": None}


def test_null_is_taken_for_what_defaults_to_none() -> None:
    assert taking(int, default=None).bind({"x": None}) == {"x": None}
    assert taking(Cat | Dog, default=None).bind({"x": None}) == {"x": None}


def test_a_function_without_parameters_takes_an_empty_object() -> None:
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
def test_the_context_is_not_in_the_schema_wherever_it_stands(function: Callable[..., Any]) -> None:
    bound = parameters(function)
    assert bound.context == "context"
    assert list(bound.schema["properties"]) == ["a"]
    assert refusal(bound, {"a": 1, "context": 1}) == "$: unknown argument 'context' (expected: a)"


def test_a_context_that_only_the_type_checker_imports_is_known_by_its_name() -> None:
    scope = {"__name__": "elsewhere"}
    exec("def function(context: 'Context', a: 'int') -> 'Nothing': ...", scope)
    bound = parameters(typing.cast(Any, scope["function"]))
    assert bound.context == "context"
    assert list(bound.schema["properties"]) == ["a"]


def test_two_contexts_are_refused() -> None:
    def function(a: Context, b: Context) -> None: ...

    with pytest.raises(ShapeError, match=r"function\(\): parameters 'a' and 'b' both take the context"):
        parameters(function)


def test_a_type_that_is_local_to_the_caller_is_resolved() -> None:
    class Local(Struct):
        a: int

    def function(local: Local) -> None: ...

    assert parameters(function).bind({"local": {"a": 1}}) == {"local": Local(1)}


def test_a_type_that_a_closure_holds_is_resolved() -> None:
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


def star(*values: int) -> None: ...
def stars(**options: int) -> None: ...
def slash(a: int, /) -> None: ...
def unresolved(a: int, b: Nowhere) -> None: ...  # noqa: F821 # pyright: ignore
def custom(a: list[Context]) -> None: ...
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
                     "name 'Nowhere' is not defined"),
        (called, "called(): parameter 'a': collections.abc.Callable[[], int] has no JSON form; use builtin types, "
                 "a dataclass, a TypedDict, a msgspec Struct or a pydantic model"),
        (complicated, "complicated(): parameter 'a': complex has no JSON form; use builtin types, "
                      "a dataclass, a TypedDict, a msgspec Struct or a pydantic model"),
    ],
)  # fmt: skip
def test_a_signature_that_json_cannot_fill_is_refused(function: Callable[..., Any], reason: str) -> None:
    with pytest.raises(TypeError) as caught:
        parameters(function)
    assert isinstance(caught.value, ShapeError)
    assert str(caught.value) == reason


@pytest.mark.parametrize("hint", [complex, range, type, Context, list[complex], Callable, "x", 3, int | Context])
def test_a_type_without_a_json_form_is_refused(hint: Any) -> None:
    with pytest.raises(ShapeError):
        Shape(hint)


def test_a_record_with_a_field_without_a_json_form_is_refused_when_it_is_defined() -> None:
    record = dataclasses.make_dataclass("Record", [("a", complex)])
    with pytest.raises(ShapeError, match="complex has no JSON form"):
        taking(record)


def test_a_type_that_only_an_ended_function_knew_is_named() -> None:
    @dataclass
    class Inner:
        a: int

    @dataclass
    class Outer:
        inner: Inner

    def function(outer: Outer) -> None: ...

    with pytest.raises(ShapeError, match=r"function\(\): parameter 'outer': name 'Inner' is not defined"):
        parameters(function)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="aliases of themselves came with 3.12")
def test_an_alias_of_itself_is_refused() -> None:
    scope: dict[str, Any] = {}
    exec("type Alias = list[Alias]", scope)
    with pytest.raises(ShapeError, match="Alias refers to itself"):
        Shape(scope["Alias"])


def test_a_limit_that_does_not_fit_its_type_is_refused() -> None:
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
def test_docstrings_describe_the_function_and_its_parameters(
    text: str | None, description: str, days: str | None
) -> None:
    def function(city: str, days: int, hours: int = 1) -> None: ...

    function.__doc__ = text
    assert description_of(function) == description
    properties = parameters(function).schema["properties"]
    assert properties["days"].get("description") == days
    if text in (GOOGLE, NUMPY, SPHINX):
        assert properties["city"]["description"] == "The city: its name. And more."


# Values


def test_given_arguments_are_converted_and_absent_ones_are_left_to_the_function() -> None:
    bound = parameters(forecast)
    assert bound.bind({"city": "Rome"}) == {"city": "Rome"}
    assert bound.bind({"city": "Rome", "unit": "f", "order": {"id": 1, "lines": [{"price": 2}]}}) == {
        "city": "Rome",
        "unit": Unit.FAHRENHEIT,
        "order": Order(1, [Line(2.0)]),
    }


@pytest.mark.parametrize(
    ("hint", "value", "result"),
    [
        (float, 1, 1.0),
        (Any, {"a": [1, None]}, {"a": [1, None]}),
        (object, [1], [1]),
        (UUID, "12345678-1234-5678-1234-567812345678", UUID("12345678-1234-5678-1234-567812345678")),
        (datetime, "2024-01-02T03:04:05Z", datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)),
        (Decimal, "1.10", Decimal("1.10")),
        (bytes, "aGk=", b"hi"),
        (dict[int, float], {"1": 2}, {1: 2.0}),
        (set[int], [1, 2, 2], {1, 2}),
        (tuple[int, str], [1, "a"], (1, "a")),
        (Point, [3], Point(3)),
        (Array, [1], Array(1)),
        (Address, {"street": "s"}, {"street": "s"}),
        (Renamed, {"firstName": "a"}, Renamed("a")),
        (Circle | Square, {"type": "square", "side": 2}, Square(2.0)),
        (Tree, {"value": 1, "children": [{"value": 2}]}, Tree(1, [Tree(2)])),
        (Item, {"price": 1}, Item(price=1)),
        (list[Item], [{"price": 1}], [Item(price=1)]),
        (dict[str, Item | None], {"a": {"price": 1}, "b": None}, {"a": Item(price=1), "b": None}),
        (Cat | Dog, {"kind": "dog", "age": 1}, Dog(kind="dog", age=1)),
        (Cat | str, "Tom", "Tom"),
        (Cat | Line | int, {"price": 1}, Line(1.0)),
        (date | str, "2024-01-02", date(2024, 1, 2)),
        (date | str, "soon", "soon"),
        (PlainCat | PlainDog, {"name": "a"}, PlainCat("a")),
        (PlainCat | PlainDog, {"name": "a", "bark": "wuff"}, PlainDog("a", "wuff")),
        (Owner, {"pet": "Tom", "next": {"pet": {"kind": "cat", "name": "Kit"}}},
         Owner("Tom", {}, Owner(Cat(kind="cat", name="Kit")))),
        (Owner, {"pet": "Tom", "baskets": {"a": {"items": []}}}, Owner("Tom", {"a": Basket(items=[])})),
        (StructOwner, {"type": "owner", "PET": {"kind": "cat", "name": "Kit"}},
         StructOwner(Cat(kind="cat", name="Kit"), 3)),
        (DictOwner, {"pet": {"kind": "cat", "name": "Kit"}}, {"pet": Cat(kind="cat", name="Kit")}),
        (TupleOwner, [{"kind": "cat", "name": "Kit"}], TupleOwner(Cat(kind="cat", name="Kit"), 5)),
        (Limited, {"count": 1, "maybe": 2}, Limited(1, 2)),
        (Tags, ["a"], Tags(["a"])),
        (Host, {"pet": "a", "guest": {"host": {"pet": {"kind": "cat", "name": "Kit"}}}},
         Host("a", Guest(Host(Cat(kind="cat", name="Kit"))))),
        (Guest, {"host": {"pet": "a", "guest": {"code": [1]}}}, Guest(Host("a", Guest(None, [1])))),
        (Box[int], {"item": 1}, Box(1)),
        (Box[Item], {"item": {"price": 1}}, Box(Item(price=1))),
        (Page[Item], {"items": [{"price": 1}]}, Page[Item](items=[Item(price=1)])),
        (Numbers, [1], [1]),
        (Line | Array, [1], Array(1)),
    ],
)  # fmt: skip
def test_decoded_json_becomes_a_value_of_the_type(hint: Any, value: Any, result: Any) -> None:
    for made in (
        Shape(hint).convert(value),
        Shape(hint).decode(json.dumps(value)),
        taking(hint).bind({"x": value})["x"],
        taking(hint, default=None).bind({"x": value})["x"],
    ):
        assert made == result
        assert type(made) is type(result)


def test_each_call_that_leaves_an_argument_out_has_the_functions_own_default() -> None:
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


# Errors


def weather(city: str, unit: Literal["c", "f"] = "c", age: Annotated[int, Meta(ge=0)] = 0) -> None: ...


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({}, "$: missing required argument 'city'"),
        ({"city": 1}, "$.city: expected str, got int"),
        ({"city": None}, "$.city: expected str, got null"),
        ({"city": ["a"]}, "$.city: expected str, got array"),
        ({"city": {}}, "$.city: expected str, got object"),
        ({"city": "a", "citty": "b"}, "$: unknown argument 'citty' (expected: city, unit, age)"),
        (
            {"citty": "b"},
            "$: unknown argument 'citty' (expected: city, unit, age); $: missing required argument 'city'",
        ),
        ({"city": "a", "b": 1, "c": 2}, "$: unknown arguments 'b', 'c' (expected: city, unit, age)"),
        ({"city": "a", "unit": "k"}, "$.unit: invalid enum value 'k' (expected: c, f)"),
        ({"city": "a", "unit": 1}, "$.unit: expected str, got int"),
        ({"city": "a", "age": -1}, "$.age: expected int >= 0"),
        ({"city": "a", "age": "1"}, "$.age: expected int, got str"),
        ({"city": "a", "age": 1.5}, "$.age: expected int, got float"),
        ({"city": "a", "age": True}, "$.age: expected int, got bool"),
        ({"city": 1, "age": "1"}, "$.city: expected str, got int; $.age: expected int, got str"),
        ([], "$: expected object, got array"),
        (None, "$: expected object, got null"),
        ("city", "$: expected object, got str"),
    ],
)
def test_wrong_arguments_are_refused_with(arguments: Any, error: str) -> None:
    assert refusal(parameters(weather), arguments) == error


@pytest.mark.parametrize(
    ("hint", "value", "error"),
    [
        (float, "1.5", "expected float, got str"),
        (float, 10**400, "number out of range"),
        (bool, 1, "expected bool, got int"),
        (int | str, 1.5, "expected int | str, got float"),
        (int | None, "a", "expected int | null, got str"),
        (UUID, "a", "invalid UUID"),
        (datetime, "a", "invalid RFC3339 encoded datetime"),
        (Decimal, "a", "invalid decimal string"),
        (bytes, "!", "invalid base64 encoded string"),
        (Unit, "k", "invalid enum value 'k' (expected: c, f)"),
        (Level, 3, "invalid enum value 3 (expected: 1, 2)"),
        (Annotated[str, Meta(max_length=2)], "abc", "expected str of length <= 2"),
        (Annotated[str, Meta(pattern="^a")], "b", "expected str matching regex '^a'"),
        (Annotated[int, Field(ge=2)], 1, "expected int >= 2"),
        (Annotated[int | None, Meta(ge=2)], 1, "expected int >= 2"),
        (tuple[int, str], [1], "expected array of length 2, got 1"),
        (set, [[1]], "the items of a set must be plain values"),
        (dict[int, str], {"a": "b"}, "expected int, got str in a key"),
        (Checked, {"low": 2, "high": 1}, "low must not be above high"),
        (Circle | Square, {"type": "oval"}, "$.type: invalid value 'oval' (expected: circle, square)"),
        (Circle | Square, {}, "missing required field 'type'"),
        (list[Line], [{"price": 1}, {"price": "a"}], "$[1].price: expected float, got str"),
        (dict[str, list[int]], {"k": ["a"]}, "$[...][0]: expected int, got str"),
        (Order, {"id": 1, "lines": [{}]}, "$.lines[0]: missing required field 'price'"),
        (Order, {"lines": []}, "missing required field 'id'"),
        (Renamed, {"firstName": "a", "age": 1}, "unknown field 'age'"),
        (Address, {"street": "s", "city": "Ankara"}, "$.city: expected str of length <= 5"),
        (Item, 5, "expected object, got int"),
        (Item, {}, "missing required field 'price'"),
        (Item, {"price": "a"}, "$.price: expected float, got str"),
        (Item, {"price": 1, "count": -1}, "$.count: expected int >= 0"),
        (Item, {"price": 1, "kind": "c"}, "$.kind: invalid enum value 'c' (expected: a, b)"),
        (
            Item,
            {"price": "a", "count": "b"},
            "$.price: expected float, got str; $.count: expected int, got str",
        ),
        (Basket, {"items": [{}]}, "$.items[0]: missing required field 'price'"),
        (Basket, {"items": [], "titel": 1}, "unknown field 'titel'"),
        (Basket, {"items": [], "title": "b" * 9}, "$.title: expected str of length <= 8"),
        (Basket, {"items": [], "title": "c"}, "$.title: expected str matching regex '^b'"),
        (Basket, {"items": [], "pair": [1]}, "$.pair: missing required item 1"),
        (Basket, {"items": [], "either": "a"}, "$.either: expected int | array, got str"),
        (Basket, {"items": [], "either": 7}, "$.either: seven is unlucky"),
        (list[Basket], [{"items": [5]}], "$[0].items[0]: expected object, got int"),
        (Cat | Dog, {"kind": "dog", "age": "x"}, "$.age: expected int, got str"),
        (Cat | Dog, {"kind": "cat"}, "missing required field 'name'"),
        (Cat | Dog, 5, "expected object, got int"),
        (Cat | int, "a", "expected object | int, got str"),
        (date | UUID, "a", "invalid RFC3339 encoded date; $: invalid UUID"),
        (Owner, {"pet": 5}, "$.pet: expected object | str, got int"),
        (Owner, {"pet": "a", "next": {"pet": "b", "baskets": {"k": {}}}},
         "$.next.baskets[...]: missing required field 'items'"),
        (StructOwner, {"type": "owner", "PET": "a", "COUNT": "b"}, "$.COUNT: expected int, got str"),
        (StructOwner, {"type": "owner", "PET": "a", "x": 1}, "unknown field 'x'"),
        (Limited, {"count": -1}, "$.count: expected int >= 0"),
        (Limited, {"count": 1, "maybe": 10}, "$.maybe: expected int <= 9"),
        (Guest, {"code": "b"}, "$.code: expected str matching regex '^a'"),
        (Guest, {"code": ["b"]}, "$.code[0]: expected int, got str"),
        (Guest, {"code": 5}, "$.code: expected str | array, got int"),
        (Guest, {"host": {"pet": 5}}, "$.host.pet: expected object | str, got int"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused_with_its_path(hint: Any, value: Any, error: str) -> None:
    at_root = error if error.startswith("$") else f"$: {error}"
    assert refusal(Shape(hint), value) == at_root
    assert refusal(taking(hint), {"x": value}) == at_root.replace("$", "$.x")
    with pytest.raises(InvalidArguments) as caught:
        Shape(hint).decode(json.dumps(value))
    assert str(caught.value) == at_root


@pytest.mark.parametrize(
    ("hint", "value", "error"),
    [
        (int, "\ud800", "$.x: expected int, got str"),
        (UUID, "\ud800", "$.x: invalid UUID"),
        (Unit, "\ud800", "$.x: invalid enum value '?' (expected: c, f)"),
        (dict[int, int], {"\ud800": 1}, "$.x: expected int, got str in a key"),
        (list[Line], [{"price": "\ud800"}], "$.x[0].price: expected float, got str"),
        (Cat, {"kind": "\ud800", "name": "a"}, "$.x.kind: text that is not valid Unicode"),
    ],
)
def test_lone_surrogates_are_refused_where_text_is_read(hint: Any, value: Any, error: str) -> None:
    assert refusal(taking(hint), {"x": value}) == error


def test_lone_surrogates_in_plain_text_and_names_do_no_harm() -> None:
    assert taking(str).bind({"x": "\ud800"}) == {"x": "\ud800"}
    assert refusal(taking(int), {"x": 1, "\ud800": 2}) == "$: unknown argument '\\ud800' (expected: x)"


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (int, "a" * 1_000_000),
        (Unit, "a" * 1_000_000),
        (UUID, "\ud800" * 1_000_000),
        (Item, {"price": 1, "kind": "a" * 1_000_000}),
        (Basket, {"items": [], "a" * 1_000_000: 1}),
        (Renamed, {"firstName": "a", "b" * 1_000_000: 1}),
        (list[Item], [{"price": "a"}] * 10_000),
        (Basket, {"items": ["a"] * 10_000}),
        (dict[str, int], {"a" * 1_000_000: "b"}),
    ],
)
def test_an_error_never_holds_a_huge_value(hint: Any, value: Any) -> None:
    assert len(refusal(taking(hint), {"x": value})) < 1500


def test_huge_names_and_many_names_are_cut_short() -> None:
    assert len(refusal(taking(int), {"x": 1, "a" * 1_000_000: 2})) < 200
    many = refusal(taking(int), {"x": 1} | {f"y{number}": 1 for number in range(1000)})
    assert many.endswith("'y9' and 990 more (expected: x)")


def test_many_problems_are_counted() -> None:
    error = refusal(Shape(Basket), {"items": ["a"] * 13})
    assert error.startswith("$.items[0]: expected object, got str; $.items[1]: expected object, got str; ")
    assert error.endswith("; and 3 more")


def test_what_is_nested_too_deeply_is_refused() -> None:
    deep: Any = {"value": 1}
    for _ in range(100_000):
        deep = {"value": 1, "children": [deep]}
    assert refusal(taking(Tree), {"x": deep}) == "$.x: nested too deeply"
    while deep.get("children"):  # or its end would nest as deeply
        deep = deep["children"].pop()


def test_an_error_has_no_cause_of_python_to_show() -> None:
    with pytest.raises(InvalidArguments) as caught:
        parameters(weather).bind({})
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


# Text


@pytest.mark.parametrize(
    "text",
    [
        '{"price": 1}',
        b'{"price": 1}',
        '\n\t {"price": 1} \n',
        '\u00a0{"price": 1}\u00a0',
        '\ufeff{"price": 1}',
        '```json\n{"price": 1}\n```',
        '```\n{"price": 1}\n```',
        '  ```JSON\n{"price": 1}\n```  \n',
        '```jsonc\n{"price": 1}```',
        '```{"price": 1}```',
        '```json {"price": 1}```',
        '```json\n{"price": 1}',
        b'```json\n{"price": 1}\n```',
    ],
)
def test_json_text_is_decoded_bare_or_fenced(text: str | bytes) -> None:
    assert Shape(Line).decode(text) == Line(1.0)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "$: malformed JSON at line 1 column 1: expecting value"),
        ('{"a" 1}', "$: malformed JSON at line 1 column 6: expecting ':' delimiter"),
        ('{"a": 1', "$: malformed JSON at line 1 column 8: expecting ',' delimiter"),
        ('{"a": 1} {', "$: malformed JSON at line 1 column 10: extra data"),
        ('```json\n{"a": }\n```', "$: malformed JSON at line 2 column 7: expecting value"),
        ("Sure, here it is:", "$: malformed JSON at line 1 column 1: expecting value"),
        ("NaN", "$: malformed JSON: a number that JSON cannot hold"),
        ("[1e999]", "$: malformed JSON: a number that JSON cannot hold"),
        ("1" * 10_000, "$: malformed JSON: a number that JSON cannot hold"),
        ('"\\ud800"', "$: malformed JSON: text that is not valid Unicode"),
        ('"\ud800"', "$: malformed JSON: text that is not valid Unicode"),
        (b'"\xff"', "$: malformed JSON: text that is not valid Unicode"),
        ("[" * 100_000, "$: malformed JSON: nested too deeply"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_malformed_json_is_refused_with_its_place(text: str | bytes, error: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        Shape(Any).decode(text)
    assert str(caught.value) == error


def test_a_shape_has_a_name() -> None:
    assert Shape(Order).name == "Order"
    assert Shape(Order, name="answer").name == "answer"
    assert Shape(int | str).name == "value"
    assert repr(Shape(Order)) == "Shape(Order)"


# Pydantic


def test_pydantic_is_not_imported_unless_a_type_needs_it() -> None:
    program = """
import sys
from dataclasses import dataclass
from wakeful.tools._schema import Shape, parameters_of
@dataclass
class Order:
    id: int
class Context: ...
def function(order: Order, when: int | None = None): ...
bound = parameters_of(function, context_type=Context)
bound.schema, bound.bind({"order": {"id": 1}}), Shape(list[Order]).schema
try:
    bound.bind({})
except Exception as error:
    assert str(error) == "$: missing required argument 'order'", error
assert "pydantic" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


# Properties


class Everything(Struct):
    text: str
    number: int
    real: float
    flag: bool
    nothing: None
    moment: datetime
    day: date
    id: UUID
    amount: Decimal
    data: bytes
    unit: Unit
    choice: Literal["a", "b"]
    words: list[str]
    pair: tuple[int, str]
    unique: set[int]
    table: dict[str, float]
    numbered: dict[int, str]
    lines: list[Line]
    shape: Circle | Square
    tree: Tree
    point: Point
    maybe: int | None = None
    loose: date | int | str = 0


numbers = st.integers(-(2**63), 2**63 - 1)
reals = st.floats(allow_nan=False, allow_infinity=False)
moments = st.one_of(st.datetimes(), st.datetimes(timezones=st.just(UTC)))
trees = st.recursive(
    st.builds(Tree, numbers), lambda inner: st.builds(Tree, numbers, st.lists(inner, max_size=3)), max_leaves=5
)
everything = st.builds(
    Everything,
    text=st.text(),
    number=numbers,
    real=reals,
    flag=st.booleans(),
    nothing=st.none(),
    moment=moments,
    day=st.dates(),
    id=st.uuids(),
    amount=st.decimals(allow_nan=False, allow_infinity=False),
    data=st.binary(),
    unit=st.sampled_from(Unit),
    choice=st.sampled_from(["a", "b"]),
    words=st.lists(st.text(), max_size=3),
    pair=st.tuples(numbers, st.text()),
    unique=st.sets(numbers, max_size=3),
    table=st.dictionaries(st.text(), reals, max_size=3),
    numbered=st.dictionaries(numbers, st.text(), max_size=3),
    lines=st.lists(st.builds(Line, reals, st.text()), max_size=3),
    shape=st.one_of(st.builds(Circle, reals), st.builds(Square, reals)),
    tree=trees,
    point=st.builds(Point, numbers, numbers),
    maybe=st.none() | numbers,
    loose=st.dates() | numbers,
)
EVERYTHING = Shape(Everything)
BOUND = taking(Everything, default=None)


@given(everything)
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_whatever_msgspec_encodes_is_taken_back(value: Everything) -> None:
    text = msgspec.json.encode(value)
    decoded = json.loads(text)
    assert EVERYTHING.convert(decoded) == value
    assert EVERYTHING.decode(text) == value
    assert BOUND.bind({"x": decoded}) == {"x": value}


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=()), max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["price", "id", "lines", "items", "pet", "kind", "name", "type", "value"])
            | st.text(st.characters(exclude_categories=()), max_size=3),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)


def union_of(members: list[Any]) -> Any:
    return Union[tuple(members)]  # noqa: UP007


hints = st.recursive(
    st.sampled_from(EVERY_TYPE),
    lambda inner: st.one_of(
        st.builds(lambda item: list[item], inner),
        st.builds(lambda item: dict[str, item], inner),
        st.builds(lambda one, other: tuple[one, other], inner, inner),
        st.builds(union_of, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda item: Annotated[item, "A description."], inner),
    ),
    max_leaves=4,
)


@given(hints)
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_the_schema_of_any_combination_of_types_keeps_to_what_vendors_accept(hint: Any) -> None:
    check_vendor_rules(Shape(hint).schema)
    check_vendor_rules(taking(hint).schema)
    check_vendor_rules(taking(hint, default=None).schema)


@given(hints, json_values)
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_any_json_is_a_value_or_is_refused_in_words_that_can_be_sent(hint: Any, value: Any) -> None:
    bound = taking(hint)
    try:
        made = bound.bind({"x": value})
    except InvalidArguments as error:
        told = str(error)
        assert told.startswith("$")
        assert "`" not in told
        assert len(told.encode()) < 10_000
    else:
        assert list(made) == ["x"]


@given(st.text() | st.binary())
def test_any_text_is_decoded_or_refused(text: str | bytes) -> None:
    try:
        Shape(Any).decode(text)
    except InvalidArguments as error:
        told = str(error)
    else:
        told = "$: malformed JSON"
    assert told.startswith("$: malformed JSON")


@given(st.text())
def test_any_docstring_can_be_read(text: str) -> None:
    def function(a: int) -> None: ...

    function.__doc__ = text
    assert isinstance(description_of(function), str)
    assert list(parameters(function).schema["properties"]) == ["a"]
