"""Mail: pending input of threads, relays to addresses outside the store, and dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import get_args

from msgspec.structs import replace

from ..errors import Conflict, UnknownMessage
from ..errors.arguments import checked_methods
from ..messaging import PendingInput, dead_letters, drop, edit, move, pending, retract
from ..stores import Commit, Relay, RelayStatus
from ..types.mail import DeadLetter
from .arguments import (
    check_choice,
    check_count,
    check_id,
    check_ids,
    check_instance,
    check_thread_id,
    make_message,
)
from .scope import Scope

__all__ = ["Mail"]


@checked_methods("runtime.mail")
class Mail:
    """`runtime.mail`: pending input and outgoing messages of one tenant."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    async def pending(self, thread: str) -> Sequence[PendingInput]:
        """The input that waits on a thread, in the order in which runs take it."""
        return await pending(self._scope.store, check_thread_id(thread))

    async def edit(self, input_id: str, text: str, *, revision: int | None = None) -> PendingInput:
        """Replace the text of pending input. With a `revision`, raises `Conflict` if it changed since."""
        self._scope.bind()
        text = make_message(text, None).text
        check_instance(revision, int, "revision")
        return self._wake(await edit(self._scope.store, check_id(input_id, "input"), text, revision))

    async def move(
        self, input_id: str, *, before: str | None = None, after: str | None = None, revision: int | None = None
    ) -> PendingInput:
        """Move pending input before or after another one of its thread; to the front by default."""
        self._scope.bind()
        check_instance(revision, int, "revision")
        for given in (input_id, before, after):
            check_ids(input=given)
        return self._wake(await move(self._scope.store, input_id, before=before, after=after, revision=revision))

    async def retract(self, input_id: str, *, revision: int | None = None) -> PendingInput:
        """Withdraw pending input before a run takes it. Callers that wait for its run are told."""
        self._scope.bind()
        check_instance(revision, int, "revision")
        found = await retract(self._scope.store, check_id(input_id, "input"), revision)
        self._scope.dispatch.retracted(found.thread_id, found.id)
        return found

    async def relays(
        self,
        *,
        thread: str | None = None,
        run_id: str | None = None,
        status: RelayStatus | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> Sequence[Relay]:
        """Deliveries to addresses outside the store; `status="dead"` lists those that were given up."""
        check_choice(status, get_args(RelayStatus), "status")
        return await self._scope.store.relays(
            thread_id=thread, run_id=run_id, status=status, after=after, limit=check_count(limit, "limit")
        )

    async def dead_letters(
        self, *, thread: str | None = None, after: str | None = None, limit: int | None = None
    ) -> Sequence[DeadLetter]:
        """Messages whose delivery was given up, oldest first; of one thread or of all."""
        limit = check_count(limit, "limit")
        check_ids(thread=thread, message=after)
        return await dead_letters(self._scope.store, thread_id=thread, after=after, limit=limit)

    async def replay(self, relay_id: str) -> Relay:
        """Deliver a dead letter or a dead push notification again, under the same id."""
        self._scope.bind()
        store = self._scope.store
        while True:
            relay = await store.relay(check_id(relay_id, "relay"))
            if relay is None or relay.status != "dead":
                found = "there is none of that id" if relay is None else f"it is {relay.status}"
                raise UnknownMessage(
                    f"{relay_id!r:.80} can't be replayed: only what was given up can, and {found}; see "
                    "mail.dead_letters() and mail.relays(status='dead')"
                )
            now = self._scope.env.clock.now()
            again = replace(relay, status="live", attempts=0, due_at=now, revision=relay.revision + 1)
            with suppress(Conflict):
                await store.commit(Commit(relay.thread_id, relays=[again]))
                self._scope.shared.courier.look()
                return again

    async def drop(self, message_id: str) -> None:
        """Delete a dead letter."""
        self._scope.bind()
        if not await drop(self._scope.store, check_id(message_id, "message")):
            raise UnknownMessage(
                f"no message {message_id!r:.80} was given up; mail.dead_letters() lists those that were"
            )

    def _wake(self, found: PendingInput) -> PendingInput:
        """Have a run of this process read its inbox again; other processes see that the inbox moved."""
        if found.thread_id in self._scope.dispatch.active:
            self._scope.dispatch.wake(found.thread_id)
        return found
