"""Sending: finding the recipient, asking both sides' policies, and staging the message into the call's result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from ..agents import Registry
from ..errors import ToolError
from ..loop import Activation
from ..stores import InboxItem, Relay, Store, ThreadView
from ..tools import ToolContext
from ..types.ids import new_id
from ..types.mail import (
    MAX_ADDRESS_BYTES,
    DeadLetter,
    Messages,
    OutboundMessage,
    Receipt,
    Recipient,
    Refusal,
    Relation,
)
from ..types.messages import Producer
from ..types.runs import SCHEDULE, Identity, TaskRecord
from ._letters import letter
from ._outbox import Parcel, Transport, dead_letters, drop, relay_of, replay, transport_of
from ._policy import accepts, arrival, may_write

__all__ = ["MAX_PENDING_MAIL", "Post"]

# Of the 1,000 items that an inbox holds; the rest is left for what people send.
MAX_PENDING_MAIL = 900

MAX_THREAD_ID_BYTES = 128


class _Refused(Exception):
    def __init__(self, error: Refusal, detail: str) -> None:
        super().__init__(detail)
        self.error: Refusal = error
        self.detail = detail


class _Place(Struct, frozen=True):
    """Where a message goes: the thread, what it is to the sender, the task there, and the agent that was named."""

    thread_id: str
    relation: Relation
    task: TaskRecord | None = None
    agent_id: str | None = None


class Post:
    """How the runs of one tenant write to others."""

    def __init__(self, registry: Registry, transports: Mapping[str, Transport], look: Callable[[], None]) -> None:
        self.registry = registry
        self.transports = transports
        self.look = look

    def of(self, act: Activation) -> ThreadMail:
        """The mail of one run."""
        return ThreadMail(self, act)

    def divert(self, run: Identity, item: InboxItem, now: int) -> Relay:
        """The relay by which an item goes that an inbox has no room for. A message's has its id, by which it is
        known if it is given up; others may be told again under theirs."""
        relay = relay_of(Parcel(item=item), "", run.thread_id, run.run_id, now)
        return relay if item.kind == "input" else replace(relay, id=new_id())

    def policy_of(self, agent_id: str | None) -> Messages:
        """What an agent allows; one of another process is taken to allow what agents do by default."""
        agent = self.registry.agents.get(agent_id or "")
        return Messages() if agent is None else agent.messages


class ThreadMail:
    """What one run sends, and what came back of its thread's messages."""

    def __init__(self, post: Post, act: Activation) -> None:
        self._post = post
        self._act = act

    @property
    def _store(self) -> Store:
        return self._act.env.store

    # -- sending ---------------------------------------------------------------------------------------------

    async def send(self, context: ToolContext, to: Recipient, text: str) -> Receipt:
        """Stage a message into the result of the call, or say why it is refused."""
        try:
            return await self._send(context, to, text)
        except _Refused as refused:
            return Receipt("", to.thread_id, "failed", refused.error, refused.detail)

    async def _send(self, context: ToolContext, to: Recipient, text: str) -> Receipt:
        act, address = self._act, to.thread_id
        limit, hops = act.rules.limits.hops, act.view.run.hops + 1
        if hops > limit:
            raise _Refused("hop_limit", f"this came about over {hops - 1} messages in a row; the limit is {limit}")
        if to.relation == "agent" and (transport := self._transport(address)) is not None:
            return self._send_outside(context, to, text, transport, hops)
        place = await self._find(to)
        stored = await self._store.load(place.thread_id)
        agent_id = self._agent_of(place, stored)
        self._check(place, stored, agent_id)
        context.command.sent += self._items(place, stored, agent_id, text, hops)
        message_id = context.command.sent[-1].id
        return Receipt(message_id, place.thread_id, "staged")

    def _transport(self, address: str) -> str | None:
        if (found := transport_of(self._post.transports, address)) is None and "://" in address:
            known = ", ".join(self._post.transports) or "none"
            raise _Refused(
                "recipient_not_found", f"no transport serves {address!r:.80}; this runtime has: {known}"
            )
        return found

    def _send_outside(self, context: ToolContext, to: Recipient, text: str, transport: str, hops: int) -> Receipt:
        act, identity = self._act, self._act.identity
        if len(to.thread_id.encode()) > MAX_ADDRESS_BYTES:
            raise ToolError(f"an address has at most {MAX_ADDRESS_BYTES:,} bytes")
        if not may_write(act.agent.agent.messages, "outside", to.thread_id):
            raise _Refused("permission_denied", f"agent {identity.agent_id} may not write to {to.thread_id!r:.80}")
        principal = act.view.run.principal
        message = OutboundMessage(
            id=new_id(),
            to=to.thread_id,
            text=text,
            agent_id=to.agent_id,
            sender_agent_id=identity.agent_id,
            sender_thread_id=identity.thread_id,
            sender_run_id=identity.run_id,
            root_run_id=identity.root_run_id,
            principal_id=None if principal is None else principal.id,
            hops=hops,
            sent_at=context.now,
        )
        parcel = Parcel(message=message)
        context.command.sent.append(relay_of(parcel, transport, identity.thread_id, identity.run_id, context.now))
        return Receipt(message.id, to.thread_id, "staged")

    # -- the recipient ---------------------------------------------------------------------------------------

    async def _find(self, to: Recipient) -> _Place:
        above = self._act.identity.parent_thread_id
        if to.relation == "parent":
            if above is None:
                raise _Refused("recipient_unavailable", "this run has no parent thread")
            return _Place(above, "parent")
        tasks = await self._act.executor.services.tasks()
        if to.relation == "child":
            task = _child(tasks, to.name)
            if not task.target_thread or self._is_remote(task.agent_id):
                raise _Refused(
                    "recipient_unavailable", f"task {to.name!r:.80} has no inbox: it isn't an agent here"
                )
            return _Place(task.target_thread, "child", task)
        if not 1 <= (size := len(to.thread_id.encode())) <= MAX_THREAD_ID_BYTES:
            raise ToolError(f"a thread id has 1 to {MAX_THREAD_ID_BYTES} bytes, not {size}: {to.thread_id!r:.60}")
        if to.thread_id.startswith(SCHEDULE):
            raise _Refused("recipient_unavailable", f"thread {to.thread_id!r} is a schedule's: no agent is there")
        # Who somebody is doesn't depend on how they are addressed.
        if to.thread_id == above:
            return _Place(to.thread_id, "parent", None, to.agent_id)
        for task in tasks:
            if task.target_thread == to.thread_id and task.status == "running":
                return _Place(to.thread_id, "child", task, to.agent_id)
        return _Place(to.thread_id, "agent", None, to.agent_id)

    def _is_remote(self, agent_id: str) -> bool:
        agent = self._post.registry.agents.get(agent_id)
        return agent is not None and agent.backend is not None

    def _agent_of(self, place: _Place, stored: ThreadView | None) -> str:
        """The agent that a new run on the thread would be of."""
        if place.agent_id is not None and place.agent_id not in self._post.registry.agents:
            raise _Refused("recipient_not_found", f"no agent {place.agent_id!r:.80} is known here")
        task = place.task
        pending = [item.agent_id for item in stored.inbox if item.kind == "input"] if stored is not None else []
        last = None if stored is None else stored.thread.last_agent_id
        known = [place.agent_id, last, None if task is None else task.agent_id, *pending]
        found = next((agent_id for agent_id in known if agent_id), None)
        if found is None:
            why = "has had no run" if stored is not None else "doesn't exist"
            raise _Refused(
                "recipient_not_found", f"thread {place.thread_id!r:.80} {why}; name the agent that it begins with"
            )
        return found

    def _check(self, place: _Place, stored: ThreadView | None, agent_id: str) -> None:
        """Whether both sides allow it, and the inbox has room."""
        me = self._act.identity.agent_id
        run = None if stored is None else stored.run
        reader = agent_id if run is None else run.agent_id
        if not may_write(self._act.agent.agent.messages, place.relation, reader):
            raise _Refused("permission_denied", f"agent {me} may not write to {_named(place, reader)}")
        policy = self._post.policy_of(reader)
        if not accepts(policy, place.relation, me):
            raise _Refused("permission_denied", f"{_named(place, reader)} takes no messages from agent {me}")
        if run is not None and policy.arriving == "reject":
            raise _Refused(
                "recipient_busy", f"thread {place.thread_id!r:.80} has an open run and takes no messages"
            )
        if stored is not None and len(stored.inbox) >= MAX_PENDING_MAIL:
            raise _Refused("inbox_full", f"{len(stored.inbox):,} items are pending there; try again later")

    # -- the message -----------------------------------------------------------------------------------------

    def _items(
        self, place: _Place, stored: ThreadView | None, agent_id: str, text: str, hops: int
    ) -> list[InboxItem]:
        """The message for the recipient's inbox, behind what stops its run, if it is to be interrupted."""
        act, identity, message_id, run_id = self._act, self._act.identity, new_id(), new_id()
        principal, run = act.view.run.principal, None if stored is None else stored.run
        sender = Producer(
            run_id=identity.run_id,
            step=act.view.run.steps,
            agent_id=identity.agent_id,
            sender_thread_id=identity.thread_id,
            principal_id=None if principal is None else principal.id,
            root_run_id=identity.root_run_id,
            hops=hops,
        )
        policy = arrival(self._post.policy_of(agent_id if run is None else run.agent_id), place.relation, stored)
        lineage = Identity(run_id, place.thread_id, agent_id, run_id, origin="message")
        if place.task is not None:  # A run of the child that comes too late for its task still has its parent.
            lineage = replace(
                lineage,
                root_run_id=identity.root_run_id,
                parent_run_id=identity.run_id,
                parent_thread_id=identity.thread_id,
                depth=identity.depth + 1,
            )
        item = InboxItem(
            id=message_id,
            thread_id=place.thread_id,
            kind="input",
            message=letter(message_id, sender, text, self._reply_to(place), act.clock.now()),
            policy="steer" if policy == "steer" else "queue",
            agent_id=agent_id,
            principal=principal,
            run_id=run_id,
            lineage=lineage,
        )
        if policy != "interrupt" or run is None:
            return [item]
        reason = f"interrupted by a message from agent {identity.agent_id}"
        stop = InboxItem(
            id=new_id(),
            thread_id=place.thread_id,
            kind="cancel",
            policy="interrupt",
            run_id=run.id,
            reason=reason,
        )
        return [stop, item]

    def _reply_to(self, place: _Place) -> Recipient:
        """How the recipient would write back."""
        ref = self._act.view.run.task
        if place.relation == "child":
            return Recipient("parent")
        if place.relation == "parent" and ref is not None:
            return Recipient.child(ref.id)
        return Recipient.agent(self._act.identity.thread_id)

    # -- what came back --------------------------------------------------------------------------------------

    async def dead_letters(self) -> Sequence[DeadLetter]:
        """The thread's messages that were given up, oldest first."""
        return await dead_letters(self._store, thread_id=self._act.identity.thread_id)

    async def replay(self, message_id: str) -> bool:
        """Try to deliver one again, under the same id; False if it isn't a dead letter of this thread."""
        thread_id = self._act.identity.thread_id
        done = await replay(self._store, message_id, self._act.clock.now(), thread_id=thread_id)
        self._post.look()
        return done

    async def drop(self, message_id: str) -> bool:
        """Give one up for good; False if it isn't a dead letter of this thread."""
        return await drop(self._store, message_id, thread_id=self._act.identity.thread_id)


def _child(tasks: Sequence[TaskRecord], name: str) -> TaskRecord:
    """A live task of the caller's thread, by id first, then by name."""
    found = [t for t in tasks if t.id == name] + [t for t in tasks if t.name == name]
    for task in found:
        if task.status == "running":
            return task
    if found:
        raise _Refused("recipient_unavailable", f"task {name!r:.80} is {found[-1].status}")
    raise _Refused(
        "recipient_not_found", f"no task {name!r:.80} of this thread is running; task_status lists them"
    )


def _named(place: _Place, agent_id: str) -> str:
    return f"agent {agent_id}" if place.relation == "agent" else f"its {place.relation}, agent {agent_id},"
