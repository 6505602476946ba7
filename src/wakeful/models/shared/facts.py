"""Facts about models: context window, output limit, media and prices."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast, get_args

import msgspec
from msgspec.structs import replace

from ...errors import ConfigurationError
from ...errors.arguments import Checked
from ...types.base import Data
from ...types.runs import Usage
from ..protocol import Model

__all__ = [
    "FactTable",
    "LongPrices",
    "Modality",
    "ModelFacts",
    "cost_of",
    "shipped_facts",
    "with_cost",
    "without_address",
]

Modality = Literal["text", "image", "audio", "video", "document"]

MILLION = 1_000_000
_MODALITIES = get_args(Modality)
# A million dollars for a million tokens. A higher price is a mistake and would overflow a store's integers.
_HIGHEST_PRICE = MILLION * MILLION
_DATE = re.compile(r"\d{4}(-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?)?")
_PRICES = ("input_price", "output_price", "cached_price", "cache_write_price")


class LongPrices(Data, metaclass=Checked, omit_defaults=True, kw_only=True):
    """The prices of a request with more than `over` input tokens, for all of its tokens."""

    over: int
    input_price: int
    output_price: int
    cached_price: int | None = None
    cache_write_price: int | None = None

    def __post_init__(self) -> None:
        found = _price_problems(self, needed=_PRICES[:2])
        if not _is_count(self.over):
            found.append(f"LongPrices.over is a number of input tokens, such as 200_000; not {self.over!r:.80}")
        if found:
            raise ConfigurationError(found)


class ModelFacts(Data, metaclass=Checked, omit_defaults=True, kw_only=True):
    """Facts about a model; None for unknown.

    Prices are for a million tokens, in micro-units of the currency: 1_250_000 is 1.25 dollars. Cached tokens
    without a price of their own cost as much as other input. `search_price` is for a thousand searches of the
    vendor's own web search. `cutoff` is the date of the model's knowledge cutoff.
    """

    context_window: int | None = None
    max_output: int | None = None
    input_modalities: tuple[Modality, ...] | None = None
    output_modalities: tuple[Modality, ...] | None = None
    input_price: int | None = None
    cached_price: int | None = None
    cache_write_price: int | None = None
    output_price: int | None = None
    search_price: int | None = None
    long: LongPrices | None = None
    cutoff: str | None = None

    def __post_init__(self) -> None:
        if found := [*_limit_problems(self), *_modality_problems(self), *_pricing_problems(self)]:
            raise ConfigurationError(found)


def _limit_problems(facts: ModelFacts) -> list[str]:
    found = [
        f"ModelFacts.{name} is a number of tokens, such as 8_000, or None if it isn't known; not {value!r:.80}"
        for name in ("context_window", "max_output")
        if (value := getattr(facts, name)) is not None and not (_is_count(value) and value)
    ]
    if not found and facts.max_output and facts.context_window and facts.max_output > facts.context_window:
        found.append(
            f"ModelFacts.max_output is {facts.max_output:,} and context_window {facts.context_window:,}, which "
            "has the answer in it; lower the one or raise the other"
        )
    cutoff: Any = facts.cutoff
    if cutoff is not None and not (isinstance(cutoff, str) and _DATE.fullmatch(cutoff)):
        found.append(
            f"ModelFacts.cutoff is a date as a text, such as '2025-06-30' or '2025-06', not {cutoff!r:.80}"
        )
    return found


def _modality_problems(facts: ModelFacts) -> list[str]:
    return [
        f"ModelFacts.{name} is a tuple of {', '.join(_MODALITIES)}; not {value!r:.80}"
        for name in ("input_modalities", "output_modalities")
        if (value := getattr(facts, name)) is not None
        and not (isinstance(value, tuple | list) and {*map(str, cast(tuple[Any, ...], value))} <= {*_MODALITIES})
    ]


def _pricing_problems(facts: ModelFacts) -> list[str]:
    has_price = facts.input_price is not None or facts.output_price is not None
    found = _price_problems(facts, needed=_PRICES[:2] if has_price else ())
    long: Any = facts.long
    if long is not None and not isinstance(long, LongPrices):
        found.append(
            "ModelFacts.long is a LongPrices(over=200_000, input_price=..., output_price=...), the prices of "
            f"longer requests; not {long!r:.80}"
        )
    if not has_price and (long, facts.cached_price, facts.cache_write_price) != (None, None, None):
        found.append("ModelFacts has other prices, and no input_price and output_price; give these as well")
    searches: Any = facts.search_price
    if searches is not None and not (has_price and _is_count(searches) and searches <= _HIGHEST_PRICE):
        found.append(
            "ModelFacts.search_price is what a thousand searches cost, in whole micro-units, beside the prices of "
            f"tokens: 10 dollars are 10_000_000; not {searches!r:.80}"
        )
    return found


def _price_problems(prices: ModelFacts | LongPrices, needed: tuple[str, ...]) -> list[str]:
    kind, found = type(prices).__name__, list[str]()
    for name in _PRICES:
        value: Any = getattr(prices, name)
        if value is None and name in needed:
            found.append(f"{kind}.{name} is missing: give both input_price and output_price, 0 for what is free")
        elif value is not None and not (_is_count(value) and value <= _HIGHEST_PRICE):
            found.append(
                f"{kind}.{name} is what a million tokens cost, in whole micro-units: 0.25 dollars are 250_000; "
                f"not {value!r:.80}"
            )
    return found


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


class _Shipped(Data):
    as_of: str
    models: dict[str, ModelFacts]


@cache
def shipped_facts() -> _Shipped:
    """Load the shipped table of facts, with its date."""
    return msgspec.json.decode(Path(__file__).with_name("facts.json").read_bytes(), type=_Shipped)


def with_cost(usage: Usage, facts: ModelFacts) -> Usage:
    """Add the cost to the usage; unchanged if the price is unknown."""
    cost = cost_of(usage, facts)
    return replace(usage, cost=cost) if cost else usage


def cost_of(usage: Usage, facts: ModelFacts) -> int:
    """Compute the cost in micro-units, rounded half up; 0 if the price is unknown."""
    prices: ModelFacts | LongPrices = facts
    if facts.long is not None and usage.input_tokens > facts.long.over:
        prices = facts.long
    into, out = prices.input_price, prices.output_price
    if into is None or out is None:
        return 0
    read = into if prices.cached_price is None else prices.cached_price
    write = into if prices.cache_write_price is None else prices.cache_write_price
    # Cached tokens are part of the input. The bound covers a vendor that doesn't count them so.
    plain = max(0, usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens)
    total = (
        plain * into + usage.cached_tokens * read + usage.cache_write_tokens * write + usage.output_tokens * out
    )
    total += usage.searches * (facts.search_price or 0) * 1000
    return (total + MILLION // 2) // MILLION


class FactTable:
    """Facts by a model's name: the application's first, then the shipped table."""

    def __init__(self, own: Mapping[str, ModelFacts] | None = None) -> None:
        for name, facts in cast(Mapping[Any, Any], own or {}).items():
            if not isinstance(name, str) or not isinstance(facts, ModelFacts):
                raise ConfigurationError(
                    "facts are ModelFacts by a model's name, such as 'openai:gpt-5-mini'; "
                    f"not {name!r:.80}: {facts!r:.80}"
                )
        self.own = dict(own or {})
        # Cached by the requested name and the model's own name.
        self._known: dict[tuple[str, str], ModelFacts | None] = {}

    def find(self, name: str, model: Model | None = None) -> ModelFacts | None:
        """Find a model's facts: the application's, else its own, else the shipped ones; None if unknown."""
        if name in self.own:
            return self.own[name]
        if (own := getattr(model, "facts", None)) is not None:
            return cast(ModelFacts, own)
        names = (name, name if model is None else model.name)
        try:
            return self._known[names]
        except KeyError:
            found = next((facts for one in names if (facts := self._find(one)) is not None), None)
            self._known[names] = found
            return found

    def _find(self, name: str) -> ModelFacts | None:
        if ":" not in name:
            return self.own.get(name)  # An application's own model isn't in the shipped table.
        tables = (self.own, shipped_facts().models)
        names = (name, without_address(name), _normalise(name))
        return next((table[one] for one in names for table in tables if one in table), None)


# Snapshot dates and the prefixes and suffixes of Bedrock and Vertex.
_SNAPSHOT = re.compile(r"([-@](\d{4}-\d{2}-\d{2}|\d{8}|latest|default))?(-v\d+(:\d+)?(:\d+k)?)?$")
_REGION = re.compile(r"^(us-gov|us|eu|apac|au|jp|ca|global)\.")
# The address in the name of a model that isn't at its vendor's address.
_ADDRESS = re.compile(r"@([a-z]+://.*|[a-z]+(-[a-z]+)+-?\d+)$")
_ARN = re.compile(r"^arn:[^/]*/")


def without_address(name: str) -> str:
    """Remove the address from a model's name."""
    return _ADDRESS.sub("", name)


# Vendors with the models of another one.
_SAME = {
    "openai-chat": "openai",
    "anthropic-vertex": "anthropic",
    "anthropic-bedrock": "anthropic",
    "google-vertex": "google",
}


def _normalise(name: str) -> str:
    """Normalise the name of a snapshot or a regional profile to the name in the table."""
    vendor, _, model = without_address(name).partition(":")
    vendor = _SAME.get(vendor, vendor)
    if name.startswith("anthropic-bedrock:"):
        model = _REGION.sub("", _ARN.sub("", model)).removeprefix("anthropic.")
    if vendor == "bedrock":
        model = _REGION.sub("", _ARN.sub("", model))
    if vendor == "google":
        model = model.rpartition("/")[2]
    return f"{vendor}:{_SNAPSHOT.sub('', model, count=1)}"
