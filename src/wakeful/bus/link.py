"""The common part of all links: sending, receiving, renewing interest and reconnecting."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Coroutine, Sequence
from typing import Any

from ..errors import explain
from ..types.codec import encode
from ..types.ids import new_id
from .envelopes import AllMembers, Envelope, Member, WorkQueue
from .outbox import Outbox
from .peers import REFUSAL_SECONDS, Peers
from .protocol import INTEREST_SECONDS, Listener, LiveUpdate, Update, Wake
from .wire import (
    Announcement,
    BusMessage,
    Command,
    InboxNotice,
    Key,
    Reply,
    StartRequest,
    ThreadUpdates,
    WakeUp,
    decode_message,
    decode_updates,
)

__all__ = ["CONNECT_SECONDS", "SEND_SECONDS", "WireLink"]

_log = logging.getLogger("wakeful")

RENEW_SECONDS = INTEREST_SECONDS / 3
REPLY_SECONDS = 1.0
CONNECT_SECONDS = 10.0
SEND_SECONDS = 10.0
MIN_BACKOFF, MAX_BACKOFF = 0.05, 5.0
# How long a start request waits for its reply.
START_SECONDS = 0.25


class WireLink:
    """A link over a connection that reconnects when it breaks.

    A subclass implements `connect`, `disconnect`, `send`, `subscribe` and `unsubscribe`. It passes incoming
    messages to `receive`, and calls `connection_lost` when the connection breaks.
    """

    carries_deltas = True
    max_bytes = 256 * 1024

    def __init__(self, address: str, member_id: str, listener: Listener) -> None:
        self.member_id = member_id
        self.listener = listener
        self.serves = False
        self._address = address
        self._is_lost = False
        self._healthy = False
        self._has_warned = False
        self._closing = False
        self._watches: dict[Key, int] = {}
        self._subscribed: set[Key] = set()
        self._replies: dict[str, asyncio.Future[Reply]] = {}
        self._peers = Peers()
        self._jobs: set[asyncio.Task[None]] = set()
        self._outbox = Outbox(member_id)
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._run())

    # -- implemented by each bus -----------------------------------------------------------------------------

    async def connect(self) -> None:
        """Connect, and subscribe to messages for all members and for this one."""
        raise NotImplementedError

    async def disconnect(self) -> None:
        """Close the connection, whatever its state."""
        raise NotImplementedError

    async def send(self, envelopes: Sequence[Envelope]) -> None:
        """Send a batch."""
        raise NotImplementedError

    async def subscribe(self, tenant: str, thread_id: str) -> None:
        """Subscribe to the updates of a thread."""
        raise NotImplementedError

    async def unsubscribe(self, tenant: str, thread_id: str) -> None:
        """Unsubscribe from the updates of a thread."""
        raise NotImplementedError

    async def subscribe_queue(self) -> None:
        """Subscribe to the work queue, if the bus has one. Idempotent."""

    async def request(self, member_id: str, command: Command) -> Reply:
        """Send a command and wait for its reply."""
        reply: asyncio.Future[Reply] = self._loop.create_future()
        self._replies[command.id] = reply
        try:
            self._outbox.put(Envelope(Member(member_id), encode(command)))
            return await reply
        finally:
            del self._replies[command.id]

    def connection_lost(self) -> None:
        """Reconnect: the connection broke."""
        self._is_lost = True
        self._outbox.changed.set()

    # -- the Link protocol -----------------------------------------------------------------------------------

    @property
    def is_healthy(self) -> bool:
        """Whether the connection works, as far as is known."""
        return self._healthy

    def serve(self) -> None:
        """Start to receive wake-ups."""
        self.serves = True
        self._outbox.announce()

    def wake(self, wake: Wake) -> None:
        """Tell one serving member that a thread is due."""
        key = (wake.tenant, wake.thread_id)
        self._outbox.put(Envelope(WorkQueue(*key), encode(WakeUp(self.member_id, wake))), key)

    async def notify_owner(self, owner: str, tenant: str, thread_id: str) -> bool:
        """Ask a thread's owner to read its inbox. Returns whether it confirmed that within a second."""
        if not self._healthy:
            return False
        try:
            async with asyncio.timeout(REPLY_SECONDS):
                return (
                    await self.request(owner, InboxNotice(self.member_id, new_id(), tenant, thread_id))
                ).is_done
        except Exception:
            return False  # The owner may have read it; the item is in the inbox either way.

    async def request_start(self, sealed: bytes) -> bytes:
        """Ask a serving member to start a run. Returns its proof, empty if there is none in time."""
        fits = len(sealed) * 3 // 2 < self.max_bytes
        peer = self._peers.next_starter(self._loop.time()) if self._healthy and fits else None
        if peer is None:
            return b""
        peer.pending_starts += 1
        proof = b""
        try:
            async with asyncio.timeout(START_SECONDS):
                await self._outbox.announced.wait()  # The peer must know the watchers before it starts.
                proof = (await self.request(peer.id, StartRequest(self.member_id, new_id(), sealed))).proof
        except Exception:
            self._peers.remove(peer.id)  # It may have started the run; the store knows.
        finally:
            peer.pending_starts -= 1
        if not proof:
            peer.refuses_until = self._loop.time() + REFUSAL_SECONDS
        return proof

    def watch(self, tenant: str, thread_id: str) -> None:
        """Receive a thread's updates until `unwatch`."""
        key = (tenant, thread_id)
        self._watches[key] = self._watches.get(key, 0) + 1
        if self._watches[key] == 1:
            self._outbox.announce()

    def unwatch(self, tenant: str, thread_id: str) -> None:
        """Undo one `watch`."""
        key = (tenant, thread_id)
        count = self._watches.get(key, 0) - 1
        if count > 0:
            self._watches[key] = count
        elif self._watches.pop(key, None):
            self._outbox.changed.set()

    def publish(self, tenant: str, thread_id: str, updates: Sequence[Update]) -> None:
        """Send updates to the members that watch a thread. Without a connection they read the log instead."""
        if self._healthy:
            self._outbox.publish((tenant, thread_id), updates, with_deltas=self.carries_deltas)

    async def close(self) -> None:
        """Leave the bus."""
        if self._closing:
            return
        self._closing = True
        if self._healthy:
            self._outbox.changed.set()
            await asyncio.wait({self._task}, timeout=REPLY_SECONDS)
        self._task.cancel()
        await asyncio.wait({self._task})
        if self._jobs:
            await asyncio.wait(self._jobs)

    # -- the connection --------------------------------------------------------------------------------------

    async def _run(self) -> None:
        backoff, since = MIN_BACKOFF, 0.0
        try:
            while not self._closing:
                self._is_lost = False
                try:
                    async with asyncio.timeout(CONNECT_SECONDS):
                        await self.connect()
                    self._connected()
                    since = self._loop.time()
                    await self._send_until_lost()
                except Exception as error:
                    self._warn_once(error)
                if self._healthy and self._loop.time() - since > MAX_BACKOFF:
                    backoff = MIN_BACKOFF  # Not after a connection that broke at once: the next may too.
                self._healthy = False
                await self._disconnected()
                if not self._closing:
                    await asyncio.sleep(backoff * random.uniform(0.5, 1.5))
                    backoff = min(backoff * 2, MAX_BACKOFF)
        finally:
            self._healthy = False
            await self._disconnected()

    def _connected(self) -> None:
        self._subscribed.clear()
        self._healthy = True
        self._outbox.announce(hello=True)
        if self._has_warned:
            self._has_warned = False
            _log.warning("the bus %s is connected again", self._address)

    def _warn_once(self, error: Exception) -> None:
        if not self._has_warned and not self._closing:
            self._has_warned = True
            _log.warning(
                "the bus %s can't be used (%s); processes poll the store until it is connected again",
                self._address,
                explain(error),
            )

    async def _disconnected(self) -> None:
        for command_id, reply in self._replies.items():
            if not reply.done():
                reply.set_result(Reply(command_id, False))
        try:
            async with asyncio.timeout(REPLY_SECONDS):
                await self.disconnect()
        except Exception as error:
            _log.debug("closing the connection to the bus %s failed: %s", self._address, explain(error))

    async def _send_until_lost(self) -> None:
        """Send pending messages until the connection is lost or the link is closed."""
        renew_at = self._loop.time() + RENEW_SECONDS
        outbox = self._outbox
        while not self._is_lost:
            outbox.changed.clear()
            if self._loop.time() >= renew_at:
                renew_at = self._loop.time() + RENEW_SECONDS
                outbox.is_announcing = True
            async with asyncio.timeout(SEND_SECONDS):
                await self._update_subscriptions()
            if envelopes := outbox.drain(self._watches, serves=self.serves, max_bytes=self.max_bytes):
                async with asyncio.timeout(SEND_SECONDS):
                    await self.send(envelopes)
                if not outbox.is_announcing:
                    outbox.announced.set()
                continue
            if self._closing:
                async with asyncio.timeout(REPLY_SECONDS):
                    await self.send([Envelope(AllMembers(), encode(Announcement(self.member_id, leaving=True)))])
                return
            try:
                async with asyncio.timeout_at(renew_at):
                    await outbox.changed.wait()
            except TimeoutError:
                pass

    async def _update_subscriptions(self) -> None:
        """Subscribe to the watched threads and to no others."""
        if self.serves:
            await self.subscribe_queue()
        for key in [key for key in self._watches if key not in self._subscribed]:
            self._subscribed.add(key)
            await self.subscribe(*key)
        for key in [key for key in self._subscribed if key not in self._watches]:
            self._subscribed.discard(key)
            await self.unsubscribe(*key)

    # -- receiving -------------------------------------------------------------------------------------------

    def receive(self, body: bytes | str) -> None:
        """Handle an incoming message."""
        message = decode_message(body)
        if message is not None:
            self._handle(message)

    def _handle(self, message: BusMessage) -> None:
        match message:
            case Reply():
                reply = self._replies.get(message.id)
                if reply is not None and not reply.done():
                    reply.set_result(message)
            case InboxNotice() | StartRequest():
                self.spawn(self._execute_and_reply(message))
            case WakeUp():
                if not self._accept_wake(message) and not message.passed_on:
                    passed_on = WakeUp(message.sender, message.wake, passed_on=True)
                    self._outbox.put(Envelope(AllMembers(), encode(passed_on)))
            case _ if message.sender == self.member_id:
                pass
            case Announcement():
                self._add_peer(message)
            case ThreadUpdates():
                if (message.tenant, message.thread_id) in self._watches:
                    updates = decode_updates(message)
                    if not self.carries_deltas:  # Nobody sends them here, so such a one is forged.
                        updates = [update for update in updates if not isinstance(update, LiveUpdate)]
                    self.listener.on_updates(message.tenant, message.thread_id, updates)

    def _accept_wake(self, message: WakeUp) -> bool:
        return self.serves and not self._closing and self.listener.on_wake(message.wake)

    async def _execute_and_reply(self, command: Command) -> None:
        self._outbox.put(Envelope(Member(command.sender), encode(await self.execute(command))))

    async def execute(self, command: Command) -> Reply:
        """Execute a command."""
        if isinstance(command, InboxNotice):
            return Reply(command.id, await self.listener.on_inbox(command.tenant, command.thread_id))
        serves = self.serves and not self._closing
        proof = await self.listener.on_start(command.sealed) if serves else b""
        return Reply(command.id, bool(proof), proof)

    def _add_peer(self, message: Announcement) -> None:
        if message.leaving:
            self._peers.remove(message.sender)
            return
        self._peers.renew(message.sender, self._loop.time(), serves=message.serves)
        for tenant, thread_id in message.watches:
            self.listener.on_watch(tenant, thread_id, INTEREST_SECONDS)
        if message.hello:
            self._outbox.announce()

    def next_server(self) -> str | None:
        """Choose a serving member, round-robin; None if none is known."""
        return self._peers.next_server(self._loop.time())

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine beside the connection; `close` waits for it."""
        job = self._loop.create_task(work)
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)
