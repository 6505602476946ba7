"""Callers: who makes a request, for which tenant, with which rights; and the protocol of authenticators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from ..types.base import Data
from ..types.runs import Principal
from .scopes import EVERYTHING, holds

__all__ = ["LOCAL", "Authenticator", "Caller", "Incoming", "authenticate"]


class Caller(Data, kw_only=True, omit_defaults=True):
    """The author of a request, as its credential says; nothing in a request's body can change it.

    `principal` is None for trusted callers without an identity. `tenant` is None for the tenant that the server
    serves by default. `auth` is how the caller was authenticated: `key:<id>`, `jwt`, `token`, or `none`. `agents`
    limits the caller to these agents. `until` is when the credential expires, in milliseconds.
    """

    principal: Principal | None = None
    tenant: str | None = None
    scopes: frozenset[str] = frozenset()
    auth: str = "none"
    agents: tuple[str, ...] | None = None
    until: int | None = None

    @property
    def id(self) -> str | None:
        """The principal's id."""
        return None if self.principal is None else self.principal.id

    def may(self, scope: str, agent: str | None = None) -> bool:
        """Whether the caller's scopes permit an action, on an agent if one is named."""
        if agent is not None and self.agents is not None and agent not in self.agents:
            return False
        return holds(self.scopes, scope, agent)


LOCAL = Caller(scopes=frozenset([EVERYTHING]))
"""The caller of a server without authentication: it holds every right."""


class Incoming(Protocol):
    """The part of a request that authenticators read; Starlette's requests have it."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, by their names in any case."""
        ...


class Authenticator(Protocol):
    """Recognizes a kind of credential.

    It returns None for a request without such a credential, and raises `NotAuthenticated` for an invalid one.
    """

    async def __call__(self, request: Incoming) -> Caller | None:
        """The caller of the request."""
        ...


async def authenticate(chain: Sequence[Authenticator], request: Incoming) -> Caller | None:
    """The caller that the first authenticator recognizes; None if none does."""
    for recognize in chain:
        if (caller := await recognize(request)) is not None:
            return caller
    return None
