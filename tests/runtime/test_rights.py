"""Rights on tickets: requester, assignee, groups and roles, rights, quorums and what was seen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from loop.helpers import Hold, Spy, events_of, holding, replies_on, reply_text, soon, spying
from postgres_server import fresh_database
from wakeful import (
    Agent,
    Approval,
    ClientTool,
    ConfigurationError,
    Delegate,
    FunctionModel,
    MemoryStore,
    ModelRequest,
    Plugin,
    Principal,
    Runtime,
    ScriptedModel,
    Ticket,
    ToolContext,
    UsageError,
    call,
    tool,
)
from wakeful.errors import InvalidDecision, NotAllowed, StaleDecision, TicketClosed
from wakeful.plugins import GateTool
from wakeful.stores import Commit
from wakeful.testing import FakeClock
from wakeful.types import Author, Escalation
from wakeful.types.events import TicketChanged
from wakeful.types.inbox import DecisionItem

ANN, BOB, EVE = Principal("ann"), Principal("bob"), Principal("eve")
CY = Principal("cy", groups=("finance",))
DEE = Principal("dee", roles=("lead",))
Make = Callable[..., Runtime]


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Makes runtimes that share nothing but their store."""
    places = {"memory": MemoryStore, "sqlite": lambda: tmp_path / "app.db", "postgres": fresh_database}
    place: Any = places[request.param]()

    def made(*tools: Any, model: Any = None, agents: Any = None, **options: Any) -> Runtime:
        model = model or FunctionModel(pay_once)
        return Runtime(agents or [Agent("agent", model=model, tools=tools)], store=place, **options)

    return made


def pay_once(request: ModelRequest) -> Any:
    return "done" if request.messages[-1].role == "tool" else call("pay", amount=5)


def paying(approval: Any = True, **options: Any) -> Any:
    @tool(approval=approval, **options)
    async def pay(amount: int) -> str:
        """Pay an amount."""
        return f"paid {amount}"

    return pay


async def asked(runtime: Runtime, by: Principal | None = EVE) -> Ticket:
    """The ticket of a run that a principal started."""
    result = await runtime.run("agent", "go", thread="t", principal=by)
    (ticket,) = result.tickets
    return ticket


async def unchanged(runtime: Runtime, ticket: Ticket) -> bool:
    """Whether nothing was written about a ticket since."""
    stored = await runtime.store.load(ticket.thread_id)
    assert stored is not None
    return (stored.tickets, stored.inbox, list(await runtime.tickets.decisions(ticket.id))) == ((ticket,), (), [])


# -- approvals -----------------------------------------------------------------------------------------------


async def test_requester_may_not_decide_on_own_call(make: Make) -> None:
    async with make(paying()) as runtime:
        ticket = await asked(runtime)
        assert (ticket.requester, ticket.by_requester) == ("eve", False)
        decisions = [ticket.approve(), ticket.deny(), ticket.edit({"amount": 1}), ticket.result("paid")]
        for decision in decisions:
            with pytest.raises(NotAllowed, match=r"'eve' may not .* it is the requester") as seen:
                await runtime.tickets.answer(ticket.id, decision, principal=EVE)
            assert seen.value.needed == "tickets:override"
            with pytest.raises(NotAllowed):
                await runtime.tickets.submit(decision, principal=EVE)
            with pytest.raises(NotAllowed):
                await runtime.resume(ticket.run_id, decision, principal=EVE)
        with pytest.raises(NotAllowed):
            await runtime.resume(ticket.run_id, answers={ticket.id: True}, principal=EVE)
        with pytest.raises(NotAllowed):
            await runtime.tickets.reassign(ticket.id, "eve", principal=EVE)
        assert await unchanged(runtime, ticket)
        assert (await runtime.tickets.answer(ticket.id, True, principal=ANN)).text == "done"


