"""Calls: a request to an operation, with its caller, the caller's tenant, and the checks of rights."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from hashlib import sha256
from typing import Any, Literal, TypeVar, get_args

from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest

from ...errors import (
    Conflict,
    NotAllowed,
    RuntimeClosed,
    UnknownAgent,
    UnknownGrant,
    UnknownMemory,
    UnknownRun,
    UnknownSchedule,
    UnknownTask,
    UnknownThread,
    UnknownTicket,
    UsageError,
    WakefulError,
)
from ...identity import Caller, Deny, Filter, Resource, Verdict, admits, check_scopes
from ...runtime import TenantRuntime
from ...types.inbox import Request
from ...types.runs import Author, Right
from ..serving import Serving
from ..sse import EventStream
from ..streams import end_frame
from .operation import Operation

__all__ = ["Call", "Reply"]

T = TypeVar("T")

_UNKNOWN: dict[str, type[WakefulError]] = {
    "run": UnknownRun,
    "thread": UnknownThread,
    "ticket": UnknownTicket,
    "grant": UnknownGrant,
    "task": UnknownTask,
    "schedule": UnknownSchedule,
    "memory": UnknownMemory,
}

MAX_KEY = 255
_RIGHTS: tuple[Right, ...] = get_args(Right)


class Reply:
    """A reply with another status than the operation's first one, or with headers."""

    def __init__(
        self, value: Any, status: int | None = None, *, version: int | str | None = None, **headers: str
    ) -> None:
        self.value = value
        self.status = status
        self.headers = {name.replace("_", "-"): text for name, text in headers.items()}
        if version is not None:
            self.headers["etag"] = f'"{version}"'


