"""A plain assistant without a module, for `--model`."""

from __future__ import annotations

from ..agents import Agent
from ..errors import UsageError
from ..models import ModelRegistry
from ..runtime import Runtime
from .target import load_runtime

__all__ = ["PLAIN", "runtime_for"]

PLAIN = "assistant"


def runtime_for(target: str | None, model: str | None) -> Runtime:
    """The runtime of a module, or one with a plain assistant on this model."""
    if model is None:
        if target is None:
            raise UsageError("say which runtime, such as app:runtime, or which model: --model local:smollm2")
        return load_runtime(target)
    if target is not None:
        raise UsageError(f"--model is for talking without a module; leave it out, or leave {target!r} out")
    # A wrong name or address is a usage error, not a failed run.
    ModelRegistry().resolve(model)
    return Runtime([Agent(PLAIN, model=model, instructions="You are a helpful assistant.")])
