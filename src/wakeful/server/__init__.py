"""The server: one ASGI application for a runtime's agents, with one package for each protocol."""

from __future__ import annotations

try:
    from .app import app, lifespan
    from .connections import http_protocol
    from .console import ConsoleLogin
    from .grpc import Grpc
    from .hosts import is_loopback
    from .limits import ServerLimits
    from .webhooks import Webhooks
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] == "wakeful":
        raise
    raise ModuleNotFoundError(
        f"wakeful.server needs the package {error.name!r}: pip install 'wakeful[server]'", name=error.name
    ) from error

__all__ = ["ConsoleLogin", "Grpc", "ServerLimits", "Webhooks", "app", "http_protocol", "is_loopback", "lifespan"]