async def test_principal_named_by_decision_is_checked_too(make: Make) -> None:
    async with make(paying()) as runtime:
        ticket = await asked(runtime)
        with pytest.raises(NotAllowed):
            await runtime.resume(ticket.run_id, replace(ticket.approve(), principal_id="eve"))
        assert await unchanged(runtime, ticket)


async def test_trusted_code_may_do_everything(make: Make) -> None:
    async with make(paying(Approval("ann", groups=("finance",)))) as runtime:
        ticket = await asked(runtime)
        await runtime.tickets.reassign(ticket.id, "bob")
        assert (await runtime.tickets.answer(ticket.id, ticket.edit({"amount": 1}))).text == "done"


@pytest.mark.parametrize(
    ("approval", "allowed", "refused"),
    [
        (Approval("ann"), [ANN], [BOB, CY, DEE, EVE, Principal("user:bob")]),
        (Approval("user:ann"), [ANN], [BOB, Principal("user")]),
        (Approval("group:finance"), [CY], [ANN, Principal("finance"), Principal("group:finance"), DEE]),
        (Approval("role:lead"), [DEE], [CY, Principal("x", groups=("lead",))]),
        (Approval(groups=("finance", "ops")), [CY], [ANN, DEE]),
        (Approval("ann", groups=("finance",)), [ANN, CY], [BOB]),
        (Approval("eve"), [], [EVE, ANN]),
        (Approval(groups=("finance",)), [], [Principal("eve", groups=("finance",))]),
    ],
)
async def test_approval_is_for_those_named(
    approval: Approval, allowed: list[Principal], refused: list[Principal]
) -> None:
    runtime = Runtime([Agent("agent", model=FunctionModel(pay_once), tools=[paying(approval)])])
    for principal in refused:
        ticket = await asked(runtime)
        for verdict in (True, False):
            with pytest.raises(NotAllowed):
                await runtime.tickets.answer(ticket.id, verdict, principal=principal)
        assert await unchanged(runtime, ticket)
    for principal in allowed:
        ticket = await asked(runtime)
        assert (await runtime.tickets.answer(ticket.id, True, principal=principal)).text == "done"
        (decision,) = await runtime.tickets.decisions(ticket.id)
        assert (decision.principal_id, decision.auth, decision.override) == (principal.id, "none", False)
    await runtime.close()


async def test_rule_decides_who_approves(make: Make) -> None:
    pay = paying(lambda given: Approval("role:lead") if given["amount"] > 3 else False)
    model = ScriptedModel([[call("pay", amount=5), call("pay", amount=1)], "done"])
    async with make(pay, model=model) as runtime:
        ticket = await asked(runtime)
        assert ticket.assignee == "role:lead"
        with pytest.raises(NotAllowed, match="the ticket is for role:lead"):
            await runtime.tickets.answer(ticket.id, True, principal=ANN)
        assert (await runtime.tickets.answer(ticket.id, True, principal=DEE)).text == "done"


async def test_admitted_requester_approves_or_denies_only(make: Make) -> None:
    async with make(paying(Approval(requester=True))) as runtime:
        ticket = await asked(runtime)
        for decision in (ticket.edit({"amount": 1}), ticket.result("paid")):
            with pytest.raises(NotAllowed, match="who may approve or deny it, no more"):
                await runtime.tickets.answer(ticket.id, decision, principal=EVE)
        with pytest.raises(NotAllowed):
            await runtime.tickets.reassign(ticket.id, "bob", principal=EVE)
        assert await unchanged(runtime, ticket)
        assert (await runtime.tickets.answer(ticket.id, True, principal=EVE)).text == "done"
        ticket = await asked(runtime)
        await runtime.tickets.answer(ticket.id, False, principal=EVE)
        assert "denied" in reply_text((await replies_on(runtime, "t"))[-1])


