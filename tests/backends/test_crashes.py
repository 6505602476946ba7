"""A run of a backend, killed at every commit: no job starts twice, and the answer arrives."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from wakeful import Agent, Runtime
from wakeful.backends import BackendResult, ExecutionBackend, RootRequest, WaitingInput
from wakeful.stores import Store
from wakeful.testing import CrashSite, crash_matrix
from wakeful.types.runs import NaturalEnd

from .helpers import REMOTE


class Desk(ExecutionBackend):
    """A job service on files that chooses job ids and can list its jobs."""

    capabilities = replace(REMOTE, cancellation="none")

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def execute_root(self, request: RootRequest) -> BackendResult:
        message = request.new_messages[-1]
        state = request.state or {}
        if state.get("message") != message.id:
            state = {"message": message.id}
            await request.save(state)  # The intent is saved before the job starts.
        if "job" not in state:
            state = {**state, "job": self._find(message.id) or self._begin(message.id)}
            await request.save(state)
        request.emit("working on it: ")
        if message.reply is None:
            return BackendResult(request.agent_id, WaitingInput("Which colour?"))
        return BackendResult(request.agent_id, response=f"working on it: {message.reply.content}")

    def _find(self, message_id: str) -> str | None:
        return next((job.name for job in self._folder.glob("job-*") if job.read_text() == message_id), None)

    def _begin(self, message_id: str) -> str:
        job = self._folder / f"job-{len(list(self._folder.glob('job-*')))}"
        job.write_text(message_id)
        return job.name


async def paint(site: CrashSite) -> None:
    runtime = Runtime([Agent("far", backend=Desk(site.folder))], store=site.store)
    result = await runtime.run("far", "Paint it.", thread="t", request_id="paint")
    if result.status == "waiting":
        await runtime.resume(result.run_id, result.tickets[0].answer("red"))
    await runtime.close()


async def painted_once(site: CrashSite, store: Store) -> None:
    (run,) = await store.runs()
    assert run.outcome is not None
    assert run.outcome.termination == NaturalEnd()
    # One job for the order and one for the answer.
    begun = [job.read_text() for job in site.folder.glob("job-*")]
    assert len(begun) == len(set(begun)) == 2
    assert [m.role for m in await store.messages("t")] == ["user", "assistant", "tool", "assistant"]
    assert await store.chunks("t") == []


def test_remote_job_starts_once_over_kills() -> None:
    report = crash_matrix(paint, check=painted_once)
    assert report.kills == 3 * len(report.commits)
    assert len(report.commits) >= 8
