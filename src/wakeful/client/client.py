"""The client: the everyday verbs of the runtime, over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Self, cast

import httpx
import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from ..agents import Agent
from ..api.operators import ListAudit, Me
from ..api.runs import MAX_WAIT, CancelRun, ClientToolBody, CreateRun, ResumeRun, Wanted
from ..api.threads import SendMessage
from ..dispatch import RunResult
from ..errors import UsageError
from ..runtime.loop_thread import OwnLoop
from ..stores import UsageKey, UsageRow
from ..tools import ClientTool
from ..tools.schema import Shape
from ..types.events import AnyEvent
from ..types.generics import RunOutput
from ..types.inbox import InputPolicy
from ..types.mail import Receipt
from ..types.records import AuditEntry
from ..types.requests import ModelSettings
from ..types.runs import PRIORITY
from ..types.tickets import Decision
from .events import resumed
from .grants import Grants
from .http import Http, path_of
from .memories import Memories
from .nouns import Agents, Mail, Runs, Tasks, Threads, checked, ms, pages
from .operators import Keys, Schedules, Workers
from .tickets import Tickets, answer_body, decision_body

__all__ = ["Client", "RunHandle"]

GRACE = 5.0


class Client:
    """Runs agents behind a server's URL, with the verbs, types and errors of `Runtime`.

    Requests are repeated after a failure under the same idempotency key, and streams resume by themselves. Use it
    as an async context manager, or close it. `key` is an API key, a token or a JWT; the server decides what it
    permits.
    """

    def __init__(
        self, url: str, key: str | None = None, *, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self._http = Http(url, key, transport)
        self._loop = OwnLoop()
        self.agents = Agents(self._http)
        self.runs = Runs(self._http, self._settled)
        self.threads = Threads(self._http)
        self.tickets = Tickets(self._http, self._settled)
        self.grants = Grants(self._http)
        self.tasks = Tasks(self._http)
        self.mail = Mail(self._http)
        self.schedules = Schedules(self._http)
        self.memories = Memories(self._http)
        self.workers = Workers(self._http)
        self.keys = Keys(self._http)

    def __repr__(self) -> str:
        return f"Client({self._http.url!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections. Runs continue."""
        await self._http.close()

    async def me(self) -> Me:
        """The caller, as the server sees it."""
        return await self._http.get("/v1/me", Me)

    async def run(
        self,
        agent: str | Agent[RunOutput],
        input: Any,
        *,
        thread: str | None = None,
        settings: ModelSettings | None = None,
        client_tools: Sequence[ClientTool] = (),
        request_id: str | None = None,
        check: bool = True,
    ) -> RunResult[RunOutput]:
        """Run an agent on a thread, a new one by default, until the run waits or is done; see `Runtime.run`."""
        body = _new_run(agent, input, thread, settings, client_tools, wait=MAX_WAIT)
        found = await self._http.post("/v1/runs", RunResult[Any], body, request_id=request_id)
        return checked(_typed(agent, await self._settled(found)), check=check)

    async def start(
        self,
        agent: str | Agent[RunOutput],
        input: Any,
        *,
        thread: str | None = None,
        settings: ModelSettings | None = None,
        client_tools: Sequence[ClientTool] = (),
        request_id: str | None = None,
        message_id: str | None = None,
        delay: float | None = None,
        at: datetime | None = None,
        priority: int = PRIORITY,
    ) -> RunHandle:
        """Start a run, and return once it is in the store; see `Runtime.start`."""
        if delay is not None and at is not None:
            raise UsageError("give a delay or a time, not both")
        body = _new_run(agent, input, thread, settings, client_tools)
        body = replace(body, message_id=message_id, delay=delay, at=ms(at), priority=priority)
        found = await self._http.post("/v1/runs", RunResult[Any], body, request_id=request_id)
        return RunHandle(self, found.run_id, found.thread_id)

    async def stream(
        self,
        agent: str | Agent[Any],
        input: Any,
        *,
        thread: str | None = None,
        settings: ModelSettings | None = None,
        client_tools: Sequence[ClientTool] = (),
        check: bool = True,
    ) -> AsyncIterator[AnyEvent]:
        """Run an agent and yield its events as they happen; see `Runtime.stream`.

        The run continues if you leave the stream. A broken stream is resumed after its last event.
        """
        handle = await self.start(agent, input, thread=thread, settings=settings, client_tools=client_tools)
        async for event in resumed(self._http, path_of("/v1/runs/{}/events", handle.run_id), "0", {}):
            yield event
        if check:
            checked(await self.runs.result(handle.run_id), check=check)

    async def resume(
        self,
        run_id: str,
        *decisions: Decision,
        answers: Mapping[str, Any] | None = None,
        message: Any = None,
        request_id: str | None = None,
        message_id: str | None = None,
        check: bool = True,
    ) -> RunResult[Any]:
        """Answer a waiting run's tickets and continue it; see `Runtime.resume`."""
        given = [decision_body(each) for each in decisions]
        given += [answer_body(ticket, value) for ticket, value in (answers or {}).items()]
        body = ResumeRun(decisions=tuple(given), message=message, message_id=message_id, wait=MAX_WAIT)
        path = path_of("/v1/runs/{}/resume", run_id)
        found = await self._http.post(path, RunResult[Any], body, request_id=request_id)
        return checked(await self._settled(found), check=check)

    async def cancel(self, run_id: str, reason: str = "cancelled by request") -> bool:
        """Cancel a run with everything below it; False if it was done before."""
        path = path_of("/v1/runs/{}/cancel", run_id)
        return (await self._http.post(path, Wanted, CancelRun(reason=reason))).changed

    async def wait(self, run_id: str, *, check: bool = True) -> RunResult[Any]:
        """Wait until a run waits or is done."""
        return checked(await self._settled(await self.runs.result(run_id)), check=check)

    async def send(
        self,
        thread: str,
        input: Any,
        *,
        agent: str | Agent[Any] | None = None,
        policy: InputPolicy | None = None,
        request_id: str | None = None,
        at: datetime | None = None,
        priority: int = PRIORITY,
    ) -> Receipt:
        """Put input into a thread's inbox, without waiting for its run; see `Runtime.send`."""
        name = agent.id if isinstance(agent, Agent) else agent
        body = SendMessage(input=_input(input), agent=name, policy=policy, at=ms(at), priority=priority)
        path = path_of("/v1/threads/{}/messages", thread)
        return await self._http.post(path, Receipt, body, request_id=request_id)

    def events(
        self, thread: str, *, after: int | str = 0, follow: bool = True, snapshot: bool = False
    ) -> AsyncIterator[AnyEvent]:
        """A thread's events after a cursor; see `Runtime.events`."""
        query = {"follow": follow, "snapshot": snapshot}
        return resumed(self._http, path_of("/v1/threads/{}/events", thread), str(after), query)

    async def usage(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        by: Sequence[UsageKey] = ("agent", "model", "day"),
    ) -> Sequence[UsageRow]:
        """Requests to models, their tokens, cost, latency and errors; see `Runtime.usage`."""
        return await self._http.get("/v1/usage", list[UsageRow], since=ms(since), until=ms(until), by=tuple(by))

    async def audit(self, *, limit: int | None = 100) -> Sequence[AuditEntry]:
        """The audit of the tenant, newest first, for callers with the scope `audit:read`."""
        return await pages(self._http, "/v1/audit", AuditEntry, ListAudit(), limit)

    def run_sync(self, agent: str | Agent[RunOutput], input: Any, **options: Any) -> RunResult[RunOutput]:
        """`run` for programs without an event loop; takes the same options."""
        return self._loop.run(self, lambda: self.run(agent, input, **options), GRACE)

    def resume_sync(self, run_id: str, *decisions: Decision, **options: Any) -> RunResult[Any]:
        """`resume` for programs without an event loop; takes the same options."""
        return self._loop.run(self, lambda: self.resume(run_id, *decisions, **options), GRACE)

    def close_sync(self) -> None:
        """`close` for programs without an event loop."""
        self._loop.run(self, self.close, GRACE)

    async def _settled(self, found: RunResult[Any]) -> RunResult[Any]:
        """The result once the run waits or is done."""
        path = path_of("/v1/runs/{}/result", found.run_id)
        while found.status not in ("waiting", "done"):
            found = await self._http.get(path, RunResult[Any], wait=MAX_WAIT)
        return found


