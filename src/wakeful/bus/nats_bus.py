"""A bus on NATS: JetStream for wake-ups, core NATS for live commands and live events."""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from importlib import import_module
from typing import Any

from ..errors import explain
from ..types.codec import decode, encode
from .envelopes import AllMembers, Destination, Envelope, Member, Watchers, WorkQueue
from .link import CONNECT_SECONDS, WireLink
from .nats_settings import NatsSettings
from .protocol import Listener
from .wire import Command, InboxNotice, Key, Reply, StartRequest, decode_message

__all__ = ["NatsBus"]

_log = logging.getLogger("wakeful")

# Expiry of a wake-up. By then the scheduler has polled the thread.
WAKE_SECONDS = 60
MAX_WAKES = 100_000
_FETCH_SECONDS = 20.0
_RETRY_SECONDS = 5.0
_CLOSE_SECONDS = 1.0


class NatsBus:
    """A bus on a NATS server or cluster. It connects when the first runtime joins.

    `url` is `nats://user:password@host:port`, or several separated by commas; `tls://` requires TLS. Settings are
    keyword arguments or query parameters of the URL: `user`, `password`, `token`, `credentials` (a file), `ca`,
    `cert` and `key` (files; they enable TLS), `tls_hostname`, and `name`, which separates clusters that share a
    server. `tls` takes your own `ssl.SSLContext`.
    """

    def __init__(self, url: str, *, tls: ssl.SSLContext | None = None, **settings: str) -> None:
        self.settings = NatsSettings.parse(url, tls, settings)

    def __repr__(self) -> str:
        return f"NatsBus({self.settings.address!r}, name={self.settings.name!r})"

    def join(self, member_id: str, listener: Listener) -> _NatsLink:
        """Join on the running event loop."""
        return _NatsLink(self.settings, member_id, listener)


def subject_token(text: str) -> str:
    """Encode a text as one token of a subject, readable where possible and without collisions."""
    encoded = re.sub(rb"[^A-Za-z0-9_-]", lambda found: b"=%02X" % found[0][0], text.encode()).decode() or "="
    return encoded if len(encoded) <= 200 else f"=={sha256(text.encode()).hexdigest()}"


