"""The Agent Client Protocol over stdio: agents for editors and other local clients."""

from __future__ import annotations

from ...errors import ConfigurationError

try:
    from .server import serve_stdio
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] == "wakeful":
        raise
    raise ConfigurationError(
        f"wakeful.server.acp needs the package {error.name!r}: pip install 'wakeful[acp]'"
    ) from error

__all__ = ["serve_stdio"]
