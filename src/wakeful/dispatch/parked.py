"""Parked runs and changed code: whether the present code can resume a waiting run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from ..agents import QUESTIONS, Registry
from ..errors import CannotResume, CorruptRow, InvalidArguments, StateError, UnknownAgent, outline
from ..loop import agent_of
from ..stores import Store, ThreadView
from ..types.calls import Call
from ..types.inbox import decisions_in
from ..types.runs import RunRecord
from ..types.tickets import Decision

__all__ = ["ParkedProblem", "check_parked", "check_resumable", "resume_problems", "settled_calls"]

PAGE = 100


class ParkedProblem(Struct, frozen=True):
    """A waiting run that the present code can't resume, and the reasons."""

    thread_id: str
    run_id: str
    agent_id: str
    reasons: tuple[str, ...]
    tenant: str = "default"


async def check_parked(registry: Registry, store: Store) -> list[ParkedProblem]:
    """The waiting runs of a tenant that the present code can't resume, newest first."""
    found: list[ParkedProblem] = []
    before: str | None = None
    while page := await store.runs(status="waiting", before=before, limit=PAGE):
        for run in page:
            try:
                stored = await store.load(run.thread_id)
            except CorruptRow as error:
                found.append(ParkedProblem(run.thread_id, run.id, run.agent_id, (str(error),), store.tenant_name))
                continue
            if stored is None or stored.run is None or stored.run.id != run.id or stored.run.waiting is None:
                continue  # It was resumed meanwhile.
            settled = settled_calls(stored, decisions_in(stored.inbox))
            if reasons := resume_problems(registry, stored, stored.run, settled):
                found.append(ParkedProblem(run.thread_id, run.id, run.agent_id, tuple(reasons), store.tenant_name))
        before = page[-1].id
    return found


def check_resumable(
    registry: Registry, stored: ThreadView, run: RunRecord, decisions: Iterable[Decision] = ()
) -> None:
    """Raise `CannotResume` if the present code can't resume a waiting run with these decisions."""
    if run.waiting is None:
        return
    if reasons := resume_problems(registry, stored, run, settled_calls(stored, decisions)):
        raise CannotResume(run.id, reasons)


def settled_calls(stored: ThreadView, decisions: Iterable[Decision]) -> dict[str, bool]:
    """Calls that no longer depend on the model's arguments, and whether they still need their tool.

    Denied and answered calls don't need it; calls with edited arguments do.
    """
    tickets = {ticket.id: ticket for ticket in stored.tickets}
    settled: dict[str, bool] = {}
    for decision in decisions:
        ticket = tickets.get(decision.ticket_id)
        if ticket is None or decision.verdict not in ("approve", "deny"):
            continue
        mode = "result" if decision.verdict == "deny" else decision.mode or ticket.accepts[0]
        if mode in ("result", "arguments"):
            settled[ticket.call_id] = mode == "arguments"
    return settled


def resume_problems(
    registry: Registry, stored: ThreadView, run: RunRecord, settled: Mapping[str, bool]
) -> list[str]:
    """All reasons why the present code can't resume a run, given its `settled` calls."""
    reasons: list[str] = []
    for agent_id in (run.agent_id, run.next_agent):
        if agent_id is not None and not registry.knows(agent_id):
            known = ", ".join(sorted(registry.agents))
            reasons.append(f"agent {agent_id!r} is gone (known: {known})")
    for call in stored.calls:
        if call.state in ("requested", "suspended") and settled.get(call.id, True):
            reasons += _call_problems(registry, run, call, edited=call.id in settled)
    return reasons + _state_problems(registry, stored, run)


def _call_problems(registry: Registry, run: RunRecord, call: Call, *, edited: bool) -> list[str]:
    try:
        agent = agent_of(registry, run)
    except UnknownAgent:
        return []
    if call.is_guardrail or (agent.backend is not None and call.name in QUESTIONS):
        return []  # The decision goes to the backend unchanged, or is about a message.
    tool = agent.tools.get(call.name)
    if tool is None and agent.brings(call.name):
        return []  # A tool of a source, which the run pinned.
    if tool is None:
        known = ", ".join(sorted(agent.offered)) or "none"
        return [f"tool {call.name!r} of call {call.id} is gone (agent {run.agent_id!r} has: {known})"]
    if edited or (call.problem is not None and call.edited is None):
        return []  # The error goes to the person or the model when the call runs.
    try:
        tool.bind(call.effective_arguments)
    except InvalidArguments as error:
        return [f"the arguments of call {call.id} no longer fit tool {call.name!r}: {error}"]
    except Exception as error:  # A parameter type's own code may raise anything.
        return [f"the arguments of call {call.id} can't be read by tool {call.name!r}: {outline(error)}"]
    return []


def _state_problems(registry: Registry, stored: ThreadView, run: RunRecord) -> list[str]:
    keys = registry.catalog.keys
    needed = () if run.needs is None else run.needs.keys
    reasons = [
        f"state key {name!r} is gone: no plugin of agent {run.agent_id!r} and no Runtime(keys=...) brings it"
        for name in needed
        if keys.find(name) is None
    ]
    for name, data in {**stored.state, **stored.run_state}.items():
        if (key := keys.find(name)) is not None:
            try:
                key.decode(data)
            except StateError as error:
                reasons.append(str(error))
    return reasons
