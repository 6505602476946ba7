"""Callers of a server: who they are, what their credentials permit, and what they may reach."""

from __future__ import annotations

from .authorization import Allow, Authorize, Deny, Filter, Resource, Verdict, admits, owners_only
from .caller import LOCAL, Authenticator, Caller, Incoming, authenticate
from .jwt import JWT
from .keys import ApiKeys, create_key, revoke_key
from .scopes import AUTHENTICATED, PUBLIC, ROLES, SCOPES, check_scopes
from .tokens import Tokens

__all__ = [
    "AUTHENTICATED",
    "JWT",
    "LOCAL",
    "PUBLIC",
    "ROLES",
    "SCOPES",
    "Allow",
    "ApiKeys",
    "Authenticator",
    "Authorize",
    "Caller",
    "Deny",
    "Filter",
    "Incoming",
    "Resource",
    "Tokens",
    "Verdict",
    "admits",
    "authenticate",
    "check_scopes",
    "create_key",
    "owners_only",
    "revoke_key",
]
