"""Sending mail: find the recipient, check both policies, stage the message into the call's result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from ..agents import Registry
from ..errors import ToolError
from ..loop import Activation, read_tasks
from ..stores import Relay, Store, ThreadView
from ..tools import CallContext
from ..types.ids import new_id
from ..types.inbox import CancelItem, InboxItem, InputItem
from ..types.mail import (
    MAX_ADDRESS_BYTES,
    DeadLetter,
    MailPolicy,
    OutboundMessage,
    Receipt,
    Recipient,
    Refusal,
    Relation,
)
from ..types.messages import Producer
from ..types.runs import SCHEDULE, Identity, TaskRecord
from .agent_messages import agent_message
from .outbox import RelayPayload, Transport, dead_letters, drop, relay_of, replay, transport_of
from .policy import accepts, admits, arrival, may_write

__all__ = ["MAX_PENDING_MAIL", "Mailer"]

# Of the 1,000 pending items of an inbox; the rest is reserved for input from people.
MAX_PENDING_MAIL = 900

MAX_THREAD_ID_BYTES = 128


class _Refused(Exception):
    def __init__(self, error: Refusal, detail: str) -> None:
        super().__init__(detail)
        self.error: Refusal = error
        self.detail = detail


class _Target(Struct, frozen=True):
    """The target of a message: its thread, its relation to the sender, its task, and the agent that was named.

    `owner` is the principal that owns the thread, if it isn't the sender's; empty if nobody does.
    """

    thread_id: str
    relation: Relation
    task: TaskRecord | None = None
    agent_id: str | None = None
    owner: str | None = None


class Mailer:
    """Sends the mail of a tenant's runs. `wake` wakes the courier."""

    def __init__(self, registry: Registry, transports: Mapping[str, Transport], wake: Callable[[], None]) -> None:
        self.registry = registry
        self.transports = transports
        self.wake = wake

    def mail_of(self, act: Activation) -> ThreadMail:
        """The mail of one run."""
        return ThreadMail(self, act)

    def relay_for(self, run: Identity, item: InboxItem, now: int) -> Relay:
        """A relay for an item whose inbox is full.

        The relay of a message has the message's id, which a dead letter is known by. Other items may be sent again
        under their id, so their relays get new ones.
        """
        relay = relay_of(RelayPayload(item=item), "", run.thread_id, run.run_id, now)
        return relay if isinstance(item, InputItem) else replace(relay, id=new_id())

    def policy_of(self, agent_id: str | None) -> MailPolicy:
        """The mail policy of an agent; the default for an agent of another process."""
        agent = self.registry.agents.get(agent_id or "")
        return MailPolicy() if agent is None else agent.mail


