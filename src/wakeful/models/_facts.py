"""What is known about models: how much they read and write, which media, and what they cost."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..errors import ConfigurationError
from ..errors._arguments import Checked
from ..types.runs import Usage
from ._protocol import Model

__all__ = ["FactTable", "LongPrices", "Modality", "ModelFacts", "cost_of", "priced", "shipped_facts"]

Modality = Literal["text", "image", "audio", "video", "document"]

MILLION = 1_000_000
_MODALITIES = get_args(Modality)
# A million dollars for a million tokens: more is a slip, and its sums would outgrow what a store keeps.
_HIGHEST_PRICE = MILLION * MILLION
_DATE = re.compile(r"\d{4}(-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?)?")
_PRICES = ("input_price", "output_price", "cached_price", "cache_write_price")


class LongPrices(Struct, metaclass=Checked, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """What a request with more than `over` input tokens costs, all of it."""

    over: int
    input_price: int
    output_price: int
    cached_price: int | None = None
    cache_write_price: int | None = None

    def __post_init__(self) -> None:
        found = _price_problems(self, needed=_PRICES[:2])
        if not _whole(self.over):
            found.append(f"LongPrices.over is a number of input tokens, such as 200_000; not {self.over!r:.80}")
        if found:
            raise ConfigurationError(found)


class ModelFacts(Struct, metaclass=Checked, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """Facts about a model; None where nothing is known.

    Prices are for a million tokens, in micro-units of the currency: 1_250_000 is 1.25 dollars. Without a price of
    their own, tokens read from a cache or written to it cost what other input does. `cutoff` is the date up to
    which the model knows the world.
    """

    context_window: int | None = None
    max_output: int | None = None
    input_modalities: tuple[Modality, ...] | None = None
    output_modalities: tuple[Modality, ...] | None = None
    input_price: int | None = None
    cached_price: int | None = None
    cache_write_price: int | None = None
    output_price: int | None = None
    long: LongPrices | None = None
    cutoff: str | None = None

    def __post_init__(self) -> None:
        if found := _problems_of(self):
            raise ConfigurationError(found)


def _problems_of(facts: ModelFacts) -> list[str]:
    found = [
        f"ModelFacts.{name} is a number of tokens, such as 8_000, or None if it isn't known; not {value!r:.80}"
        for name in ("context_window", "max_output")
        if (value := getattr(facts, name)) is not None and not (_whole(value) and value)
    ]
    if not found and facts.max_output and facts.context_window and facts.max_output > facts.context_window:
        found.append(
            f"ModelFacts.max_output is {facts.max_output:,} and context_window {facts.context_window:,}, which "
            "has the answer in it; lower the one or raise the other"
        )
    found += [
        f"ModelFacts.{name} is a tuple of {', '.join(_MODALITIES)}; not {value!r:.80}"
        for name in ("input_modalities", "output_modalities")
        if (value := getattr(facts, name)) is not None
        and not (isinstance(value, tuple | list) and {*map(str, cast(tuple[Any, ...], value))} <= {*_MODALITIES})
    ]
    priced = facts.input_price is not None or facts.output_price is not None
    found += _price_problems(facts, needed=_PRICES[:2] if priced else ())
    long: Any = facts.long
    if long is not None and not isinstance(long, LongPrices):
        found.append(
            "ModelFacts.long is a LongPrices(over=200_000, input_price=..., output_price=...), the prices of "
            f"longer requests; not {long!r:.80}"
        )
    if not priced and (long, facts.cached_price, facts.cache_write_price) != (None, None, None):
        found.append("ModelFacts has other prices, and no input_price and output_price; give these as well")
    cutoff: Any = facts.cutoff
    if cutoff is not None and not (isinstance(cutoff, str) and _DATE.fullmatch(cutoff)):
        found.append(
            f"ModelFacts.cutoff is a date as a text, such as '2025-06-30' or '2025-06', not {cutoff!r:.80}"
        )
    return found


def _price_problems(prices: ModelFacts | LongPrices, needed: tuple[str, ...]) -> list[str]:
    kind, found = type(prices).__name__, list[str]()
    for name in _PRICES:
        value: Any = getattr(prices, name)
        if value is None and name in needed:
            found.append(f"{kind}.{name} is missing: give both input_price and output_price, 0 for what is free")
        elif value is not None and not (_whole(value) and value <= _HIGHEST_PRICE):
            found.append(
                f"{kind}.{name} is what a million tokens cost, in whole micro-units: 0.25 dollars are 250_000; "
                f"not {value!r:.80}"
            )
    return found


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


class _Shipped(Struct, frozen=True):
    as_of: str
    models: dict[str, ModelFacts]


@cache
def shipped_facts() -> _Shipped:
    """The table that comes with the package, and the day it was written."""
    return msgspec.json.decode(Path(__file__).with_name("facts.json").read_bytes(), type=_Shipped)


def priced(usage: Usage, facts: ModelFacts) -> Usage:
    """The usage with what it costs; as it is where the price isn't known."""
    cost = cost_of(usage, facts)
    return replace(usage, cost=cost) if cost else usage


