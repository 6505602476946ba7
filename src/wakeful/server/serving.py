"""State that a server's protocols share: runtime, auth, limits, and work that outlives its request."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from typing import Any, Literal, TypeVar

from ..agents import Agent
from ..errors import NotAllowed, Overloaded, RuntimeClosed, report
from ..identity import Authenticator, Authorize, Caller
from ..runtime import Runtime, TenantRuntime
from ..stores import Records
from ..types.ids import new_id, now_ms
from ..types.records import AuditEntry
from .grpc import Grpc
from .hosts import is_loopback
from .limits import ServerLimits
from .rates import Counts, Quotas
from .watch import Watch
from .webhooks import Webhooks

__all__ = ["Serving"]

T = TypeVar("T")

# How often the store is asked for what detached work has to store.
LOOK_SECONDS = 0.02

_log = logging.getLogger("wakeful.server")


class Serving:
    """The shared part of one server; each protocol makes its routes from it.

    `auth` is the chain of authenticators, empty for a server that lets everybody in. `hosts` are the names beside
    loopback ones that the server has, by which it can be reached without authentication; None stands for any.
    `origins` are the foreign origins whose pages may send requests. Exports are signed with the `export_key`, and
    imports without its signature refused.
    """

    def __init__(
        self,
        runtime: TenantRuntime,
        agents: tuple[Agent, ...],
        *,
        auth: tuple[Authenticator, ...],
        authorize: Authorize,
        limits: ServerLimits,
        public_url: str | None,
        webhooks: Webhooks,
        messages: frozenset[str],
        hosts: frozenset[str] | None,
        origins: frozenset[str],
        export_key: bytes | None = None,
        grpc: Grpc | None = None,
    ) -> None:
        self.runtime = runtime
        self.agents = agents
        self.auth = auth
        self.authorize = authorize
        self.limits = limits
        self.public_url = public_url
        self.webhooks = webhooks
        self.messages = messages
        self.hosts = hosts
        self.origins = origins
        self.export_key = export_key
        self.grpc = grpc
        # The port of the gRPC listener while it is open.
        self.grpc_port: int | None = None
        self.watch = Watch(limits.watch_seconds)
        self.quotas = Quotas(limits, runtime.store.tenant_name)
        self.services: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self.listeners: list[Callable[[], AbstractAsyncContextManager[None]]] = []
        self._work: set[asyncio.Task[Any]] = set()
        self._streams = 0
        self._streams_of = Counts(limits.principal_streams, "open streams")

    @property
    def cluster(self) -> Runtime | None:
        """The runtime of all tenants, for workers and metrics; None if the server serves one tenant."""
        return self.runtime if isinstance(self.runtime, Runtime) else None

    def has_name(self, host: str) -> bool:
        """Whether a host is a name of this server: a loopback one, or one that its configuration lists."""
        return self.hosts is None or host in self.hosts or is_loopback(host)

    def is_own(self, caller: Caller) -> bool:
        """Whether a caller is of the tenant that the server serves by default, which what concerns all is for."""
        return caller.tenant in (None, self.runtime.store.tenant_name)

    def runtime_of(self, caller: Caller) -> TenantRuntime:
        """The handle of the caller's tenant, from which no other tenant can be reached."""
        own = self.runtime.store.tenant_name
        tenant = own if caller.tenant is None else caller.tenant
        if self.cluster is not None:
            return self.cluster.tenant(tenant)
        if tenant != own:
            raise NotAllowed(f"this server doesn't serve the tenant of {caller.id or 'this caller'}")
        return self.runtime

    async def audit(
        self,
        runtime: TenantRuntime,
        caller: Caller,
        action: str,
        outcome: Literal["allowed", "denied", "done"],
        resource: str,
        resource_id: str | None,
    ) -> None:
        """Write an entry of the audit of the caller's tenant. A server without authentication keeps none."""
        if not self.auth:
            return
        auth, _, key_id = caller.auth.partition(":")
        entry = AuditEntry(
            id=new_id(),
            at=now_ms(),
            action=action,
            outcome=outcome,
            principal_id=caller.id,
            auth=auth,
            key_id=key_id or None,
            resource=resource,
            resource_id=resource_id,
        )
        await runtime.store.put(Records([entry]))

    def detach(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start work that continues after its request ended."""
        task = asyncio.get_running_loop().create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        return task

    async def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Detach work and wait for its result; if the request is cancelled, the work continues."""
        task = self.detach(work)
        try:
            return await asyncio.shield(task)
        finally:
            self.log_errors(task)

    async def detach_until(
        self, work: Coroutine[Any, Any, T], is_there: Callable[[], Awaitable[bool]]
    ) -> asyncio.Task[T]:
        """Detach work and wait until it is done, or what it has to store is there."""
        task = self.detach(work)
        while not task.done() and not await is_there():
            await asyncio.wait({task}, timeout=LOOK_SECONDS)
        if not task.done():
            self.log_errors(task)
        return task

    def log_errors(self, task: asyncio.Task[Any]) -> None:
        """Log the error of detached work that nobody awaits any more."""
        if not task.done():
            task.add_done_callback(_log_error)

    @contextmanager
    def stream(self, caller: Caller) -> Generator[None]:
        """Count a stream of a caller while it is open; raises `Overloaded` at the limit."""
        if self._streams >= self.limits.streams:
            raise Overloaded(f"{self.limits.streams:,} streams are open, the limit; poll instead, or try again")
        tenant = caller.tenant or self.runtime.store.tenant_name
        with nullcontext() if caller.id is None else self._streams_of.one(f"{tenant}/{caller.id}"):
            self._streams += 1
            try:
                yield
            finally:
                self._streams -= 1

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Open the runtime, the services and the listeners; on exit, stop them and wait for detached work."""
        async with self.runtime:
            services = [asyncio.get_running_loop().create_task(service()) for service in self.services]
            try:
                async with AsyncExitStack() as listening:
                    for listener in self.listeners:
                        await listening.enter_async_context(listener())
                    yield
            finally:
                for service in services:
                    service.cancel()
                await asyncio.gather(*services, return_exceptions=True)
        if self._work:
            await asyncio.wait(self._work)


def _log_error(task: asyncio.Task[Any]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, RuntimeClosed):
        report(_log, error, "work failed after its request ended")
