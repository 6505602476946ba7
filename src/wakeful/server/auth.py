"""Authentication of callers by bearer tokens and API keys."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from starlette.authentication import SimpleUser
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from ..errors import ConfigurationError
from ..errors.arguments import Checked
from ..types.tickets import SYSTEM

__all__ = ["Auth", "AuthMiddleware"]


class Auth(Struct, metaclass=Checked, frozen=True, eq=False, repr_omit_defaults=True):
    """The credentials of callers: bearer `tokens` and `api_keys`, each mapped to the id of its principal.

    A run belongs to the principal that started it; other principals can't see it.
    """

    tokens: Mapping[str, str] = {}
    api_keys: Mapping[str, str] = {}
    api_key_header: str = "X-API-Key"

    def __post_init__(self) -> None:
        given = [*self.tokens.items(), *self.api_keys.items()]
        if not given:
            raise ConfigurationError(
                "Auth has no token and no API key, so no caller could enter; give one, or no auth"
            )
        for secret, principal in given:
            if not secret or not secret.isascii():
                raise ConfigurationError(f"a secret of principal {principal!r} is empty or isn't ASCII")
            if not principal or principal == SYSTEM:
                raise ConfigurationError(
                    f"a principal's id must be a text other than {SYSTEM!r}, not {principal!r}"
                )

    def __repr__(self) -> str:
        principals = sorted({*self.tokens.values(), *self.api_keys.values()})
        return f"Auth({', '.join(principals)})"

    def principal(self, headers: Mapping[str, str]) -> str | None:
        """The principal of a request's headers; None if they have no valid credential."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and (found := _find(self.tokens, token.strip())) is not None:
            return found
        return _find(self.api_keys, headers.get(self.api_key_header.lower(), ""))


def _find(secrets: Mapping[str, str], given: str) -> str | None:
    """Compare every secret in constant time, so that the duration reveals nothing."""
    found: str | None = None
    for secret, principal in secrets.items():
        if hmac.compare_digest(secret.encode(), given.encode(errors="replace")):
            found = principal
    return found


class AuthMiddleware:
    """Sets the request's user to its principal, and refuses requests without one except to public paths."""

    def __init__(self, app: ASGIApp, auth: Auth, public: frozenset[str]) -> None:
        self._app = app
        self._auth = auth
        self._public = public

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._is_public(scope):
            await self._app(scope, receive, send)
            return
        principal = self._auth.principal(Headers(scope=scope))
        if principal is None:
            await _unauthorized(self._auth)(scope, receive, send)
            return
        scope["user"] = SimpleUser(principal)
        await self._app(scope, receive, send)

    def _is_public(self, scope: Scope) -> bool:
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        return scope["method"] in ("GET", "HEAD") and path in self._public


def _unauthorized(auth: Auth) -> JSONResponse:
    accepted = ["Authorization: Bearer <token>"] if auth.tokens else []
    accepted += [f"{auth.api_key_header}: <key>"] if auth.api_keys else []
    error: dict[str, Any] = {
        "code": 401,
        "status": "UNAUTHENTICATED",
        "message": f"the caller is unknown: its token or key is missing or wrong; send {' or '.join(accepted)}",
    }
    headers = {"WWW-Authenticate": "Bearer"} if auth.tokens else {}
    return JSONResponse({"error": error}, 401, headers)
