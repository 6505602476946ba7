"""The AI SDK's UI message stream under `/aisdk`: agents for `useChat` of versions 5, 6 and 7."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.routing import BaseRoute

from ...api.problems import Problem
from ..operations import routes_of
from ..serving import Serving
from . import chats
from .encoder import Encoder
from .table import PREFIX, TABLE

__all__ = ["PREFIX", "Encoder", "chats", "error_body", "public_paths", "routes"]


def routes(serving: Serving) -> Sequence[BaseRoute]:
    """Make the routes."""
    return routes_of(serving, TABLE)


def public_paths(_: Serving) -> frozenset[str]:
    """No path is public."""
    return frozenset()


def error_body(problem: Problem) -> dict[str, Any]:
    """The body of a refused request, whose text `useChat` shows as the message of its error."""
    details = [f"{each.pointer}: {each.detail}".removeprefix(": ") for each in problem.errors]
    return {"error": "; ".join([problem.detail, *details]), "code": problem.code, "status": problem.status}