async def test_gate_question_counts_as_approval() -> None:
    class Gate(Plugin):
        async def gate_tool(self, ctx: GateTool) -> Any:
            return ctx.suspend("May it?", approval=Approval("group:finance"))

    model = ScriptedModel([call("pay", amount=5), "done"])
    runtime = Runtime([Agent("agent", model=model, tools=[paying(False)], plugins=[Gate()])])
    ticket = await asked(runtime)
    for principal in (EVE, ANN):
        with pytest.raises(NotAllowed):
            await runtime.tickets.answer(ticket.id, True, principal=principal)
    assert (await runtime.tickets.answer(ticket.id, True, principal=CY)).text == "done"
    await runtime.close()


# -- rights --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("right", "decide"),
    [
        ("tickets:edit", lambda asked: asked.edit({"amount": 1})),
        ("tickets:supply", lambda asked: asked.result("paid")),
        ("tickets:reassign", None),
    ],
)
async def test_each_right_is_its_own(right: Any, decide: Any) -> None:
    async def act(by: Author) -> Any:
        if decide is None:
            return await runtime.tickets.reassign(ticket.id, "bob", principal=by)
        return await runtime.tickets.answer(ticket.id, decide(ticket), principal=by)

    runtime = Runtime([Agent("agent", model=ScriptedModel([call("pay", amount=5), "done"]), tools=[paying()])])
    ticket = await asked(runtime)
    with pytest.raises(NotAllowed, match=f"its rights lack {right}") as seen:
        await act(Author(ANN, frozenset()))
    assert seen.value.needed == right
    assert await unchanged(runtime, ticket)
    await act(Author(ANN, frozenset({right})))
    (decision,) = await runtime.tickets.decisions(ticket.id)
    assert decision.principal_id == "ann"
    await runtime.close()


async def test_override_decides_and_is_recorded(make: Make) -> None:
    async with make(paying(Approval("ann", quorum=1))) as runtime:
        ticket = await asked(runtime)
        boss = Author(EVE, frozenset({"tickets:override"}), "key:ab12")
        with pytest.raises(NotAllowed, match="tickets:edit"):
            await runtime.tickets.answer(ticket.id, ticket.edit({"amount": 1}), principal=boss)
        assert (await runtime.tickets.answer(ticket.id, True, principal=boss)).text == "done"
        (decision,) = await runtime.tickets.decisions(ticket.id)
        assert (decision.principal_id, decision.auth, decision.override) == ("eve", "key:ab12", True)


async def test_override_ends_a_quorum_at_once(make: Make) -> None:
    async with make(paying(Approval("group:finance", quorum=3))) as runtime:
        ticket = await asked(runtime)
        boss = Author(ANN, frozenset({"tickets:override"}))
        assert (await runtime.tickets.answer(ticket.id, True, principal=boss)).text == "done"


async def test_decision_cannot_claim_an_override(make: Make) -> None:
    async with make(paying(Approval("group:finance", quorum=2))) as runtime:
        ticket = await asked(runtime)
        forged = replace(ticket.approve(), override=True)
        assert (await runtime.tickets.answer(ticket.id, forged, principal=CY)).status == "waiting"


async def test_reassigned_ticket_is_the_new_assignees(make: Make) -> None:
    async with make(paying(Approval("ann"))) as runtime:
        ticket = await asked(runtime)
        with pytest.raises(NotAllowed):
            await runtime.tickets.reassign(ticket.id, "bob", principal=BOB)
        moved = await runtime.tickets.reassign(ticket.id, "user:bob", principal=ANN)
        assert moved.assignee == "bob"
        with pytest.raises(NotAllowed, match="the ticket is for bob"):
            await runtime.tickets.answer(ticket.id, True, principal=ANN)
        assert (await runtime.tickets.answer(ticket.id, True, principal=BOB)).text == "done"


# -- questions and client tools ------------------------------------------------------------------------------


