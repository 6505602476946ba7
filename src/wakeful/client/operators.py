"""The namespaces of operators: schedules, workers and API keys."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from ..api.operators import CreatedKey, CreateKey, KeyView, ListDispatches, PutSchedule
from ..api.pages import PageQuery
from ..api.runs import Wanted
from ..stores import Backlog, Dispatch, WorkerSeen
from ..tasks import Schedule
from ..types.mail import Receipt
from ..types.records import KeyKind
from .http import path_of
from .nouns import Noun, ms, pages

__all__ = ["Keys", "Schedules", "Workers"]


class Schedules(Noun):
    """`client.schedules`: see `runtime.schedules`."""

    async def put(
        self,
        name: str,
        target: str,
        input: Any = None,
        *,
        cron: str | None = None,
        tz: str = "UTC",
        at: datetime | None = None,
        delay: float | None = None,
        missed: Any = "once",
        thread: str | None = None,
    ) -> Schedule:
        """Start an agent's run at the times of a `cron` expression, once `at` a time, or once after a `delay`."""
        body = PutSchedule(
            agent=target, input=input, cron=cron, tz=tz, at=ms(at), delay=delay, missed=missed, thread=thread
        )
        return await self._http.call("PUT", path_of("/v1/schedules/{}", name), Schedule, body=body)

    async def get(self, name: str) -> Schedule:
        """A schedule with its last and next times; raises `UnknownSchedule`."""
        return await self._http.get(path_of("/v1/schedules/{}", name), Schedule)

    async def run_now(self, name: str, *, request_id: str | None = None) -> Receipt:
        """Start an occurrence at once, also of a paused schedule; its other times stay."""
        return await self._http.post(path_of("/v1/schedules/{}/run-now", name), Receipt, request_id=request_id)

    async def pause(self, name: str) -> Schedule:
        """Start no more occurrences until `unpause`."""
        return await self._http.post(path_of("/v1/schedules/{}/pause", name), Schedule)

    async def unpause(self, name: str) -> Schedule:
        """Continue a paused schedule with its first time from now on."""
        return await self._http.post(path_of("/v1/schedules/{}/unpause", name), Schedule)

    async def times(self, name: str, count: int = 5) -> Sequence[int]:
        """The next times of a schedule in milliseconds; none while it is paused."""
        return await self._http.get(path_of("/v1/schedules/{}/times", name), list[int], count=count)

    async def list(self) -> Sequence[Schedule]:
        """All schedules by name."""
        return await self._http.get("/v1/schedules", list[Schedule])

    async def delete(self, name: str) -> bool:
        """Delete a schedule; False if there is none of that name."""
        return (await self._http.call("DELETE", path_of("/v1/schedules/{}", name), Wanted)).changed


class Workers(Noun):
    """`client.workers`: see `runtime.workers`."""

    async def list(self, *, limit: int = 100) -> Sequence[WorkerSeen]:
        """The workers of all tenants; see `runtime.workers.list`."""
        return await self._http.get("/v1/workers", list[WorkerSeen], limit=limit)

    async def backlog(self) -> Backlog:
        """Dispatches of all tenants that wait for a worker, by tenant and agent, and the number of dead ones."""
        return await self._http.get("/v1/workers/backlog", Backlog)

    async def dispatches(
        self, *, dead: bool | None = None, after: str | None = None, limit: int | None = 100
    ) -> Sequence[Dispatch]:
        """Threads that are due for a worker or claimed by one, by thread id."""
        query = ListDispatches(dead=dead)
        return await pages(self._http, "/v1/workers/dispatches", Dispatch, query, limit, after)

    async def revive(self, thread: str) -> bool:
        """Put a thread's dead dispatch back; False if it has none."""
        return (await self._http.post(path_of("/v1/workers/dispatches/{}/revive", thread), Wanted)).changed


class Keys(Noun):
    """`client.keys`: the API keys of the caller's tenant, for callers with the scope `keys:admin`."""

    async def list(self, *, limit: int | None = 100) -> Sequence[KeyView]:
        """The keys, newest first, revoked ones included."""
        return await pages(self._http, "/v1/keys", KeyView, PageQuery(), limit)

    async def get(self, key: str) -> KeyView:
        """A key; raises `UnknownKey`."""
        return await self._http.get(path_of("/v1/keys/{}", key), KeyView)

    async def create(
        self,
        name: str,
        *,
        scopes: Collection[str],
        principal: str | None = None,
        kind: KeyKind = "user",
        groups: Sequence[str] = (),
        agents: Sequence[str] | None = None,
        expires_at: int | None = None,
        request_id: str | None = None,
    ) -> CreatedKey:
        """Create a key, whose text is shown this once. `expires_at` is in milliseconds."""
        body = CreateKey(
            name=name,
            scopes=tuple(scopes),
            principal=principal,
            kind=kind,
            groups=tuple(groups),
            agents=None if agents is None else tuple(agents),
            expires_at=expires_at,
        )
        return await self._http.post("/v1/keys", CreatedKey, body, request_id=request_id)

    async def revoke(self, key: str) -> KeyView:
        """Revoke a key; every server refuses it within a second."""
        return await self._http.post(path_of("/v1/keys/{}/revoke", key), KeyView)
