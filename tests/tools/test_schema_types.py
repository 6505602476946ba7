"""Types become schemas that vendors accept, or are refused."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import pytest
from annotated_types import MinLen
from msgspec import Meta
from pydantic import BaseModel, Field
from schema_samples import (
    EVERY_TYPE,
    Basket,
    Cat,
    Context,
    Level,
    Line,
    Node,
    Order,
    Owner,
    Person,
    Point,
    Tags,
    Tree,
    TupleOwner,
    Unit,
    UserId,
    check_vendor_rules,
    shown,
    taking,
)

from wakeful.errors import ShapeError
from wakeful.tools.schema import Shape


@pytest.mark.parametrize("hint", EVERY_TYPE, ids=shown)
def test_every_type_has_vendor_safe_schema(hint: Any) -> None:
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
def test_type_has_schema(hint: Any, schema: dict[str, Any]) -> None:
    assert Shape(hint).schema == schema


def test_schema_is_computed_once() -> None:
    shape = Shape(Order)
    assert shape.schema is shape.schema
    bound = taking(Order)
    assert bound.schema is bound.schema


def test_non_recursive_types_are_inlined() -> None:
    schema = Shape(dict[str, Order]).schema
    assert "$defs" not in schema
    order = schema["additionalProperties"]
    assert order["description"] == "A wish."
    assert order["properties"]["lines"]["items"]["properties"]["price"] == {"type": "number"}
    assert order["properties"]["when"] == {
        "anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}],
        "default": None,
    }


@pytest.mark.parametrize(("hint", "name"), [(Tree, "Tree"), (Node, "Node"), (Person, "Person"), (Owner, "Owner")])
def test_recursive_type_refers_to_its_definition(hint: Any, name: str) -> None:
    schema = Shape(hint).schema
    assert schema["type"] == "object"
    assert name in schema["$defs"]
    nested = taking(hint).schema
    assert nested["properties"]["x"] == {"$ref": f"#/$defs/{name}"}
    assert nested["$defs"][name]["type"] == "object"


def test_recursive_types_of_one_name_stay_distinct() -> None:
    def another() -> Any:
        class Tree(BaseModel):
            leaves: list[Tree] = []

        Tree.model_rebuild(_types_namespace={"Tree": Tree})
        return Tree

    schema = Shape(Tree | another()).schema
    assert set(schema["$defs"]) == {"Tree", "Tree_2"}
    check_vendor_rules(schema)


def test_model_in_dataclass_keeps_descriptions_and_defaults() -> None:
    items = Shape(Owner).schema["properties"]["baskets"]["additionalProperties"]["properties"]["items"]
    assert items["items"]["properties"] == {
        "price": {"type": "number"},
        "count": {"type": "integer", "minimum": 0, "description": "How many.", "default": 1},
        "kind": {"type": "string", "enum": ["a", "b"], "default": "a"},
    }


def test_records_with_models_keep_names_and_descriptions() -> None:
    class Chain(NamedTuple):
        """A chain of values."""

        pet: Cat | str
        next: Any

    class Words(TypedDict):
        """Words about a pet."""

        words: Cat | str

    schema = Shape(tuple[TupleOwner, Chain, Words]).schema
    assert [part.get("description") for part in schema["items"]["anyOf"]] == [
        None,
        "A chain of values.",
        "Words about a pet.",
    ]


def test_models_are_found_at_any_depth() -> None:
    record: Any = Owner
    for depth in range(50):
        record = dataclasses.make_dataclass(f"Depth{depth}", [("inner", record)])
    assert Shape(record).schema["properties"]["inner"]["type"] == "object"


def test_field_named_like_keyword_is_kept() -> None:
    assert list(Shape(Basket).schema["properties"]) == ["items", "title", "pair", "either"]


@pytest.mark.parametrize("hint", [complex, range, type, Context, list[complex], Callable, "x", 3, int | Context])
def test_type_without_json_form_is_refused(hint: Any) -> None:
    with pytest.raises(ShapeError):
        Shape(hint)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="aliases of themselves came with 3.12")
def test_alias_of_itself_is_refused() -> None:
    scope: dict[str, Any] = {}
    exec("type Alias = list[Alias]", scope)
    with pytest.raises(ShapeError, match="Alias refers to itself"):
        Shape(scope["Alias"])


def test_shape_has_name() -> None:
    assert Shape(Order).name == "Order"
    assert Shape(Order, name="answer").name == "answer"
    assert Shape(int | str).name == "value"
    assert repr(Shape(Order)) == "Shape(Order)"


def test_pydantic_is_not_imported_unless_type_needs_it() -> None:
    program = """
import sys
from dataclasses import dataclass
from wakeful.tools.schema import Shape, parameters_of
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
