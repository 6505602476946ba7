"""JWTs of an issuer: verified by its published keys, mapped to callers."""

from __future__ import annotations

import base64
import hmac
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import jwt
import pytest
from a2a_serving import serve_app
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from http_serving import office
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from wakeful import ConfigurationError
from wakeful.identity import JWT
from wakeful.server import app, lifespan

KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER = rsa.generate_private_key(public_exponent=65537, key_size=2048)
CURVE = ec.generate_private_key(ec.SECP256R1())
PUBLIC = KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def forged(header: dict[str, Any], secret: bytes) -> str:
    """A token with any header, signed by HMAC; libraries refuse to make some of these."""
    claims = {"iss": "issuer", "aud": "wakeful", "sub": "ann", "exp": 9e9}
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in (header, claims)]
    mac = hmac.digest(secret, b".".join(parts), "sha256")
    return b".".join([*parts, base64.urlsafe_b64encode(mac).rstrip(b"=")]).decode()


def token(key: Any = KEY, kid: str = "k1", algorithm: str = "RS256", **claims: Any) -> str:
    base = {"iss": "issuer", "aud": "wakeful", "sub": "ann", "exp": int(time.time()) + 600}
    found = {name: value for name, value in {**base, **claims}.items() if value is not None}
    return jwt.encode(found, key, algorithm=algorithm, headers={"kid": kid})


class Issuer:
    """An issuer on loopback that counts how often its keys are fetched."""

    def __init__(self) -> None:
        self.keys = {"k1": KEY}
        self.fetched = 0
        self.is_away = False

    def app(self) -> Starlette:
        async def jwks(_: Any) -> JSONResponse:
            self.fetched += 1
            if self.is_away:
                return JSONResponse({}, 503)
            found = [
                {**json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key())), "kid": kid, "alg": "RS256"}
                for kid, key in self.keys.items()
            ]
            return JSONResponse({"keys": found})

        return Starlette(routes=[Route("/jwks", jwks)])


@asynccontextmanager
async def served(**options: Any) -> AsyncIterator[tuple[Issuer, httpx.AsyncClient]]:
    issuer = Issuer()
    async with serve_app(issuer.app()) as url:
        auth = JWT("issuer", "wakeful", jwks_url=f"{url}/jwks", **options)
        agents = app(office(), auth=auth)
        transport = httpx.ASGITransport(agents)
        async with lifespan(agents), httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            yield issuer, client


async def me(client: httpx.AsyncClient, text: str) -> httpx.Response:
    return await client.get("/v1/me", headers={"Authorization": f"Bearer {text}"})


async def test_claims_become_the_caller() -> None:
    async with served(tenant="org", alias="corp", roles="realm_access.roles") as (issuer, client):
        claims = {"org": "acme", "groups": ["finance"], "realm_access": {"roles": ["lead"]}}
        answer = await me(client, token(scope="openid agents:read runs:read", **claims))
        found = answer.json()
        assert (found["principal"], found["tenant"], found["scopes"]) == (
            "corp|ann",
            "acme",
            ["agents:read", "runs:read"],
        )
        assert (found["groups"], found["roles"], found["auth"]) == (["finance"], ["lead"], "jwt")
        assert (await me(client, token(scope="agents:read"))).status_code == 401  # It names no tenant.
        assert issuer.fetched == 1


@pytest.mark.parametrize(
    "text",
    [
        token(exp=int(time.time()) - 3600),
        token(exp=None),
        token(aud="other"),
        token(aud=None),
        token(iss="other"),
        token(sub=None),
        token(sub="wakeful"),
        token(key=OTHER),
        token(kid="unknown"),
        jwt.encode({"iss": "issuer", "aud": "wakeful", "sub": "ann", "exp": 9e9}, None, algorithm="none"),
        jwt.encode({"iss": "issuer", "aud": "wakeful", "sub": "ann", "exp": 9e9}, "x" * 32, algorithm="HS256"),
        token(key=CURVE, algorithm="ES256"),  # The issuer's key of this id is of another kind.
        forged({"alg": "HS256", "kid": "k1"}, PUBLIC),  # The public key as a secret.
        forged({"alg": "none", "kid": "k1"}, b""),
        forged({"alg": "RS256", "kid": "k1", "jwk": {"kty": "oct", "k": "AAAA"}}, b"\0\0\0"),
        forged({"alg": ["RS256"], "kid": {"a": 1}}, b""),
        forged({"alg": "RS256", "kid": "k1", "crit": ["exp"]}, b""),
        "a.b.c",
        "..",
        f"{'a' * 20_000}.b.c",
    ],
)
async def test_invalid_token_is_401(text: str) -> None:
    async with served(default_scopes=["user"]) as (_, client):
        answer = await me(client, text)
        assert (answer.status_code, answer.json()["code"]) == (401, "not-authenticated")


async def test_scope_words_of_an_issuer_give_no_role() -> None:
    async with served(default_scopes=["agents:read"]) as (_, client):
        found = (await me(client, token(scope="admin * user"))).json()
        assert found["scopes"] == ["agents:read"]


async def test_keys_of_an_absent_issuer_still_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """One request in a while asks it, and the others don't wait for it."""
    async with served(default_scopes=["user"]) as (issuer, client):
        assert (await me(client, token())).status_code == 200
        issuer.keys.clear()
        monkeypatch.setattr("wakeful.identity.jwt.KEYS_SECONDS", -1)
        monkeypatch.setattr("wakeful.identity.jwt.REFETCH_SECONDS", 0)
        issuer.is_away = True
        assert [(await me(client, token())).status_code for _ in range(2)] == [200, 200]
        fetched = issuer.fetched
        monkeypatch.setattr("wakeful.identity.jwt.REFETCH_SECONDS", 3600)
        assert [(await me(client, token())).status_code for _ in range(2)] == [200, 200]
        assert issuer.fetched == fetched


async def test_unknown_key_is_fetched_once_in_a_while() -> None:
    async with served(default_scopes=["user"]) as (issuer, client):
        assert (await me(client, token())).status_code == 200
        for _ in range(3):
            assert (await me(client, token(key=OTHER, kid="k2"))).status_code == 401
        assert issuer.fetched == 1


@pytest.mark.parametrize("options", [{"algorithms": ["HS256"]}, {"algorithms": ["none"]}, {"algorithms": []}])
def test_issuer_needs_asymmetric_algorithms(options: Any) -> None:
    with pytest.raises(ConfigurationError, match="asymmetric"):
        JWT("issuer", "wakeful", **options)


def test_issuer_needs_an_audience() -> None:
    with pytest.raises(ConfigurationError, match="audience"):
        JWT("issuer", "")
