"""The registry of models by name. A vendor's SDK is imported on first use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from importlib import import_module
from threading import Lock
from typing import Any, cast
from weakref import WeakSet

from ..clock import Clock, SystemClock
from ..errors import ConfigurationError, LiveModelForbidden, ModelError, UnknownModel, WakefulError, explain, quote
from ..types.base import Data
from ..types.runs import Usage
from .protocol import Model
from .shared.facts import FactTable, ModelFacts, shipped_facts, with_cost, without_address
from .shared.guard import Breaker, Guard
from .shared.pool import Pool, PoolModel
from .shared.rate_limits import Bucket, RateLimit
from .shared.secrets import check_address, redact, redact_repr

__all__ = [
    "RESPONSES_SERVERS",
    "SERVERS",
    "VENDORS",
    "ModelAccess",
    "ModelRegistry",
    "VendorFactory",
    "check_live",
    "forbid_live_models",
]

VendorFactory = Callable[[str], Model]

# The servers of Chat Completions in `compatible/servers.py`, and those that have the Responses API, too.
SERVERS = (
    *("alibaba", "cerebras", "deepseek", "fireworks", "github", "groq", "huggingface", "litellm", "lmstudio"),
    *("mistral", "moonshot", "nebius", "ollama", "openrouter", "perplexity", "sambanova", "snowflake"),
    *("together", "vercel", "vllm", "xai", "zai"),
)
RESPONSES_SERVERS = (
    *("deepseek", "fireworks", "groq", "huggingface", "litellm", "lmstudio", "ollama", "openrouter", "vercel"),
    *("vllm", "xai"),
)
_SUFFIX = "-responses"

# The factory of each vendor, imported on first use.
VENDORS: Mapping[str, str] = {
    "openai": ".openai:OpenAIModel",
    "openai-chat": ".openai:OpenAIChatModel",
    "openai-compatible": ".compatible:CompatibleModel",
    "openai-compatible-responses": ".compatible:CompatibleResponsesModel",
    "azure": ".compatible:AzureModel",
    "azure-responses": ".compatible:AzureResponsesModel",
    "anthropic": ".anthropic:AnthropicModel",
    "anthropic-bedrock": ".anthropic:AnthropicBedrockModel",
    "anthropic-vertex": ".anthropic:AnthropicVertexModel",
    "google": ".google:GoogleModel",
    "google-vertex": ".google:GoogleVertexModel",
    "bedrock": ".bedrock:BedrockModel",
    "local": ".local:LocalModel",
    **dict.fromkeys(SERVERS, ".compatible:CompatibleModel"),
    **{name + _SUFFIX: ".compatible:CompatibleResponsesModel" for name in RESPONSES_SERVERS},
}

_forbidden = False

# The open registries of the process. A model object may be in several; the last one closes it.
_registries: WeakSet[ModelRegistry] = WeakSet()
_registries_lock = Lock()


def forbid_live_models(forbidden: bool = True) -> bool:
    """Forbid or allow calls to real models, for tests. Returns the previous setting."""
    global _forbidden
    before, _forbidden = _forbidden, forbidden
    return before


def check_live(model: Model) -> None:
    """Raise `LiveModelForbidden` for a real model if tests forbid them."""
    if _forbidden and getattr(model, "live", True):
        raise LiveModelForbidden(
            f"model {model.name!r} is a real one and live models are forbidden here; use a ScriptedModel"
        )


class ModelAccess(Data, eq=False):
    """A model with its facts, its guard and its `prepare` method. `own_facts` are declared by the model itself."""

    model: Model
    own_facts: ModelFacts | None
    facts: ModelFacts | None
    guard: Guard | None
    prepare: Callable[[], Awaitable[None]] | None
    # Whether a request must wait for `prepare` or the guard.
    must_wait: bool


class ModelRegistry:
    """Models by name: `vendor:model`, or a name that the application registered."""

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
        self._vendors: dict[str, VendorFactory] = {
            name: _lazy_factory(name, where) for name, where in VENDORS.items()
        }
        self._pools: dict[int, PoolModel] = {}
        # Registered names by model id; other models have their own name.
        self._names: dict[int, str] = {}
        # Models in use, which other registries must not close.
        self._in_use: dict[int, Model] = {}
        self._guards: dict[tuple[str, bool], Guard | None] = {}
        self._accesses: dict[int, ModelAccess] = {}
        self._buckets = {name: Bucket(self.clock, limit) for name, limit in _check_limits(rate_limits).items()}
        for name, entry in (models or {}).items():
            if isinstance(entry, Pool):
                self._models[name] = PoolModel(name, entry, self)
            elif hasattr(entry, "stream") and not isinstance(entry, type):
                self._add(name, cast(Model, entry))
            else:
                self._vendors[name] = cast(VendorFactory, entry)

    def problems(self) -> list[str]:
        """List the problems of registered models, and misspelt names of limits and facts."""
        wrong = [name for name, vendor in self._vendors.items() if not callable(vendor)]
        pools = [model for model in self._models.values() if isinstance(model, PoolModel)]
        found = [
            f"models: {name!r} is {self._vendors[name]!r:.80}; give a model, a Pool, or a function that makes a "
            "model of the name behind the colon"
            for name in wrong
        ]
        found += [problem for pool in pools for problem in pool.problems()]
        found += [problem for name in self._buckets for problem in self._misspelt(name, "rate_limits")]
        return found + [problem for name in self._facts.own for problem in self._misspelt(name, "facts")]

    def _misspelt(self, name: str, where: str) -> list[str]:
        """Report a name that nearly matches a vendor. Other names may belong to model objects."""
        vendor, colon, _ = name.partition(":")
        if name in self._models or vendor in self._vendors or (where == "facts" and not colon):
            return []
        from difflib import get_close_matches  # Slow to import, and rarely needed.

        close = get_close_matches(vendor, self._vendors, n=1, cutoff=0.85)
        return [f"{where}: {name!r}: no vendor {vendor!r}; did you mean {close[0]!r}?"] if close else []

    def check(self, model: str | Model | Pool) -> None:
        """Raise `UnknownModel` or `ConfigurationError` for an invalid model, without creating it."""
        if isinstance(model, Pool):
            if problems := self._pool(model).problems():
                raise ConfigurationError(problems)
            return
        if not isinstance(model, str):
            shown = f"{redact_repr(repr(model)):.80}"
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
        """Whether the model is a pool or the name of one."""
        return isinstance(self._models.get(model) if isinstance(model, str) else model, Pool | PoolModel)

    def resolve(self, model: str | Model | Pool) -> Model:
        """Get the model of a name, created on first use."""
        if not isinstance(model, str):
            if (known := self._in_use.get(id(model))) is not None:
                return known
            return self._pool(model) if isinstance(model, Pool) else self._mark_used(model)
        found = self._models.get(model)
        if found is None:
            self.check(model)
            vendor, _, name = model.partition(":")
            found = self._add(model, self._make(model, self._vendors[vendor], name))
        return found

    def access(self, model: Model) -> ModelAccess:
        """Get the access of a model, cached while its own facts don't change. Raises `LiveModelForbidden`."""
        found = self._accesses.get(id(model))
        own_facts = getattr(model, "facts", None)
        if _forbidden or found is None or found.model is not model or found.own_facts is not own_facts:
            found = self._make_access(model, own_facts)
        return found

    def _make_access(self, model: Model, own_facts: ModelFacts | None) -> ModelAccess:
        if _forbidden:
            check_live(model)
        prepare, guard = getattr(model, "prepare", None), self.guard(model)
        must_wait = prepare is not None or guard is not None
        made = ModelAccess(model, own_facts, self.facts_of(model), guard, prepare, must_wait)
        self._accesses[id(model)] = made
        return made

    def facts_of(self, model: Model) -> ModelFacts | None:
        """Find a model's facts: from the application, else the model itself, else the shipped table."""
        return self._facts.find(self._names.get(id(model)) or model.name, model)

    def with_cost(self, model: Model, usage: Usage) -> Usage:
        """Add the cost to the usage, unless the vendor reported one or the price is unknown."""
        facts = None if usage.cost else self.facts_of(model)
        return usage if facts is None else with_cost(usage, facts)

    def guard(self, model: Model) -> Guard | None:
        """Get the guard of a model; None for one without network and limits."""
        key = (self._names.get(id(model)) or model.name, bool(getattr(model, "live", True)))
        try:
            return self._guards[key]
        except KeyError:
            guard = self._guards[key] = self._make_guard(*key)
            return guard

    def _make_guard(self, name: str, live: bool) -> Guard | None:
        # The limit of this address first, then of the model at any address, then of the vendor.
        keys = dict.fromkeys([name, without_address(name), name.partition(":")[0]])
        buckets = [self._buckets[key] for key in keys if key in self._buckets]
        if not live and not buckets:
            return None
        if name not in self._buckets:
            buckets.insert(0, Bucket(self.clock))
        return Guard(name, buckets, Breaker(self.clock) if live else None)

    def _add(self, name: str, model: Model) -> Model:
        self._models[name] = model
        self._names[id(model)] = redact(name)
        return self._mark_used(model)

    def _mark_used(self, model: Model) -> Model:
        """Mark the model as in use until this registry is closed."""
        with _registries_lock:
            self._in_use[id(model)] = model
            _registries.add(self)
        return model

    def _pool(self, pool: Pool) -> PoolModel:
        found = self._pools.get(id(pool))
        if found is None:
            found = self._pools[id(pool)] = PoolModel(pool.name, pool, self)
        return found

    def _make(self, model: str, factory: VendorFactory, name: str) -> Model:
        try:
            made = factory(name)
        except WakefulError:
            raise
        except Exception as error:
            why = redact(explain(error))
            raise quote(ModelError, redact(f"model {model!r} could not be made"), error, why) from error
        if not hasattr(made, "stream"):
            raise ModelError(f"model {redact(model)!r}: its factory made {made!r:.80}, which is no model")
        return made

    async def close(self, others: Iterable[Model | Pool] = ()) -> None:
        """Close all models, and `others`, except those that another open registry uses."""
        every = {id(model): model for model in (*self._models.values(), *self._in_use.values(), *others)}
        self._in_use, self._accesses = {}, {}
        with _registries_lock:
            _registries.discard(self)
            elsewhere = {one for registry in _registries for one in registry._in_use}
        for model in every.values():
            if id(model) not in elsewhere and (close := getattr(model, "close", None)) is not None:
                await close()

    def _explain(self, model: str, vendor: str, shaped: bool) -> str:
        model = redact(model)
        names = [*sorted(map(redact, self._models)), *[f"{v}:…" for v in sorted(self._vendors)]]
        known = ", ".join(names) or "none"
        if not shaped:
            meant = [name for name in shipped_facts().models if name.partition(":")[2] == model]
            hint = f" (did you mean {meant[0]!r}?)" if meant else ""
            return (
                f"unknown model {model!r}{hint}: a model is named 'vendor:name', or registered with "
                f"Runtime(models={{{model!r}: ...}}) (known: {known})"
            )
        from difflib import get_close_matches  # Slow to import, and needed for errors only.

        close = get_close_matches(vendor, self._vendors, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        return (
            f"unknown model {model!r}: no vendor {vendor!r}{hint} "
            f"Register one with Runtime(models={{{vendor!r}: factory}}) (known: {known})"
        )


def _check_limits(rate_limits: Mapping[str, RateLimit] | None) -> Mapping[str, RateLimit]:
    for name, limit in (rate_limits or {}).items():
        if not isinstance(cast(Any, name), str) or not isinstance(cast(Any, limit), RateLimit):
            raise ConfigurationError(
                "rate limits are RateLimits by the name of a vendor or a model, such as 'openai'; "
                f"not {name!r:.80}: {limit!r:.80}"
            )
    return rate_limits or {}


def _lazy_factory(vendor: str, where: str) -> VendorFactory:
    module, _, attribute = where.partition(":")
    server = vendor.removesuffix(_SUFFIX)
    options = {"server": server} if server in SERVERS else {}

    def make(name: str) -> Model:
        return cast(Model, getattr(import_module(module, __package__), attribute)(name, **options))

    return make
