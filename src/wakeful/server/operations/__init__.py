"""The HTTP API: one module for each noun declares its operations."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.routing import BaseRoute

from ...identity import PUBLIC
from ..serving import Serving
from . import (
    agents,
    document,
    grants,
    identity,
    mail,
    memories,
    page,
    runs,
    schedules,
    tasks,
    threads,
    ticket_context,
    tickets,
    watch,
    workers,
)
from .call import Call, Reply
from .operation import OPERATIONS, Operation, Stream, op
from .routes import ApiRoute, encode, routes_of

__all__ = [
    "MODULES",
    "OPERATIONS",
    "ApiRoute",
    "Call",
    "Operation",
    "Reply",
    "Stream",
    "encode",
    "op",
    "public_paths",
    "routes",
    "routes_of",
]

MODULES = (
    document,
    page,
    agents,
    runs,
    threads,
    tickets,
    ticket_context,
    grants,
    mail,
    memories,
    tasks,
    schedules,
    workers,
    watch,
    identity,
)


def routes(serving: Serving) -> Sequence[BaseRoute]:
    """Make a route for each path."""
    return routes_of(serving, OPERATIONS)


def public_paths() -> frozenset[str]:
    """The paths that need no credential."""
    return frozenset([operation.path for operation in OPERATIONS.values() if operation.scope == PUBLIC])
