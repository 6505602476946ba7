"""Every type has a schema, and every JSON a value of it or a clear error."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, Union
from uuid import UUID

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct
from schema_samples import (
    EVERY_TYPE,
    Circle,
    Line,
    Point,
    Square,
    Tree,
    Unit,
    check_vendor_rules,
    parameters,
    taking,
)

from wakeful.errors import InvalidArguments
from wakeful.tools.schema import Shape, description_of


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
def test_any_encoded_value_is_decoded(value: Everything) -> None:
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
def test_any_type_combination_has_vendor_safe_schema(hint: Any) -> None:
    check_vendor_rules(Shape(hint).schema)
    check_vendor_rules(taking(hint).schema)
    check_vendor_rules(taking(hint, default=None).schema)


@given(hints, json_values)
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_any_json_is_decoded_or_refused_with_text(hint: Any, value: Any) -> None:
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