class ThreadMail:
    """The mail of one run: sending, and the dead letters of its thread."""

    def __init__(self, mailer: Mailer, act: Activation) -> None:
        self._mailer = mailer
        self._act = act

    @property
    def _store(self) -> Store:
        return self._act.env.store

    # -- sending ---------------------------------------------------------------------------------------------

    async def send(self, context: CallContext, to: Recipient, text: str) -> Receipt:
        """Stage a message into the call's result; a refusal is returned as a failed receipt."""
        try:
            return await self._send(context, to, text)
        except _Refused as refused:
            return Receipt("", to.thread_id, "failed", refused.error, refused.detail)

    async def _send(self, context: CallContext, to: Recipient, text: str) -> Receipt:
        act, address = self._act, to.thread_id
        limit, hops = act.rules.limits.hops, act.view.run.hops + 1
        if hops > limit:
            raise _Refused("hop_limit", f"this came about over {hops - 1} messages in a row; the limit is {limit}")
        if to.relation == "agent" and (transport := self._transport(address)) is not None:
            return self._send_outside(context, to, text, transport, hops)
        target = await self._find(to)
        stored = await self._store.load(target.thread_id)
        if target.relation == "agent" and stored is not None:
            target = await self._admit(target, stored)
        agent_id = self._agent_of(target, stored)
        self._check(target, stored, agent_id)
        context.command.sent += self._items(target, stored, agent_id, text, hops)
        message_id = context.command.sent[-1].id
        return Receipt(message_id, target.thread_id, "staged")

    def _transport(self, address: str) -> str | None:
        if (found := transport_of(self._mailer.transports, address)) is None and "://" in address:
            known = ", ".join(self._mailer.transports) or "none"
            raise _Refused(
                "recipient_not_found", f"no transport serves {address!r:.80}; this runtime has: {known}"
            )
        return found

    def _send_outside(self, context: CallContext, to: Recipient, text: str, transport: str, hops: int) -> Receipt:
        act, identity, now = self._act, self._act.identity, self._act.clock.now()
        if len(to.thread_id.encode()) > MAX_ADDRESS_BYTES:
            raise ToolError(f"an address has at most {MAX_ADDRESS_BYTES:,} bytes")
        if not may_write(act.agent.agent.mail, "outside", to.thread_id):
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
            sent_at=now,
        )
        payload = RelayPayload(message=message)
        context.command.sent.append(relay_of(payload, transport, identity.thread_id, identity.run_id, now))
        return Receipt(message.id, to.thread_id, "staged")

    # -- the recipient ---------------------------------------------------------------------------------------

    async def _find(self, to: Recipient) -> _Target:
        above = self._act.identity.parent_thread_id
        if to.relation == "parent":
            if above is None:
                raise _Refused("recipient_unavailable", "this run has no parent thread")
            return _Target(above, "parent")
        tasks = await read_tasks(self._act)
        if to.relation == "child":
            task = _child(tasks, to.name)
            if not task.target_thread or self._is_remote(task.agent_id):
                raise _Refused(
                    "recipient_unavailable", f"task {to.name!r:.80} has no inbox: it isn't an agent here"
                )
            return _Target(task.target_thread, "child", task)
        if not 1 <= (size := len(to.thread_id.encode())) <= MAX_THREAD_ID_BYTES:
            raise ToolError(f"a thread id has 1 to {MAX_THREAD_ID_BYTES} bytes, not {size}: {to.thread_id!r:.60}")
        if to.thread_id.startswith(SCHEDULE):
            raise _Refused("recipient_unavailable", f"thread {to.thread_id!r} is a schedule's: no agent is there")
        # The relation doesn't depend on the form of the address.
        if to.thread_id == above:
            return _Target(to.thread_id, "parent", None, to.agent_id)
        for task in tasks:
            if task.target_thread == to.thread_id and task.status == "running":
                return _Target(to.thread_id, "child", task, to.agent_id)
        return _Target(to.thread_id, "agent", None, to.agent_id)

    def _is_remote(self, agent_id: str) -> bool:
        registry = self._mailer.registry
        return agent_id in registry.agents and registry.resolve(agent_id).backend is not None

    def _agent_of(self, target: _Target, stored: ThreadView | None) -> str:
        """The agent that a new run on the thread would have."""
        if target.agent_id is not None and target.agent_id not in self._mailer.registry.agents:
            raise _Refused("recipient_not_found", f"no agent {target.agent_id!r:.80} is known here")
        task = target.task
        pending = (
            [item.agent_id for item in stored.inbox if isinstance(item, InputItem)] if stored is not None else []
        )
        last = None if stored is None else stored.thread.last_agent_id
        known = [target.agent_id, last, None if task is None else task.agent_id, *pending]
        found = next((agent_id for agent_id in known if agent_id), None)
        if found is None:
            why = "has had no run" if stored is not None else "doesn't exist"
            raise _Refused(
                "recipient_not_found", f"thread {target.thread_id!r:.80} {why}; name the agent that it starts with"
            )
        return found

    async def _admit(self, target: _Target, stored: ThreadView) -> _Target:
        """Refuse a message to a thread of another principal, unless its agent admits the sender's."""
        principal = self._act.view.run.principal
        if principal is None:
            return target
        owner = await _owner_of(self._store, stored)
        if owner == principal.id:
            return target
        reader = stored.thread.last_agent_id if stored.run is None else stored.run.agent_id
        if owner is not None and not admits(self._mailer.policy_of(reader), principal):
            raise _Refused(
                "permission_denied",
                f"thread {target.thread_id!r:.80} belongs to another principal than {principal.id!r:.80}",
            )
        return replace(target, owner=owner or "")

    def _check(self, target: _Target, stored: ThreadView | None, agent_id: str) -> None:
        """Refuse the message if a policy forbids it, or the inbox is full."""
        me = self._act.identity.agent_id
        run = None if stored is None else stored.run
        reader = agent_id if run is None else run.agent_id
        if not may_write(self._act.agent.agent.mail, target.relation, reader):
            raise _Refused("permission_denied", f"agent {me} may not write to {_named(target, reader)}")
        policy = self._mailer.policy_of(reader)
        if not accepts(policy, target.relation, me):
            raise _Refused("permission_denied", f"{_named(target, reader)} takes no messages from agent {me}")
        if run is not None and policy.arriving == "reject":
            raise _Refused(
                "recipient_busy", f"thread {target.thread_id!r:.80} has an open run and takes no messages"
            )
        if stored is not None and len(stored.inbox) >= MAX_PENDING_MAIL:
            raise _Refused("inbox_full", f"{len(stored.inbox):,} items are pending there; try again later")

    # -- the message -----------------------------------------------------------------------------------------

    def _items(
        self, target: _Target, stored: ThreadView | None, agent_id: str, text: str, hops: int
    ) -> list[InboxItem]:
        """The inbox items of a message: a cancellation first if it interrupts the open run."""
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
        policy = arrival(
            self._mailer.policy_of(agent_id if run is None else run.agent_id), target.relation, stored
        )
        if target.owner:
            policy = "queue"  # Another principal's run doesn't act on it: it gets a run of its own.
        lineage = Identity(run_id, target.thread_id, agent_id, run_id, origin="message")
        if target.task is not None:  # A run of the child after its task ended still has its parent.
            lineage = replace(
                lineage,
                root_run_id=identity.root_run_id,
                parent_run_id=identity.run_id,
                parent_thread_id=identity.thread_id,
                depth=identity.depth + 1,
            )
        item = InputItem(
            id=message_id,
            thread_id=target.thread_id,
            message=agent_message(message_id, sender, text, self._reply_to(target), act.clock.now()),
            policy="steer" if policy == "steer" else "queue",
            agent_id=agent_id,
            principal=principal,
            owner=target.owner,
            run_id=run_id,
            lineage=lineage,
            trace=None if act.env.tracer is None else act.env.tracer.capture(detached=True),
        )
        if policy != "interrupt" or run is None:
            return [item]
        reason = f"interrupted by a message from agent {identity.agent_id}"
        stop = CancelItem(
            id=new_id(),
            thread_id=target.thread_id,
            leaves_tasks=True,
            run_id=run.id,
            reason=reason,
        )
        return [stop, item]

    def _reply_to(self, target: _Target) -> Recipient:
        """The address for replies."""
        ref = self._act.view.run.task
        if target.relation == "child":
            return Recipient("parent")
        if target.relation == "parent" and ref is not None:
            return Recipient.child(ref.id)
        return Recipient.agent(self._act.identity.thread_id)

    # -- dead letters ----------------------------------------------------------------------------------------

    async def dead_letters(self) -> Sequence[DeadLetter]:
        """The dead letters of the thread, oldest first."""
        return await dead_letters(self._store, thread_id=self._act.identity.thread_id)

    async def replay(self, message_id: str) -> bool:
        """Retry a dead letter under its id; False if the thread has none of that id."""
        thread_id = self._act.identity.thread_id
        done = await replay(self._store, message_id, self._act.clock.now(), thread_id=thread_id)
        self._mailer.wake()
        return done

    async def drop(self, message_id: str) -> bool:
        """Drop a dead letter; False if the thread has none of that id."""
        return await drop(self._store, message_id, thread_id=self._act.identity.thread_id)


def _child(tasks: Sequence[TaskRecord], name: str) -> TaskRecord:
    """A running task of the sender's thread, by id first, then by name."""
    found = [t for t in tasks if t.id == name] + [t for t in tasks if t.name == name]
    for task in found:
        if task.status == "running":
            return task
    if found:
        raise _Refused("recipient_unavailable", f"task {name!r:.80} is {found[-1].status}")
    raise _Refused(
        "recipient_not_found", f"no task {name!r:.80} of this thread is running; task_status lists them"
    )


async def _owner_of(store: Store, stored: ThreadView) -> str | None:
    """The principal that owns a thread, by its last run, its first input, or its first message."""
    for run in await store.runs(thread_id=stored.thread.id, limit=1):
        return run.owner_id
    for item in stored.inbox:
        if isinstance(item, InputItem):
            return None if item.principal is None else item.principal.id
    for message in await store.messages(stored.thread.id, limit=1):
        return None if message.producer is None else message.producer.principal_id
    return None


def _named(target: _Target, agent_id: str) -> str:
    return f"agent {agent_id}" if target.relation == "agent" else f"its {target.relation}, agent {agent_id},"
