"""JSON web tokens of an OpenID Connect issuer, verified by its published keys."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

from ..errors import ConfigurationError, NotAuthenticated, explain
from ..errors.arguments import checked
from ..types.runs import Principal
from ..types.tickets import SYSTEM
from .caller import Caller, Incoming
from .scopes import SCOPES, check_scopes
from .tokens import bearer

__all__ = ["JWT"]

_log = logging.getLogger("wakeful.identity")

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
KEYS_SECONDS = 300
REFETCH_SECONDS = 30
RETRY_SECONDS = 1  # Without any key.
LEEWAY = 30
MAX_TOKEN = 16 * 1024


class JWT:
    """Accepts bearer tokens of one issuer for one audience.

    The keys come from `jwks_url`, by default from the issuer's discovery document. Claims map to the caller:
    `tenant`, `groups`, `roles` and `scopes` name the claims to read, by dotted paths (`realm_access.roles`). A
    token without a wakeful scope gets `default_scopes`. If `tenant` names a claim, every token must have it; else
    all callers belong to the tenant that is served. With an `alias`, principals are `alias|subject`, which keeps
    two issuers apart.
    """

    @checked
    def __init__(
        self,
        issuer: str,
        audience: str,
        *,
        jwks_url: str | None = None,
        algorithms: Sequence[str] = ("RS256", "ES256", "EdDSA"),
        alias: str = "",
        tenant: str | None = None,
        groups: str = "groups",
        roles: str = "roles",
        scopes: str = "scope",
        default_scopes: Sequence[str] = (),
    ) -> None:
        if not issuer or not audience:
            raise ConfigurationError("JWT needs the issuer and the audience of its tokens, both of them texts")
        if unknown := [each for each in algorithms if each not in ALGORITHMS] or not algorithms:
            raise ConfigurationError(
                f"JWT accepts asymmetric algorithms only ({', '.join(ALGORITHMS)}), not {unknown!r}"
            )
        self.issuer = issuer
        self.audience = audience
        self._url = jwks_url
        self._algorithms = list(algorithms)
        self._alias = alias
        self._claims = {"tenant": tenant, "groups": groups, "roles": roles, "scopes": scopes}
        self._default = frozenset(check_scopes(default_scopes)) if default_scopes else frozenset[str]()
        self._keys: dict[str, Any] = {}
        self._fetched = self._tried = -float(KEYS_SECONDS)
        self._lock = asyncio.Lock()

    def __repr__(self) -> str:
        return f"JWT({self.issuer!r}, {self.audience!r})"

    async def __call__(self, request: Incoming) -> Caller | None:
        """The caller of a token that has the form of a JWT; raises `NotAuthenticated` if it isn't valid."""
        token = bearer(request)
        if token.count(".") != 2:
            return None
        if len(token) > MAX_TOKEN:
            raise NotAuthenticated(f"the token has more than {MAX_TOKEN:,} characters; get one with fewer claims")
        import jwt

        try:
            header = jwt.get_unverified_header(token)
            key = await self._key(str(header.get("kid", "")))
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=self._algorithms,
                audience=self.audience,
                issuer=self.issuer,
                leeway=LEEWAY,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
        except (jwt.PyJWTError, TypeError, ValueError) as error:  # A key of another kind than the algorithm's.
            raise NotAuthenticated(f"the token isn't valid: {explain(error)}; get a new one") from error
        return self._caller(claims)

    def _caller(self, claims: Mapping[str, Any]) -> Caller:
        subject = f"{self._alias}|{claims['sub']}" if self._alias else str(claims["sub"])
        if subject == SYSTEM:
            raise NotAuthenticated(f"the subject {SYSTEM!r} is reserved; use another subject")
        tenant = None
        if (name := self._claims["tenant"]) is not None:
            tenant = _claim(claims, name)
            if not isinstance(tenant, str) or not tenant:
                raise NotAuthenticated(f"the token has no claim {name!r}, which names its tenant")
        given = {each for each in _texts(_claim(claims, cast(str, self._claims["scopes"]))) if _is_known(each)}
        principal = Principal(
            subject,
            groups=tuple(_texts(_claim(claims, cast(str, self._claims["groups"])))),
            roles=tuple(_texts(_claim(claims, cast(str, self._claims["roles"])))),
        )
        return Caller(
            principal=principal,
            tenant=tenant,
            scopes=frozenset(check_scopes(given)) if given else self._default,
            auth="jwt",
            until=int(claims["exp"]) * 1000,
        )

    async def _key(self, key_id: str) -> Any:
        import jwt

        now = time.monotonic()
        is_wanted = key_id not in self._keys or now - self._fetched > KEYS_SECONDS
        # While the issuer is away the present keys count, and a request in a while asks for new ones.
        pause = REFETCH_SECONDS if self._keys else RETRY_SECONDS
        if is_wanted and now - self._tried > pause:
            async with self._lock:
                if self._tried < now:
                    await self._fetch()
        if key_id not in self._keys and len(self._keys) == 1 and not key_id:
            return next(iter(self._keys.values()))
        if key_id not in self._keys:
            raise jwt.InvalidKeyError(f"the issuer has no key {key_id!r:.80}")
        return self._keys[key_id]

    async def _fetch(self) -> None:
        """Fetch the issuer's keys. If that fails, the present ones stay."""
        import httpx
        import jwt

        self._tried = time.monotonic()
        try:
            async with httpx.AsyncClient(timeout=10, follow_redirects=False) as client:
                if self._url is None:
                    found = await client.get(f"{self.issuer.rstrip('/')}/.well-known/openid-configuration")
                    self._url = str(found.raise_for_status().json()["jwks_uri"])
                published = (await client.get(self._url)).raise_for_status().json()
            keys = jwt.PyJWKSet.from_dict(published).keys
        except (httpx.HTTPError, jwt.PyJWTError, ValueError, KeyError, TypeError) as error:
            _log.warning("the keys of issuer %s can't be read: %s", self.issuer, explain(error))
            return
        self._keys = {key.key_id or "": key.key for key in keys}
        self._fetched = self._tried


def _claim(claims: Mapping[str, Any], path: str) -> Any:
    found: Any = claims.get(path)
    if found is None and "." in path:
        found = claims
        for name in path.split("."):
            found = cast(Mapping[str, Any], found).get(name) if isinstance(found, Mapping) else None
    return found


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return value.split()
    return [each for each in cast(list[Any], value) if isinstance(each, str)] if isinstance(value, list) else []


def _is_known(scope: str) -> bool:
    """Whether a token's scope is one of wakeful's. `*` and roles aren't: an issuer may use the same words."""
    noun, _, rest = scope.partition(":")
    return f"{noun}:{rest.partition(':')[0]}" in SCOPES
