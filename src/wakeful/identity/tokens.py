"""Static tokens: secrets from the configuration, each with its caller."""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from ..errors import ConfigurationError
from ..errors.arguments import Checked
from ..types.runs import Principal
from ..types.tickets import SYSTEM
from .caller import Caller, Incoming
from .scopes import ROLES

__all__ = ["Tokens", "bearer"]


class Tokens(Struct, metaclass=Checked, frozen=True, eq=False, repr_omit_defaults=True):
    """Bearer `tokens` and `api_keys`, each mapped to the id of its principal or to a `Caller`.

    A principal's id stands for a caller with the scopes of the role `user`.
    """

    tokens: Mapping[str, str | Caller] = {}
    api_keys: Mapping[str, str | Caller] = {}
    api_key_header: str = "X-API-Key"

    def __post_init__(self) -> None:
        given = [*self.tokens.items(), *self.api_keys.items()]
        if not given:
            raise ConfigurationError(
                "Tokens has no token and no API key, so no caller could enter; give one, or no auth"
            )
        for secret, caller in given:
            who = caller.id if isinstance(caller, Caller) else caller
            if not secret or not secret.isascii():
                raise ConfigurationError(f"a secret of principal {who!r} is empty or isn't ASCII")
            if who == SYSTEM or (who is not None and not who):
                raise ConfigurationError(f"a principal's id must be a text other than {SYSTEM!r}, not {who!r}")

    def __repr__(self) -> str:
        callers = [*self.tokens.values(), *self.api_keys.values()]
        return f"Tokens({', '.join(sorted({(c.id or '') if isinstance(c, Caller) else c for c in callers}))})"

    async def __call__(self, request: Incoming) -> Caller | None:
        """The caller of a known secret."""
        found = _find(self.tokens, bearer(request))
        return found or _find(self.api_keys, request.headers.get(self.api_key_header, ""))


def bearer(request: Incoming) -> str:
    """The bearer token of a request; empty without one."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _find(secrets: Mapping[str, str | Caller], given: str) -> Caller | None:
    """Compare every secret in constant time, so that the duration reveals nothing."""
    found: str | Caller | None = None
    for secret, caller in secrets.items():
        if hmac.compare_digest(secret.encode(), given.encode(errors="replace")):
            found = caller
    if isinstance(found, str):
        return Caller(principal=Principal(found), scopes=frozenset(ROLES["user"]), auth="token")
    return None if found is None else replace(found, auth="token")
