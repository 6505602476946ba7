"""Answers against a JSON schema: what fits, what doesn't and where, and which schemas promise too much."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from schema_samples import EVERY_TYPE, Tree
from test_schema_properties import EVERYTHING, Everything, everything, hints, json_values

from wakeful.tools.schema import Shape, schema_faults, value_fault

REFUND = {
    "type": "object",
    "properties": {
        "amount": {"type": "number", "minimum": 0},
        "currency": {"enum": ["EUR", "USD"]},
        "lines": {"type": "array", "items": {"type": "integer"}, "maxItems": 2, "uniqueItems": True},
    },
    "required": ["amount"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (REFUND, {"amount": 1}),
        (REFUND, {"amount": 1.5, "currency": "EUR", "lines": [1, 2]}),
        ({"type": "integer"}, 3.0),
        ({"type": ["string", "null"]}, None),
        ({}, {"anything": [None]}),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "x"),
        ({"type": "string", "format": "date"}, "2026-11-16"),
        ({"type": "string", "format": "email"}, "nobody checks this one"),
        ({"const": 1}, 1.0),
        ({"type": "object", "patternProperties": {"^x": {"type": "integer"}}}, {"x1": 1, "y": "free"}),
        ({"type": "array", "prefixItems": [{"type": "integer"}], "items": {"type": "string"}}, [1, "a", "b"]),
        ({"multipleOf": 0.1}, 0.3),
    ],
)
def test_matching_answer_is_accepted(schema: dict[str, Any], value: Any) -> None:
    assert schema_faults(schema) == []
    assert value_fault(value, schema) is None


@pytest.mark.parametrize(
    ("schema", "value", "told"),
    [
        (REFUND, {"amount": "many"}, "$.amount: expected number, got str"),
        (REFUND, {}, "$: missing required 'amount'"),
        (REFUND, {"amount": -1}, "$.amount: expected at least 0, not -1"),
        (REFUND, {"amount": True}, "$.amount: expected number, got bool"),
        (REFUND, {"amount": 1, "why": "x"}, "$: unknown field 'why' (expected: amount, currency, lines)"),
        (REFUND, {"amount": 1, "currency": "GBP"}, '$.currency: invalid value "GBP" (expected: EUR, USD)'),
        (REFUND, {"amount": 1, "lines": [1, "x"]}, "$.lines[1]: expected integer, got str"),
        (REFUND, {"amount": 1, "lines": [1, 2, 3]}, "$.lines: expected at most 2 items, not 3"),
        (REFUND, {"amount": 1, "lines": [1, 1]}, "$.lines: expected no item twice"),
        (REFUND, None, "$: expected object, got null"),
        ({"type": "integer"}, 1.5, "$: expected integer, got float"),
        ({"type": "integer"}, True, "$: expected integer, got bool"),
        ({"enum": [1]}, True, "$: invalid value true (expected: 1)"),
        ({"type": "number"}, float("nan"), "$: expected number, got float"),
        ({"type": "string", "minLength": 1}, "", "$: expected at least 1 characters, not 0"),
        ({"type": "string", "pattern": "^a"}, "b", "$: expected text that matches '^a'"),
        ({"type": "string", "format": "date"}, "tomorrow", "$: expected a date, not 'tomorrow'"),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, [], "$: expected integer | string, got array"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, 1, "$: more than one of the alternatives fits"),
        ({"allOf": [{"minimum": 1}, {"maximum": 2}]}, 3, "$: expected at most 2, not 3"),
        ({"not": {"type": "null"}}, None, "$: this value is ruled out"),
        ({"exclusiveMinimum": 0}, 0, "$: expected more than 0, not 0"),
        ({"multipleOf": 2}, 3, "$: expected a multiple of 2, not 3"),
        ({"propertyNames": {"pattern": "^x"}}, {"y": 1}, "$.y: expected text that matches '^x'"),
        ({"additionalProperties": {"type": "integer"}}, {"n": "x"}, "$.n: expected integer, got str"),
        ({"properties": {"a": False}}, {"a": 1}, "$.a: nothing is allowed here"),
    ],
)
def test_mismatch_is_named_with_its_path(schema: dict[str, Any], value: Any, told: str) -> None:
    assert value_fault(value, schema) == told


def test_alternative_of_same_kind_explains_mismatch() -> None:
    one = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    assert value_fault({"n": "x"}, {"anyOf": [{"type": "null"}, one]}) == "$.n: expected integer, got str"


def test_recursive_type_is_followed_down() -> None:
    schema = Shape(Tree).schema
    assert value_fault({"value": 1, "children": [{"value": 2, "children": []}]}, schema) is None
    fault = value_fault({"value": 1, "children": [{"value": "x", "children": []}]}, schema)
    assert fault is not None
    assert fault.startswith("$.children[0].value: expected")


def test_self_referring_schema_ends() -> None:
    schema = {"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}
    assert value_fault(1, schema) == "$: nested too deeply to be checked"


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ([], "$: a schema is an object"),
        ({"properties": {"a": 3}}, "$.properties.a: a schema is an object"),
        ({"type": "int"}, "type is one of"),
        ({"if": {}, "then": {}}, "can't be checked against if, then"),
        ({"anyOf": [{"contains": {}}]}, "$.anyOf[0]: answers can't be checked against contains"),
        ({"$ref": "#/$defs/nowhere"}, "refers to nothing"),
        ({"$ref": "https://example.com/schema"}, "refers to nothing"),
        ({"pattern": "("}, "bad pattern"),
        ({"patternProperties": {"(": {}}}, "bad pattern"),
        ({"$ref": "", "$defs": []}, "refers to nothing"),
        ({"$ref": "#/$defs/a", "$defs": []}, "refers to nothing"),
        ({"minLength": "3"}, "minLength is a number, not '3'"),
        ({"exclusiveMinimum": True}, "exclusiveMinimum is a number, not True"),
        ({"enum": 5}, "enum is a list, not 5"),
        ({"required": "a"}, "required is a list, not 'a'"),
        ({"format": []}, "format is a text, not []"),
    ],
)
def test_schema_with_unchecked_keyword_is_refused(schema: Any, told: str) -> None:
    assert any(told in fault for fault in schema_faults(schema))


@given(everything)
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_encoded_value_fits_schema_of_its_type(value: Everything) -> None:
    assert value_fault(json.loads(msgspec.json.encode(value)), EVERYTHING.schema) is None


@given(hints, json_values)
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_any_json_is_accepted_or_refused_with_reason(hint: Any, value: Any) -> None:
    schema = Shape(hint).schema
    assert schema_faults(schema) == []
    fault = value_fault(value, schema)
    assert fault is None or (fault.startswith("$") and len(fault.encode()) < 20_000)


@pytest.mark.parametrize("hint", EVERY_TYPE, ids=str)
def test_every_supported_type_can_be_asked_for(hint: Any) -> None:
    assert schema_faults(Shape(hint).schema) == []