@pytest.mark.parametrize("assignee", [None, "ann", "group:finance"])
async def test_question_is_for_requester_or_assignee(make: Make, assignee: str | None) -> None:
    @tool(resumable=True)
    async def pay(amount: int, ctx: ToolContext) -> str:
        """Pay."""
        return f"from {ctx.ask('Which account?', assignee=assignee)}"

    right, wrong = {None: (EVE, ANN), "ann": (ANN, EVE), "group:finance": (CY, EVE)}[assignee]
    async with make(pay) as runtime:
        ticket = await asked(runtime)
        with pytest.raises(NotAllowed):
            await runtime.tickets.answer(ticket.id, "A", principal=wrong)
        assert await unchanged(runtime, ticket)
        assert (await runtime.tickets.answer(ticket.id, "A", principal=right)).text == "done"


async def test_client_result_is_supplied_by_requester(make: Make) -> None:
    async with make(ClientTool("pay", "Pay.")) as runtime:
        ticket = await asked(runtime)
        with pytest.raises(NotAllowed, match="the ticket is for eve, the requester"):
            await runtime.tickets.answer(ticket.id, ticket.result("paid"), principal=ANN)
        author = Author(EVE, frozenset())
        assert (await runtime.tickets.answer(ticket.id, ticket.result("paid"), principal=author)).text == "done"


# -- the requester of a tree ---------------------------------------------------------------------------------


@pytest.mark.parametrize("durable", [False, True])
async def test_requester_of_delegate_is_root_principal(make: Make, durable: bool) -> None:
    lead = ScriptedModel([call("agent_run_payer", prompt="Pay 5"), "done"])
    agents = [
        Agent("agent", model=lead, delegates=[Delegate("payer", durable=durable)]),
        Agent("payer", model=ScriptedModel([call("pay", amount=5), "paid"]), tools=[paying()]),
    ]
    async with make(agents=agents) as runtime:
        ticket = await asked(runtime)
        root = (await runtime.runs.list(thread="t"))[0].id
        assert (ticket.requester, ticket.run_id != root) == ("eve", True)
        with pytest.raises(NotAllowed):
            await runtime.tickets.answer(ticket.id, True, principal=EVE)
        with pytest.raises(NotAllowed):
            await runtime.resume(root, ticket.approve(), principal=EVE)
        result = await soon(runtime.tickets.answer(ticket.id, True, principal=ANN))
        assert (result.run_id, result.text) == (root, "done")


async def test_requester_stays_after_handoff(make: Make) -> None:
    agents = [
        Agent("agent", model=ScriptedModel([call("handoff_to_payer")]), handoffs=["payer"]),
        Agent("payer", model=ScriptedModel([call("pay", amount=5), "paid"]), tools=[paying()]),
    ]
    async with make(agents=agents) as runtime:
        ticket = await asked(runtime)
        with pytest.raises(NotAllowed):
            await runtime.tickets.answer(ticket.id, True, principal=EVE)
        assert (await runtime.tickets.answer(ticket.id, True, principal=ANN)).text == "paid"


# -- quorum --------------------------------------------------------------------------------------------------


def finance(name: str) -> Principal:
    return Principal(name, groups=("finance",))


async def test_quorum_counts_each_principal_once(make: Make) -> None:
    async with make(paying(Approval("group:finance", quorum=2))) as runtime:
        ticket = await asked(runtime)
        assert (ticket.accepts, ticket.missing) == (("proceed", "arguments"), 2)
        for _ in range(2):
            result = await runtime.tickets.answer(ticket.id, True, principal=finance("ann"))
            (now,) = result.tickets
            assert (result.status, now.missing) == ("waiting", 1)
            assert [vote.principal_id for vote in now.approvals] == ["ann"]
        assert (await runtime.tickets.submit(ticket.approve(), principal=finance("ann"))).missing == 1
        assert len(await runtime.tickets.decisions(ticket.id)) == 1
        (event,) = await events_of(runtime, "t", TicketChanged)
        assert (event.ticket.missing, event.decision.principal_id) == (1, "ann")
        with pytest.raises(NotAllowed):
            await runtime.tickets.answer(ticket.id, True, principal=EVE)
        assert (await runtime.tickets.answer(ticket.id, True, principal=finance("bob"))).text == "done"
        assert [d.principal_id for d in await runtime.tickets.decisions(ticket.id)] == ["ann", "bob"]
        with pytest.raises(TicketClosed, match="approved by bob"):
            await runtime.tickets.answer(ticket.id, True, principal=finance("ann"))


