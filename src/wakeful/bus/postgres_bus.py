"""A bus on Postgres: LISTEN and NOTIFY on a connection of its own.

A notification is limited to 8,000 bytes and wakes every listening connection, so this bus carries no deltas and
sends in batches. Notifications are never sent in a transaction of the store.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from importlib import import_module
from typing import Any

from .address import check_name, redact_url, require_driver
from .envelopes import AllMembers, Envelope, Member, Watchers, WorkQueue
from .link import CONNECT_SECONDS, SEND_SECONDS, WireLink
from .protocol import Listener

__all__ = ["PostgresBus"]

_NOTIFY = "SELECT pg_notify(t.channel, t.body) FROM unnest($1::text[], $2::text[]) AS t(channel, body)"


class PostgresBus:
    """A bus on a Postgres database. It connects when the first runtime joins.

    `url` is `postgres://user:password@host:port/database` of the server or of a session pooler. `name` separates
    clusters that share a database.
    """

    def __init__(self, url: str, *, name: str = "wakeful") -> None:
        self._url = url
        self.address = redact_url(url, "postgres", "postgresql")
        self.name = check_name(name)
        require_driver("asyncpg", "postgres")

    def __repr__(self) -> str:
        return f"PostgresBus({self.address!r}, name={self.name!r})"

    def join(self, member_id: str, listener: Listener) -> _PostgresLink:
        """Join on the running event loop."""
        return _PostgresLink(self, self._url, member_id, listener)


class _PostgresLink(WireLink):
    carries_deltas = False
    max_bytes = 7_900

    def __init__(self, bus: PostgresBus, url: str, member_id: str, listener: Listener) -> None:
        self._url = url
        self._name = bus.name
        self._connection: Any = None
        super().__init__(bus.address, member_id, listener)

    async def connect(self) -> None:
        """Connect, and listen to messages for all members and for this one."""
        driver = import_module("asyncpg")
        connection = self._connection = await driver.connect(
            self._url,
            timeout=CONNECT_SECONDS,
            command_timeout=SEND_SECONDS,
            server_settings={"application_name": "wakeful bus"},
        )
        connection.add_termination_listener(self._on_termination)
        await connection.add_listener(self._channel(AllMembers()), self._on_notification)
        await connection.add_listener(self._channel(Member(self.member_id)), self._on_notification)

    def _on_termination(self, connection: Any) -> None:
        if connection is self._connection:
            self.connection_lost()

    async def disconnect(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            await connection.close(timeout=1)
        finally:
            connection.terminate()

    async def send(self, envelopes: Sequence[Envelope]) -> None:
        """Send a batch in one statement."""
        channels = [self._channel(self._destination(envelope)) for envelope in envelopes]
        await self._connection.execute(_NOTIFY, channels, [envelope.body.decode() for envelope in envelopes])

    def _destination(self, envelope: Envelope) -> AllMembers | Member | Watchers:
        """Resolve a destination. Postgres has no queues, so the sender chooses a serving member."""
        if not isinstance(envelope.to, WorkQueue):
            return envelope.to
        chosen = self.next_server()
        return AllMembers() if chosen is None else Member(chosen)

    async def subscribe(self, tenant: str, thread_id: str) -> None:
        """Listen to the updates of a thread."""
        await self._connection.add_listener(self._channel(Watchers(tenant, thread_id)), self._on_notification)

    async def unsubscribe(self, tenant: str, thread_id: str) -> None:
        """Stop listening to the updates of a thread."""
        await self._connection.remove_listener(self._channel(Watchers(tenant, thread_id)), self._on_notification)

    def _on_notification(self, _connection: Any, _pid: int, _channel: str, body: str) -> None:
        self.receive(body)

    def _channel(self, to: AllMembers | Member | Watchers) -> str:
        """Name the channel of a destination. Ids are hashed: a channel name has at most 63 bytes."""
        match to:
            case AllMembers():
                return f"{self._name}:all"
            case Member(id=member_id):
                return f"{self._name}:member:{_hash(member_id)}"
            case Watchers(tenant=tenant, thread_id=thread_id):
                return f"{self._name}:thread:{_hash(f'{len(tenant)}:{tenant}{thread_id}')}"


def _hash(text: str) -> str:
    return blake2b(text.encode(), digest_size=16).hexdigest()
