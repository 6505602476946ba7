"""A2A's methods over a runtime. The store is the truth: every method works from any process, at any time."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from a2a.server.context import ServerCallContext
from a2a.server.events.event_queue import Event
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import (
    ContentTypeNotSupportedError,
    ExtendedAgentCardNotConfiguredError,
    InvalidParamsError,
    TaskNotCancelableError,
    UnsupportedOperationError,
)

from ...agents import Agent
from ...types.runs import Principal, RunRecord
from .._serving import Serving
from ._begin import Begun, begin
from ._card import card_of, output_modes
from ._contexts import belongs
from ._errors import no_task, told
from ._follow import Follower, updates
from ._listing import list_runs, size_of
from ._push import Push, named
from ._tasks import INTERRUPTED, TERMINAL, find, fresh_task, task_of

__all__ = ["Handler"]


class Handler(RequestHandler):
    """One agent, as its callers over A2A see it."""

    def __init__(self, serving: Serving, push: Push, agent: Agent) -> None:
        self._serving = serving
        self._push = push
        self._runtime = serving.runtime
        self._agent = agent

    # -- messages --------------------------------------------------------------------------------------------

    async def on_message_send(self, params: pb.SendMessageRequest, context: ServerCallContext) -> pb.Task:
        """Take a message in; unless its sender won't wait, answer once the task is over or asks for more."""
        with told():
            history = self._history(params.configuration)
            begun = await self._begin(params, context)
            try:
                task = await task_of(self._runtime, begun.run, history)
                rests = task.status.state in TERMINAL | INTERRUPTED and (begun.work is None or begun.work.done())
                if params.configuration.return_immediately or rests:
                    return task
                async for _ in updates(self._runtime, begun.run, begun.follower, begun.work):
                    pass
            finally:
                await begun.follower.close()
            return await task_of(self._runtime, await find(self._runtime, begun.run.id) or begun.run, history)

    async def on_message_send_stream(
        self, params: pb.SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event]:
        """Take a message in, and show the task and what happens to it."""
        with told(), self._serving.stream():
            history = self._history(params.configuration)
            begun = await self._begin(params, context)
            first = fresh_task(begun.run, params.message, history) if begun.fresh else None
            async for event in self._shown(begun, first or await task_of(self._runtime, begun.run, history)):
                yield event

    async def on_subscribe_to_task(
        self, params: pb.SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event]:
        """Show a task that isn't over, and what happens to it from now on."""
        with told(), self._serving.stream():
            run = await self._run(params.id, context)
            follower = Follower(self._runtime, run.thread_id, await self._runtime.store.head(run.thread_id))
            begun = Begun(await self._run(params.id, context), await follower.listen())
            if begun.run.status == "done":
                await follower.close()
                raise UnsupportedOperationError(f"task {run.id} is over; get it instead of subscribing to it")
            task = await task_of(self._runtime, begun.run, self._serving.limits.history)
            async for event in self._shown(begun, task, waits=True):
                yield event

    async def _shown(self, begun: Begun, task: pb.Task, *, waits: bool = False) -> AsyncGenerator[Event]:
        try:
            yield task
            over = task.status.state in TERMINAL or (task.status.state in INTERRUPTED and not waits)
            if not over:
                asked = task.status.message.message_id if waits else ""
                async for update in updates(self._runtime, begun.run, begun.follower, begun.work, asked):
                    yield update
        finally:
            await begun.follower.close()

    async def _begin(self, params: pb.SendMessageRequest, context: ServerCallContext) -> Begun:
        modes = params.configuration.accepted_output_modes
        offered = {"text/*", "*/*", *output_modes(self._agent)}
        if modes and not offered.intersection(modes):
            raise ContentTypeNotSupportedError(f"{self._agent.id} answers with text/plain, not {', '.join(modes)}")
        message = params.message
        target = named(params.configuration.task_push_notification_config, message.message_id)
        if target.url:
            await self._push.check(target)
            if message.task_id:
                await self._push.check_room(await self._run(message.task_id, context), target.id)
        begun = await begin(self._serving, self._agent.id, message, self._principal(context))
        if target.url:
            try:
                await self._push.attach(begun.run, target, fresh=begun.fresh)
            except BaseException:
                await begun.follower.close()
                raise
        return begun

    # -- tasks -----------------------------------------------------------------------------------------------

    async def on_get_task(self, params: pb.GetTaskRequest, context: ServerCallContext) -> pb.Task:
        """A task as it stands."""
        with told():
            return await task_of(self._runtime, await self._run(params.id, context), self._history(params))

    async def on_list_tasks(self, params: pb.ListTasksRequest, context: ServerCallContext) -> pb.ListTasksResponse:
        """The caller's tasks, newest first."""
        with told():
            principal = self._principal(context)
            runs, token, total = await list_runs(self._serving, self._agent.id, principal, params)
            # A list shows no history unless it is asked for.
            history = self._history(params) if params.HasField("history_length") else 0
            tasks = [
                await task_of(self._runtime, run, history, artifacts=params.include_artifacts) for run in runs
            ]
            size = size_of(self._serving, params)
            return pb.ListTasksResponse(tasks=tasks, next_page_token=token, page_size=size, total_size=total)

    async def on_cancel_task(self, params: pb.CancelTaskRequest, context: ServerCallContext) -> pb.Task:
        """Cancel a task with everything it does."""
        with told():
            run = await self._run(params.id, context)
            if not await self._serving.finish(self._runtime.cancel(run.id, "cancelled by its caller")):
                raise TaskNotCancelableError(f"task {run.id} is over; there is nothing left to cancel")
            return await task_of(self._runtime, await find(self._runtime, run.id) or run, 0)

    async def _run(self, task_id: str, context: ServerCallContext) -> RunRecord:
        run = await find(self._runtime, task_id)
        if run is None or not belongs(run, self._agent.id, self._principal(context)):
            raise no_task(task_id)
        return run

    def _principal(self, context: ServerCallContext) -> Principal | None:
        return Principal(context.user.user_name) if self._serving.auth is not None else None

    def _history(self, params: pb.GetTaskRequest | pb.ListTasksRequest | pb.SendMessageConfiguration) -> int:
        most = self._serving.limits.history
        wanted = params.history_length if params.HasField("history_length") else most
        if wanted < 0:
            raise InvalidParamsError(f"historyLength is a number of messages, 0 to {most}, not {wanted}")
        return min(wanted, most)

    # -- the extended card -----------------------------------------------------------------------------------

    async def on_get_extended_agent_card(
        self, params: pb.GetExtendedAgentCardRequest, context: ServerCallContext
    ) -> pb.AgentCard:
        """The card for those who are known."""
        with told():
            if self._serving.auth is None:
                raise ExtendedAgentCardNotConfiguredError("this server knows no callers, and has no card for them")
            return card_of(self._serving, self._agent, context.state["url"], extended=True)

    # -- push notifications ----------------------------------------------------------------------------------

    async def on_create_task_push_notification_config(
        self, params: pb.TaskPushNotificationConfig, context: ServerCallContext
    ) -> pb.TaskPushNotificationConfig:
        """Have a task's updates sent to an address."""
        with told():
            return await self._push.create(await self._run(params.task_id, context), params)

    async def on_get_task_push_notification_config(
        self, params: pb.GetTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> pb.TaskPushNotificationConfig:
        """One of a task's push configurations."""
        with told():
            return await self._push.get(await self._run(params.task_id, context), params.id)

    async def on_list_task_push_notification_configs(
        self, params: pb.ListTaskPushNotificationConfigsRequest, context: ServerCallContext
    ) -> pb.ListTaskPushNotificationConfigsResponse:
        """A task's push configurations."""
        with told():
            configs = await self._push.list(await self._run(params.task_id, context))
            return pb.ListTaskPushNotificationConfigsResponse(configs=configs)

    async def on_delete_task_push_notification_config(
        self, params: pb.DeleteTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> None:
        """Stop sending a task's updates to an address."""
        with told():
            await self._push.delete(await self._run(params.task_id, context), params.id)
