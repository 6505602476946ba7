"""Records that belong to no thread: API keys, and the audit."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from ..errors.arguments import Checked
from .base import Data

__all__ = ["ApiKey", "AuditEntry", "KeyKind", "Record"]

KeyKind = Literal["user", "service", "worker"]


class ApiKey(Data, metaclass=Checked, omit_defaults=True, kw_only=True, tag="key"):
    """An API key as it is stored, which is without its secret: `hash` is the SHA-256 of that.

    The `id` is unique over all tenants. `agents` are the agents that the key may use; None stands for all. A put
    has the next `revision`, from 1 on. If the id is derived from that of a request, `digest` is the request's: a
    repetition is refused with `DuplicateRequest`, another request of that id with `RequestReused`.
    """

    id: str
    name: str
    hash: bytes
    principal_id: str
    scopes: tuple[str, ...] = ()
    kind: KeyKind = "user"
    groups: tuple[str, ...] = ()
    agents: tuple[str, ...] | None = None
    created_by: str | None = None
    created_at: int = 0
    expires_at: int | None = None
    last_used_at: int | None = None
    revoked_at: int | None = None
    revision: int = 1
    digest: str = ""


class AuditEntry(Data, metaclass=Checked, omit_defaults=True, kw_only=True, tag="audit"):
    """An entry of the audit: the action of a caller. It is never changed, and only retention removes it.

    `auth` is how the caller was authenticated, such as `key`, `jwt`, `token` or `none`. `action` is the verb on a
    noun, such as `tickets:answer`, `resource` the noun, such as `ticket`, and `resource_id` the id of one.
    """

    id: str
    at: int
    action: str
    outcome: Literal["allowed", "denied", "done"]
    principal_id: str | None = None
    auth: str = "none"
    key_id: str | None = None
    resource: str = ""
    resource_id: str | None = None
    detail: dict[str, Any] = {}

    revision: ClassVar[int] = 1
    digest: ClassVar[str] = ""


Record = ApiKey | AuditEntry
"""A record that belongs to no thread."""