class Call:
    """One request to an operation.

    `runtime` is the handle of the caller's tenant, the only one that a handler ever has.
    """

    def __init__(self, serving: Serving, operation: Operation, caller: Caller, request: HttpRequest) -> None:
        self.serving = serving
        self.operation = operation
        self.caller = caller
        self.http = request
        self.runtime: TenantRuntime = serving.runtime_of(caller)
        self.body = b""
        # The resource and action that `require` refused.
        self._refused: tuple[str, str | None, str] | None = None

    @property
    def author(self) -> Author | None:
        """The caller as the author of decisions, with its rights on tickets; None for trusted callers."""
        caller = self.caller
        if caller.principal is None:
            return None
        rights = frozenset[Right]([right for right in _RIGHTS if caller.may(right)])
        return Author(caller.principal, rights, caller.auth)

    # -- streams ---------------------------------------------------------------------------------------------

    def stream(self) -> AbstractContextManager[None]:
        """Count a stream of the caller while it is open; raises `Overloaded` at the limit."""
        return self.serving.stream(self.caller)

    def respond(self, frames: AsyncGenerator[bytes], **headers: str) -> EventStream:
        """A stream of events, whose last frame says why it ends."""
        return EventStream(
            frames,
            headers=headers,
            drained=end_frame("draining"),
            revoked=end_frame("unauthenticated"),
            admit=self.stream,
        )

    async def end_reason(self, thread: str, *, follow: bool) -> str:
        """Why a thread's events ended: a followed thread is deleted, or the server shuts down."""
        if not follow:
            return "log_end"
        with suppress(RuntimeClosed):
            if await self.runtime.store.thread(thread) is None:
                return "thread_deleted"
        return "draining"

    # -- rights ----------------------------------------------------------------------------------------------

    async def narrow(self, kind: str, action: str | None = None) -> Filter:
        """The filter of a list of this kind; raises `NotAllowed` if the caller may see none of it."""
        action = action or self.operation.scope
        match await self.serving.authorize(self.caller, action, Resource(kind)):
            case Filter() as narrowed:
                return narrowed
            case Deny(reason):
                raise self.refused(action, reason)
            case _:
                return Filter(agents=self.caller.agents)

    def agents_of(self, narrowed: Filter, wanted: str | None) -> tuple[str, ...] | None:
        """The agents that a list is about: the wanted one, within those that the caller may see; None for any."""
        scope, caller = self.operation.scope, self.caller
        may_see = narrowed.agents
        if not caller.may(scope, ""):  # Its scope is for some agents.
            named = tuple([each.id for each in self.serving.agents if caller.may(scope, each.id)])
            may_see = named if may_see is None else tuple([agent for agent in may_see if agent in named])
        if wanted is None:
            return may_see
        return (wanted,) if may_see is None or wanted in may_see else ()

    async def require(self, resource: Resource, action: str | None = None) -> None:
        """Check an action, by default the operation's own, on a resource.

        Raises the error of an unknown id if the caller may not read the resource, else `NotAllowed`.
        """
        action = action or self.operation.scope
        verdict = await self._verdict(action, resource)
        if verdict is None:
            return
        noun = action.partition(":")[0]
        reads = f"{noun}:read"
        if action == reads or (await self._verdict(reads, resource)) is not None:
            await self.audit("denied", resource.kind, resource.id, action)
            kind = _UNKNOWN.get(resource.kind, UsageError)
            raise kind(f"no {resource.kind} {resource.id!r:.80} for this caller")
        self._refused = (resource.kind, resource.id, action)
        raise self.refused(action, verdict.reason if isinstance(verdict, Deny) else "")

    async def permits(self, action: str, resource: Resource) -> bool:
        """Whether the caller may do an action on a resource."""
        return await self._verdict(action, resource) is None

    async def _verdict(self, action: str, resource: Resource) -> Verdict | None:
        """Why an action is refused; None if it is allowed."""
        if not self.caller.may(action, resource.agent):
            return Deny()
        verdict = await self.serving.authorize(self.caller, action, resource)
        return None if admits(verdict, resource) else verdict

    async def find(self, found: Callable[[], Awaitable[T]], kind: str, an_id: str) -> T:
        """Read a resource; one that doesn't exist and one that the caller may not read give equal errors."""
        try:
            return await found()
        except (UnknownRun, UnknownThread, UnknownTicket, UnknownGrant, UnknownTask) as error:
            raise type(error)(f"no {kind} {an_id!r:.80} for this caller") from None

    def refused(self, action: str, reason: str = "") -> NotAllowed:
        """The error of an action that the caller may not do."""
        why = reason or f"the credential of {self.caller.id or 'this caller'} doesn't permit it"
        return NotAllowed(f"{self.operation.name} needs the right {action!r}: {why}", action)

    def check_agent(self, agent: str | None) -> None:
        """Refuse an agent that isn't served here, or that the caller may not use."""
        if agent is None:
            return
        if agent not in {served.id for served in self.serving.agents}:
            raise UnknownAgent(f"no agent {agent!r:.80} is served here; GET /v1/agents lists those that are")
        if not self.caller.may(self.operation.scope, agent):
            raise self.refused(f"{self.operation.scope}:{agent}")

    def grantable(self, scopes: Sequence[str]) -> tuple[str, ...]:
        """Scopes that the caller may give to a key: those that it has itself."""
        found = check_scopes(scopes)
        for scope in found:
            noun, _, rest = scope.partition(":")
            verb, _, agent = rest.partition(":")
            if not self.caller.may(f"{noun}:{verb}" if rest else scope, agent or None):
                raise self.refused(scope, "a key can't have a scope that its creator lacks")
        return found

    async def audit(
        self, outcome: Literal["allowed", "denied", "done"], kind: str, an_id: str | None, action: str = ""
    ) -> None:
        """Write an entry of the audit."""
        await self.serving.audit(self.runtime, self.caller, action or self.operation.name, outcome, kind, an_id)

    async def audit_refusal(self, kind: str, an_id: str | None) -> None:
        """Write an entry for a refusal of this call, about this resource unless `require` refused another."""
        kind, an_id, action = self._refused or (kind, an_id, self.operation.scope)
        self._refused = None
        await self.audit("denied", kind, an_id, action)

    # -- conditions ------------------------------------------------------------------------------------------

    @property
    def request_id(self) -> Request | None:
        """The request of this call's `Idempotency-Key`, with a digest of path and body; None without one.

        Keys belong to a principal and an operation.
        """
        found = self._key_digest()
        if found is None:
            return None
        digest = sha256(self.http.url.path.encode() + b"\n" + self.body).hexdigest()[:32]
        return Request(f"http:{found[:32]}", digest)

    @property
    def derived_id(self) -> str | None:
        """An id of eight letters and digits, made of the `Idempotency-Key`; None without one."""
        found = self._key_digest()
        return None if found is None else found[:8]

    def _key_digest(self) -> str | None:
        key = self.http.headers.get("idempotency-key")
        if key is None:
            return None
        if not 1 <= len(key) <= MAX_KEY:
            raise UsageError(f"Idempotency-Key has 1 to {MAX_KEY} characters, not {len(key)}")
        owner = f"{self.caller.id or ''}\n{self.operation.name}\n{key}"
        return sha256(owner.encode()).hexdigest()

    @property
    def revision(self) -> int | None:
        """The revision in `If-Match`, which is required; None for any."""
        given = self.http.headers.get("if-match")
        if given is None:
            raise HTTPException(428, "say which revision you saw: If-Match: <the ETag>, or * for any")
        text = given.strip().removeprefix("W/").strip('"')
        if text != "*" and not text.isdecimal():
            raise HTTPException(412, f"{given!r:.80} is no ETag of this resource; read it again")
        return None if text == "*" else int(text)

    @contextmanager
    def expecting_version(self) -> Generator[None]:
        """Reply with 412 if the resource isn't at the revision that the caller saw."""
        try:
            yield
        except Conflict as error:
            raise HTTPException(412, str(error)) from error
