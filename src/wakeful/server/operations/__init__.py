"""The HTTP API: one module for each noun declares its operations."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.routing import BaseRoute

from ...identity import PUBLIC
from ..serving import Serving
from . import agents, document, identity, mail, runs, schedules, tasks, threads, tickets, watch, workers
from .operation import OPERATIONS, Operation, op
from .routes import ApiRoute, group_by_path

__all__ = ["MODULES", "OPERATIONS", "Operation", "op", "public_paths", "routes"]

MODULES = (document, agents, runs, threads, tickets, mail, tasks, schedules, workers, watch, identity)


def routes(serving: Serving) -> Sequence[BaseRoute]:
    """Make a route for each path."""
    return [ApiRoute(serving, path, found) for path, found in group_by_path().items()]


def public_paths() -> frozenset[str]:
    """The paths that need no credential."""
    return frozenset([operation.path for operation in OPERATIONS.values() if operation.scope == PUBLIC])
