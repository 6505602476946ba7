"""Push notifications: configurations, stored as relays, and the notifications they send."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import msgspec
from a2a.compat.v0_3.conversions import to_compat_task
from a2a.types import a2a_pb2 as pb
from a2a.utils.constants import PROTOCOL_VERSION_0_3 as V0_3
from a2a.utils.constants import PROTOCOL_VERSION_1_0 as V1_0
from a2a.utils.errors import InvalidParamsError
from google.protobuf.json_format import MessageToJson
from msgspec import Struct
from msgspec.structs import replace

from ...errors import Conflict, UnknownRun
from ...stores import Commit, Relay
from ...types.events import Event, RunFinish, RunStart
from ...types.ids import new_id
from ...types.runs import RunRecord
from ..relay import Deliverer
from ..serving import Serving
from ..webhooks import check_url, post
from .tasks import INTERRUPTED, TERMINAL, changes_silently, find_run, is_queued, status_of, task_of
from .wire import timestamp_of

__all__ = ["Push", "with_id"]

KIND = "a2a-push"


class _Target(Struct, frozen=True, omit_defaults=True):
    """The recipient's address and secrets, stored only in the relay's payload.

    `sent` is the number of the last event sent, `silent` the count of notifications without an event, and `asked`
    the id of the last question sent. `version` is the protocol version of the caller, 1.0 or 0.3.
    """

    id: str
    url: str
    token: str = ""
    scheme: str = ""
    credentials: str = ""
    version: str = V1_0
    sent: int = 0
    silent: int = 0
    asked: str = ""

    def __repr__(self) -> str:
        return f"_Target({self.id!r})"

    def has_address_of(self, other: _Target) -> bool:
        """Whether both have the same address, secrets and version."""
        first, second = [(t.id, t.url, t.token, t.scheme, t.credentials, t.version) for t in (self, other)]
        return first == second

    def headers(self) -> dict[str, str]:
        found = {"A2A-Version": self.version}
        if self.token:
            found["X-A2A-Notification-Token"] = self.token
        if self.scheme and self.credentials:
            found["Authorization"] = f"{self.scheme} {self.credentials}"
        return found


class Push:
    """The push configurations of a server's tasks."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._runtime = serving.runtime
        self.deliverer = Deliverer(
            serving.runtime, KIND, _is_sent, self._has_silent_change, self._send, serving.webhooks
        )

    # -- configurations --------------------------------------------------------------------------------------

    async def check(self, config: pb.TaskPushNotificationConfig) -> None:
        """Raise if a configuration can't be used: its id and secrets are sent in headers."""
        secrets = (config.token, config.authentication.scheme, config.authentication.credentials)
        fit_headers = all(
            each.isascii() and each.isprintable() and each == each.strip() for each in (config.id, *secrets)
        )
        if not fit_headers or len(config.id) > 64 or any(len(each) > 4096 for each in secrets):
            raise InvalidParamsError(
                "a push configuration's id and secrets must be one line of ASCII each, without blanks around it; "
                "the id has at most 64 characters, a secret 4,096"
            )
        await check_url(config.url, self._serving.webhooks)

    async def create(
        self, run: RunRecord, config: pb.TaskPushNotificationConfig, version: str
    ) -> pb.TaskPushNotificationConfig:
        """Send all updates of a run to an address; a configuration of the same id is replaced."""
        await self.check(config)
        target = _target_of(config, config.id or new_id(), version)
        while True:
            await self.check_room(run, target.id)
            try:
                await self._put(run, target, await self._find(run, target.id))
            except Conflict:
                continue
            self.deliverer.wake()
            return _config_of(run, target, with_secrets=True)

    async def check_room(self, run: RunRecord, config_id: str) -> None:
        """Raise if a run has the maximum number of configurations."""
        live = [relay.id for relay in await self._relays(run) if relay.payload]
        if _relay_id(run, config_id) not in live and len(live) >= self._serving.limits.push_configs:
            raise InvalidParamsError(f"a task has at most {len(live)} push configurations; delete one first")

    async def attach(
        self, run: RunRecord, config: pb.TaskPushNotificationConfig, version: str, *, is_new: bool
    ) -> None:
        """Apply the checked configuration of a message.

        A repeated message changes nothing: its configuration may have been used or deleted since.
        """
        target = _target_of(config, config.id, version)
        while True:
            old = await self._find(run, target.id)
            if old is not None and (not is_new or (old.payload and _decode(old).has_address_of(target))):
                return
            try:
                await self._put(run, target, old)
            except Conflict:
                continue
            self.deliverer.wake()
            return

    async def _find(self, run: RunRecord, config_id: str) -> Relay | None:
        return await self._runtime.store.relay(_relay_id(run, config_id))

    async def _put(self, run: RunRecord, target: _Target, old: Relay | None) -> None:
        now = self._runtime.schedules.clock.now()
        relay = Relay(
            id=_relay_id(run, target.id),
            thread_id=run.thread_id,
            run_id=run.id,
            kind=KIND,
            payload=msgspec.json.encode(target),
            cursor=run.first_seq - 1 if old is None else old.cursor,
            due_at=now,
            created_at=now,
            revision=1 if old is None else old.revision + 1,
        )
        await self._runtime.store.commit(Commit(run.thread_id, relays=[relay]))

    async def get(self, run: RunRecord, config_id: str) -> pb.TaskPushNotificationConfig:
        """Get a configuration, without its secrets."""
        relay = await self._find(run, config_id)
        if relay is None or not relay.payload:
            raise InvalidParamsError(f"task {run.id} has no push configuration {config_id!r:.80}; list them")
        return _config_of(run, _decode(relay))

    async def list(self, run: RunRecord) -> list[pb.TaskPushNotificationConfig]:
        """List a run's configurations, without their secrets."""
        return [_config_of(run, _decode(relay)) for relay in await self._relays(run) if relay.payload]

    async def delete(self, run: RunRecord, config_id: str) -> None:
        """Delete a configuration with its address and secrets; one that doesn't exist is no error."""
        while (relay := await self._find(run, config_id)) is not None and relay.payload:
            deleted = replace(relay, status="done", payload=b"", last_error="", revision=relay.revision + 1)
            try:
                await self._runtime.store.commit(Commit(run.thread_id, relays=[deleted]))
            except Conflict:
                continue
            return

    async def _relays(self, run: RunRecord) -> Sequence[Relay]:
        return await self._runtime.store.relays(thread_id=run.thread_id, run_id=run.id, kind=KIND)

    # -- notifications ---------------------------------------------------------------------------------------

    async def _has_silent_change(self, relay: Relay) -> bool | None:
        """Whether a task changed without an event on its thread; None if it can't.

        A child of the run has a question, or the run was cancelled while it was queued.
        """
        run = await find_run(self._runtime, relay.run_id or "")
        if run is None or not changes_silently(run):
            return None
        if is_queued(run):
            return run.status == "done"
        try:
            status = await status_of(self._runtime, run)
        except UnknownRun:
            return None  # It was deleted meanwhile.
        return status.state in INTERRUPTED and status.message.message_id != _decode(relay).asked

    async def _send(self, relay: Relay, event: Event | None) -> Relay:
        run_id, target, body = relay.run_id or "", _decode(relay), pb.StreamResponse()
        run = await find_run(self._runtime, run_id) or await self._runtime.runs.get(run_id)
        if isinstance(event, RunStart):
            status = pb.TaskStatus(state=pb.TASK_STATE_WORKING, timestamp=timestamp_of(event.at))
            body.status_update.CopyFrom(
                pb.TaskStatusUpdateEvent(task_id=run.id, context_id=run.thread_id, status=status)
            )
        else:
            body.task.CopyFrom(await task_of(self._runtime, run, 0))
        asked, is_over = body.task.status.message.message_id, body.task.status.state in TERMINAL
        key = f"{asked}:{target.silent}" if event is None else str(event.seq)
        headers = {**target.headers(), "Idempotency-Key": f"{relay.id}:{key}"}
        await post(target.url, _encode(body, target.version), headers, self._serving.webhooks)
        if event is None:
            target = replace(target, asked=asked, silent=target.silent + 1)
        else:
            target = replace(target, asked=asked, sent=event.seq)
            # A relay is due only while events follow its cursor, so the cursor stays before the last one.
            relay = replace(relay, cursor=event.seq - (isinstance(event, RunFinish) and changes_silently(run)))
        return replace(relay, payload=msgspec.json.encode(target), status="done" if is_over else "live")


