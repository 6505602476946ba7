"""The registry finds models by name and creates them on first use."""

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
from wakeful.models.registry import VENDORS
from wakeful.models.shared.vendor import sdk
from wakeful.types.runs import Failed


class Acme:
    """A live model of a vendor that counts its instances."""

    live = True

    def __init__(self, name: str) -> None:
        self.name = f"acme:{name}"

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        yield TextChunk(f"{self.name} answers")


class Silent:
    """A model without a `live` attribute."""

    name = "silent"

    def stream(self, request: ModelRequest) -> Any:
        raise AssertionError("asked")


class Vendor:
    """A factory that records its calls."""

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


def test_vendor_model_is_created_once_on_first_use() -> None:
    vendor = Vendor()
    models = ModelRegistry({"acme": vendor})
    models.check("acme:large")
    assert vendor.made == []
    assert models.resolve("acme:large") is models.resolve("acme:large")
    assert models.resolve("acme:small") is not models.resolve("acme:large")
    assert vendor.made == ["large", "small"]


def test_model_name_may_contain_colons() -> None:
    vendor = Vendor()
    ModelRegistry({"acme": vendor}).resolve("acme:tuned:2026-01")
    assert vendor.made == ["tuned:2026-01"]


def test_model_factory_may_be_a_class() -> None:
    made = ModelRegistry({"acme": Acme}).resolve("acme:large")
    assert isinstance(made, Acme)
    assert made.name == "acme:large"


@pytest.mark.parametrize("alias", ["clerk", "acme:large"])
def test_registered_model_is_found_by_name(alias: str) -> None:
    model = ScriptedModel([])
    models = ModelRegistry({alias: model, "acme": Vendor()})
    models.check(alias)
    assert models.resolve(alias) is model


def test_model_object_resolves_to_itself() -> None:
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
def test_unknown_model_error_lists_known_names(name: str, text: str) -> None:
    models = ModelRegistry({"acme": Vendor(), "clerk": ScriptedModel([])})
    for ask in (models.check, models.resolve):
        with pytest.raises(UnknownModel, match=text) as raised:
            ask(name)
        assert repr(name) in str(raised.value)


def test_built_in_vendors_are_known_by_default() -> None:
    with pytest.raises(UnknownModel, match=r"known: alibaba:…, anthropic:…, .*openai:…"):
        ModelRegistry().check("acme:large")


@pytest.mark.parametrize("vendor", list(VENDORS))
def test_built_in_vendors_can_be_imported(vendor: str) -> None:
    module, _, attribute = VENDORS[vendor].partition(":")
    assert callable(getattr(import_module(module, "wakeful.models"), attribute))


def test_registered_vendor_overrides_the_built_in_one() -> None:
    models = ModelRegistry({"openai": Acme})
    assert isinstance(models.resolve("openai:gpt-5-mini"), Acme)


def test_missing_sdk_error_names_the_extra() -> None:
    with pytest.raises(ConfigurationError, match=r"pip install 'wakeful\[acme\]'"):
        sdk("acme_sdk_that_is_not_there", "acme")


async def test_runtime_closes_its_models() -> None:
    class Open(Acme):
        closed = 0

        async def close(self) -> None:
            self.closed += 1

    given, named = Open("given"), Open("named")
    async with Runtime([Agent("a", model=given), Agent("b", model=given)], models={"named": named}):
        assert given.closed == named.closed == 0
    assert given.closed == named.closed == 1


@pytest.mark.parametrize("thing", [None, 5, object()], ids=lambda thing: type(thing).__name__)
def test_model_of_another_type_is_refused(thing: Any) -> None:
    with pytest.raises(UnknownModel, match="is no model"):
        ModelRegistry().check(thing)


# -- in a runtime --------------------------------------------------------------------------------------------


async def test_vendor_model_is_created_by_the_first_run(live_allowed: None) -> None:
    vendor = Vendor()
    async with Runtime([Agent("a", model="acme:large")], models={"acme": vendor}) as runtime:
        assert vendor.made == []
        assert (await runtime.run("a", "go")).text == "acme:large answers"
        await runtime.run("a", "go")
    assert vendor.made == ["large"]


# -- no real models in tests ---------------------------------------------------------------------------------


async def test_live_model_is_refused_when_forbidden(no_live_models: None) -> None:
    async with Runtime([Agent("a", model=Acme("large"))]) as runtime:
        result = await runtime.run("a", "go", check=False)
    assert isinstance(result.termination, Failed)
    assert result.termination.error == "LiveModelForbidden"
    assert "'acme:large' is a real one" in result.termination.message


async def test_model_without_live_counts_as_live(no_live_models: None) -> None:
    silent: Any = Silent()
    with pytest.raises(LiveModelForbidden):
        check_live(silent)
    check_live(ScriptedModel([]))


def test_forbid_live_models_returns_the_previous_setting(live_allowed: None) -> None:
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
def test_misspelt_vendor_in_limits_and_facts_is_refused(options: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        Runtime([Agent("agent", model=ScriptedModel([]))], **options)


def test_limits_and_facts_apply_to_own_names() -> None:
    limits = {name: RateLimit(requests_per_minute=6) for name in ("acme", "openai:gpt-9", "scripted", "grok:4")}
    facts = {name: ModelFacts() for name in ("openai:gpt-9", "opnai", "acme:large")}
    Runtime([Agent("agent", model=ScriptedModel([]))], rate_limits=limits, facts=facts)


def test_invalid_registered_model_is_refused_at_start() -> None:
    with pytest.raises(ConfigurationError, match="models: 'house' is 5; give a model, a Pool, or a function"):
        Runtime([Agent("agent", model=ScriptedModel([]))], models={"house": 5})  # type: ignore[dict-item]
