"""The A2A methods. All state is in the store, so every method works from any process."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from a2a.server.context import ServerCallContext
from a2a.server.events.event_queue import Event
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.types import a2a_pb2 as pb
from a2a.utils.constants import PROTOCOL_VERSION_0_3, PROTOCOL_VERSION_1_0, VERSION_HEADER
from a2a.utils.errors import (
    ContentTypeNotSupportedError,
    ExtendedAgentCardNotConfiguredError,
    InvalidParamsError,
    TaskNotCancelableError,
    UnsupportedOperationError,
)

from ...agents import Agent
from ...identity import Caller
from ...types.runs import Principal, RunRecord
from ..serving import Serving
from .card import card_of, output_modes
from .contexts import is_task_of
from .errors import no_task, translate_errors
from .follower import Follower, updates
from .intake import Accepted, accept_message
from .listing import list_runs, page_size_of
from .push import Push, with_id
from .streams import keep
from .tasks import INTERRUPTED, TERMINAL, find_run, new_task, reply_of, task_of

__all__ = ["Handler"]


class Handler(RequestHandler):
    """The A2A methods of one agent."""

    def __init__(self, serving: Serving, push: Push, agent: Agent) -> None:
        self._serving = serving
        self._push = push
        self._runtime = serving.runtime
        self._agent = agent

    # -- messages --------------------------------------------------------------------------------------------

    async def on_message_send(
        self, params: pb.SendMessageRequest, context: ServerCallContext
    ) -> pb.Task | pb.Message:
        """Accept a message; returns its task at once if asked to, else when it is over or waits for input.

        An agent that answers with messages returns a message if its task has completed.
        """
        with translate_errors():
            history = self._history(params.configuration)
            accepted = await self._accept(params, context)
            run, work = accepted.run, accepted.work
            try:
                task = await task_of(self._runtime, run, history)
                is_settled = task.status.state in TERMINAL | INTERRUPTED and (work is None or work.done())
                if params.configuration.return_immediately or is_settled:
                    return self._reply(params, task)
                async for _ in updates(self._runtime, run, accepted.follower, work):
                    pass
            finally:
                await accepted.follower.close()
            task = await task_of(self._runtime, await find_run(self._runtime, run.id) or run, history)
            return self._reply(params, task)

    def _reply(self, params: pb.SendMessageRequest, task: pb.Task) -> pb.Task | pb.Message:
        """A message in place of the task, if the agent answers so and the caller asked for nothing more."""
        return (reply_of(task) or task) if self._may_reply(params) else task

    def _may_reply(self, params: pb.SendMessageRequest) -> bool:
        """Whether a message is enough: the caller knows no task yet, and wants neither its id nor its updates."""
        asked = params.configuration
        needs_task = asked.return_immediately or asked.task_push_notification_config.url or params.message.task_id
        return self._agent.id in self._serving.messages and not needs_task

    def on_message_send_stream(
        self, params: pb.SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event]:
        """Accept a message, and stream its task and updates."""
        return keep(context, self._send_and_stream(params, context))

    async def _send_and_stream(
        self, params: pb.SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event]:
        with translate_errors(), self._serving.stream(context.state["caller"]):
            if self._may_reply(params):
                yield await self.on_message_send(params, context)
                return
            history = self._history(params.configuration)
            accepted = await self._accept(params, context)
            run = accepted.run
            task = new_task(run, params.message, history) if accepted.is_new else None
            async for event in self._stream(accepted, task or await task_of(self._runtime, run, history)):
                yield event

    def on_subscribe_to_task(
        self, params: pb.SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event]:
        """Stream a task that isn't over, and its updates from now on."""
        return keep(context, self._subscribe(params, context))

    async def _subscribe(
        self, params: pb.SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event]:
        with translate_errors(), self._serving.stream(context.state["caller"]):
            run = await self._run(params.id, context)
            follower = Follower(self._runtime, run.thread_id, await self._runtime.store.head(run.thread_id))
            accepted = Accepted(await self._run(params.id, context), await follower.listen())
            if accepted.run.status == "done":
                await follower.close()
                raise UnsupportedOperationError(f"task {run.id} is over; get it instead of subscribing to it")
            task = await task_of(self._runtime, accepted.run, self._serving.limits.history)
            async for event in self._stream(accepted, task, while_waiting=True):
                yield event

    async def _stream(
        self, accepted: Accepted, task: pb.Task, *, while_waiting: bool = False
    ) -> AsyncGenerator[Event]:
        """Yield the task and its updates; a task that waits for input ends the stream unless `while_waiting`."""
        try:
            yield task
            is_waiting = task.status.state in INTERRUPTED
            if task.status.state not in TERMINAL and (while_waiting or not is_waiting):
                asked = task.status.message.message_id if while_waiting else ""
                async for update in updates(self._runtime, accepted.run, accepted.follower, accepted.work, asked):
                    yield update
        finally:
            await accepted.follower.close()

    async def _accept(self, params: pb.SendMessageRequest, context: ServerCallContext) -> Accepted:
        modes = params.configuration.accepted_output_modes
        offered = {"text/*", "*/*", *output_modes(self._agent)}
        if modes and not offered.intersection(modes):
            raise ContentTypeNotSupportedError(f"{self._agent.id} answers with text/plain, not {', '.join(modes)}")
        message = params.message
        config = with_id(params.configuration.task_push_notification_config, message.message_id)
        if config.url:
            await self._push.check(config)
            if message.task_id:
                await self._push.check_room(await self._run(message.task_id, context), config.id)
        accepted = await accept_message(self._serving, self._agent.id, message, context.state["caller"])
        if config.url:
            try:
                await self._push.attach(accepted.run, config, _version(context), is_new=accepted.is_new)
            except BaseException:
                await accepted.follower.close()
                raise
        return accepted

    # -- tasks -----------------------------------------------------------------------------------------------

    async def on_get_task(self, params: pb.GetTaskRequest, context: ServerCallContext) -> pb.Task:
        """Get a task."""
        with translate_errors():
            return await task_of(self._runtime, await self._run(params.id, context), self._history(params))

    async def on_list_tasks(self, params: pb.ListTasksRequest, context: ServerCallContext) -> pb.ListTasksResponse:
        """List the caller's tasks, newest first."""
        with translate_errors():
            principal = self._principal(context)
            runs, token, total = await list_runs(self._serving, self._agent.id, principal, params)
            # A list has no history unless the request asks for it.
            history = self._history(params) if params.HasField("history_length") else 0
            tasks = [
                await task_of(self._runtime, run, history, artifacts=params.include_artifacts) for run in runs
            ]
            size = page_size_of(self._serving, params)
            return pb.ListTasksResponse(tasks=tasks, next_page_token=token, page_size=size, total_size=total)

    async def on_cancel_task(self, params: pb.CancelTaskRequest, context: ServerCallContext) -> pb.Task:
        """Cancel a task with its children."""
        with translate_errors():
            run = await self._run(params.id, context)
            if not await self._serving.finish(self._runtime.cancel(run.id, "cancelled by its caller")):
                raise TaskNotCancelableError(f"task {run.id} is over; there is nothing left to cancel")
            return await task_of(self._runtime, await find_run(self._runtime, run.id) or run, 0)

    async def _run(self, task_id: str, context: ServerCallContext) -> RunRecord:
        run = await find_run(self._runtime, task_id)
        if run is None or not is_task_of(run, self._agent.id, self._principal(context)):
            raise no_task(task_id)
        return run

    def _principal(self, context: ServerCallContext) -> Principal | None:
        caller: Caller = context.state["caller"]
        return caller.principal

    def _history(self, params: pb.GetTaskRequest | pb.ListTasksRequest | pb.SendMessageConfiguration) -> int:
        limit = self._serving.limits.history
        length = params.history_length if params.HasField("history_length") else limit
        if length < 0:
            raise InvalidParamsError(f"historyLength is a number of messages, 0 to {limit}, not {length}")
        return min(length, limit)

    # -- the extended card -----------------------------------------------------------------------------------

    async def on_get_extended_agent_card(
        self, params: pb.GetExtendedAgentCardRequest, context: ServerCallContext
    ) -> pb.AgentCard:
        """Get the card for authenticated callers."""
        with translate_errors():
            if not self._serving.auth:
                raise ExtendedAgentCardNotConfiguredError(
                    "this server has no authentication, and therefore no extended card"
                )
            return card_of(self._serving, self._agent, context.state["url"](), extended=True)

    # -- push notifications ----------------------------------------------------------------------------------

    async def on_create_task_push_notification_config(
        self, params: pb.TaskPushNotificationConfig, context: ServerCallContext
    ) -> pb.TaskPushNotificationConfig:
        """Send a task's updates to an address."""
        with translate_errors():
            return await self._push.create(await self._run(params.task_id, context), params, _version(context))

    async def on_get_task_push_notification_config(
        self, params: pb.GetTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> pb.TaskPushNotificationConfig:
        """Get a push configuration of a task."""
        with translate_errors():
            return await self._push.get(await self._run(params.task_id, context), params.id)

    async def on_list_task_push_notification_configs(
        self, params: pb.ListTaskPushNotificationConfigsRequest, context: ServerCallContext
    ) -> pb.ListTaskPushNotificationConfigsResponse:
        """List a task's push configurations."""
        with translate_errors():
            configs = await self._push.list(await self._run(params.task_id, context))
            return pb.ListTaskPushNotificationConfigsResponse(configs=configs)

    async def on_delete_task_push_notification_config(
        self, params: pb.DeleteTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> None:
        """Stop sending a task's updates to an address."""
        with translate_errors():
            await self._push.delete(await self._run(params.task_id, context), params.id)


def _version(context: ServerCallContext) -> str:
    """The protocol version of a request; the SDK's routes refuse other versions, and no header means 0.3."""
    given = context.state.get("headers", {}).get(VERSION_HEADER.lower(), "")
    return PROTOCOL_VERSION_1_0 if given.startswith("1") else PROTOCOL_VERSION_0_3
