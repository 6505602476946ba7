"""Types, functions and checks that the tests of schemas share."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, NotRequired, TypedDict, TypeVar
from uuid import UUID

import pytest
import typing_extensions
from annotated_types import Ge
from msgspec import Meta, Struct
from pydantic import BaseModel, ConfigDict, Field, RootModel, field_validator
from pydantic.dataclasses import dataclass as pydantic_dataclass
from typing_extensions import TypeAliasType

from wakeful.errors import InvalidArguments
from wakeful.tools.schema import Parameters, Shape, parameters_of


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
    """A wish."""

    id: int
    lines: list[Line]
    when: datetime | None = None
    notes: list[str] = field(default_factory=list)


class Address(TypedDict):
    street: str
    city: NotRequired[Annotated[str, Meta(max_length=5)]]


class Parcel(typing_extensions.TypedDict):
    to: Address
    weight: typing_extensions.ReadOnly[int]
    note: typing_extensions.NotRequired[str]


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
class Area:
    width: int
    height: int
    size: int = field(init=False)
    checked: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self.size = self.width * self.height


@pydantic_dataclass
class Even:
    number: int
    name: str = Field("two", description="What it is called.", max_length=4)

    @field_validator("number")
    @classmethod
    def _check(cls, number: int) -> int:
        if number % 2:
            raise ValueError("must be even")
        return number


@pydantic_dataclass
class Odd:
    number: int
    why: str = ""


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
    Parcel,
    Area,
    Even,
    list[Even],
    Even | Odd | None,
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
