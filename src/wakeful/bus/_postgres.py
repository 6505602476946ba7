"""A bus in a Postgres database: LISTEN and NOTIFY, on a connection of its own.

A notification has less than 8,000 bytes and wakes every connection that listens, so that it carries no deltas, and
what belongs together is sent together. None is sent in a transaction of the store's.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from importlib import import_module
from typing import Any

from ._address import checked_name, need_driver, place_of
from ._link import CONNECT_SECONDS, SEND_SECONDS, Everybody, Member, Parcel, Queue, Thread, WireLink
from ._protocol import Listener

__all__ = ["PostgresBus"]

_NOTIFY = "SELECT pg_notify(t.channel, t.body) FROM unnest($1::text[], $2::text[]) AS t(channel, body)"


class PostgresBus:
    """Carries hints through a Postgres database; nothing is connected before the first runtime joins.

    `url` is `postgres://user:password@host:port/database`, of the server or of a pooler that pools sessions.
    `name` keeps clusters apart that share a database.
    """

    def __init__(self, url: str, *, name: str = "wakeful") -> None:
        self._url = url
        self.place = place_of(url, "postgres", "postgresql")
        self.name = checked_name(name)
        need_driver("asyncpg", "postgres")

    def __repr__(self) -> str:
        return f"PostgresBus({self.place!r}, name={self.name!r})"

    def join(self, member_id: str, listener: Listener) -> _PostgresLink:
        """Take part, on the running event loop."""
        return _PostgresLink(self, self._url, member_id, listener)


class _PostgresLink(WireLink):
    deltas = False
    max_bytes = 7_900

    def __init__(self, bus: PostgresBus, url: str, member_id: str, listener: Listener) -> None:
        self._url = url
        self._name = bus.name
        self._connection: Any = None
        super().__init__(bus.place, member_id, listener)

    async def connect(self) -> None:
        """Connect, and listen to what goes to everybody and to this member."""
        driver = import_module("asyncpg")
        connection = self._connection = await driver.connect(
            self._url,
            timeout=CONNECT_SECONDS,
            command_timeout=SEND_SECONDS,
            server_settings={"application_name": "wakeful bus"},
        )
        connection.add_termination_listener(self._broke)
        await connection.add_listener(self._channel(Everybody()), self._arrived)
        await connection.add_listener(self._channel(Member(self.member_id)), self._arrived)

    def _broke(self, connection: Any) -> None:
        if connection is self._connection:
            self.lost = True
            self.stir()

    async def disconnect(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            await connection.close(timeout=1)
        finally:
            connection.terminate()

    async def send(self, parcels: Sequence[Parcel]) -> None:
        """Send these in one statement."""
        channels = [self._channel(self._reader(parcel)) for parcel in parcels]
        await self._connection.execute(_NOTIFY, channels, [parcel.body.decode() for parcel in parcels])

    def _reader(self, parcel: Parcel) -> Everybody | Member | Thread:
        """To whom a parcel goes: Postgres knows no queues, so that the sender chooses one of those who serve."""
        if not isinstance(parcel.to, Queue):
            return parcel.to
        chosen = self.next_server()
        return Everybody() if chosen is None else Member(chosen)

    async def listen(self, tenant: str, thread_id: str) -> None:
        """Get what goes to those who watch a thread."""
        await self._connection.add_listener(self._channel(Thread(tenant, thread_id)), self._arrived)

    async def unlisten(self, tenant: str, thread_id: str) -> None:
        """Get it no more."""
        await self._connection.remove_listener(self._channel(Thread(tenant, thread_id)), self._arrived)

    def _arrived(self, _connection: Any, _pid: int, _channel: str, body: str) -> None:
        self.receive(body)

    def _channel(self, reader: Everybody | Member | Thread) -> str:
        """A name of at most 63 bytes; threads' names are hashed, since they may be longer."""
        match reader:
            case Everybody():
                return f"{self._name}:all"
            case Member(id=member_id):
                return f"{self._name}:member:{_hashed(member_id)}"
            case Thread(tenant=tenant, thread_id=thread_id):
                return f"{self._name}:thread:{_hashed(f'{len(tenant)}:{tenant}{thread_id}')}"


def _hashed(text: str) -> str:
    return blake2b(text.encode(), digest_size=16).hexdigest()
