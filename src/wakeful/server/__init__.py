"""Serving a runtime's agents: one ASGI application, and one module for each protocol."""

from __future__ import annotations

try:
    from ._app import app, lifespan
    from ._auth import Auth
    from ._limits import ServerLimits
    from ._webhooks import Webhooks
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] == "wakeful":
        raise
    raise ModuleNotFoundError(
        f"wakeful.server needs the package {error.name!r}: pip install 'wakeful[server]'", name=error.name
    ) from error

__all__ = ["Auth", "ServerLimits", "Webhooks", "app", "lifespan"]
