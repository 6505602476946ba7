"""A remote delegate whose backend a test scripts, and what its tasks leave in the store."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from backends.helpers import REMOTE
from backends.helpers import Scripted as Far
from loop.helpers import Scripted, soon
from wakeful import Agent, Delegate, MemoryStore, Runtime, StateKey
from wakeful.backends import BackendResult, ExecutionBackend, WaitingInput
from wakeful.stores import Commit, Committed
from wakeful.types.runs import TaskRecord

from .helpers import ask, tasks_of

BACK = ask(background=True, name="w")
FAR = ask("far")
# A remote that can be left work.
LASTING = replace(REMOTE, persistence=("ephemeral", "durable"))
FAR_BACK = ask("far", background=True)


class Topic(StateKey[str, str]):
    """The topic of a thread."""

    name = "topic"
    default = ""


class Seen(MemoryStore):
    """Remembers what was committed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.commits: list[Commit] = []

    async def commit(self, commit: Commit) -> Committed:
        self.commits.append(commit)
        return await super().commit(commit)


def far(*turns: Any) -> Far:
    return Far(*turns, capabilities=LASTING)


def with_far(model: Any, backend: ExecutionBackend, store: Any = None, **options: Any) -> Runtime:
    """A runtime whose `lead` may call `far`, and leave it work."""
    how = Delegate("far", background=True, fork=True)
    agents = [Agent("lead", model, delegates=[how], **options), Agent("far", backend=backend)]
    return Runtime(agents, store=store, keys=[Topic])


def submitting(answer: str) -> Any:
    """A turn of a backend that keeps what it began."""

    async def submit(request: Any) -> BackendResult:
        await request.save({"task_id": "task-1", "context_id": "context-1"})
        return BackendResult("far", response=answer)

    return submit


async def orphan(store: MemoryStore, backend: ExecutionBackend, scripted: Scripted) -> TaskRecord:
    """A remote task whose process died after it had begun: what that leaves in the store."""
    waiting = far(BackendResult("far", WaitingInput("which?")))
    runtime = with_far(scripted(FAR), waiting, store)
    await soon(runtime.run("lead", "go", thread="t"))
    (task,) = await tasks_of(runtime)
    stored = await store.load(task.target_thread)
    assert stored is not None
    assert stored.run is not None
    (asked,) = stored.calls
    done = replace(asked, state="finished", outcome="ok")
    run = replace(stored.run, status="running", waiting=None, stage="between", backend=None)
    commit = Commit(task.target_thread, version=stored.thread.version, runs=[run], calls=[done])
    commit.tickets = [replace(stored.tickets[0], status="answered")]
    await store.commit(commit)
    return task


async def handles(runtime: Runtime, task: TaskRecord) -> Any:
    """The state that backends saved on a task's thread."""
    stored = await runtime.store.load(task.target_thread)
    assert stored is not None
    found = msgspec.json.decode(stored.state.get("__runtime_remote_backend", b"null"))
    assert found is None or found.pop("") == task.target_thread
    return found
