"""Records that belong to no thread: API keys, grants, and the audit."""

from __future__ import annotations

import re
from typing import Any, ClassVar, Literal
from unicodedata import combining, normalize

from ..errors.arguments import Checked
from .base import Data
from .ids import digest_of
from .tickets import GrantScope

__all__ = [
    "MAX_KEY",
    "MAX_TEXT",
    "ApiKey",
    "AuditEntry",
    "Grant",
    "KeyKind",
    "MemoryNote",
    "MemoryScope",
    "Pinned",
    "Record",
    "grant_prefix",
    "memory_id",
    "memory_prefix",
    "words_of",
]

KeyKind = Literal["user", "service", "worker"]
MemoryScope = Literal["user", "agent", "thread"]

# The most characters of a memory's key and text.
MAX_KEY = 128
MAX_TEXT = 4000


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


class Grant(Data, metaclass=Checked, omit_defaults=True, kw_only=True, tag="grant"):
    """A remembered approval: it lifts the permission rule `rule` for the calls of `pattern`.

    `scope_id` is the id of the run, the thread, the agent or the user it holds for, with the agent `agent_id`
    only. It was given by `granted_by` (None stands for trusted code) as the answer to the ticket `ticket_id`, and
    counts until `expires_at` unless it was revoked. A put has the next `revision`, from 1 on.
    """

    id: str
    pattern: str
    rule: str
    scope: GrantScope
    scope_id: str
    agent_id: str
    tool: str = ""
    ticket_id: str = ""
    granted_by: str | None = None
    reason: str = ""
    created_at: int = 0
    expires_at: int
    revoked_at: int | None = None
    revoked_by: str | None = None
    revision: int = 1

    digest: ClassVar[str] = ""

    def counts(self, now: int) -> bool:
        """Whether the grant lifts its rule at this time, in milliseconds."""
        return self.revoked_at is None and now < self.expires_at


def grant_prefix(scope: GrantScope, scope_id: str) -> str:
    """The beginning of the ids of the grants for one run, thread, agent or user."""
    return f"{digest_of(f'{scope}:{scope_id}'.encode())}."


class Pinned(Data, omit_defaults=True, kw_only=True, tag="pinned"):
    """Data that runs refer to by its digest, which is the `id`. It is never changed."""

    id: str
    data: bytes
    created_at: int = 0

    revision: ClassVar[int] = 1
    digest: ClassVar[str] = ""


class MemoryNote(Data, metaclass=Checked, omit_defaults=True, kw_only=True, tag="memory"):
    """A note of the long-term memory of a user, an agent or a thread: a text under a key.

    `scope_id` is the id of the user's principal, the agent or the thread. `tainted` says that strangers may have
    written what the text is made of. `agent_id` and `run_id` are those of the last writer, `writes` the calls that
    wrote the note last, so that a repeated call changes nothing; `edited_by` is the principal that edited it. A
    put has the next `revision`, from 1 on.
    """

    id: str
    scope: MemoryScope
    scope_id: str
    key: str
    text: str
    tainted: bool = False
    agent_id: str = ""
    run_id: str = ""
    edited_by: str | None = None
    created_at: int = 0
    updated_at: int = 0
    writes: tuple[str, ...] = ()
    revision: int = 1

    digest: ClassVar[str] = ""

    @property
    def owner(self) -> str:
        """The beginning of the ids of the notes of the same user, agent or thread."""
        return memory_prefix(self.scope, self.scope_id)


def memory_prefix(scope: MemoryScope, scope_id: str) -> str:
    """The beginning of the ids of the notes about one user, agent or thread."""
    return f"{digest_of(f'{scope}:{scope_id}'.encode())}."


def memory_id(scope: MemoryScope, scope_id: str, key: str) -> str:
    """The id of the note under a key."""
    return memory_prefix(scope, scope_id) + digest_of(key.encode())


def words_of(text: str) -> list[str]:
    """The words of a text in the form in which memories are searched: without case and accents."""
    plain = "".join([each for each in normalize("NFKD", text.casefold()) if not combining(each)])
    return _WORDS.findall(plain)


_WORDS = re.compile(r"[^\W_]+")

Record = ApiKey | AuditEntry | Grant | MemoryNote | Pinned
"""A record that belongs to no thread."""
