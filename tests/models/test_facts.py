"""Facts about models, and the cost of answers."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful import Agent, CostBudget, Runtime, ScriptedModel, Turn, Usage, call, tool
from wakeful.errors import ConfigurationError
from wakeful.models import LongPrices, ModelFacts, shipped_facts
from wakeful.models.shared.facts import FactTable, cost_of
from wakeful.types import Stopped

MINI = ModelFacts(input_price=250_000, cached_price=25_000, output_price=2_000_000)

tokens = st.integers(0, 2_000_000)
price = st.integers(0, 100_000_000)
maybe = st.none() | price
usages = st.builds(
    lambda plain, read, write, out: Usage(plain + read + write, out, read, write), tokens, tokens, tokens, tokens
)
prices = st.builds(
    lambda i, r, w, o: ModelFacts(input_price=i, cached_price=r, cache_write_price=w, output_price=o),
    price,
    maybe,
    maybe,
    price,
)


@given(usages, prices)
def test_cost_is_the_exact_sum_rounded_half_up(usage: Usage, facts: ModelFacts) -> None:
    assert facts.input_price is not None
    assert facts.output_price is not None
    read = facts.input_price if facts.cached_price is None else facts.cached_price
    write = facts.input_price if facts.cache_write_price is None else facts.cache_write_price
    plain = usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens
    exact = Fraction(
        plain * facts.input_price
        + usage.cached_tokens * read
        + usage.cache_write_tokens * write
        + usage.output_tokens * facts.output_price,
        1_000_000,
    )
    cost = cost_of(usage, facts)
    assert -Fraction(1, 2) < cost - exact <= Fraction(1, 2)


@given(usages, usages, prices)
def test_cost_never_falls_with_more_tokens(one: Usage, other: Usage, facts: ModelFacts) -> None:
    both = one + other
    assert cost_of(both, facts) >= max(cost_of(one, facts), cost_of(other, facts))
    # Two answers are rounded twice, one answer once: the sums differ by at most one.
    assert abs(cost_of(both, facts) - cost_of(one, facts) - cost_of(other, facts)) <= 1


def test_cost_rounds_a_half_up() -> None:
    facts = ModelFacts(input_price=500_000, output_price=0)
    assert [cost_of(Usage(n), facts) for n in range(5)] == [0, 1, 1, 2, 2]


def test_cost_includes_searches() -> None:
    facts = ModelFacts(input_price=250_000, output_price=2_000_000, search_price=10_000_000)
    assert cost_of(Usage(4, 0, searches=3), facts) == 1 + 30_000
    assert cost_of(Usage(4, 0, searches=3), MINI) == 1
    with pytest.raises(ConfigurationError, match="search_price is what a thousand searches cost"):
        ModelFacts(input_price=1, output_price=1, search_price=-1)


def test_cost_is_never_negative_for_cached_tokens() -> None:
    assert cost_of(Usage(10, 0, cached_tokens=1_000_000), MINI) == 25_000


def test_cost_of_a_long_request_uses_long_prices() -> None:
    long = LongPrices(over=100, input_price=3_000_000, output_price=0)
    facts = ModelFacts(input_price=1_000_000, output_price=1_000_000, long=long)
    assert cost_of(Usage(100, 5), facts) == 105
    assert cost_of(Usage(101, 5), facts) == 303


@pytest.mark.parametrize("facts", [ModelFacts(), ModelFacts(context_window=1)])
def test_cost_is_zero_without_both_prices(facts: ModelFacts) -> None:
    assert cost_of(Usage(10**9, 10**9), facts) == 0


def test_shipped_facts_are_consistent() -> None:
    shipped = shipped_facts()
    assert len(shipped.as_of) == len("2026-11-16")
    vendors = {name.partition(":")[0] for name in shipped.models}
    assert vendors == {"openai", "anthropic", "google", "bedrock", "local"}
    for name, facts in shipped.models.items():
        assert facts.context_window, name
        assert facts.max_output, name
        assert facts.max_output <= facts.context_window, name
        assert "text" in (facts.input_modalities or ()), name
        assert (facts.input_price is None) == (facts.output_price is None), name
        if facts.input_price is not None:
            assert (facts.cached_price or 0) <= facts.input_price <= (facts.output_price or 0), name
        if facts.long is not None:
            assert facts.long.over < facts.context_window, name
            assert facts.long.input_price > (facts.input_price or 0), name


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("openai:gpt-5-mini-2025-08-07", "openai:gpt-5-mini"),
        ("openai-chat:gpt-5-mini", "openai:gpt-5-mini"),
        ("anthropic:claude-sonnet-4-5-20250929", "anthropic:claude-sonnet-4-5"),
        ("bedrock:us.anthropic.claude-sonnet-4-5-20250929-v1:0", "bedrock:anthropic.claude-sonnet-4-5"),
        ("bedrock:amazon.nova-lite-v1:0", "bedrock:amazon.nova-lite"),
        (
            "bedrock:arn:aws:bedrock:us-east-1:1:inference-profile/eu.amazon.nova-pro-v1:0",
            "bedrock:amazon.nova-pro",
        ),
        ("google:publishers/google/models/gemini-2.5-pro", "google:gemini-2.5-pro"),
    ],
)
def test_facts_resolve_snapshots_and_regional_profiles(name: str, same: str) -> None:
    table = FactTable()
    assert table.find(name) is not None
    assert table.find(name) == table.find(same)


@pytest.mark.parametrize("name", ["scripted", "openai:gpt-99", "openai-compatible:gpt-5-mini", "house:", ":", ""])
def test_facts_are_none_for_unknown_names(name: str) -> None:
    assert FactTable().find(name) is None


def test_facts_of_the_application_come_first() -> None:
    table = FactTable({"openai:gpt-5-mini": MINI, "house:small": MINI})
    assert table.find("openai:gpt-5-mini") is MINI
    assert table.find("openai:gpt-5-mini-2025-08-07") is MINI
    assert table.find("house:small") is MINI


def test_facts_of_another_type_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="facts are ModelFacts by a model's name"):
        Runtime([Agent("a", model=ScriptedModel([]))], facts={"openai:gpt-5": {"input_price": 3}})  # type: ignore[dict-item]


def turns(*usages: Usage) -> ScriptedModel:
    return ScriptedModel([Turn(text="hm", usage=usage) for usage in usages], name="house:small")


async def test_answer_is_priced_and_the_run_sums_up() -> None:
    @tool
    async def look() -> str:
        return "seen"

    model = ScriptedModel(
        [
            Turn(calls=[call("look")], usage=Usage(1_000_000, 3, cached_tokens=400_000)),
            Turn(text="done", usage=Usage(2, 1_000_000)),
        ],
        name="house:small",
    )
    runtime = Runtime([Agent("a", model=model, tools=[look])], facts={"house:small": MINI})
    costs = [e.usage.cost async for e in runtime.stream("a", "go") if e.type == "inference_complete"]
    assert costs == [160_006, 2_000_001]


async def test_tree_cost_includes_delegates() -> None:
    child = Agent("child", model=ScriptedModel([Turn(text="x", usage=Usage(1_000_000))], name="house:small"))
    lead = ScriptedModel(
        [Turn(calls=[call("agent_run_child", prompt="x")], usage=Usage(8))],
        name="house:small",
    )
    policy = CostBudget(200_000, tree=True)
    agent = Agent("lead", model=lead, delegates=["child"], stop=[policy])
    runtime = Runtime([agent, child], facts={"house:small": MINI})
    result = await runtime.run("lead", "go")
    assert isinstance(result.termination, Stopped)
    assert result.termination.policy == "cost_budget"
    assert result.usage.cost == 250_002


async def test_cost_reported_by_the_vendor_is_kept() -> None:
    model = turns(Usage(1_000_000, 5, cost=7))
    result = await Runtime([Agent("a", model=model)], facts={"house:small": MINI}).run("a", "go")
    assert result.usage.cost == 7


async def test_unknown_model_works_without_facts() -> None:
    result = await Runtime([Agent("a", model=turns(Usage(5, 5)))]).run("a", "go")
    assert (result.text, result.usage.total_tokens, result.usage.cost) == ("hm", 10, 0)


BOTH = {"input_price": 1, "output_price": 1}


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({**BOTH, "input_price": 0.25}, "ModelFacts.input_price is what a million tokens cost"),
        ({**BOTH, "output_price": -1}, "0.25 dollars are 250_000; not -1"),
        ({**BOTH, "cached_price": math.nan}, "ModelFacts.cached_price"),
        ({**BOTH, "cache_write_price": "1"}, "ModelFacts.cache_write_price"),
        ({**BOTH, "input_price": True}, "ModelFacts.input_price"),
        ({**BOTH, "input_price": 10**30}, "ModelFacts.input_price"),
        ({"input_price": 1}, "ModelFacts.output_price is missing"),
        ({"output_price": 1}, "ModelFacts.input_price is missing"),
        ({"cached_price": 1}, "no input_price and output_price"),
        ({**BOTH, "long": 5}, "ModelFacts.long is a LongPrices"),
        ({"context_window": "8k"}, "ModelFacts.context_window is a number of tokens"),
        ({"context_window": -1}, "ModelFacts.context_window"),
        ({"context_window": 0}, "ModelFacts.context_window"),
        ({"max_output": 1.5}, "ModelFacts.max_output is a number of tokens"),
        ({"context_window": 8_000, "max_output": 9_000}, "max_output is 9,000 and context_window 8,000"),
        ({"input_modalities": ("text", "smell")}, "ModelFacts.input_modalities is a tuple of text, image"),
        ({"output_modalities": "text"}, "ModelFacts.output_modalities"),
        ({"cutoff": 2025}, "ModelFacts.cutoff is a date"),
        ({"cutoff": "yesterday"}, "ModelFacts.cutoff is a date"),
        ({"cutoff": "2025-13"}, "ModelFacts.cutoff is a date"),
    ],
)
def test_facts_out_of_range_are_refused(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        ModelFacts(**wrong)


@pytest.mark.parametrize("wrong", [{"over": -1}, {"over": "1"}, {"input_price": 0.5}, {"output_price": None}])
def test_long_prices_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=f"LongPrices.{next(iter(wrong))}"):
        LongPrices(**{"over": 200_000, **BOTH, **wrong})
