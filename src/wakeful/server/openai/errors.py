"""Errors in the form that OpenAI's SDKs read."""

from __future__ import annotations

from typing import Any

from ...api.problems import Problem
from ...errors import UsageError

__all__ = ["Unsupported", "error_body", "stream_error"]

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    429: "rate_limit_error",
}


class Unsupported(UsageError):
    """A request uses a parameter of OpenAI's API that agents don't have."""


def error_body(problem: Problem) -> dict[str, Any]:
    """The body of an error."""
    param = problem.errors[0].pointer.removeprefix("/").replace("/", ".") if problem.errors else None
    details = [f"{each.pointer}: {each.detail}".removeprefix(": ") for each in problem.errors]
    kind = "server_error" if problem.status >= 500 else _TYPES.get(problem.status, "invalid_request_error")
    message = "; ".join([problem.detail, *details])
    return {"error": {"message": message, "type": kind, "param": param, "code": problem.code}}


def stream_error(message: str, code: str) -> dict[str, Any]:
    """An error in a stream that has begun."""
    return {"error": {"message": message, "type": "server_error", "param": None, "code": code}}
