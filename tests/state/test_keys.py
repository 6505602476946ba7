"""State keys: their definitions, defaults and limits."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Struct
from pydantic import BaseModel

from wakeful.errors import ConfigurationError, StateError, StateTooLarge, UnknownStateKey
from wakeful.state import MAX_VALUE_BYTES, KeyRegistry, StateKey


class Model(BaseModel):
    a: int


class Point(Struct, frozen=True):
    x: int
    y: int = 0


class Calls(StateKey[int, int]):
    name, merge = "calls", "commutative"
    default = 0

    def apply(self, value: int, update: int) -> int:
        return value + update


class Place(StateKey[Point, Point]):
    name = "place"
    default = Point(0)


class Notes(StateKey[dict[str, list[str]], Any]):
    name = "notes"
    default = {"all": []}


class Anything(StateKey):
    name = "anything"


KeyRegistry([Anything])  # Registration builds the decoder.


# -- defaults ------------------------------------------------------------------------------------------------


def test_key_without_default_starts_as_none() -> None:
    assert Anything.initial() is None


def test_key_mutable_default_is_copied() -> None:
    mine = Notes.initial()
    mine["all"].append("scribble")
    mine["more"] = []
    assert Notes.initial() == {"all": []}


def test_key_default_reducer_replaces_the_value() -> None:
    assert Place().apply(Point(1), Point(2)) == Point(2)


# -- values as JSON ------------------------------------------------------------------------------------------


def registered(key: Any) -> Any:
    KeyRegistry([key])
    return key


@pytest.mark.parametrize(
    ("key", "value"),
    [(Calls, 2**63), (Place, Point(1, 2)), (Notes, {"a\0": ["😀"]}), (Anything, [1, {"b": None}])],
)
def test_key_value_decodes_to_its_type(key: Any, value: Any) -> None:
    assert registered(key).decode(key.encode(value)) == value


@pytest.mark.parametrize("stored", [b'"three"', b"{", b'{"x":1}'])
def test_key_decode_error_names_the_key(stored: bytes) -> None:
    with pytest.raises(StateError, match=r"'calls'.*can't be read"):
        registered(Calls).decode(stored)


def test_key_subclass_keeps_the_value_type() -> None:
    class Elsewhere(Place):
        name = "elsewhere"

    assert registered(Elsewhere).decode(b'{"x":1}') == Point(1)


def test_key_value_is_limited_in_size() -> None:
    fits = "x" * (MAX_VALUE_BYTES - 2)
    assert len(Anything.encode(fits)) == MAX_VALUE_BYTES == 256 * 1024
    with pytest.raises(StateTooLarge, match=r"'anything': 262,145 bytes encoded, the limit is 262,144"):
        Anything.encode(fits + "x")


def test_key_size_limit_counts_bytes() -> None:
    with pytest.raises(StateTooLarge):
        Anything.encode("é" * (MAX_VALUE_BYTES // 2))


def endless() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    "value", [object(), {"a": {(1, 2): 3}}, "\ud800", endless()], ids=lambda v: type(v).__name__
)
def test_key_encode_error_says_what_to_do(value: Any) -> None:
    with pytest.raises(StateError, match=r"'anything'.*persistent = False"):
        Anything.encode(value)


# -- the registry --------------------------------------------------------------------------------------------


def test_key_without_name_is_refused() -> None:
    class Nameless(StateKey[int, int]):
        pass

    with pytest.raises(ConfigurationError, match="Nameless: it needs a name"):
        KeyRegistry([Nameless])


def test_key_name_with_two_definitions_is_refused() -> None:
    class Other(StateKey[int, int]):
        name = "calls"

    with pytest.raises(ConfigurationError, match=r"'calls' has two definitions: Calls and .*Other"):
        KeyRegistry([Calls, Other])


def test_key_registered_again_is_one_key() -> None:
    keys = KeyRegistry([Calls, Calls])
    assert keys.find("calls") is Calls


@pytest.mark.parametrize(("option", "value"), [("scope", "galaxy"), ("merge", "sometimes")])
def test_key_scope_and_merge_are_checked(option: str, value: str) -> None:
    odd: Any = type("Odd", (StateKey,), {"name": "odd", option: value})
    with pytest.raises(ConfigurationError, match=f"'odd'.*{value}"):
        KeyRegistry([odd])


def test_key_type_without_decoder_is_refused() -> None:
    class Mixed(StateKey[dict[tuple[int, int], int] | list[str] | list[int], Any]):
        name = "mixed"

    with pytest.raises(ConfigurationError, match="'mixed'"):
        KeyRegistry([Mixed])


@pytest.mark.parametrize("kind", [complex, Model, list[Model], dict[str, Model | None]])
def test_key_type_without_json_is_refused_when_persistent(kind: Any) -> None:
    named: Any = type("Named", (StateKey,), {"name": "named", "__orig_bases__": (StateKey[kind, Any],)})
    with pytest.raises(
        ConfigurationError, match=r"'named': \w+ can't be stored as JSON; use .* persistent = False"
    ):
        KeyRegistry([named])
    named.persistent = False
    KeyRegistry([named])


def test_key_default_of_another_type_is_refused() -> None:
    class Count(StateKey[int, int]):
        name = "count"
        default = "none"

    with pytest.raises(ConfigurationError, match=r"'count': .*Expected `int`, got `str`.*its default: 'none'"):
        KeyRegistry([Count])


def test_registry_recognizes_registered_keys() -> None:
    keys = KeyRegistry([Calls])
    assert Calls in keys
    assert Place not in keys
    with pytest.raises(UnknownStateKey, match=r"'place' isn't registered.*registered: calls"):
        keys.check(Place)


def test_registry_refuses_another_key_of_the_same_name() -> None:
    class Impostor(StateKey[int, int]):
        name = "calls"

    with pytest.raises(UnknownStateKey):
        KeyRegistry([Calls]).check(Impostor)
