"""Authentication headers, and the OAuth2 tokens in them: cached, and renewed before they expire."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from typing import Annotated, Any

import httpx
import msgspec

from ...errors import RemoteError
from .auth import ApiKey, Auth, Bearer, OAuth2, reveal
from .faults import Unreachable

__all__ = ["Credentials", "HttpAuth"]

# A token is renewed this many seconds before it expires, or at half its lifetime if that is later.
_RENEW_EARLY_SECONDS = 60.0
_DEFAULT_LIFETIME_SECONDS = 300.0


class _Token(msgspec.Struct, frozen=True):
    access_token: Annotated[str, msgspec.Meta(pattern=r"^[ -~]+$")]  # Printable ASCII, for a header.
    token_type: str
    expires_in: float | None = None


class Credentials:
    """The credentials of one agent, shared by its runs on any event loop."""

    def __init__(self, auth: Auth | None, open_http: Callable[[], httpx.AsyncClient]) -> None:
        self._auth = auth
        self._open_http = open_http
        self._header = ""
        self._renew_at = 0.0
        self._sent: set[str] = set()
        self._lock: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None

    @property
    def are_needed(self) -> bool:
        """Whether requests carry any."""
        return self._auth is not None

    @property
    def is_renewable(self) -> bool:
        """Whether resolving the secret again may return another value."""
        return not (self._auth is None or (isinstance(self._auth, Bearer | ApiKey) and self._is_fixed(self._auth)))

    @staticmethod
    def _is_fixed(auth: Bearer | ApiKey) -> bool:
        return isinstance(auth.token if isinstance(auth, Bearer) else auth.key, str)

    async def headers(self, *, refused: str | None = None) -> dict[str, str]:
        """The headers to send. A token equal to `refused`, which the remote just refused, is renewed."""
        match self._auth:
            case None:
                return {}
            case Bearer(token):
                found = self._remember(await reveal(token, "Bearer's token"))
                return {"Authorization": f"Bearer {found}"}
            case ApiKey(header, key):
                return {header: self._remember(await reveal(key, "ApiKey's key"))}
            case OAuth2():
                return {"Authorization": await self._bearer(self._auth, refused)}

    def redact(self, text: str) -> str:
        """Replace secrets that were sent in a text, as remotes may quote them."""
        for secret in self._sent:
            text = text.replace(secret, "***")
        return text

    def _remember(self, secret: str) -> str:
        if len(self._sent) > 64:  # Old tokens have expired by then.
            self._sent.clear()
        self._sent.add(secret)
        return secret

    async def _bearer(self, auth: OAuth2, refused: str | None) -> str:
        async with self._loop_lock():
            if not self._header or self._header == refused or time.monotonic() >= self._renew_at:
                token = await self._fetch(auth)
                lifetime = _DEFAULT_LIFETIME_SECONDS if token.expires_in is None else max(token.expires_in, 0.0)
                self._renew_at = time.monotonic() + max(lifetime - _RENEW_EARLY_SECONDS, lifetime / 2)
                self._header = f"Bearer {self._remember(token.access_token)}"
            return self._header

    def _loop_lock(self) -> asyncio.Lock:
        loop = asyncio.get_running_loop()
        if self._lock is None or self._lock[0] is not loop:
            self._lock = (loop, asyncio.Lock())
        return self._lock[1]

    async def _fetch(self, auth: OAuth2) -> _Token:
        form = {"grant_type": "client_credentials"}
        if auth.scopes:
            form["scope"] = " ".join(auth.scopes)
        secret = self._remember(await reveal(auth.client_secret, "OAuth2's client_secret"))
        try:
            async with self._open_http() as http:
                response = await http.post(auth.token_url, data=form, auth=(auth.client_id, secret))
        except httpx.HTTPError as error:
            reason = f"{type(error).__name__} {self.redact(str(error))}".strip()
            raise Unreachable(f"no token from {auth.token_url}: {reason}", may_have_started=False) from None
        if response.status_code != 200:
            raise _no_token(auth.token_url, response.status_code)
        try:
            # Not strict: some servers send the lifetime as a string.
            token = msgspec.json.decode(response.content, type=_Token, strict=False)
        except msgspec.DecodeError:
            raise RemoteError(f"no token from {auth.token_url}: the answer isn't an OAuth2 token") from None
        if token.token_type.lower() != "bearer":
            raise RemoteError(
                f"no token from {auth.token_url}: it gives {token.token_type!r:.80} tokens, not bearer tokens"
            )
        return token


def _no_token(url: str, status: int) -> Exception:
    """The error for a failed token request. It omits the body, which may quote the secret or be HTML."""
    if status == 429 or status >= 500:
        return Unreachable(f"no token from {url}: HTTP {status}", may_have_started=False)
    if 300 <= status < 400:
        return RemoteError(f"no token from {url}: HTTP {status}, and redirects aren't followed")
    return RemoteError(f"no token from {url}: HTTP {status}; check the client's id and secret")


class HttpAuth(httpx.Auth):
    """Adds the headers to each request, and retries once with renewed ones after a 401."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        """Implement httpx's auth flow."""
        headers = await self._credentials.headers()
        request.headers.update(headers)
        response = yield request
        if response.status_code != 401 or not self._credentials.is_renewable:
            return
        refused = next(iter(headers.values()))
        newer = await self._credentials.headers(refused=refused)
        if newer != headers:
            request.headers.update(newer)
            yield request

    def sync_auth_flow(self, request: httpx.Request) -> Any:
        """Not supported: there is no sync client."""
        raise NotImplementedError
