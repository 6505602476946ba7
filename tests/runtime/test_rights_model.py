"""Property: any sequence of votes, edits, comments and reassignments agrees with a small model of a ticket."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from wakeful import Agent, Approval, FunctionModel, Principal, Runtime, call, tool
from wakeful.errors import ConfigurationError, NotAllowed, StaleDecision, TicketClosed

PEOPLE = {
    "eve": Principal("eve", groups=("finance",)),  # The requester.
    "ann": Principal("ann"),
    "bob": Principal("bob", groups=("finance",)),
    "cy": Principal("cy", groups=("finance",), roles=("lead",)),
    "dee": Principal("dee", roles=("lead",)),
}
ASSIGNEES = [None, "ann", "group:finance", "role:lead"]

who = st.sampled_from(sorted(PEOPLE))
operations = st.one_of(
    st.tuples(st.sampled_from(["approve", "deny", "comment", "stale"]), who),
    st.tuples(st.just("edit"), who, st.integers(1, 3)),
    st.tuples(st.just("reassign"), who, st.sampled_from(ASSIGNEES[1:])),
    st.tuples(st.just("replay"), st.integers(0, 9)),
)


class Model:
    """A ticket in plain sets and lists."""

    def __init__(self, approval: Approval) -> None:
        self.approval = approval
        self.assignee = approval.assignee
        self.votes: list[str] = []
        self.amount = 0
        self.verdict: str | None = None
        self.kept = 0

    def admits(self, name: str, operation: str) -> bool:
        if operation == "comment":
            return True
        if name == "eve":
            return self.approval.requester and operation in ("approve", "deny", "stale")
        person, groups = PEOPLE[name], self.approval.groups
        if self.assignee is None and not groups:
            return True
        named = {name, *[f"group:{g}" for g in person.groups], *[f"role:{r}" for r in person.roles]}
        return self.assignee in named or not set(groups).isdisjoint(person.groups)

    def apply(self, operation: str, name: str, value: Any) -> str:
        """The expected result of an operation: `ok`, or the error."""
        if self.verdict is not None:
            return "TicketClosed"
        if operation == "stale":
            return "StaleDecision"
        if not self.admits(name, operation):
            return "NotAllowed"
        self.kept += 1
        match operation:
            case "deny":
                self.verdict = "denied"
            case "reassign":
                self.assignee = value
            case "edit" if self.approval.quorum > 1:
                self.amount, self.votes = value, [name]
            case "edit":
                self.amount, self.verdict = value, "paid"
            case "approve" if name in self.votes:
                self.kept -= 1
            case "approve":
                self.votes.append(name)
        if len(self.votes) >= self.approval.quorum:
            self.verdict = "paid"
        return "ok"


@given(
    assignee=st.sampled_from(ASSIGNEES),
    groups=st.sampled_from([(), ("finance",)]),
    quorum=st.integers(1, 3),
    requester=st.booleans(),
    steps=st.lists(operations, max_size=12),
)
def test_ticket_agrees_with_model(
    assignee: str | None, groups: tuple[str, ...], quorum: int, requester: bool, steps: list[Any]
) -> None:
    try:
        approval = Approval(assignee, quorum, groups, requester)
    except ConfigurationError:
        return
    asyncio.run(_compare(approval, steps))


async def _compare(approval: Approval, steps: list[Any]) -> None:
    paid: list[int] = []

    @tool(approval=approval)
    async def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    answers = FunctionModel(lambda r: "done" if r.messages[-1].reply else call("pay", amount=0))
    runtime, model = Runtime([Agent("agent", model=answers, tools=[pay])]), Model(approval)
    (ticket,) = (await runtime.run("agent", "go", thread="t", principal=PEOPLE["eve"])).tickets
    made: list[tuple[Any, Principal]] = []
    for operation, name, *rest in steps:
        if operation == "replay":
            if made:
                decision, principal = made[name % len(made)]
                await runtime.tickets.answer(ticket.id, decision, principal=principal)
            continue
        value, principal = (rest or [None])[0], PEOPLE[name]
        decision: Any = ticket.edit({"amount": value}) if operation == "edit" else ticket.approve()
        decision = ticket.deny() if operation == "deny" else decision
        decision = replace(decision, seen="0" * 32) if operation == "stale" else decision
        votes, expected = list(model.votes), model.apply(operation, name, value)
        try:
            if operation == "comment":
                await runtime.tickets.comment(ticket.id, "why?", principal=principal)
            elif operation == "reassign":
                await runtime.tickets.reassign(ticket.id, value, principal=principal)
            else:
                await runtime.tickets.answer(ticket.id, decision, principal=principal)
                if operation != "approve" or name not in votes:
                    made.append((decision, principal))
            result = "ok"
        except (NotAllowed, StaleDecision, TicketClosed) as error:
            result = type(error).__name__
        now = await runtime.tickets.get(ticket.id)
        assert result == expected
        assert (now.status == "open") == (model.verdict is None)
        assert now.assignee == model.assignee
        if model.verdict is None:
            assert [vote.principal_id for vote in now.approvals] == model.votes
            assert now.arguments == {"amount": model.amount}
        assert paid == ([model.amount] if model.verdict == "paid" else [])
        assert len(await runtime.tickets.decisions(ticket.id)) == model.kept
    await runtime.close()
