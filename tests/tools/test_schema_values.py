"""Decoded JSON and JSON text become values of a type."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from schema_samples import (
    Address,
    Area,
    Array,
    Basket,
    Box,
    Cat,
    Circle,
    DictOwner,
    Dog,
    Even,
    Guest,
    Host,
    Item,
    Limited,
    Line,
    Numbers,
    Odd,
    Owner,
    Page,
    Parcel,
    PlainCat,
    PlainDog,
    Point,
    Renamed,
    Square,
    StructOwner,
    Tags,
    Tree,
    TupleOwner,
    taking,
)

from wakeful.errors import InvalidArguments
from wakeful.tools.schema import Shape


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
        (Parcel, {"to": {"street": "s"}, "weight": 1}, {"to": {"street": "s"}, "weight": 1}),
        (Area, {"width": 2, "height": 3}, Area(2, 3)),
        (Area, {"width": 2, "height": 3, "size": 9, "checked": True}, Area(2, 3)),
        (Even, {"number": 4}, Even(4)),
        (dict[str, Even], {"a": {"number": 4}}, {"a": Even(4)}),
        (Even | Odd, {"number": 4, "why": "so"}, Odd(4, "so")),
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
def test_decoded_json_becomes_value_of_type(hint: Any, value: Any, result: Any) -> None:
    for made in (
        Shape(hint).convert(value),
        Shape(hint).decode(json.dumps(value)),
        taking(hint).bind({"x": value})["x"],
        taking(hint, default=None).bind({"x": value})["x"],
    ):
        assert made == result
        assert type(made) is type(result)


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
