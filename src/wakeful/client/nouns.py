"""The namespaces of a client: the nouns of the runtime, over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from ..api.agents import AgentView, WrittenTest
from ..api.operators import CreateTask
from ..api.pages import Page, Paged, cursor_of
from ..api.runs import MAX_WAIT, CancelRun, ListRuns, Wanted
from ..api.threads import (
    DescribeThread,
    EditInput,
    Forked,
    ForkThread,
    ImportThread,
    ListDeadLetters,
    ListThreads,
    MoveInput,
    RelayView,
    Removed,
)
from ..dispatch import RunResult
from ..errors import UnknownAgent
from ..messaging import PendingInput
from ..runtime import Ledger, ParkedProblem, RunTree
from ..stores import ChildPolicy, OutcomeKind, Tally, ThreadRecord
from ..types.calls import Call
from ..types.mail import DeadLetter
from ..types.messages import Message
from ..types.runs import ErrorDetail, Failed, RunRecord, RunStatus, TaskRecord, TaskStatus, TaskWake, WaitReason
from .http import Http, path_of

__all__ = ["Agents", "Mail", "Noun", "Runs", "Tasks", "Threads", "checked", "ms", "pages"]

PAGE = 200

# Waits until a run waits or is done.
Settled = Callable[[RunResult[Any]], Awaitable[RunResult[Any]]]


def ms(time: datetime | None) -> int | None:
    """A time in milliseconds."""
    return None if time is None else round(time.timestamp() * 1000)


def checked(result: RunResult[Any], *, check: bool) -> RunResult[Any]:
    """The result; raises `RunFailed` for a failed run if `check`."""
    if check and isinstance(result.termination, Failed):
        raise result.failure()
    return result


async def pages(
    http: Http, path: str, kind: Any, query: Paged, limit: int | None, after: str | None = None
) -> list[Any]:
    """The items of a list, page by page, up to a limit; those that follow the key `after`."""
    found: list[Any] = []
    cursor = None if after is None else cursor_of(query, after)
    wanted = msgspec.to_builtins(query)
    while limit is None or len(found) < limit:
        size = PAGE if limit is None else min(PAGE, limit - len(found))
        page = await http.get(path, Page[kind], **{**wanted, "limit": size, "cursor": cursor})
        found += page.items
        cursor = page.next
        if cursor is None:
            break
    return found


class Noun:
    """A namespace of a client."""

    def __init__(self, http: Http) -> None:
        self._http = http


class Agents(Noun):
    """`client.agents`: the agents that the server offers."""

    async def list(self) -> Sequence[AgentView]:
        """All agents."""
        return await self._http.get("/v1/agents", list[AgentView])

    async def get(self, agent: str) -> AgentView:
        """An agent with its tools; raises `UnknownAgent`."""
        if not agent:
            raise UnknownAgent("an agent is named by a text that isn't empty")
        return await self._http.get(path_of("/v1/agents/{}", agent), AgentView)


class Runs(Noun):
    """`client.runs`: see `runtime.runs`."""

    def __init__(self, http: Http, settled: Settled) -> None:
        super().__init__(http)
        self._settled = settled

    async def get(self, run_id: str) -> RunRecord:
        """A run's record; raises `UnknownRun`."""
        return await self._http.get(path_of("/v1/runs/{}", run_id), RunRecord)

    async def list(
        self,
        *,
        thread: str | None = None,
        status: RunStatus | None = None,
        agent: str | None = None,
        principal: str | None = None,
        root: str | None = None,
        parent: str | None = None,
        outcome: OutcomeKind | None = None,
        waits_for: WaitReason | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        before: str | None = None,
        limit: int | None = 100,
    ) -> Sequence[RunRecord]:
        """Run records, newest first; see `runtime.runs.list`."""
        query = ListRuns(
            thread=thread,
            status=status,
            agent=agent,
            principal=principal,
            root=root,
            parent=parent,
            outcome=outcome,
            waits_for=waits_for,
            since=ms(since),
            until=ms(until),
        )
        return await pages(self._http, "/v1/runs", RunRecord, query, limit, before)

    async def count(
        self,
        *,
        thread: str | None = None,
        status: RunStatus | None = None,
        agent: str | None = None,
        principal: str | None = None,
        root: str | None = None,
        parent: str | None = None,
        outcome: OutcomeKind | None = None,
        waits_for: WaitReason | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Tally:
        """The number of runs, counted up to 10,000; the filters are those of `list`."""
        return await self._http.get(
            "/v1/runs:count",
            Tally,
            thread=thread,
            status=status,
            agent=agent,
            principal=principal,
            root=root,
            parent=parent,
            outcome=outcome,
            waits_for=waits_for,
            since=ms(since),
            until=ms(until),
        )

    async def result(self, run_id: str) -> RunResult[Any]:
        """A run's result so far, without waiting for more."""
        return await self._http.get(path_of("/v1/runs/{}/result", run_id), RunResult[Any])

    async def errors(self, run_id: str) -> Sequence[ErrorDetail]:
        """The texts of a run's unexpected exceptions, for operators."""
        return await self._http.get(path_of("/v1/runs/{}/errors", run_id), list[ErrorDetail])

    async def calls(self, run_id: str) -> Sequence[Call]:
        """A run's tool calls, in order."""
        return await self._http.get(path_of("/v1/runs/{}/calls", run_id), list[Call])

    async def ledger(self, run_id: str) -> Ledger:
        """A run's tool calls by state."""
        return await self._http.get(path_of("/v1/runs/{}/ledger", run_id), Ledger)

    async def tree(self, run_id: str) -> RunTree:
        """A run with all runs below it."""
        return await self._http.get(path_of("/v1/runs/{}/tree", run_id), RunTree)

    async def write_test(self, run_id: str) -> str:
        """A test for pytest that repeats a run; see `wakeful.testing.write_test`."""
        return (await self._http.get(path_of("/v1/runs/{}/test", run_id), WrittenTest)).source

    async def check_parked(self) -> Sequence[ParkedProblem]:
        """The waiting runs that the server's code can't continue, and why."""
        return await self._http.get("/v1/runs:parked", list[ParkedProblem])

    async def retry(self, run_id: str, *, request_id: str | None = None, check: bool = True) -> RunResult[Any]:
        """Continue a failed run from its last committed step; see `runtime.runs.retry`."""
        path = path_of("/v1/runs/{}/retry", run_id) + f"?wait={MAX_WAIT:g}"
        found = await self._http.post(path, RunResult[Any], request_id=request_id)
        return checked(await self._settled(found), check=check)

    async def pause(self, run_id: str) -> bool:
        """Pause a run at its next step; False if it is done."""
        return (await self._http.post(path_of("/v1/runs/{}/pause", run_id), Wanted)).changed

    async def unpause(self, run_id: str) -> bool:
        """Continue a paused run; False if it is done."""
        return (await self._http.post(path_of("/v1/runs/{}/unpause", run_id), Wanted)).changed


class Threads(Noun):
    """`client.threads`: see `runtime.threads`."""

    async def get(self, thread: str) -> ThreadRecord:
        """A thread's record; raises `UnknownThread`."""
        return await self._http.get(path_of("/v1/threads/{}", thread), ThreadRecord)

    async def list(
        self,
        *,
        principal: str | None = None,
        agent: str | None = None,
        base: str | None = None,
        before: str | None = None,
        limit: int | None = 100,
    ) -> Sequence[ThreadRecord]:
        """Threads, newest first; see `runtime.threads.list`."""
        query = ListThreads(principal=principal, agent=agent, base=base)
        return await pages(self._http, "/v1/threads", ThreadRecord, query, limit, before)

    async def messages(self, thread: str, *, newest: int | None = None) -> Sequence[Message]:
        """A thread's conversation, oldest first: all of it, or the `newest` messages."""
        path, found = path_of("/v1/threads/{}/messages", thread), list[Message]()
        cursor = None
        while newest is None or len(found) < newest:
            size = PAGE if newest is None else min(PAGE, newest - len(found))
            page = await self._http.get(path, Page[Message], limit=size, cursor=cursor)
            found[:0] = page.items
            cursor = page.next
            if cursor is None:
                break
        return found

    async def state(self, thread: str) -> dict[str, Any]:
        """The persistent state of a thread and of its open run."""
        return await self._http.get(path_of("/v1/threads/{}/state", thread), dict[str, Any])

    async def describe(
        self, thread: str, *, title: str | None = None, metadata: Mapping[str, Any] | None = None
    ) -> None:
        """Set a thread's title, its metadata, or both."""
        body = DescribeThread(title=title, metadata=None if metadata is None else dict(metadata))
        await self._http.call("PATCH", path_of("/v1/threads/{}", thread), ThreadRecord, body=body)

    async def fork(
        self, thread: str, *, at: int | None = None, into: str | None = None, request_id: str | None = None
    ) -> str:
        """Make a thread that shares this one's conversation up to an entry; returns its id."""
        path, body = path_of("/v1/threads/{}/fork", thread), ForkThread(at=at, into=into)
        return (await self._http.post(path, Forked, body, request_id=request_id)).thread_id

    async def delete(self, thread: str, *, children: ChildPolicy = "reject") -> int:
        """Delete a thread with everything it owns; returns the number of threads deleted."""
        path = path_of("/v1/threads/{}", thread)
        return (await self._http.call("DELETE", path, Removed, query={"children": children})).threads

    async def export(self, thread: str) -> AsyncIterator[bytes]:
        """A thread as lines of JSON for `import_`."""
        response = await self._http.send("GET", path_of("/v1/threads/{}/export", thread))
        for line in response.content.splitlines(keepends=True):
            yield line

    async def import_(
        self, lines: Iterable[str | bytes], *, into: str | None = None, request_id: str | None = None
    ) -> str:
        """Write an exported thread; returns its id. The server checks signatures, with its own key."""
        text = "".join([line if isinstance(line, str) else line.decode() for line in lines])
        body = ImportThread(lines=text, into=into)
        return (await self._http.post("/v1/threads:import", Forked, body, request_id=request_id)).thread_id


class Tasks(Noun):
    """`client.tasks`: see `runtime.tasks`. Only agents can be started from outside the process."""

    async def spawn(
        self,
        target: str,
        prompt: Any,
        *,
        thread: str | None = None,
        name: str | None = None,
        wake: TaskWake = "inbox",
        request_id: str | None = None,
    ) -> TaskRecord:
        """Start an agent's run in the background."""
        body = CreateTask(agent=target, input=prompt, thread=thread, name=name, wake=wake)
        return await self._http.post("/v1/tasks", TaskRecord, body, request_id=request_id)

    async def get(self, task_id: str) -> TaskRecord:
        """A task's record; raises `UnknownTask`."""
        return await self._http.get(path_of("/v1/tasks/{}", task_id), TaskRecord)

    async def list(self, thread: str, *, status: TaskStatus | None = None) -> Sequence[TaskRecord]:
        """The tasks that a thread owns, oldest first."""
        return await self._http.get("/v1/tasks", list[TaskRecord], thread=thread, status=status)

    async def cancel(self, task_id: str, reason: str = "cancelled by request") -> bool:
        """Cancel a task with everything below it; False if it was done before."""
        path = path_of("/v1/tasks/{}/cancel", task_id)
        return (await self._http.post(path, Wanted, CancelRun(reason=reason))).changed


class Mail(Noun):
    """`client.mail`: see `runtime.mail`."""

    async def pending(self, thread: str) -> Sequence[PendingInput]:
        """The input that waits on a thread, in the order in which runs take it."""
        return await self._http.get("/v1/mail/pending", list[PendingInput], thread=thread)

    async def edit(self, input_id: str, text: str, *, revision: int | None = None) -> PendingInput:
        """Replace the text of pending input. With a `revision`, raises `Conflict` if it changed since."""
        path = path_of("/v1/mail/pending/{}", input_id)
        body = EditInput(text=text)
        return await self._http.call("PATCH", path, PendingInput, body=body, revision=revision, versioned=True)

    async def move(
        self, input_id: str, *, before: str | None = None, after: str | None = None, revision: int | None = None
    ) -> PendingInput:
        """Move pending input before or after another one of its thread; to the front by default."""
        path, body = path_of("/v1/mail/pending/{}/move", input_id), MoveInput(before=before, after=after)
        return await self._http.call("POST", path, PendingInput, body=body, revision=revision, versioned=True)

    async def retract(self, input_id: str, *, revision: int | None = None) -> PendingInput:
        """Withdraw pending input before a run takes it."""
        path = path_of("/v1/mail/pending/{}", input_id)
        return await self._http.call("DELETE", path, PendingInput, revision=revision, versioned=True)

    async def dead_letters(
        self, *, thread: str | None = None, after: str | None = None, limit: int | None = None
    ) -> Sequence[DeadLetter]:
        """Messages whose delivery was given up, oldest first."""
        query = ListDeadLetters(thread=thread)
        return await pages(self._http, "/v1/mail/dead-letters", DeadLetter, query, limit, after)

    async def replay(self, message_id: str) -> RelayView:
        """Deliver a dead letter again, under the same id."""
        return await self._http.post(path_of("/v1/mail/dead-letters/{}/replay", message_id), RelayView)

    async def drop(self, message_id: str) -> None:
        """Delete a dead letter."""
        await self._http.send("DELETE", path_of("/v1/mail/dead-letters/{}", message_id))
