"""Problem responses: every error that the server sends, as RFC 9457 has it."""

from __future__ import annotations

import logging
import re

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ..api.problems import MEDIA_TYPE, Detail, Problem, code_of, data_of, status_of
from ..errors import NotAuthenticated, WakefulError, explain, hides_text, outline, report
from ..types.ids import new_id

__all__ = ["error_response", "handle_error", "problem_of", "problem_of_error", "problem_response"]

_log = logging.getLogger("wakeful.server")

RETRY_SECONDS = 1

_TITLES = {
    400: "invalid request",
    401: "not authenticated",
    403: "not allowed",
    404: "not found",
    405: "method not allowed",
    408: "request timeout",
    409: "conflict",
    410: "gone",
    412: "precondition failed",
    413: "content too large",
    415: "unsupported media type",
    422: "can't be processed",
    428: "precondition required",
    429: "too many requests",
    431: "headers too large",
    500: "internal error",
    503: "unavailable",
}
_CODES = {
    404: "not-found",
    405: "method-not-allowed",
    410: "cursor-gone",
    412: "conflict",
    413: "body-too-large",
    415: "unsupported-media-type",
    428: "version-required",
    429: "too-many-requests",
}


def problem_of(status: int, detail: str, *, code: str = "", errors: tuple[Detail, ...] = ()) -> Problem:
    """A problem of a request that no error class stands for."""
    return Problem(
        title=_TITLES.get(status, "error"),
        status=status,
        detail=detail,
        instance=new_id(),
        code=code or _CODES.get(status, "invalid"),
        errors=errors,
    )


def problem_response(problem: Problem, **headers: str) -> Response:
    """The response of a problem, with `Retry-After` and `WWW-Authenticate` where they belong."""
    found = {name.replace("_", "-"): value for name, value in headers.items()}
    if problem.status in (429, 503):
        found.setdefault("retry-after", str(RETRY_SECONDS))
    if problem.status == 401:
        found.setdefault("www-authenticate", "Bearer")
    return Response(msgspec.json.encode(problem), problem.status, found, MEDIA_TYPE)


async def handle_error(_: Request, error: Exception) -> Response:
    """Starlette's handler of errors."""
    return error_response(error)


def error_response(error: Exception) -> Response:
    """The response of any error.

    Texts that are for operators only stay in the log, under the problem's instance.
    """
    if isinstance(error, HTTPException):
        headers = {name.replace("-", "_"): value for name, value in (error.headers or {}).items()}
        return problem_response(problem_of(error.status_code, error.detail), **headers)
    if isinstance(error, msgspec.ValidationError):
        return problem_response(problem_of(400, "the request doesn't fit", errors=(_detail_of(str(error)),)))
    if isinstance(error, msgspec.DecodeError):
        return problem_response(problem_of(400, f"the body isn't JSON: {error}"))
    if isinstance(error, WakefulError):
        return problem_response(problem_of_error(error))
    problem = problem_of(500, "", code="internal")
    report(_log, error, "request %s failed", problem.instance)
    text = f"the server failed ({type(error).__name__}); its log has more under {problem.instance}"
    return problem_response(msgspec.structs.replace(problem, detail=text))


def problem_of_error(error: WakefulError) -> Problem:
    """The problem of an error."""
    status = status_of(type(error))
    problem = Problem(
        title=_TITLES.get(status, "error"),
        status=status,
        detail=str(error),
        instance=new_id(),
        code=code_of(type(error)),
        data=data_of(error),
    )
    if status < 500 and not hides_text(error):
        return problem
    _log.warning("request %s failed: %s", problem.instance, explain(error))
    if isinstance(error, NotAuthenticated) or hides_text(error):
        return msgspec.structs.replace(
            problem, detail=outline(error, f"the log has more under {problem.instance}")
        )
    hidden = f"{_TITLES.get(status, 'error')}; the server's log has more under {problem.instance}"
    return msgspec.structs.replace(problem, detail=hidden, data={})


def _detail_of(text: str) -> Detail:
    """Split msgspec's `Expected ... - at $.a[0]` into a JSON pointer and the rest."""
    what, _, where = text.rpartition(" - at `$")
    if not what:
        return Detail("", text)
    return Detail(re.sub(r"\.|\[", "/", where.rstrip("`")).replace("]", ""), what)
