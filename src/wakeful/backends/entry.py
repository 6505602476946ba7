"""Entry points for the runtime, which load the rest of the package only when an agent has a backend."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from inspect import iscoroutinefunction, unwrap
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import InvalidConfig

if TYPE_CHECKING:
    from ..agents import Backend, BackendConfig, Delegate
    from ..loop import Activation
    from .contract import BackendFactory, Capabilities

__all__ = ["BackendCatalog", "abort_remote", "execute_remote", "poll_remote"]

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


async def poll_remote(act: Activation) -> bool:
    """Look whether the remote of a waiting run continued by itself."""
    from .polls import poll_remote

    return await poll_remote(act)


class BackendCatalog:
    """Builds and checks the backends of agents, when a runtime is made."""

    def __init__(self, factories: Sequence[BackendFactory]) -> None:
        self._factories = factories

    def is_local(self, backend: Any) -> bool:
        """Whether a backend is the loop of this process."""
        from .local import LocalBackend

        return isinstance(backend, LocalBackend)

    def build(self, config: BackendConfig) -> Backend:
        """Build the backend of a config by the application's factories or the built-in ones."""
        found = next((factory for factory in self._factories if factory.name == config.name), None)
        if found is None and (home := _BUILT_IN.get(config.name)) is not None:
            module, _, name = home.partition(":")
            try:
                found = getattr(import_module(module, __package__), name)()
            except ImportError as error:
                raise InvalidConfig(f"it can't be loaded ({error}); install what it needs") from error
        if found is None:
            known = ", ".join(sorted({*_BUILT_IN, *[factory.name for factory in self._factories]}))
            raise InvalidConfig(f"no factory of that name (known: {known}); give it to Runtime(backends=[...])")
        return found.build(config.endpoint)

    def problems(self, backend: Any) -> list[str]:
        """Describe the problems of a backend: its capabilities, its timeout and its methods."""
        from .contract import Capabilities

        problems: list[str] = []
        capabilities, timeout = getattr(backend, "capabilities", None), getattr(backend, "timeout", None)
        if isinstance(capabilities, Capabilities):
            try:
                msgspec.convert(msgspec.to_builtins(capabilities), Capabilities)
            except (msgspec.ValidationError, TypeError) as error:
                problems.append(f"its capabilities: {error}")
            else:
                problems += _contradictions(backend, capabilities)
        else:
            problems.append(f"its capabilities must be Capabilities(...), not {capabilities!r:.80}")
        if timeout is not None and not (type(timeout) in (int, float) and timeout > 0):
            problems.append(f"its timeout must be None or a positive number of seconds, not {timeout!r:.80}")
        for name in ("execute_root", "execute_delegate", "abort", "poll"):
            if not iscoroutinefunction(unwrap(method := getattr(backend, name, None))):  # type: ignore[arg-type]
                problems.append(f"its {name} must be an async method (`async def {name}`), not {method!r:.80}")
        return problems

    def delegate_problems(self, backend: Backend, how: Delegate) -> list[str]:
        """Describe why a backend can't execute the child runs of a delegation."""
        from .contract import Capabilities

        problems: list[str] = []
        if _lacks(backend, "execute_delegate"):
            problems.append("its backend does not support delegated execution; give it an execute_delegate")
        capabilities = backend.capabilities
        wanted = "durable" if how.durable or how.background else "ephemeral"
        if isinstance(capabilities, Capabilities) and wanted not in capabilities.persistence:
            problems.append(
                f"its backend does not support: delegate_persistence ({wanted}); it declares "
                f"{', '.join(capabilities.persistence) or 'none'}"
            )
        return problems


def _contradictions(backend: Any, capabilities: Capabilities) -> list[str]:
    """Describe capabilities that the backend declares and can't have."""
    problems: list[str] = []
    if capabilities.waits != "none" and capabilities.continuation == "none":
        problems.append("its capabilities: waits needs a continuation, or no answer could ever be delivered")
    if "abort" in capabilities.cancellation and _lacks(backend, "abort"):
        problems.append(f"its capabilities: cancellation={capabilities.cancellation!r} needs an abort method")
    return problems


def _lacks(backend: Any, name: str) -> bool:
    """Whether a backend has only the base class's method of this name."""
    from .contract import ExecutionBackend

    return getattr(backend, name, None) is None or getattr(getattr(backend, name), "__func__", None) is getattr(
        ExecutionBackend, name
    )
