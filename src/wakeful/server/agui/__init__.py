"""AG-UI under `/agui`: agents for CopilotKit and other AG-UI front ends."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.routing import BaseRoute

from ..operations import routes_of
from ..serving import Serving
from . import runs
from .encoder import Encoder
from .errors import error_body
from .table import PREFIX, TABLE

__all__ = ["PREFIX", "Encoder", "error_body", "public_paths", "routes", "runs"]


def routes(serving: Serving) -> Sequence[BaseRoute]:
    """Make the routes."""
    return routes_of(serving, TABLE)


def public_paths(_: Serving) -> frozenset[str]:
    """No path is public."""
    return frozenset()
