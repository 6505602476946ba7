"""The headers that say who we are, and the OAuth2 tokens behind them: fetched once, renewed before they expire."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from typing import Annotated, Any

import httpx
import msgspec

from ...errors import RemoteError
from ._auth import ApiKey, Auth, Bearer, OAuth2, reveal
from ._faults import Unreachable

__all__ = ["Credentials", "HttpAuth"]

# A token is renewed so many seconds before it expires, or at half its life where that is shorter.
_EARLY = 60.0
_ASSUMED_LIFE = 300.0


class _Token(msgspec.Struct, frozen=True):
    access_token: Annotated[str, msgspec.Meta(pattern=r"^[ -~]+$")]  # What a header can carry.
    token_type: str
    expires_in: float | None = None


class Credentials:
    """What `auth` comes to. One object serves all runs of an agent, on any event loop."""

    def __init__(self, auth: Auth | None, open_http: Callable[[], httpx.AsyncClient]) -> None:
        self._auth = auth
        self._open_http = open_http
        self._header = ""
        self._renew_at = 0.0
        self._shown: set[str] = set()
        self._lock: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None

    @property
    def renewable(self) -> bool:
        """Whether asking again may give another secret."""
        return not (self._auth is None or (isinstance(self._auth, Bearer | ApiKey) and self._is_fixed(self._auth)))

    @staticmethod
    def _is_fixed(auth: Bearer | ApiKey) -> bool:
        return isinstance(auth.token if isinstance(auth, Bearer) else auth.key, str)

    async def headers(self, *, refused: str | None = None) -> dict[str, str]:
        """The headers to send. `refused` is the value that the remote just refused: a newer one is got."""
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
        """The text without any secret that was sent: remotes quote what they were given."""
        for secret in self._shown:
            text = text.replace(secret, "***")
        return text

    def _remember(self, secret: str) -> str:
        if len(self._shown) > 64:  # Tokens come and go; the oldest are long expired.
            self._shown.clear()
        self._shown.add(secret)
        return secret

    async def _bearer(self, auth: OAuth2, refused: str | None) -> str:
        async with self._single_flight():
            if not self._header or self._header == refused or time.monotonic() >= self._renew_at:
                token = await self._fetch(auth)
                life = _ASSUMED_LIFE if token.expires_in is None else max(token.expires_in, 0.0)
                self._renew_at = time.monotonic() + max(life - _EARLY, life / 2)
                self._header = f"Bearer {self._remember(token.access_token)}"
            return self._header

    def _single_flight(self) -> asyncio.Lock:
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
            raise Unreachable(f"no token from {auth.token_url}: {reason}", begun=False) from None
        if response.status_code != 200:
            raise _no_token(auth.token_url, response.status_code)
        try:
            # Some write the lifetime as a text.
            token = msgspec.json.decode(response.content, type=_Token, strict=False)
        except msgspec.DecodeError:
            raise RemoteError(f"no token from {auth.token_url}: the answer isn't an OAuth2 token") from None
        if token.token_type.lower() != "bearer":
            raise RemoteError(
                f"no token from {auth.token_url}: it gives {token.token_type!r:.80} tokens, not bearer tokens"
            )
        return token


def _no_token(url: str, status: int) -> Exception:
    """Why there is none. The answer's body may quote the secret, or be a page of HTML."""
    if status == 429 or status >= 500:
        return Unreachable(f"no token from {url}: HTTP {status}", begun=False)
    if 300 <= status < 400:
        return RemoteError(f"no token from {url}: HTTP {status}, and redirects aren't followed")
    return RemoteError(f"no token from {url}: HTTP {status}; check the client's id and secret")


class HttpAuth(httpx.Auth):
    """Puts the headers on each request, and asks once more with newer ones after a 401."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        """httpx's way to say so."""
        headers = await self._credentials.headers()
        request.headers.update(headers)
        response = yield request
        if response.status_code != 401 or not self._credentials.renewable:
            return
        refused = next(iter(headers.values()))
        newer = await self._credentials.headers(refused=refused)
        if newer != headers:
            request.headers.update(newer)
            yield request

    def sync_auth_flow(self, request: httpx.Request) -> Any:
        """There is no sync client."""
        raise NotImplementedError
