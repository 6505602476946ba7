"""Push notifications: where a task's caller wants to be told, kept as relays, and what they are told there."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import msgspec
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import InvalidParamsError
from google.protobuf.json_format import MessageToJson
from msgspec import Struct
from msgspec.structs import replace

from ...errors import Conflict, UnknownRun
from ...stores import Commit, Relay
from ...types.events import Event, RunFinish, RunStart
from ...types.ids import new_id
from ...types.runs import RunRecord
from .._relay import Deliverer
from .._serving import Serving
from .._webhooks import check_url, post
from ._tasks import INTERRUPTED, TERMINAL, find, is_silent, is_unbegun, status_of, task_of
from ._wire import timestamp_of

__all__ = ["Push", "named"]

KIND = "a2a-push"


class _Target(Struct, frozen=True, omit_defaults=True):
    """Where to post, and what the recipient knows the sender by. It lies in the relay's payload, nowhere else.

    `told` is the last event of the task's that the recipient was told, `silent` how often it was told something
    that has no event, and `asked` the id of the question that it knows.
    """

    id: str
    url: str
    token: str = ""
    scheme: str = ""
    credentials: str = ""
    told: int = 0
    silent: int = 0
    asked: str = ""

    def __repr__(self) -> str:
        return f"_Target({self.id!r})"

    def is_like(self, other: _Target) -> bool:
        """Whether both lead to the same recipient, by the same secrets."""
        own, theirs = [(t.id, t.url, t.token, t.scheme, t.credentials) for t in (self, other)]
        return own == theirs

    def headers(self) -> dict[str, str]:
        found = {"A2A-Version": "1.0"}
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
        self.deliverer = Deliverer(serving.runtime, KIND, _tells, self._silent, self._send, serving.webhooks)

    # -- configurations --------------------------------------------------------------------------------------

    async def check(self, config: pb.TaskPushNotificationConfig) -> None:
        """Refuse a configuration that nothing could be sent by: its id and its secrets go out in headers."""
        secrets = (config.token, config.authentication.scheme, config.authentication.credentials)
        lines = all(
            each.isascii() and each.isprintable() and each == each.strip() for each in (config.id, *secrets)
        )
        if not lines or len(config.id) > 64 or any(len(each) > 4096 for each in secrets):
            raise InvalidParamsError(
                "a push configuration's id and its secrets are a line of ASCII each, with no blanks around it; "
                "the id has at most 64 characters, a secret 4,096"
            )
        await check_url(config.url, self._serving.webhooks)

    async def create(self, run: RunRecord, config: pb.TaskPushNotificationConfig) -> pb.TaskPushNotificationConfig:
        """Have a run's updates sent to an address, from its beginning on; one of the same id is replaced."""
        await self.check(config)
        target = _target_of(config, config.id or new_id())
        while True:
            await self.check_room(run, target.id)
            try:
                await self._put(run, target, await self._found(run, target.id))
            except Conflict:
                continue
            self.deliverer.look()
            return _config(run, target, secret=True)

    async def check_room(self, run: RunRecord, config_id: str) -> None:
        """Refuse a configuration that would be one too many for a run."""
        live = [relay.id for relay in await self._relays(run) if relay.payload]
        if _relay_id(run, config_id) not in live and len(live) >= self._serving.limits.push_configs:
            raise InvalidParamsError(f"a task has at most {len(live)} push configurations; delete one first")

    async def attach(self, run: RunRecord, config: pb.TaskPushNotificationConfig, *, fresh: bool) -> None:
        """Have a run's updates sent to where a message said, which was checked before it was taken in. One that
        was sent before changes nothing: its recipient was told some of it, or isn't wanted any more."""
        target = _target_of(config, config.id)
        while True:
            old = await self._found(run, target.id)
            if old is not None and (not fresh or (old.payload and _target(old).is_like(target))):
                return
            try:
                await self._put(run, target, old)
            except Conflict:
                continue
            self.deliverer.look()
            return

    async def _found(self, run: RunRecord, config_id: str) -> Relay | None:
        return await self._runtime.store.relay(_relay_id(run, config_id))

    async def _put(self, run: RunRecord, target: _Target, old: Relay | None) -> None:
        now = self._runtime.clock.now()
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
        """A configuration, without its secrets."""
        return _config(run, _target(await self._relay(run, config_id)))

    async def list(self, run: RunRecord) -> list[pb.TaskPushNotificationConfig]:
        """All of a run's, without their secrets."""
        return [_config(run, _target(relay)) for relay in await self._relays(run) if relay.payload]

    async def delete(self, run: RunRecord, config_id: str) -> None:
        """Send no more to an address, and forget it."""
        while True:
            relay = await self._relay(run, config_id)
            gone = replace(relay, status="done", payload=b"", last_error="", revision=relay.revision + 1)
            try:
                await self._runtime.store.commit(Commit(run.thread_id, relays=[gone]))
            except Conflict:
                continue
            return

    async def _relay(self, run: RunRecord, config_id: str) -> Relay:
        relay = await self._found(run, config_id)
        if relay is None or not relay.payload:
            raise InvalidParamsError(f"task {run.id} has no push configuration {config_id!r:.80}; list them")
        return relay

    async def _relays(self, run: RunRecord) -> Sequence[Relay]:
        return await self._runtime.store.relays(thread_id=run.thread_id, run_id=run.id, kind=KIND)

    # -- telling ---------------------------------------------------------------------------------------------

    async def _silent(self, relay: Relay) -> bool | None:
        """Whether a task stands elsewhere without a word on its own thread: a run below it has a question, or it
        was cancelled before it had its turn. None if neither can be."""
        run = await find(self._runtime, relay.run_id or "")
        if run is None or not is_silent(run):
            return None
        if is_unbegun(run):
            return run.status == "done"
        try:
            status = await status_of(self._runtime, run)
        except UnknownRun:
            return None  # It was deleted meanwhile.
        return status.state in INTERRUPTED and status.message.message_id != _target(relay).asked

    async def _send(self, relay: Relay, event: Event | None) -> Relay:
        run_id, target, said = relay.run_id or "", _target(relay), pb.StreamResponse()
        run = await find(self._runtime, run_id) or await self._runtime.get_run(run_id)
        if isinstance(event, RunStart):
            status = pb.TaskStatus(state=pb.TASK_STATE_WORKING, timestamp=timestamp_of(event.at))
            said.status_update.CopyFrom(
                pb.TaskStatusUpdateEvent(task_id=run.id, context_id=run.thread_id, status=status)
            )
        else:
            said.task.CopyFrom(await task_of(self._runtime, run, 0))
        asked, over = said.task.status.message.message_id, said.task.status.state in TERMINAL
        about = f"{asked}:{target.silent}" if event is None else str(event.seq)
        headers = {**target.headers(), "Idempotency-Key": f"{relay.id}:{about}"}
        await post(target.url, MessageToJson(said, indent=None).encode(), headers, self._serving.webhooks)
        if event is None:
            target = replace(target, asked=asked, silent=target.silent + 1)
        else:
            target = replace(target, asked=asked, told=event.seq)
            # Relays are looked at while something is behind their cursor.
            relay = replace(relay, cursor=event.seq - (isinstance(event, RunFinish) and is_silent(run)))
        return replace(relay, payload=msgspec.json.encode(target), status="done" if over else "live")


