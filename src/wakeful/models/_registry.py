"""From a model's name to the model, without importing a vendor's SDK before it is used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import cast

from ..errors import LiveModelForbidden, ModelError, UnknownModel, WakefulError, explain
from ._protocol import Model

__all__ = ["VENDORS", "ModelRegistry", "VendorFactory", "check_live", "forbid_live_models"]

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


class ModelRegistry:
    """Models by name. A name is `vendor:model`, or a name the application gave to a model of its own."""

    def __init__(self, models: Mapping[str, Model | VendorFactory] | None = None) -> None:
        self._models: dict[str, Model] = {}
        self._vendors: dict[str, VendorFactory] = {name: _on_first_use(where) for name, where in VENDORS.items()}
        for name, entry in (models or {}).items():
            if hasattr(entry, "stream") and not isinstance(entry, type):
                self._models[name] = cast(Model, entry)
            else:
                self._vendors[name] = cast(VendorFactory, entry)

    def check(self, model: str | Model) -> None:
        """Refuse a name that no vendor or model answers to, without making anything."""
        if not isinstance(model, str):
            if not hasattr(model, "stream") or isinstance(model, type):
                raise UnknownModel(f"{model!r} is no model: give a name such as 'vendor:name', or a model object")
            return
        if model in self._models:
            return
        vendor, colon, name = model.partition(":")
        if colon and name and vendor in self._vendors:
            return
        raise UnknownModel(self._explain(model, vendor, bool(colon and name)))

    def resolve(self, model: str | Model) -> Model:
        """The model of that name, made on first use."""
        if not isinstance(model, str):
            return model
        found = self._models.get(model)
        if found is None:
            self.check(model)
            vendor, _, name = model.partition(":")
            found = self._models[model] = self._made(model, self._vendors[vendor], name)
        return found

    def _made(self, model: str, factory: VendorFactory, name: str) -> Model:
        try:
            made = factory(name)
        except WakefulError:
            raise
        except Exception as error:
            raise ModelError(f"model {model!r} could not be made: {explain(error)}") from error
        if not hasattr(made, "stream"):
            raise ModelError(f"model {model!r}: its factory made {made!r:.80}, which is no model")
        return made

    async def close(self, others: Iterable[Model] = ()) -> None:
        """Close what these models, and others, hold open, such as connections."""
        every = {id(model): model for model in (*self._models.values(), *others)}
        for model in every.values():
            if (close := getattr(model, "close", None)) is not None:
                await close()

    def _explain(self, model: str, vendor: str, shaped: bool) -> str:
        names = [*sorted(self._models), *[f"{v}:…" for v in sorted(self._vendors)]]
        known = ", ".join(names) or "none"
        if not shaped:
            return (
                f"unknown model {model!r}: a model is named 'vendor:name', or registered with "
                f"Runtime(models={{{model!r}: ...}}) (known: {known})"
            )
        from difflib import get_close_matches  # Only an error needs it, and it is slow to import.

        close = get_close_matches(vendor, self._vendors, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        return (
            f"unknown model {model!r}: no vendor {vendor!r}{hint} "
            f"Register one with Runtime(models={{{vendor!r}: factory}}) (known: {known})"
        )


def _on_first_use(where: str) -> VendorFactory:
    module, _, attribute = where.partition(":")

    def make(name: str) -> Model:
        return cast(Model, getattr(import_module(module, __package__), attribute)(name))

    return make