async def test_vote_without_quorum_runs_nothing_anywhere(make: Make) -> None:
    """The process that votes needs none of the run's code, and no worker starts."""
    async with make(paying(Approval("group:finance", quorum=2))) as runtime:
        ticket = await asked(runtime)
    async with make(agents=[Agent("other", model=ScriptedModel([]))]) as other:
        left = await other.tickets.submit(ticket.approve(), principal=finance("ann"))
        assert (left.missing, await other.tickets.left(ticket.id)) == (1, None)
        result = await soon(other.tickets.answer(ticket.id, True, principal=finance("ann")))
        assert result.status == "waiting"
        assert await other.store.due() == []
        stored = await other.store.load("t")
        assert stored is not None
        assert stored.inbox == ()
        await other.tickets.submit(ticket.approve(), principal=finance("bob"))
    async with make(paying(Approval("group:finance", quorum=2))) as runtime:
        assert (await soon(runtime.wait(ticket.run_id))).text == "done"


async def test_first_denial_ends_a_quorum(make: Make) -> None:
    async with make(paying(Approval("group:finance", quorum=3))) as runtime:
        ticket = await asked(runtime)
        await runtime.tickets.answer(ticket.id, True, principal=finance("ann"))
        await runtime.tickets.answer(ticket.id, ticket.deny("no"), principal=finance("bob"))
        assert "denied: no" in reply_text((await replies_on(runtime, "t"))[-1])


async def test_edit_between_votes_starts_count_again(make: Make) -> None:
    async with make(paying(Approval("group:finance", quorum=2))) as runtime:
        ticket = await asked(runtime)
        first = replace(ticket.approve(), seen=ticket.digest)
        await runtime.tickets.answer(ticket.id, first, principal=finance("ann"))
        with pytest.raises(InvalidDecision):
            await runtime.tickets.answer(ticket.id, ticket.edit({"amount": "x"}), principal=finance("bob"))
        result = await runtime.tickets.answer(ticket.id, ticket.edit({"amount": 2}), principal=finance("bob"))
        (now,) = result.tickets
        assert ([vote.principal_id for vote in now.approvals], now.arguments) == (["bob"], {"amount": 2})
        assert now.digest != ticket.digest
        # Ann's first approval, repeated, has no effect; a new one of what she saw then is refused.
        again = await runtime.tickets.answer(ticket.id, first, principal=finance("ann"))
        assert [vote.principal_id for vote in again.tickets[0].approvals] == ["bob"]
        stale = replace(ticket.approve(), seen=ticket.digest)
        with pytest.raises(StaleDecision, match="isn't what the author of the decision saw"):
            await runtime.tickets.answer(ticket.id, stale, principal=finance("ann"))
        with pytest.raises(StaleDecision):
            await runtime.tickets.submit(stale, principal=finance("ann"))
        await runtime.tickets.answer(ticket.id, now.approve(), principal=finance("ann"))
        assert "paid 2" in reply_text((await replies_on(runtime, "t"))[-1])
        assert [d.principal_id for d in await runtime.tickets.decisions(ticket.id)] == ["ann", "bob", "ann"]


async def test_message_beside_vote_is_delivered(make: Make) -> None:
    model = ScriptedModel([call("pay", amount=5), "done"])
    async with make(paying(Approval("group:finance", quorum=2)), model=model) as runtime:
        ticket = await asked(runtime)
        votes = [replace(ticket.approve(), principal_id=name) for name in ("ann", "bob")]
        with pytest.raises(NotAllowed):
            await runtime.resume(ticket.run_id, *votes)
        assert await unchanged(runtime, ticket)
        result = await runtime.resume(ticket.run_id, votes[0], message="Hurry", principal=finance("ann"))
        assert result.status == "waiting"
        result = await runtime.resume(ticket.run_id, votes[1], principal=finance("bob"))
        assert result.text == "done"
        assert "Hurry" in [message.text for message in await runtime.threads.messages("t")]


