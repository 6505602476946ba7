"""From a model's name to the model, without importing a vendor's SDK before it is used."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from importlib import import_module
from threading import Lock
from typing import Any, cast
from weakref import WeakSet

from msgspec import Struct

from ..clock import Clock, SystemClock
from ..errors import ConfigurationError, LiveModelForbidden, ModelError, UnknownModel, WakefulError, explain
from ..types.runs import Usage
from ._facts import FactTable, ModelFacts, priced, shipped_facts, without_address
from ._guard import Breaker, Guard
from ._limits import Bucket, RateLimit
from ._pool import Pool, PoolModel
from ._protocol import Model
from ._secrets import check_address, public, veiled

__all__ = ["VENDORS", "Line", "ModelRegistry", "VendorFactory", "check_live", "forbid_live_models"]

VendorFactory = Callable[[str], Model]

# Where each vendor's factory is; imported when a model of it is first used.
VENDORS: Mapping[str, str] = {
    "openai": ".openai:OpenAIModel",
    "openai-chat": ".openai:OpenAIChatModel",
    "openai-compatible": ".compatible:CompatibleModel",
    "azure": ".compatible:AzureModel",
    "deepseek": ".compatible:deepseek",
    "groq": ".compatible:groq",
    "lmstudio": ".compatible:lmstudio",
    "ollama": ".compatible:ollama",
    "openrouter": ".compatible:openrouter",
    "together": ".compatible:together",
    "vllm": ".compatible:vllm",
    "anthropic": ".anthropic:AnthropicModel",
    "google": ".google:GoogleModel",
    "bedrock": ".bedrock:BedrockModel",
    "local": ".local:LocalModel",
}

_forbidden = False

# The registries of the process that use models: one object may be in several, and its last user closes it.
_users: WeakSet[ModelRegistry] = WeakSet()
_users_lock = Lock()


def forbid_live_models(forbidden: bool = True) -> bool:
    """Make every call to a real model fail, or allow them again; returns what held before. For tests."""
    global _forbidden
    before, _forbidden = _forbidden, forbidden
    return before


def check_live(model: Model) -> None:
    """Refuse a real model where tests forbid them."""
    if _forbidden and getattr(model, "live", True):
        raise LiveModelForbidden(
            f"model {model.name!r} is a real one and live models are forbidden here; use a ScriptedModel"
        )


class Line(Struct, frozen=True, eq=False):
    """A model, and what asking it takes: what is known about it, what it says itself, what stands before it, and
    how it gets ready, if it has to."""

    model: Model
    said: ModelFacts | None
    facts: ModelFacts | None
    guard: Guard | None
    prepare: Callable[[], Awaitable[None]] | None
    # Whether it is waited for something before it is asked.
    waits: bool


class ModelRegistry:
    """Models by name. A name is `vendor:model`, or a name the application gave to a model of its own."""

    def __init__(
        self,
        models: Mapping[str, Model | Pool | VendorFactory] | None = None,
        *,
        facts: Mapping[str, ModelFacts] | None = None,
        rate_limits: Mapping[str, RateLimit] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.clock = clock or SystemClock()
        self._models: dict[str, Model] = {}
        self._facts = FactTable(facts)
        self._vendors: dict[str, VendorFactory] = {name: _on_first_use(where) for name, where in VENDORS.items()}
        self._pools: dict[int, PoolModel] = {}
        # The names of the models that are known by one; others are known by their own.
        self._names: dict[int, str] = {}
        # The models to close, held so that others who have them see that they are used here.
        self._in_use: dict[int, Model] = {}
        self._guards: dict[tuple[str, bool], Guard | None] = {}
        self._lines: dict[int, Line] = {}
        self._buckets = {name: Bucket(self.clock, limit) for name, limit in _checked(rate_limits).items()}
        for name, entry in (models or {}).items():
            if isinstance(entry, Pool):
                self._models[name] = PoolModel(name, entry, self)
            elif hasattr(entry, "stream") and not isinstance(entry, type):
                self._add(name, cast(Model, entry))
            else:
                self._vendors[name] = cast(VendorFactory, entry)

    def problems(self) -> list[str]:
        """What is wrong with what was given by name, and which limits and facts are misspelt."""
        strange = [name for name, vendor in self._vendors.items() if not callable(vendor)]
        pools = [model for model in self._models.values() if isinstance(model, PoolModel)]
        found = [
            f"models: {name!r} is {self._vendors[name]!r:.80}; give a model, a Pool, or a function that makes a "
            "model of the name behind the colon"
            for name in strange
        ]
        found += [problem for pool in pools for problem in pool.problems()]
        found += [problem for name in self._buckets for problem in self._misspelt(name, "rate_limits")]
        return found + [problem for name in self._facts.own for problem in self._misspelt(name, "facts")]

    def _misspelt(self, name: str, where: str) -> list[str]:
        """A name for which there is no vendor, and one that is nearly so. Others may be those of model objects."""
        vendor, colon, _ = name.partition(":")
        if name in self._models or vendor in self._vendors or (where == "facts" and not colon):
            return []
        from difflib import get_close_matches  # It is slow to import, and few have names of their own here.

        close = get_close_matches(vendor, self._vendors, n=1, cutoff=0.85)
        return [f"{where}: {name!r}: no vendor {vendor!r}; did you mean {close[0]!r}?"] if close else []

    def check(self, model: str | Model | Pool) -> None:
        """Refuse a name that no vendor or model answers to, without making anything."""
        if isinstance(model, Pool):
            if problems := self._pool(model).problems():
                raise ConfigurationError(problems)
            return
        if not isinstance(model, str):
            shown = f"{veiled(repr(model)):.80}"
            if not hasattr(model, "stream") or isinstance(model, type):
                raise UnknownModel(f"{shown} is no model: give a name such as 'vendor:name', or a model object")
            if not isinstance(getattr(cast(Any, model), "name", None), str):
                raise UnknownModel(f"the model {shown} has no `name`; give it one, a text that events can show")
            return
        if model in self._models:
            return
        vendor, colon, name = model.partition(":")
        if colon and name and vendor in self._vendors:
            if vendor in VENDORS and "@" in name:
                check_address(model)
            return
        raise UnknownModel(self._explain(model, vendor, bool(colon and name)))

    def is_pool(self, model: Any) -> bool:
        """Whether it is a pool, or the name of one."""
        return isinstance(self._models.get(model) if isinstance(model, str) else model, Pool | PoolModel)

    def resolve(self, model: str | Model | Pool) -> Model:
        """The model of that name, made on first use."""
        if not isinstance(model, str):
            if (known := self._in_use.get(id(model))) is not None:
                return known
            return self._pool(model) if isinstance(model, Pool) else self._used(model)
        found = self._models.get(model)
        if found is None:
            self.check(model)
            vendor, _, name = model.partition(":")
            found = self._add(model, self._made(model, self._vendors[vendor], name))
        return found

    def line(self, model: Model) -> Line:
        """What asking a model takes, looked up once unless the model says something else of itself. Where tests
        forbid real ones, that is refused."""
        line = self._lines.get(id(model))
        if _forbidden or line is None or line.model is not model or line.said is not getattr(model, "facts", None):
            line = self._line_of(model)
        return line

    def _line_of(self, model: Model) -> Line:
        if _forbidden:
            check_live(model)
        said, prepare, guard = getattr(model, "facts", None), getattr(model, "prepare", None), self.guard(model)
        waits = prepare is not None or guard is not None
        line = self._lines[id(model)] = Line(model, said, self.facts_of(model), guard, prepare, waits)
        return line

    def facts_of(self, model: Model) -> ModelFacts | None:
        """What is known about a model: what the application says, else what the model does, else the table."""
        return self._facts.of(self._names.get(id(model)) or model.name, model)

    def priced(self, model: Model, usage: Usage) -> Usage:
        """The usage with its cost, unless the vendor gave one or no price is known."""
        facts = None if usage.cost else self.facts_of(model)
        return usage if facts is None else priced(usage, facts)

    def guard(self, model: Model) -> Guard | None:
        """What requests to this model go through; None for one without a network and without a limit."""
        key = (self._names.get(id(model)) or model.name, bool(getattr(model, "live", True)))
        try:
            return self._guards[key]
        except KeyError:
            guard = self._guards[key] = self._guard_of(*key)
            return guard

    def _guard_of(self, name: str, live: bool) -> Guard | None:
        # The model's own limit comes first, then the one it has wherever it is, then its vendor's.
        keys = dict.fromkeys([name, without_address(name), name.partition(":")[0]])
        buckets = [self._buckets[key] for key in keys if key in self._buckets]
        if not live and not buckets:
            return None
        if name not in self._buckets:
            buckets.insert(0, Bucket(self.clock))
        return Guard(name, buckets, Breaker(self.clock) if live else None)

    def _add(self, name: str, model: Model) -> Model:
        self._models[name] = model
        self._names[id(model)] = public(name)
        return self._used(model)

    def _used(self, model: Model) -> Model:
        """Note that the model is in use here, until this registry is closed."""
        with _users_lock:
            self._in_use[id(model)] = model
            _users.add(self)
        return model

    def _pool(self, pool: Pool) -> PoolModel:
        found = self._pools.get(id(pool))
        if found is None:
            found = self._pools[id(pool)] = PoolModel(pool.name, pool, self)
        return found

    def _made(self, model: str, factory: VendorFactory, name: str) -> Model:
        try:
            made = factory(name)
        except WakefulError:
            raise
        except Exception as error:
            raise ModelError(public(f"model {model!r} could not be made: {explain(error)}")) from error
        if not hasattr(made, "stream"):
            raise ModelError(f"model {public(model)!r}: its factory made {made!r:.80}, which is no model")
        return made

    async def close(self, others: Iterable[Model | Pool] = ()) -> None:
        """Close what these models, and others, hold open, such as connections; not of those that somebody else
        still uses, who closes them in turn."""
        every = {id(model): model for model in (*self._models.values(), *self._in_use.values(), *others)}
        self._in_use, self._lines = {}, {}
        with _users_lock:
            _users.discard(self)
            elsewhere = {one for registry in _users for one in registry._in_use}
        for model in every.values():
            if id(model) not in elsewhere and (close := getattr(model, "close", None)) is not None:
                await close()

    def _explain(self, model: str, vendor: str, shaped: bool) -> str:
        model = public(model)
        names = [*sorted(map(public, self._models)), *[f"{v}:…" for v in sorted(self._vendors)]]
        known = ", ".join(names) or "none"
        if not shaped:
            meant = [name for name in shipped_facts().models if name.partition(":")[2] == model]
            hint = f" (did you mean {meant[0]!r}?)" if meant else ""
            return (
                f"unknown model {model!r}{hint}: a model is named 'vendor:name', or registered with "
                f"Runtime(models={{{model!r}: ...}}) (known: {known})"
            )
        from difflib import get_close_matches  # Only an error needs it, and it is slow to import.

        close = get_close_matches(vendor, self._vendors, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        return (
            f"unknown model {model!r}: no vendor {vendor!r}{hint} "
            f"Register one with Runtime(models={{{vendor!r}: factory}}) (known: {known})"
        )


def _checked(rate_limits: Mapping[str, RateLimit] | None) -> Mapping[str, RateLimit]:
    for name, limit in (rate_limits or {}).items():
        if not isinstance(cast(Any, name), str) or not isinstance(cast(Any, limit), RateLimit):
            raise ConfigurationError(
                "rate limits are RateLimits by the name of a vendor or a model, such as 'openai'; "
                f"not {name!r:.80}: {limit!r:.80}"
            )
    return rate_limits or {}


def _on_first_use(where: str) -> VendorFactory:
    module, _, attribute = where.partition(":")

    def make(name: str) -> Model:
        return cast(Model, getattr(import_module(module, __package__), attribute)(name))

    return make
