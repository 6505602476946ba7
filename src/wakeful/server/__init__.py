"""Serving a runtime's agents: one ASGI application, and one module for each protocol."""

from __future__ import annotations

from ._app import app, lifespan
from ._auth import Auth
from ._limits import ServerLimits
from ._webhooks import Webhooks

__all__ = ["Auth", "ServerLimits", "Webhooks", "app", "lifespan"]