class RunHandle:
    """A started run."""

    def __init__(self, client: Client, run_id: str, thread_id: str) -> None:
        self._client = client
        self.run_id = run_id
        self.thread_id = thread_id

    def __repr__(self) -> str:
        return f"RunHandle({self.run_id!r}, {self.thread_id!r})"

    async def result(self, *, check: bool = True) -> RunResult[Any]:
        """Wait until the run waits or is done."""
        return await self._client.wait(self.run_id, check=check)

    async def cancel(self, reason: str = "cancelled by request") -> bool:
        """Cancel the run with everything below it; False if it was done before."""
        return await self._client.cancel(self.run_id, reason)

    def events(self, *, after: int | str = 0) -> AsyncIterator[AnyEvent]:
        """The thread's events after a cursor, as they happen."""
        return self._client.events(self.thread_id, after=after)


def _new_run(
    agent: str | Agent[Any],
    input: Any,
    thread: str | None,
    settings: ModelSettings | None,
    client_tools: Sequence[ClientTool],
    wait: float = 0,
) -> CreateRun:
    tools = [
        ClientToolBody(name=each.name, description=each.description, parameters=each.spec.parameters)
        for each in client_tools
    ]
    return CreateRun(
        agent=agent.id if isinstance(agent, Agent) else agent,
        input=_input(input),
        thread=thread,
        client_tools=tuple(tools),
        settings=settings,
        wait=wait,
    )


def _input(given: Any) -> Any:
    """Input as JSON has it: a text, content parts, or a value of the agent's input type."""
    dump = getattr(given, "model_dump", None)
    if dump is not None:
        return dump(mode="json", by_alias=True)
    return list(cast(tuple[Any, ...], given)) if isinstance(given, tuple) else given


def _typed(agent: str | Agent[Any], result: RunResult[Any]) -> RunResult[Any]:
    """The result with its output as a value of the agent's output type, if the agent itself was passed."""
    raw = getattr(result, "_output", UNSET)
    if not isinstance(agent, Agent) or agent.output is None or raw is UNSET:
        return result
    return replace(result, _output=Shape(agent.output).decode(msgspec.json.encode(raw)))