def _is_sent(relay: Relay, event: Event) -> bool:
    is_change = event.run_id == relay.run_id and isinstance(event, RunStart | RunFinish)
    return is_change and event.seq > _decode(relay).sent


def with_id(config: pb.TaskPushNotificationConfig, message_id: str) -> pb.TaskPushNotificationConfig:
    """A copy of a message's configuration; without an id it gets one from the message, the same on each resend."""
    found = pb.TaskPushNotificationConfig()
    found.CopyFrom(config)
    found.id = config.id or sha256(message_id.encode()).hexdigest()[:32]
    return found


def _encode(body: pb.StreamResponse, version: str) -> bytes:
    """A notification as JSON. Version 0.3 knows one kind: the task."""
    if version != V0_3:
        return MessageToJson(body, indent=None).encode()
    update = body.status_update
    task = body.task if body.HasField("task") else pb.Task(id=update.task_id, context_id=update.context_id)
    if body.HasField("status_update"):
        task.status.CopyFrom(update.status)
    return to_compat_task(task).model_dump_json(by_alias=True, exclude_none=True).encode()


def _target_of(config: pb.TaskPushNotificationConfig, config_id: str, version: str) -> _Target:
    auth = config.authentication
    return _Target(config_id, config.url, config.token, auth.scheme, auth.credentials, version)


def _relay_id(run: RunRecord, config_id: str) -> str:
    return f"{KIND}:{run.id}:{config_id}"


def _decode(relay: Relay) -> _Target:
    return msgspec.json.decode(relay.payload, type=_Target)


def _config_of(run: RunRecord, target: _Target, *, with_secrets: bool = False) -> pb.TaskPushNotificationConfig:
    config = pb.TaskPushNotificationConfig(id=target.id, task_id=run.id, url=target.url)
    if target.scheme:
        config.authentication.scheme = target.scheme
    if with_secrets:
        config.token = target.token
        if target.credentials:
            config.authentication.credentials = target.credentials
    return config
