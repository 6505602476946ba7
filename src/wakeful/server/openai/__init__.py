"""The OpenAI-compatible API under `/openai/v1`: agents as models of Chat Completions and Responses."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.routing import BaseRoute

from ..operations import routes_of
from ..serving import Serving
from . import chat, models, responses
from .errors import error_body
from .table import PREFIX, TABLE

__all__ = ["PREFIX", "chat", "error_body", "models", "public_paths", "responses", "routes"]


def routes(serving: Serving) -> Sequence[BaseRoute]:
    """Make the routes."""
    return routes_of(serving, TABLE)


def public_paths(_: Serving) -> frozenset[str]:
    """No path is public."""
    return frozenset()
