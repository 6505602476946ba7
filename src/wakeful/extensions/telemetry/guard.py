"""The guard of everything that a run calls here: an error of telemetry is logged, and the run continues."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

__all__ = ["guarded"]

P = ParamSpec("P")
T = TypeVar("T")

_log = logging.getLogger("wakeful")


def guarded(method: Callable[P, T]) -> Callable[P, T | None]:
    """Log an error of a method, and return None in its place."""

    @wraps(method)
    def call(*args: P.args, **options: P.kwargs) -> T | None:
        try:
            return method(*args, **options)
        except Exception:
            _log.warning("telemetry failed in %s; the run continues", method.__name__, exc_info=True)
            return None

    return call
