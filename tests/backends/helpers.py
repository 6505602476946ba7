"""A scripted backend, and a store that fails at a chosen commit."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from wakeful import Agent, MemoryStore, Runtime
from wakeful.backends import (
    AbortRequest,
    BackendResult,
    Capabilities,
    DelegateRequest,
    ExecutionBackend,
    RootRequest,
)
from wakeful.errors import StoreUnavailable
from wakeful.stores import Commit, Committed
from wakeful.testing import Recorder

Request = RootRequest | DelegateRequest
Act = Callable[[Any], BackendResult | Awaitable[BackendResult]]

# A backend that keeps its own conversation, asks questions and can be aborted.
REMOTE = Capabilities(
    "abort",
    False,
    False,
    False,
    "remote",
    "input_and_auth",
    "incremental",
    persistence=("ephemeral", "durable"),
)


class Scripted(ExecutionBackend):
    """Answers each request with the next turn: a text, a result, an error, or a function of the request."""

    def __init__(self, *turns: str | BackendResult | Exception | Act, capabilities: Capabilities | None = None):
        self._turns = list(turns)
        self.requests: list[Any] = []
        self.delegated: list[DelegateRequest] = []
        self.aborts: list[AbortRequest] = []
        if capabilities is not None:
            self.capabilities = capabilities

    async def execute_root(self, request: RootRequest) -> BackendResult:
        return await self._next(request)

    async def execute_delegate(self, request: DelegateRequest) -> BackendResult:
        self.delegated.append(request)
        return await self._next(request)

    async def _next(self, request: Request) -> BackendResult:
        self.requests.append(request)
        turn = self._turns.pop(0)
        if isinstance(turn, Exception):
            raise turn
        if isinstance(turn, str):
            return BackendResult(request.agent_id, response=turn)
        if callable(turn):
            result = turn(request)
            return await result if inspect.isawaitable(result) else result  # type: ignore[return-value]
        return turn

    async def abort(self, request: AbortRequest) -> None:
        self.aborts.append(request)


class FailingStore(MemoryStore):
    """Fails at the first commit that a test selects."""

    def __init__(self, picks: Callable[[Commit], bool]) -> None:
        super().__init__()
        self._picks = picks

    async def commit(self, commit: Commit) -> Committed:
        if self._picks(commit):
            raise StoreUnavailable("the disk is gone")
        return await super().commit(commit)


def serving(backend: ExecutionBackend, store: Any = None, **options: Any) -> Runtime:
    """A runtime whose agent `far` has this backend."""
    return Runtime([Agent("far", backend=backend)], store=store, **options)


async def recorded(runtime: Runtime, text: str = "hi", thread: str = "t") -> Recorder:
    """The events of a run of `far`."""
    return await Recorder().record(runtime.stream("far", text, thread=thread, check=False))
