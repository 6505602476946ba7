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
from ._link import CONNECT_SECONDS, Everybody, Member, Parcel, Queue, Thread, WireLink
from ._nats_settings import NatsSettings
from ._protocol import Listener
from ._wire import Begin, Heard, Key, Tell, parse

__all__ = ["NatsBus"]

_log = logging.getLogger("wakeful")

# A wake-up that nobody took for so long is of no use: the scheduler's clock was faster.
WAKE_SECONDS = 60
MAX_WAKES = 100_000
_FETCH_SECONDS = 20.0
_RETRY_SECONDS = 5.0


class NatsBus:
    """Carries hints through a NATS server or cluster; nothing is connected before the first runtime joins.

    `url` is `nats://user:password@host:port`, or several with commas between; `tls://` insists on TLS. Settings
    can be given by name, or behind a `?` in the URL: `user`, `password`, `token`, `credentials` (a file), `ca`,
    `cert` and `key` (files; they turn TLS on), `tls_hostname`, and `name`, which keeps clusters apart that share a
    server. `tls` takes an `ssl.SSLContext` made elsewhere.
    """

    def __init__(self, url: str, *, tls: ssl.SSLContext | None = None, **settings: str) -> None:
        self.settings = NatsSettings.of(url, tls, settings)

    def __repr__(self) -> str:
        return f"NatsBus({self.settings.place!r}, name={self.settings.name!r})"

    def join(self, member_id: str, listener: Listener) -> _NatsLink:
        """Take part, on the running event loop."""
        return _NatsLink(self.settings, member_id, listener)


def token(text: str) -> str:
    """A text as one token of a subject: readable where it may be, and no two texts the same."""
    encoded = re.sub(rb"[^A-Za-z0-9_-]", lambda found: b"=%02X" % found[0][0], text.encode()).decode() or "="
    return encoded if len(encoded) <= 200 else f"=={sha256(text.encode()).hexdigest()}"


class _NatsLink(WireLink):
    def __init__(self, settings: NatsSettings, member_id: str, listener: Listener) -> None:
        self._settings = settings
        self._name = settings.name
        self._client: Any = None
        self._subscriptions: dict[Key, Any] = {}
        self._fetching: asyncio.Task[None] | None = None
        super().__init__(settings.place, member_id, listener)

    async def connect(self) -> None:
        """Connect, and listen to what goes to everybody and to this member."""
        client = self._client = import_module("nats.aio.client").Client()
        # This link connects again by itself, from the first time on, and says again what it listens to.
        await client.connect(
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0.05,
            connect_timeout=CONNECT_SECONDS / 2,
            ping_interval=5,
            error_cb=self._failed,
            closed_cb=self._closed,
            **self._settings.options(),
        )
        self.max_bytes = min(type(self).max_bytes, client.max_payload)
        await client.subscribe(f"{self._name}.all", cb=self._arrived)
        await client.subscribe(f"{self._name}.member.{token(self.member_id)}", cb=self._asked)

    async def _failed(self, error: Exception) -> None:
        _log.debug("the bus %s: %s", self._settings.place, explain(error))

    async def _closed(self) -> None:
        self.lost = True
        self.stir()

    async def disconnect(self) -> None:
        """Close the connection."""
        client, self._client = self._client, None
        fetching, self._fetching = self._fetching, None
        self._subscriptions.clear()
        if fetching is not None:
            fetching.cancel()
        if client is not None:
            await client.close()
        if fetching is not None:
            await asyncio.wait({fetching})

    async def send(self, parcels: Sequence[Parcel]) -> None:
        """Send these."""
        for parcel in parcels:
            await self._client.publish(self._subject(parcel.to), parcel.body)

    async def ask(self, member_id: str, command: Tell | Begin) -> Heard:
        """Send a command and wait for its answer. If nobody has that id, the server says so at once."""
        subject = self._subject(Member(member_id))
        answer = await self._client.request(subject, encode(command), timeout=CONNECT_SECONDS)
        return decode(answer.data, Heard)

    async def listen(self, tenant: str, thread_id: str) -> None:
        """Get what goes to those who watch a thread."""
        subject = self._subject(Thread(tenant, thread_id))
        self._subscriptions[tenant, thread_id] = await self._client.subscribe(subject, cb=self._arrived)

    async def unlisten(self, tenant: str, thread_id: str) -> None:
        """Get it no more."""
        subscription = self._subscriptions.pop((tenant, thread_id), None)
        if subscription is not None:
            await subscription.unsubscribe()

    def _subject(self, reader: Everybody | Member | Thread | Queue) -> str:
        match reader:
            case Everybody():
                return f"{self._name}.all"
            case Member(id=member_id):
                return f"{self._name}.member.{token(member_id)}"
            case Thread(tenant=tenant, thread_id=thread_id):
                return f"{self._name}.live.{token(tenant)}.{token(thread_id)}"
            case Queue(tenant=tenant, thread_id=thread_id):
                return f"{self._name}.wake.{token(tenant)}.{token(thread_id)}"

    async def _arrived(self, message: Any) -> None:
        self.receive(message.data)

    async def _asked(self, message: Any) -> None:
        letter = parse(message.data)
        if isinstance(letter, Tell | Begin):
            self.do(self._reply(message, letter))

    async def _reply(self, message: Any, command: Tell | Begin) -> None:
        heard = await self.obey(command)
        try:
            await message.respond(encode(heard))
        except Exception as error:
            await self._failed(error)  # The connection is gone, and with it whoever asked.

    # -- wake-ups --------------------------------------------------------------------------------------------

    async def serve_queue(self) -> None:
        """Begin to get wake-ups."""
        if self._fetching is None:
            self._fetching = asyncio.get_running_loop().create_task(self._fetch(self._client))

    async def _fetch(self, client: Any) -> None:
        """Take wake-ups from the queue. Where there is none, take those that come while this process is there."""
        direct: Any = None
        while client is self._client:  # The driver may swallow a cancellation, when a message comes with it.
            try:
                queue = await self._queue(client)
                if direct is not None:
                    await direct.unsubscribe()
                    direct = None
                while client is self._client:
                    await self._next(queue)
            except Exception as error:
                if client.is_closed:
                    return
                if direct is None:
                    self._no_queue(error)
                    with suppress(Exception):  # The connection is gone, and this link hears of it.
                        direct = await client.subscribe(f"{self._name}.wake.>", queue="servers", cb=self._arrived)
            await asyncio.sleep(_RETRY_SECONDS)

    def _no_queue(self, error: Exception) -> None:
        _log.warning(
            "the bus %s has no JetStream for wake-ups (%s), and those that nobody waits for are lost: enable it "
            "on the server, and let this user manage the stream %s",
            self._settings.place,
            explain(error),
            self._stream,
        )

    @property
    def _stream(self) -> str:
        return f"{self._name}_wake"

    async def _queue(self, client: Any) -> Any:
        """The queue that all who serve take wake-ups from: in memory, one for each thread, and not for long."""
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

    async def _next(self, queue: Any) -> None:
        try:
            (message,) = await queue.fetch(1, timeout=_FETCH_SECONDS)
        except TimeoutError:
            return
        self.receive(message.data)
        for _ in range(2):  # Whoever was woken goes first, up to what it asks of the store.
            await asyncio.sleep(0)
        await message.ack()