async def test_votes_count_while_sibling_runs(make: Make) -> None:
    hold = Hold()
    model = ScriptedModel([[call("wait"), call("pay", amount=5)], "done"])
    tools = [holding(hold), paying(Approval("group:finance", quorum=2))]
    async with make(*tools, model=model) as owner:
        handle = await owner.start("agent", "go", thread="t", principal=EVE)
        await soon(hold.reached.wait())
        while not (tickets := await owner.tickets.list(handle.run_id)):
            await asyncio.sleep(0)
        (ticket,) = tickets
        for name in ("ann", "ann", "bob"):
            await owner.tickets.submit(ticket.approve(), principal=finance(name))
        hold.released.set()
        assert (await soon(handle.result())).text == "done"
        assert [d.principal_id for d in await owner.tickets.decisions(ticket.id)] == ["ann", "bob"]


async def test_concurrent_votes_are_all_counted(make: Make) -> None:
    async with make(paying(Approval("group:finance", quorum=4))) as runtime:
        ticket = await asked(runtime)
        votes = [runtime.tickets.submit(ticket.approve(), principal=finance(f"p{n}")) for n in range(3)]
        await soon(asyncio.gather(*votes))
        now = await runtime.tickets.get(ticket.id)
        assert (now.missing, {vote.principal_id for vote in now.approvals}) == (1, {"p0", "p1", "p2"})


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"quorum": 0}, "1 or more"),
        ({"quorum": True}, "1 or more"),
        ({"assignee": "ann", "quorum": 2}, "can't be reached by 'ann' alone"),
        ({"assignee": "group: "}, "assignee is a text"),
        ({"assignee": ""}, "assignee is a text"),
        ({"groups": "finance"}, "tuple of groups' names"),
        ({"groups": ("",)}, "tuple of groups' names"),
        ({"requester": 1}, "True or False"),
    ],
)
def test_invalid_approval_is_refused(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        Approval(**wrong)


@pytest.mark.parametrize(
    ("by", "told"),
    [
        ("ann", "a Principal or an Author"),
        (Author(ANN, frozenset({"tickets:all"})), "an author's rights are"),  # type: ignore[arg-type]
        (Author(Principal("wakeful")), "who decides at a deadline"),
        (Author("ann"), "principal must be a Principal"),  # type: ignore[arg-type]
    ],
)
async def test_invalid_author_is_refused(by: Any, told: str) -> None:
    runtime = Runtime([Agent("agent", model=ScriptedModel([call("pay", amount=5)]), tools=[paying()])])
    ticket = await asked(runtime)
    with pytest.raises(UsageError, match=told):
        await runtime.tickets.answer(ticket.id, True, principal=by)
    await runtime.close()


# -- what others let in --------------------------------------------------------------------------------------


async def test_left_answer_without_right_has_no_effect(make: Make) -> None:
    """The ticket was reassigned after the answer was left: the run checks again."""
    async with make(paying(Approval("ann"))) as runtime:
        ticket = await asked(runtime)
    other = make(agents=[Agent("other", model=ScriptedModel([]))])
    forged = replace(ticket.approve(), principal_id="eve")
    item = DecisionItem(id=forged.id, thread_id="t", decision=forged, author=Author(EVE))
    await other.store.commit(Commit("t", inbox=[item]))
    await other.close()
    async with make(paying(Approval("ann"))) as runtime:
        while not (decisions := await runtime.tickets.decisions(ticket.id)):
            await asyncio.sleep(0.001)
        (decision,) = decisions
        assert decision.not_taken is not None
        assert (decision.not_taken.cause, (await runtime.tickets.get(ticket.id)).status) == ("forbidden", "open")
        assert (await soon(runtime.tickets.answer(ticket.id, True, principal=ANN))).text == "done"


async def test_only_deciders_replace_and_withdraw_left_answers(make: Make) -> None:
    async with make(paying(Approval("ann", groups=("finance",)))) as runtime:
        ticket = await asked(runtime)
    other = make(agents=[Agent("other", model=ScriptedModel([]))])
    await other.tickets.submit(ticket.approve(), principal=ANN)
    for refused in (
        other.tickets.withdraw(ticket.id, principal=EVE),
        other.tickets.submit(ticket.deny(), principal=EVE, replace=True),
        other.tickets.answer(ticket.id, False, principal=BOB, replace=True),
    ):
        with pytest.raises(NotAllowed):
            await refused
    await other.tickets.submit(ticket.deny("no"), principal=CY, replace=True)
    await other.tickets.withdraw(ticket.id, principal=ANN)
    assert await other.tickets.left(ticket.id) is None
    await other.close()


async def test_deadline_decides_whoever_is_named() -> None:
    clock = FakeClock()
    named = Approval("ann", groups=("finance",), quorum=2)
    levels = [Escalation("role:lead", 60)]
    pay = paying(named, deadline=60, on_deadline="approve", escalate=levels)
    model = ScriptedModel([call("pay", amount=5), "done"])
    async with Runtime([Agent("agent", model=model, tools=[pay])], clock=clock) as runtime:
        ticket = await asked(runtime)
        await runtime.tickets.answer(ticket.id, True, principal=CY)
        await clock.advance(60)
        while (await runtime.tickets.get(ticket.id)).assignee != "role:lead":
            await asyncio.sleep(0)
        await clock.advance(60)
        assert (await soon(runtime.wait(ticket.run_id))).text == "done"
        decisions = await runtime.tickets.decisions(ticket.id)
        assert [d.principal_id for d in decisions] == ["cy", "wakeful", "wakeful"]


# -- comments ------------------------------------------------------------------------------------------------


async def test_comment_is_kept_and_decides_nothing(make: Make) -> None:
    async with make(paying(Approval("ann"))) as runtime:
        ticket = await asked(runtime)
        for _ in range(2):
            assert await runtime.tickets.comment(ticket.id, "Why?", principal=BOB, request_id="c1") == ticket
        (comment,) = await runtime.tickets.decisions(ticket.id)
        assert (comment.verdict, comment.reason, comment.principal_id) == ("comment", "Why?", "bob")
        (event,) = await events_of(runtime, "t", TicketChanged)
        assert event.decision == comment
        with pytest.raises(UsageError, match="isn't empty"):
            await runtime.tickets.comment(ticket.id, " ")
        with pytest.raises(InvalidDecision, match=r"runtime\.tickets\.comment"):
            await runtime.tickets.answer(ticket.id, replace(ticket.approve(), verdict="comment"))
        assert (await runtime.tickets.answer(ticket.id, True, principal=ANN)).text == "done"
        with pytest.raises(TicketClosed, match="approved by ann"):
            await runtime.tickets.comment(ticket.id, "Late")


async def test_digest_is_the_same_in_all_processes(make: Make) -> None:
    async with make(paying()) as runtime:
        ticket = await asked(runtime)
    other = make(agents=[Agent("other", model=ScriptedModel([]))])
    read = await other.tickets.get(ticket.id)
    moved = await other.tickets.reassign(ticket.id, "bob")
    assert read.digest == ticket.digest == moved.digest != replace(ticket, message="Else?").digest
    await other.close()


async def test_unknown_outcome_is_asked_of_those_named() -> None:
    pay = paying(False, unknown=Approval("ann"))
    assert pay.unknown_terms.who == Approval("ann")
    assert spying(Spy(), "act", unknown="ask").unknown_policy == "ask"