def cost_of(usage: Usage, facts: ModelFacts) -> int:
    """What the usage costs, in micro-units; rounded once, half up. Nothing where the price isn't known."""
    prices: ModelFacts | LongPrices = facts
    if facts.long is not None and usage.input_tokens > facts.long.over:
        prices = facts.long
    into, out = prices.input_price, prices.output_price
    if into is None or out is None:
        return 0
    read = into if prices.cached_price is None else prices.cached_price
    write = into if prices.cache_write_price is None else prices.cache_write_price
    # Vendors count what a cache held as input; one that doesn't must not earn anything by it.
    plain = max(0, usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens)
    total = (
        plain * into + usage.cached_tokens * read + usage.cache_write_tokens * write + usage.output_tokens * out
    )
    return (total + MILLION // 2) // MILLION


class FactTable:
    """Facts by a model's name: the application's own first, then those that come with the package."""

    def __init__(self, own: Mapping[str, ModelFacts] | None = None) -> None:
        for name, facts in cast(Mapping[Any, Any], own or {}).items():
            if not isinstance(name, str) or not isinstance(facts, ModelFacts):
                raise ConfigurationError(
                    "facts are ModelFacts by a model's name, such as 'openai:gpt-5-mini'; "
                    f"not {name!r:.80}: {facts!r:.80}"
                )
        self.own = dict(own or {})
        # By the name that is asked for and the model's own.
        self._known: dict[tuple[str, str], ModelFacts | None] = {}

    def of(self, name: str, model: Model | None = None) -> ModelFacts | None:
        """What is known about the model of that name, which may say something itself; None if nothing is."""
        if name in self.own:
            return self.own[name]
        if (said := getattr(model, "facts", None)) is not None:
            return cast(ModelFacts, said)
        names = (name, name if model is None else model.name)
        try:
            return self._known[names]
        except KeyError:
            found = next((facts for one in names if (facts := self._find(one)) is not None), None)
            self._known[names] = found
            return found

    def _find(self, name: str) -> ModelFacts | None:
        if ":" not in name:
            return self.own.get(name)  # A model of the application's own; the table needn't even be read.
        tables = (self.own, shipped_facts().models)
        names = (name, without_address(name), _plain(name))
        return next((table[one] for one in names for table in tables if one in table), None)


# A snapshot's date, and what Bedrock and Vertex put around a model's name.
_SNAPSHOT = re.compile(r"([-@](\d{4}-\d{2}-\d{2}|\d{8}|latest|default))?(-v\d+(:\d+)?(:\d+k)?)?$")
_REGION = re.compile(r"^(us-gov|us|eu|apac|au|jp|ca|global)\.")
# Where a model is, in the names of those that aren't at their vendor's own address.
_ADDRESS = re.compile(r"@([a-z]+://.*|[a-z]+(-[a-z]+)+-?\d+)$")
_ARN = re.compile(r"^arn:[^/]*/")


def without_address(name: str) -> str:
    """The name that a model has wherever it is."""
    return _ADDRESS.sub("", name)


def _plain(name: str) -> str:
    """The name that a snapshot or a regional profile of a model has in the table, by whichever API it is asked."""
    vendor, _, model = without_address(name).partition(":")
    if vendor == "openai-chat":
        vendor = "openai"
    if vendor == "bedrock":
        model = _REGION.sub("", _ARN.sub("", model))
    if vendor == "google":
        model = model.rpartition("/")[2]
    return f"{vendor}:{_SNAPSHOT.sub('', model, count=1)}"
