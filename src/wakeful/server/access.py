"""Access: the caller of each request, and the checks of `Host` and `Origin`, before anything else is read."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from starlette.authentication import SimpleUser
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import NotAllowed, NotAuthenticated
from ..identity import LOCAL, Caller, Incoming, authenticate
from ..types.ids import now_ms
from .console import is_console_path
from .hosts import host_name
from .problems import error_response, problem_of, problem_response
from .serving import Serving

__all__ = ["AccessMiddleware", "caller_of", "check_right"]

ALLOWED_METHODS = "GET, POST, PUT, PATCH, DELETE"
ALLOWED_HEADERS = "Authorization, Content-Type, Idempotency-Key, If-Match, Last-Event-ID, X-API-Key"
EXPOSED_HEADERS = "ETag, Location, Retry-After, Idempotency-Replayed, Wakeful-Run, Wakeful-Thread"


class AccessMiddleware:
    """Sets `scope["caller"]`, and refuses requests without one except to public paths.

    Without authentication only requests to loopback names are answered, so that a web page can't reach the server
    by a name of its own that resolves to this machine. A request with a foreign `Origin` is refused unless it is
    one of `origins`. Below the prefixes in `checked` operations check the rights that they need.
    """

    def __init__(self, app: ASGIApp, serving: Serving, public: Collection[str], checked: Collection[str]) -> None:
        self._app = app
        self._serving = serving
        self._public = frozenset(public)
        self._checked = tuple([f"{prefix}/" for prefix in checked])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on with its caller."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = self._check_host(headers) or self._check_origin(headers)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        if (origin := headers.get("origin", "")) in self._serving.origins:
            send = _with_cors(send, origin)
            if scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
                await _preflight()(scope, receive, send)
                return
        try:
            caller = await self._caller(scope)
        except NotAuthenticated as error:
            await error_response(error)(scope, receive, send)
            return
        if caller.principal is not None and (refused := self._check_protocol(scope, caller)) is not None:
            await error_response(refused)(scope, receive, send)
            return
        scope["caller"] = caller
        if caller.principal is not None:
            scope["user"] = SimpleUser(caller.principal.id)
            scope["wakeful.is_valid"] = partial(self._is_valid, scope)
        await self._app(scope, receive, send)

    async def _caller(self, scope: Scope) -> Caller:
        if self._serving.auth and self._is_public(scope):
            return Caller()
        return await caller_of(self._serving, HTTPConnection(scope))

    async def _is_valid(self, scope: Scope) -> bool:
        """Whether the credential of a request still is one."""
        try:
            return (await self._caller(scope)).id == scope["caller"].id
        except NotAuthenticated:
            return False

    def _check_protocol(self, scope: Scope, caller: Caller) -> NotAllowed | None:
        """Why a caller may not use a path without operations; None if it may."""
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if path.startswith(self._checked):
            return None  # Operations check their own scopes.
        try:
            check_right(self._serving, caller, "cluster:read" if path == "/metrics" else "runs:create")
        except NotAllowed as refused:
            return refused
        return None

    def _check_host(self, headers: Headers) -> Response | None:
        name = host_name(headers.get("host", ""))
        if self._serving.auth or self._serving.has_name(name):
            return None
        return problem_response(
            problem_of(
                403,
                f"this server has no authentication and doesn't answer for the host {name!r:.80}; reach it at "
                "localhost, add authentication, or list the host: app(..., hosts=[...])",
                code="host-not-allowed",
            )
        )

    def _check_origin(self, headers: Headers) -> Response | None:
        origin = headers.get("origin")
        if origin is None or origin in self._serving.origins or urlsplit(origin).netloc == headers.get("host"):
            return None
        return problem_response(
            problem_of(
                403,
                f"requests from pages of the origin {origin!r:.80} aren't allowed; list it: "
                "app(..., origins=[...]), or --allow-origin",
                code="origin-not-allowed",
            )
        )

    def _is_public(self, scope: Scope) -> bool:
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        return scope["method"] in ("GET", "HEAD") and (path in self._public or is_console_path(path))


async def caller_of(serving: Serving, request: Incoming) -> Caller:
    """The caller of a request; raises `NotAuthenticated` if the server doesn't know it."""
    if not serving.auth:
        return LOCAL
    found = await authenticate(serving.auth, request)
    if found is None:
        raise NotAuthenticated(
            "the caller is unknown: its credential is missing or wrong; send Authorization: Bearer <token>"
        )
    if found.until is not None and found.until <= now_ms():
        raise NotAuthenticated("the credential has expired; get a new one")
    return found


def check_right(serving: Serving, caller: Caller, needed: str, agent: str | None = None) -> None:
    """Raise `NotAllowed` unless a caller is of the server's tenant and has this scope, for this agent."""
    if not serving.is_own(caller):
        raise NotAllowed("this serves another tenant than that of the credential", needed)
    if not caller.may(needed, agent):
        raise NotAllowed(f"this needs the scope {needed!r}, which the credential doesn't have", needed)


def _preflight() -> Response:
    return Response(
        status_code=204,
        headers={
            "access-control-allow-methods": ALLOWED_METHODS,
            "access-control-allow-headers": ALLOWED_HEADERS,
            "access-control-max-age": "600",
        },
    )


def _with_cors(send: Send, origin: str) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=message.setdefault("headers", list[Any]()))
            headers["access-control-allow-origin"] = origin
            headers["access-control-expose-headers"] = EXPOSED_HEADERS
            headers.add_vary_header("Origin")
        await send(message)

    return sending