class _NatsLink(WireLink):
    def __init__(self, settings: NatsSettings, member_id: str, listener: Listener) -> None:
        self._settings = settings
        self._name = settings.name
        self._client: Any = None
        self._subscriptions: dict[Key, Any] = {}
        self._fetching: asyncio.Task[None] | None = None
        super().__init__(settings.address, member_id, listener)

    async def connect(self) -> None:
        """Connect, and subscribe to messages for all members and for this one."""
        client = self._client = import_module("nats.aio.client").Client()

        async def on_close() -> None:
            if client is self._client:
                self.connection_lost()

        # The link reconnects and resubscribes itself.
        await client.connect(
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0.05,
            connect_timeout=CONNECT_SECONDS / 2,
            ping_interval=5,
            error_cb=self._on_error,
            closed_cb=on_close,
            **self._settings.options(),
        )
        self.max_bytes = min(type(self).max_bytes, client.max_payload)
        await client.subscribe(f"{self._name}.all", cb=self._on_message)
        await client.subscribe(f"{self._name}.member.{subject_token(self.member_id)}", cb=self._on_command)

    async def _on_error(self, error: Exception) -> None:
        _log.debug("the bus %s: %s", self._settings.address, explain(error))

    async def disconnect(self) -> None:
        """Close the connection."""
        client, self._client = self._client, None
        fetching, self._fetching = self._fetching, None
        self._subscriptions.clear()
        if client is not None:
            self.spawn(self._close_client(client, fetching))

    async def _close_client(self, client: Any, fetching: asyncio.Task[None] | None) -> None:
        # A cancelled close leaves its socket and tasks behind: abort the socket first.
        closing = asyncio.ensure_future(client.close())
        for stop in (lambda: _abort(client), closing.cancel):
            done, _ = await asyncio.wait({closing}, timeout=_CLOSE_SECONDS)
            if done:
                break
            stop()
        await asyncio.wait({closing}, timeout=_CLOSE_SECONDS)
        if closing.done() and not closing.cancelled() and isinstance(error := closing.exception(), Exception):
            await self._on_error(error)
        if fetching is not None and not fetching.done():
            fetching.cancel()
            await asyncio.wait({fetching}, timeout=_CLOSE_SECONDS)

    async def send(self, envelopes: Sequence[Envelope]) -> None:
        """Send a batch."""
        for envelope in envelopes:
            await self._client.publish(self._subject(envelope.to), envelope.body)

    async def request(self, member_id: str, command: Command) -> Reply:
        """Send a command and wait for its reply. Raises at once if the member isn't connected."""
        subject = self._subject(Member(member_id))
        reply = await self._client.request(subject, encode(command), timeout=CONNECT_SECONDS)
        return decode(reply.data, Reply)

    async def subscribe(self, tenant: str, thread_id: str) -> None:
        """Subscribe to the updates of a thread."""
        subject = self._subject(Watchers(tenant, thread_id))
        self._subscriptions[tenant, thread_id] = await self._client.subscribe(subject, cb=self._on_message)

    async def unsubscribe(self, tenant: str, thread_id: str) -> None:
        """Unsubscribe from the updates of a thread."""
        subscription = self._subscriptions.pop((tenant, thread_id), None)
        if subscription is not None:
            await subscription.unsubscribe()

    def _subject(self, to: Destination) -> str:
        match to:
            case AllMembers():
                return f"{self._name}.all"
            case Member(id=member_id):
                return f"{self._name}.member.{subject_token(member_id)}"
            case Watchers(tenant=tenant, thread_id=thread_id):
                return f"{self._name}.live.{subject_token(tenant)}.{subject_token(thread_id)}"
            case WorkQueue(tenant=tenant, thread_id=thread_id):
                return f"{self._name}.wake.{subject_token(tenant)}.{subject_token(thread_id)}"

    async def _on_message(self, message: Any) -> None:
        self.receive(message.data)

    async def _on_command(self, message: Any) -> None:
        command = decode_message(message.data)
        if isinstance(command, InboxNotice | StartRequest):
            self.spawn(self._respond(message, command))

    async def _respond(self, message: Any, command: Command) -> None:
        reply = await self.execute(command)
        try:
            await message.respond(encode(reply))
        except Exception as error:
            await self._on_error(error)  # The connection broke; the sender times out.

    # -- wake-ups --------------------------------------------------------------------------------------------

    async def subscribe_queue(self) -> None:
        """Start to fetch wake-ups."""
        if self._fetching is None:
            self._fetching = asyncio.get_running_loop().create_task(self._fetch(self._client))

    async def _fetch(self, client: Any) -> None:
        """Fetch wake-ups from the JetStream queue; without JetStream, subscribe to them directly."""
        direct: Any = None
        while client is self._client:  # The driver may swallow a cancellation if a message arrives with it.
            try:
                queue = await self._queue(client)
                if direct is not None:
                    await direct.unsubscribe()
                    direct = None
                while client is self._client:
                    await self._fetch_one(queue)
            except Exception as error:
                if client.is_closed:
                    return
                if direct is None:
                    self._warn_without_queue(error)
                    with suppress(Exception):  # The connection broke; `_on_close` handles it.
                        direct = await client.subscribe(
                            f"{self._name}.wake.>", queue="servers", cb=self._on_message
                        )
            await asyncio.sleep(_RETRY_SECONDS)

    def _warn_without_queue(self, error: Exception) -> None:
        _log.warning(
            "the bus %s has no JetStream for wake-ups (%s), so a wake-up is lost if no worker is connected: "
            "enable it on the server, and let this user manage the stream %s",
            self._settings.address,
            explain(error),
            self._stream,
        )

    @property
    def _stream(self) -> str:
        return f"{self._name}_wake"

    async def _queue(self, client: Any) -> Any:
        """Open the work queue of wake-ups: in memory, one message for each thread, with an expiry."""
        api = import_module("nats.js.api")
        stream = client.jetstream()
        await stream.add_stream(
            name=self._stream,
            subjects=[f"{self._name}.wake.>"],
            storage=api.StorageType.MEMORY,
            retention=api.RetentionPolicy.WORK_QUEUE,
            discard=api.DiscardPolicy.OLD,
            max_msgs=MAX_WAKES,
            max_msgs_per_subject=1,
            max_age=WAKE_SECONDS,
        )
        config = api.ConsumerConfig(ack_wait=1, max_deliver=2, max_ack_pending=-1)
        return await stream.pull_subscribe("", durable="servers", stream=self._stream, config=config)

    async def _fetch_one(self, queue: Any) -> None:
        try:
            (message,) = await queue.fetch(1, timeout=_FETCH_SECONDS)
        except TimeoutError:
            return
        self.receive(message.data)
        for _ in range(2):  # Let the woken task start its request to the store first.
            await asyncio.sleep(0)
        await message.ack()


def _abort(client: Any) -> None:
    """Close the socket without sending buffered data, so that `Client.close` returns."""
    writer = getattr(getattr(client, "_transport", None), "_io_writer", None)
    if writer is not None:
        writer.transport.abort()
