"""Wrong values are refused in words that a model can act on."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from msgspec import Meta
from pydantic import Field
from schema_samples import (
    Address,
    Area,
    Basket,
    Cat,
    Checked,
    Circle,
    Dog,
    Even,
    Guest,
    Item,
    Level,
    Limited,
    Line,
    Order,
    Owner,
    Parcel,
    Renamed,
    Square,
    StructOwner,
    Tree,
    Unit,
    parameters,
    refusal,
    taking,
)

from wakeful.errors import InvalidArguments
from wakeful.tools.schema import Shape


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
def test_wrong_arguments_error_text(arguments: Any, error: str) -> None:
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
        (Cat | Dog, {"kind": "dog", "name": "Kit"}, "missing required field 'age'"),
        (Even, {"number": 3}, "$.number: must be even"),
        (list[Even], [{"number": 2, "name": "hundred"}], "$[0].name: expected str of length <= 4"),
        (Parcel, {"to": {"street": "s"}, "weight": "a"}, "$.weight: expected int, got str"),
        (Area, {"width": 2}, "missing required field 'height'"),
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
def test_wrong_value_is_refused_with_its_path(hint: Any, value: Any, error: str) -> None:
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


def test_lone_surrogates_in_text_and_names_are_harmless() -> None:
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
def test_error_never_holds_huge_value(hint: Any, value: Any) -> None:
    assert len(refusal(taking(hint), {"x": value})) < 1500


def test_huge_names_and_many_names_are_cut_short() -> None:
    assert len(refusal(taking(int), {"x": 1, "a" * 1_000_000: 2})) < 200
    many = refusal(taking(int), {"x": 1} | {f"y{number}": 1 for number in range(1000)})
    assert many.endswith("'y9' and 990 more (expected: x)")


def test_many_problems_are_counted() -> None:
    error = refusal(Shape(Basket), {"items": ["a"] * 13})
    assert error.startswith("$.items[0]: expected object, got str; $.items[1]: expected object, got str; ")
    assert error.endswith("; and 3 more")


def test_too_deeply_nested_value_is_refused() -> None:
    deep: Any = {"value": 1}
    for _ in range(100_000):
        deep = {"value": 1, "children": [deep]}
    assert refusal(taking(Tree), {"x": deep}) == "$.x: nested too deeply"
    while deep.get("children"):  # or its end would nest as deeply
        deep = deep["children"].pop()


def test_error_has_no_python_cause() -> None:
    with pytest.raises(InvalidArguments) as caught:
        parameters(weather).bind({})
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
