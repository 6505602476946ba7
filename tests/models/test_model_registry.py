"""Names find models, and nothing is made before it is used."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from importlib import import_module
from typing import Any

import pytest

from wakeful import Agent, ModelRequest, Runtime, ScriptedModel
from wakeful.errors import ConfigurationError, LiveModelForbidden, UnknownModel
from wakeful.models import (
    Chunk,
    ModelFacts,
    ModelRegistry,
    RateLimit,
    TextChunk,
    check_live,
    forbid_live_models,
)
from wakeful.models._registry import VENDORS
from wakeful.models._vendor import sdk
from wakeful.types.runs import Failed


class Acme:
    """A vendor's model: live, and counted."""

    live = True

    def __init__(self, name: str) -> None:
        self.name = f"acme:{name}"

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        yield TextChunk(f"{self.name} answers")


class Silent:
    """A model that doesn't say whether it is live."""

    name = "silent"

    def stream(self, request: ModelRequest) -> Any:
        raise AssertionError("asked")


class Vendor:
    """A factory that keeps what it was asked to make."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def __call__(self, name: str) -> Acme:
        self.made.append(name)
        return Acme(name)


@pytest.fixture
def live_allowed(no_live_models: None) -> Iterator[None]:
    before = forbid_live_models(False)
    yield
    forbid_live_models(before)


# -- resolving -----------------------------------------------------------------------------------------------


def test_a_vendors_model_is_made_on_first_use_and_once() -> None:
    vendor = Vendor()
    models = ModelRegistry({"acme": vendor})
    models.check("acme:large")
    assert vendor.made == []
    assert models.resolve("acme:large") is models.resolve("acme:large")
    assert models.resolve("acme:small") is not models.resolve("acme:large")
    assert vendor.made == ["large", "small"]


def test_a_models_name_may_have_colons_of_its_own() -> None:
    vendor = Vendor()
    ModelRegistry({"acme": vendor}).resolve("acme:tuned:2026-01")
    assert vendor.made == ["tuned:2026-01"]


def test_a_class_is_a_factory_like_any_other() -> None:
    made = ModelRegistry({"acme": Acme}).resolve("acme:large")
    assert isinstance(made, Acme)
    assert made.name == "acme:large"


@pytest.mark.parametrize("alias", ["clerk", "acme:large"])
def test_a_model_registered_under_a_name_is_that_model(alias: str) -> None:
    model = ScriptedModel([])
    models = ModelRegistry({alias: model, "acme": Vendor()})
    models.check(alias)
    assert models.resolve(alias) is model


def test_a_model_object_is_itself() -> None:
    model = ScriptedModel([])
    models = ModelRegistry()
    models.check(model)
    assert models.resolve(model) is model


# -- names that nobody answers to ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("acne:large", r"no vendor 'acne'; did you mean 'acme'\? .*known: clerk, acme:…"),
        ("zzz:large", r"no vendor 'zzz'\. Register one with Runtime\(models=\{'zzz': factory\}\)"),
        ("large", r"a model is named 'vendor:name', or registered with Runtime\(models=\{'large': \.\.\.\}\)"),
        ("gpt-5-mini", r"unknown model 'gpt-5-mini' \(did you mean 'openai:gpt-5-mini'\?\): a model is named"),
        ("acme:", "a model is named 'vendor:name'"),
        ("acme", "a model is named 'vendor:name'"),
        (":large", "no vendor ''"),
        ("", "a model is named 'vendor:name'"),
        ("Acme:large", "no vendor 'Acme'; did you mean 'acme'"),
    ],
)
def test_an_unknown_name_is_an_error_that_says_what_is_known(name: str, text: str) -> None:
    models = ModelRegistry({"acme": Vendor(), "clerk": ScriptedModel([])})
    for ask in (models.check, models.resolve):
        with pytest.raises(UnknownModel, match=text) as raised:
            ask(name)
        assert repr(name) in str(raised.value)


def test_with_nothing_registered_the_vendors_that_come_with_it_are_known() -> None:
    with pytest.raises(UnknownModel, match=r"known: anthropic:…, .*openai:…"):
        ModelRegistry().check("acme:large")


@pytest.mark.parametrize("vendor", list(VENDORS))
def test_every_vendor_that_comes_with_it_is_where_the_table_says(vendor: str) -> None:
    module, _, attribute = VENDORS[vendor].partition(":")
    assert callable(getattr(import_module(module, "wakeful.models"), attribute))


def test_a_vendor_of_ones_own_wins_over_the_one_that_comes_with_it() -> None:
    models = ModelRegistry({"openai": Acme})
    assert isinstance(models.resolve("openai:gpt-5-mini"), Acme)


def test_an_sdk_that_is_not_installed_is_named_with_how_to_install_it() -> None:
    with pytest.raises(ConfigurationError, match=r"pip install 'wakeful\[acme\]'"):
        sdk("acme_sdk_that_is_not_there", "acme")


async def test_a_runtime_closes_the_models_that_have_something_to_close() -> None:
    class Open(Acme):
        closed = 0

        async def close(self) -> None:
            self.closed += 1

    given, named = Open("given"), Open("named")
    async with Runtime([Agent("a", model=given), Agent("b", model=given)], models={"named": named}):
        assert given.closed == named.closed == 0
    assert given.closed == named.closed == 1


@pytest.mark.parametrize("thing", [None, 5, object()], ids=lambda thing: type(thing).__name__)
def test_what_is_neither_a_name_nor_a_model_is_refused(thing: Any) -> None:
    with pytest.raises(UnknownModel, match="is no model"):
        ModelRegistry().check(thing)


# -- in a runtime --------------------------------------------------------------------------------------------


async def test_a_runtime_makes_a_vendors_model_when_a_run_needs_it(live_allowed: None) -> None:
    vendor = Vendor()
    async with Runtime([Agent("a", model="acme:large")], models={"acme": vendor}) as runtime:
        assert vendor.made == []
        assert (await runtime.run("a", "go")).text == "acme:large answers"
        await runtime.run("a", "go")
    assert vendor.made == ["large"]


# -- no real models in tests ---------------------------------------------------------------------------------


async def test_a_live_model_is_refused_where_they_are_forbidden(no_live_models: None) -> None:
    async with Runtime([Agent("a", model=Acme("large"))]) as runtime:
        result = await runtime.run("a", "go")
    assert isinstance(result.termination, Failed)
    assert result.termination.error == "LiveModelForbidden"
    assert "'acme:large' is a real one" in result.termination.message


async def test_a_model_that_does_not_say_counts_as_live(no_live_models: None) -> None:
    silent: Any = Silent()
    with pytest.raises(LiveModelForbidden):
        check_live(silent)
    check_live(ScriptedModel([]))


def test_forbidding_returns_what_held_before(live_allowed: None) -> None:
    check_live(Acme("large"))
    assert forbid_live_models() is False
    assert forbid_live_models() is True
    with pytest.raises(LiveModelForbidden):
        check_live(Acme("large"))
    assert forbid_live_models(False) is True
    check_live(Acme("large"))


# -- names that are misspelt ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"rate_limits": {"opnai": RateLimit(requests_per_minute=6)}},
            r"rate_limits: 'opnai'.*did you mean 'openai'",
        ),
        ({"rate_limits": {"antropic:x": RateLimit(requests_per_minute=6)}}, "did you mean 'anthropic'"),
        ({"facts": {"opnai:gpt-5-mini": ModelFacts()}}, r"facts: 'opnai:gpt-5-mini'.*did you mean 'openai'"),
    ],
)
def test_a_limit_or_a_fact_of_a_vendor_that_is_misspelt_is_refused(options: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        Runtime([Agent("agent", model=ScriptedModel([]))], **options)


def test_new_models_and_names_of_ones_own_have_limits_and_facts() -> None:
    limits = {name: RateLimit(requests_per_minute=6) for name in ("acme", "openai:gpt-9", "scripted", "grok:4")}
    facts = {name: ModelFacts() for name in ("openai:gpt-9", "opnai", "acme:large")}
    Runtime([Agent("agent", model=ScriptedModel([]))], rate_limits=limits, facts=facts)


def test_what_is_neither_a_model_nor_makes_one_is_found_before_anybody_asks_for_it() -> None:
    with pytest.raises(ConfigurationError, match="models: 'house' is 5; give a model, a Pool, or a function"):
        Runtime([Agent("agent", model=ScriptedModel([]))], models={"house": 5})  # type: ignore[dict-item]
