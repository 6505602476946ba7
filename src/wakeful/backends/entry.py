"""Entry points for the runtime, which load the rest of the package only when an agent has a backend."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import InvalidConfig

if TYPE_CHECKING:
    from ..agents import Backend, BackendConfig
    from ..loop import Activation
    from .contract import BackendFactory

__all__ = ["abort_remote", "backend_problems", "build_backend", "execute_remote"]

# The built-in factories and their modules.
_BUILT_IN = {"a2a": ".a2a:A2AFactory"}


async def execute_remote(act: Activation, cut_off: tuple[str, int] | None) -> None:
    """Execute the step by the agent's backend."""
    from .remote import execute_remote

    await execute_remote(act, cut_off)


async def abort_remote(act: Activation) -> None:
    """Stop the remote work of a cancelled run."""
    from .remote import abort_remote

    await abort_remote(act)


def backend_problems(backend: Any) -> list[str]:
    """Describe the problems of a backend's declared capabilities and timeout."""
    from .contract import Capabilities

    problems: list[str] = []
    capabilities, timeout = getattr(backend, "capabilities", None), getattr(backend, "timeout", None)
    if isinstance(capabilities, Capabilities):
        try:
            msgspec.convert(msgspec.to_builtins(capabilities), Capabilities)
        except (msgspec.ValidationError, TypeError) as error:
            problems.append(f"its capabilities: {error}")
    else:
        problems.append(f"its capabilities must be Capabilities(...), not {capabilities!r:.80}")
    if timeout is not None and not (type(timeout) in (int, float) and timeout > 0):
        problems.append(f"its timeout must be None or a positive number of seconds, not {timeout!r:.80}")
    return problems


def build_backend(config: BackendConfig, factories: Sequence[BackendFactory]) -> Backend:
    """Build the backend of a config by the application's factories or the built-in ones."""
    found = next((factory for factory in factories if factory.name == config.name), None)
    if found is None and (home := _BUILT_IN.get(config.name)) is not None:
        module, _, name = home.partition(":")
        try:
            found = getattr(import_module(module, __package__), name)()
        except ImportError as error:
            raise InvalidConfig(f"it can't be loaded ({error}); install what it needs") from error
    if found is None:
        known = ", ".join(sorted({*_BUILT_IN, *[factory.name for factory in factories]}))
        raise InvalidConfig(f"no factory of that name (known: {known}); give it to Runtime(backends=[...])")
    return found.build(config.endpoint)
