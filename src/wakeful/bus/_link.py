"""What all links have in common: letters that wait to be sent, interest that is renewed, and connecting again."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Coroutine, Sequence
from typing import Any

from msgspec import Struct

from ..errors import explain
from ..types.codec import encode
from ..types.ids import new_id
from ._peers import Peers
from ._protocol import INTEREST_SECONDS, Grown, Listener, Moved, News, Shown, Wake
from ._wire import Announce, Begin, Happened, Heard, Key, Letter, Tell, WakeUp, news_of, parse, split

__all__ = ["Everybody", "Member", "Parcel", "Queue", "Thread", "WireLink"]

_log = logging.getLogger("wakeful")

RENEW_SECONDS = INTEREST_SECONDS / 3
ANSWER_SECONDS = 1.0
CONNECT_SECONDS = 10.0
SEND_SECONDS = 10.0
FIRST_PAUSE, LAST_PAUSE = 0.05, 5.0
MAX_WAITING = 4096
# How long one that was asked to begin a run is waited for.
BEGIN_SECONDS = 0.25


class Everybody(Struct, frozen=True):
    """All who take part."""


class Member(Struct, frozen=True):
    """One who takes part."""

    id: str


class Thread(Struct, frozen=True):
    """Whoever watches a thread."""

    tenant: str
    thread_id: str


class Queue(Struct, frozen=True):
    """One of those who serve; wake-ups for the same thread may be put together."""

    tenant: str
    thread_id: str


class Parcel(Struct, frozen=True):
    """A letter and to whom it goes."""

    to: Everybody | Member | Thread | Queue
    body: bytes


class WireLink:
    """A link by way of some connection, which may break and is made again.

    A kind of bus says how to connect, how to send, and how to listen to a thread; it gives what arrives to
    `receive`, and sets `lost` when the connection broke.
    """

    deltas = True
    max_bytes = 256 * 1024

    def __init__(self, place: str, member_id: str, listener: Listener) -> None:
        self.member_id = member_id
        self.listener = listener
        self.serves = False
        self.lost = False
        self._place = place
        self._healthy = False
        self._complained = False
        self._closing = False
        self._stirred = asyncio.Event()
        self._watches: dict[Key, int] = {}
        self._listening: set[Key] = set()
        self._parcels: dict[object, Parcel] = {}
        self._news: dict[Key, list[News]] = {}
        self._answers: dict[str, asyncio.Future[Heard]] = {}
        self._peers = Peers()
        self._jobs: set[asyncio.Task[None]] = set()
        self._announcing = False
        self._announced = asyncio.Event()
        self._hello = False
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._run())

    # -- what a kind of bus says ------------------------------------------------------------------------------

    async def connect(self) -> None:
        """Connect, and listen to what goes to everybody and to this member."""
        raise NotImplementedError

    async def disconnect(self) -> None:
        """Let go of the connection, in whatever state it is."""
        raise NotImplementedError

    async def send(self, parcels: Sequence[Parcel]) -> None:
        """Send these."""
        raise NotImplementedError

    async def listen(self, tenant: str, thread_id: str) -> None:
        """Get what goes to those who watch a thread."""
        raise NotImplementedError

    async def unlisten(self, tenant: str, thread_id: str) -> None:
        """Get it no more."""
        raise NotImplementedError

    async def serve_queue(self) -> None:
        """Begin to get wake-ups, if that takes something. May be called again."""

    async def ask(self, member_id: str, command: Tell | Begin) -> Heard:
        """Send a command and wait for its answer."""
        answer: asyncio.Future[Heard] = self._loop.create_future()
        self._answers[command.id] = answer
        try:
            self.post(Parcel(Member(member_id), encode(command)))
            return await answer
        finally:
            del self._answers[command.id]

    # -- the link --------------------------------------------------------------------------------------------

    @property
    def healthy(self) -> bool:
        """Whether hints get through at present, as far as is known."""
        return self._healthy

    def serve(self) -> None:
        """Get wake-ups from now on."""
        self.serves = True
        self._announce()

    def wake(self, wake: Wake) -> None:
        """Say that a thread is due, to one of those that serve."""
        letter = encode(WakeUp(self.member_id, wake))
        self.post(Parcel(Queue(wake.tenant, wake.thread_id), letter), (wake.tenant, wake.thread_id))

    async def tell(self, owner: str, tenant: str, thread_id: str) -> bool:
        """Ask a thread's owner to look into its inbox; whether it has."""
        if not self._healthy:
            return False
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return (await self.ask(owner, Tell(self.member_id, new_id(), tenant, thread_id))).heard
        except Exception:
            return False  # It may have heard nevertheless; the inbox has what it is about.

    async def begin(self, sealed: bytes) -> bytes:
        """Ask one of those that serve to begin a run; its proof that it has."""
        small = len(sealed) * 3 // 2 < self.max_bytes
        peer = self._peers.next_to_begin(self._loop.time()) if self._healthy and small else None
        if peer is None:
            return b""
        peer.asked += 1
        begun = b""
        try:
            async with asyncio.timeout(BEGIN_SECONDS):
                await self._announced.wait()  # Whoever begins knows who watches.
                begun = (await self.ask(peer.id, Begin(self.member_id, new_id(), sealed))).proof
        except Exception:
            self._peers.forget(peer.id)  # It may have begun nevertheless; the store knows.
        finally:
            peer.asked -= 1
        if not begun:
            self._peers.refused(peer, self._loop.time())
        return begun

    def watch(self, tenant: str, thread_id: str) -> None:
        """Get what happens on a thread from now on."""
        key = (tenant, thread_id)
        self._watches[key] = self._watches.get(key, 0) + 1
        if self._watches[key] == 1:
            self._announce()

    def leave(self, tenant: str, thread_id: str) -> None:
        """Stop watching."""
        key = (tenant, thread_id)
        left = self._watches.get(key, 0) - 1
        if left > 0:
            self._watches[key] = left
        elif self._watches.pop(key, None):
            self._stirred.set()

    def show(self, tenant: str, thread_id: str, news: Sequence[News]) -> None:
        """Tell everybody who watches a thread what happens there."""
        if not self._healthy:
            return  # They follow the log as long as they hear nothing.
        waiting = self._news.setdefault((tenant, thread_id), [])
        for one in news:
            if self.deltas or not isinstance(one, Shown):
                _add(waiting, one)
        if len(waiting) > MAX_WAITING:
            # Readers see by the offsets that something is missing, and find it in the store.
            waiting[:] = [one for one in waiting if not isinstance(one, Shown)][-MAX_WAITING:]
        self._stirred.set()

    async def close(self) -> None:
        """Leave the bus."""
        if self._closing:
            return
        self._closing = True
        if self._healthy:
            self._stirred.set()
            await asyncio.wait({self._task}, timeout=ANSWER_SECONDS)
        self._task.cancel()
        await asyncio.wait({self._task, *self._jobs})

    # -- sending ---------------------------------------------------------------------------------------------

    def post(self, parcel: Parcel, key: object = None) -> None:
        """Have a parcel sent; one of the same key that still waits is replaced."""
        if len(self._parcels) >= MAX_WAITING:
            del self._parcels[next(iter(self._parcels))]
        self._parcels[object() if key is None else key] = parcel
        self._stirred.set()

    def stir(self) -> None:
        """There is something to do for the connection: to send, or that it is lost."""
        self._stirred.set()

    def _announce(self, *, hello: bool = False) -> None:
        self._announcing = True
        self._announced.clear()
        self._hello |= hello
        self._stirred.set()

    async def _run(self) -> None:
        pause, began = FIRST_PAUSE, 0.0
        try:
            while not self._closing:
                self.lost = False
                try:
                    async with asyncio.timeout(CONNECT_SECONDS):
                        await self.connect()
                    self._connected()
                    began = self._loop.time()
                    await self._converse()
                except Exception as error:
                    self._complain(error)
                if self._healthy and self._loop.time() - began > LAST_PAUSE:
                    pause = FIRST_PAUSE  # Not after one that broke at once, which the next may do too.
                self._healthy = False
                await self._let_go()
                if not self._closing:
                    await asyncio.sleep(pause * random.uniform(0.5, 1.5))
                    pause = min(pause * 2, LAST_PAUSE)
        finally:
            self._healthy = False
            await self._let_go()

    def _connected(self) -> None:
        self._listening.clear()
        self._healthy = True
        self._announce(hello=True)
        if self._complained:
            self._complained = False
            _log.warning("the bus %s is there again", self._place)

    def _complain(self, error: Exception) -> None:
        if not self._complained and not self._closing:
            self._complained = True
            _log.warning(
                "the bus %s can't be used (%s); until it can, other processes find out by looking",
                self._place,
                explain(error),
            )

    async def _let_go(self) -> None:
        for number, answer in self._answers.items():
            if not answer.done():
                answer.set_result(Heard(number, False))
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self.disconnect()
        except Exception as error:
            _log.debug("the bus %s was left badly: %s", self._place, explain(error))

    async def _converse(self) -> None:
        """Send what is to be sent until the connection is lost, or the link is closed."""
        renew = self._loop.time() + RENEW_SECONDS
        while not self.lost:
            self._stirred.clear()
            if self._loop.time() >= renew:
                renew = self._loop.time() + RENEW_SECONDS
                self._announcing = True
            async with asyncio.timeout(SEND_SECONDS):
                await self._tune()
            if parcels := self._take():
                async with asyncio.timeout(SEND_SECONDS):
                    await self.send(parcels)
                if not self._announcing:
                    self._announced.set()
                continue
            if self._closing:
                async with asyncio.timeout(ANSWER_SECONDS):
                    await self.send([Parcel(Everybody(), encode(Announce(self.member_id, leaving=True)))])
                return
            try:
                async with asyncio.timeout_at(renew):
                    await self._stirred.wait()
            except TimeoutError:
                pass

    async def _tune(self) -> None:
        """Listen to the threads that are watched, and to no others."""
        if self.serves:
            await self.serve_queue()
        for key in [key for key in self._watches if key not in self._listening]:
            self._listening.add(key)
            await self.listen(*key)
        for key in [key for key in self._listening if key not in self._watches]:
            self._listening.discard(key)
            await self.unlisten(*key)

    def _take(self) -> list[Parcel]:
        """What is to be sent now: first who is there, so that others know whom to tell."""
        parcels: list[Parcel] = []
        if self._announcing:
            parcels += self._announcements()
        parcels += self._parcels.values()
        self._parcels.clear()
        for key, news in self._news.items():
            parcels += [Parcel(Thread(*key), body) for body in split(self.member_id, *key, news, self.max_bytes)]
        self._news.clear()
        return parcels

    def _announcements(self) -> list[Parcel]:
        hello, self._announcing, self._hello = self._hello, False, False
        pages: list[list[Key]] = [[]]
        size = 0
        for key in self._watches:
            length = len(encode(key)) + 1
            if size + length > self.max_bytes - 200:
                pages.append([])
                size = 0
            pages[-1].append(key)
            size += length
        letters = [Announce(self.member_id, self.serves, page, hello and not n) for n, page in enumerate(pages)]
        return [Parcel(Everybody(), encode(letter)) for letter in letters]

    # -- receiving -------------------------------------------------------------------------------------------

    def receive(self, body: bytes | str) -> None:
        """Take in a letter that arrived."""
        letter = parse(body)
        if letter is not None:
            self.take(letter)

    def take(self, letter: Letter) -> None:
        """Do what a letter asks for."""
        match letter:
            case Heard():
                answer = self._answers.get(letter.id)
                if answer is not None and not answer.done():
                    answer.set_result(letter)
            case Tell() | Begin():
                self.do(self._answer(letter))
            case WakeUp():
                if not self._take_wake(letter) and not letter.passed_on:
                    self.post(Parcel(Everybody(), encode(WakeUp(letter.sender, letter.wake, passed_on=True))))
            case _ if letter.sender == self.member_id:
                pass
            case Announce():
                self._meet(letter)
            case Happened():
                if (letter.tenant, letter.thread_id) in self._watches:
                    self.listener.heard(letter.tenant, letter.thread_id, news_of(letter))

    def _take_wake(self, letter: WakeUp) -> bool:
        return self.serves and not self._closing and self.listener.woken(letter.wake)

    async def _answer(self, command: Tell | Begin) -> None:
        self.post(Parcel(Member(command.sender), encode(await self.obey(command))))

    async def obey(self, command: Tell | Begin) -> Heard:
        """Do what a command says; whether it was done."""
        if isinstance(command, Tell):
            return Heard(command.id, await self.listener.told(command.tenant, command.thread_id))
        serves = self.serves and not self._closing
        proof = await self.listener.asked(command.sealed) if serves else b""
        return Heard(command.id, bool(proof), proof)

    def _meet(self, letter: Announce) -> None:
        if letter.leaving:
            self._peers.forget(letter.sender)
            return
        self._peers.meet(letter.sender, self._loop.time(), serves=letter.serves)
        for tenant, thread_id in letter.watches:
            self.listener.watched(tenant, thread_id, INTEREST_SECONDS)
        if letter.hello:
            self._announce()

    def next_server(self) -> str | None:
        """One of those who serve, each in turn; None if none is known."""
        return self._peers.next_server(self._loop.time())

    def do(self, work: Coroutine[Any, Any, None]) -> None:
        """Work beside the connection, until the link is closed."""
        job = self._loop.create_task(work)
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)


def _add(waiting: list[News], one: News) -> None:
    """Put news behind others; what says the same as the last says it once."""
    last = waiting[-1] if waiting else None
    if isinstance(one, Moved) and isinstance(last, Moved) and last.thread_id == one.thread_id:
        waiting[-1] = Moved(one.thread_id, min(last.after, one.after), max(last.head, one.head))
    elif not (isinstance(one, Grown) and one == last):
        waiting.append(one)
