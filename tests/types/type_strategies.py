"""Hypothesis strategies for wakeful's types, derived from the types."""

from __future__ import annotations

from datetime import timedelta
from functools import cache
from typing import Any

import msgspec
import msgspec.inspect as shapes
from hypothesis import strategies as st

__all__ = ["json_values", "texts", "values_of"]

texts = st.text(max_size=12) | st.sampled_from(["", "\0", "a\0b", "😀", "\u2028", "\ufeff", '"\\/', "é"])
integers = st.integers(-(2**63), 2**64 - 1) | st.sampled_from([0, 2**53 + 1, 2**63 - 1, -(2**63), 2**64 - 1])
floats = st.floats(allow_nan=False, allow_infinity=False)

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | integers | floats | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


@cache
def values_of(type_: Any) -> st.SearchStrategy[Any]:
    """Values of a type: a struct, or a union of them."""
    return _strategy(shapes.type_info(type_))


def _strategy(info: Any) -> st.SearchStrategy[Any]:
    match info:
        case shapes.AnyType():
            return json_values
        case shapes.NoneType():
            return st.none()
        case shapes.BoolType():
            return st.booleans()
        case shapes.IntType():
            return integers
        case shapes.FloatType():
            return floats
        case shapes.StrType():
            return texts
        case shapes.TimeDeltaType():
            return st.timedeltas(timedelta(days=-9999), timedelta(days=9999))
        case shapes.BytesType():
            return st.binary(max_size=8)
        case shapes.RawType():
            return json_values.map(lambda value: msgspec.Raw(msgspec.json.encode(value)))
        case shapes.LiteralType(values=values):
            return st.sampled_from(values)
        case shapes.UnionType(types=types):
            return st.one_of(*[_strategy(each) for each in types])
        case shapes.VarTupleType(item_type=item):
            return st.lists(_strategy(item), max_size=3).map(tuple)
        case shapes.FrozenSetType(item_type=item):
            return st.frozensets(_strategy(item), max_size=3)
        case shapes.TupleType(item_types=items):
            return st.tuples(*[_strategy(item) for item in items])
        case shapes.ListType(item_type=item):
            return st.lists(_strategy(item), max_size=3)
        case shapes.DictType(key_type=key, value_type=value):
            return st.dictionaries(_strategy(key), _strategy(value), max_size=3)
        case shapes.StructType():
            return _struct(info.cls)
        case _:
            raise NotImplementedError(f"no strategy for {info}")


@cache
def _struct(cls: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    fields = shapes.type_info(cls).fields  # pyright: ignore[reportAttributeAccessIssue]
    required = {field.name: _strategy(field.type) for field in fields if field.required}
    optional = {field.name: _strategy(field.type) for field in fields if not field.required}
    return st.fixed_dictionaries(required, optional=optional).map(lambda given: cls(**given))
