"""Messages that were given up, and input that waits: what people do about what agents and they themselves sent."""

from __future__ import annotations

from ._checks import check_ids, count_of, id_of, instance_of, message_of, thread_of
from ._deciding import Deciding
from .errors import UnknownMessage
from .messaging import Courier, PendingInput, dead_letters, drop, edit, move, pending, retract
from .stores import Relay
from .types.mail import DeadLetter

__all__ = ["Mailing"]


class Mailing(Deciding):
    """What a runtime does for those who look after its messages."""

    _courier: Courier

    # -- dead letters ----------------------------------------------------------------------------------------

    async def dead_letters(
        self, *, thread: str | None = None, after: str | None = None, limit: int | None = None
    ) -> list[DeadLetter]:
        """Messages that could not be delivered and were given up, oldest first; of one thread, or of all."""
        limit = count_of(limit, "limit")
        check_ids(thread=thread, message=after)
        return await dead_letters(self._store, thread_id=thread, after=after, limit=limit)

    async def replay(self, relay_id: str) -> Relay:
        """Try again what was given up, a message or a push notification, under the same id; the others stay as
        they are."""
        self._bind()
        again = await super().replay(relay_id)
        self._courier.look()
        return again

    async def drop(self, message_id: str) -> None:
        """Forget a message that was given up."""
        self._bind()
        if not await drop(self._store, id_of(message_id, "message")):
            raise _unknown(message_id)

    # -- pending input ---------------------------------------------------------------------------------------

    async def pending(self, thread: str) -> list[PendingInput]:
        """What waits on a thread until a run takes it in, in that order."""
        return await pending(self._store, thread_of(thread))

    async def edit(self, input_id: str, text: str, *, revision: int | None = None) -> PendingInput:
        """Give pending input another text. With a `revision`, only if nobody changed it since; else `Conflict`."""
        self._bind()
        text = message_of(text, None).text
        instance_of(revision, int, "revision")
        return self._changed(await edit(self._store, id_of(input_id, "input"), text, revision))

    async def move(
        self, input_id: str, *, before: str | None = None, after: str | None = None, revision: int | None = None
    ) -> PendingInput:
        """Put pending input before or behind another one of its thread; by default before all of them."""
        self._bind()
        instance_of(revision, int, "revision")
        for given in (input_id, before, after):
            check_ids(input=given)
        return self._changed(await move(self._store, input_id, before=before, after=after, revision=revision))

    async def retract(self, input_id: str, *, revision: int | None = None) -> PendingInput:
        """Take pending input back, so that no run takes it in. Whoever waits for its run is told."""
        self._bind()
        instance_of(revision, int, "revision")
        found = await retract(self._store, id_of(input_id, "input"), revision)
        self._dispatch.turns.withdrawn(found.thread_id, found.id)
        return found

    def _changed(self, found: PendingInput) -> PendingInput:
        """A run that runs here looks at its inbox anew; what runs elsewhere sees that it moved."""
        if found.thread_id in self._dispatch.active:
            self._dispatch.wake(found.thread_id)
        return found


def _unknown(message_id: str) -> UnknownMessage:
    return UnknownMessage(f"no message {message_id!r:.80} was given up; dead_letters() lists those that were")
