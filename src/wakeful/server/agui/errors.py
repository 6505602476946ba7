"""Errors of AG-UI. The protocol has a form for those of a stream alone; refused requests have the same."""

from __future__ import annotations

from typing import Any

from ...api.problems import Problem

__all__ = ["error_body", "run_error"]


def run_error(message: str, code: str) -> dict[str, Any]:
    """The event of a run that failed."""
    return {"type": "RUN_ERROR", "message": message, "code": code}


def error_body(problem: Problem) -> dict[str, Any]:
    """The body of a refused request."""
    details = [f"{each.pointer}: {each.detail}".removeprefix(": ") for each in problem.errors]
    return {**run_error("; ".join([problem.detail, *details]), problem.code), "status": problem.status}