def _tells(relay: Relay, event: Event) -> bool:
    mine = event.run_id == relay.run_id and isinstance(event, RunStart | RunFinish)
    return mine and event.seq > _target(relay).told


def named(config: pb.TaskPushNotificationConfig, message_id: str) -> pb.TaskPushNotificationConfig:
    """A message's push configuration with an id of its own, or else the message's: sent again, it is the same."""
    found = pb.TaskPushNotificationConfig()
    found.CopyFrom(config)
    found.id = config.id or sha256(message_id.encode()).hexdigest()[:32]
    return found


def _target_of(config: pb.TaskPushNotificationConfig, config_id: str) -> _Target:
    auth = config.authentication
    return _Target(config_id, config.url, config.token, auth.scheme, auth.credentials)


def _relay_id(run: RunRecord, config_id: str) -> str:
    return f"{KIND}:{run.id}:{config_id}"


def _target(relay: Relay) -> _Target:
    return msgspec.json.decode(relay.payload, type=_Target)


def _config(run: RunRecord, target: _Target, *, secret: bool = False) -> pb.TaskPushNotificationConfig:
    config = pb.TaskPushNotificationConfig(id=target.id, task_id=run.id, url=target.url)
    if target.scheme:
        config.authentication.scheme = target.scheme
    if secret:
        config.token = target.token
        if target.credentials:
            config.authentication.credentials = target.credentials
    return config
