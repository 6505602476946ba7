"""Rights on tickets and the counting of votes: pure functions of a ticket and the author of a decision.

An approval is decided by its assignee and groups, or by anybody if neither is set, but never by its requester
unless the ticket says so. A question and a client tool's result come from the assignee, or from the requester if
there is none. The right to override lifts these rules, and is recorded. Trusted code has no author and may do all.
"""

from __future__ import annotations

from typing import Literal

from msgspec.structs import replace

from ..errors import InvalidDecision, NotAllowed, StaleDecision
from ..types.addressees import addressees_of, asks_consent, is_named, names_of
from ..types.runs import Author, Principal, Right
from ..types.tickets import SYSTEM, Decision, Remember, Ticket, Vote

__all__ = [
    "accepted_from_requester",
    "add_vote",
    "check_withdrawal",
    "is_candidate",
    "permit",
]

Action = Literal["answer", "edit", "supply", "reassign", "comment"]

_NEEDS: dict[Action, Right] = {
    "edit": "tickets:edit",
    "supply": "tickets:supply",
    "reassign": "tickets:reassign",
}

_WHAT: dict[Action, str] = {
    "answer": "answer",
    "edit": "edit the arguments of",
    "supply": "set the result of",
    "reassign": "reassign",
    "comment": "comment on",
}


def is_candidate(ticket: Ticket, principal: Principal, action: Action = "answer") -> bool:
    """Whether a ticket is a principal's to act on, apart from its rights."""
    if action == "comment":
        return True
    if asks_consent(ticket) and ticket.requester == principal.id:
        return ticket.by_requester and action == "answer"
    return not names_of(principal).isdisjoint(addressees_of(ticket))


def accepted_from_requester(ticket: Ticket) -> list[str]:
    """The answers that a ticket takes from its requester: `deny` and modes, or none; it may be in any group."""
    if ticket.requester is None:
        return ["deny", *ticket.accepts]
    if asks_consent(ticket):
        return ["deny", "proceed"] if ticket.by_requester else []
    is_others = ticket.assignee is not None and not ticket.assignee.startswith(("group:", "role:"))
    if is_others and not is_candidate(ticket, Principal(ticket.requester)):
        return []
    return ["deny", *ticket.accepts]


def permit(ticket: Ticket, decision: Decision, author: Author | None) -> Decision:
    """Check a decision against the ticket and the rights of its author, and complete it.

    Raises `StaleDecision`, `InvalidDecision` or `NotAllowed`. A decision by override is marked as one.
    """
    _check_seen(ticket, decision)
    if decision.remember is not None:
        _check_grant(ticket, decision, decision.remember, author)
    if author is None:
        return replace(decision, override=False)
    action = _action_of(ticket, decision)
    is_own = is_candidate(ticket, author.principal, action)
    right = _NEEDS.get(action)
    # The answer to a question may be a result or new arguments: that needs no right of its own.
    is_needed = action == "reassign" or asks_consent(ticket)
    if right is not None and is_needed and right not in author.rights:
        raise _refusal(ticket, author, action, f"its rights lack {right}", right)
    if not is_own and "tickets:override" not in author.rights:
        raise _refusal(ticket, author, action, _why_not(ticket, author.principal), "tickets:override")
    return replace(decision, principal_id=author.principal.id, auth=author.auth, override=not is_own)


def _check_seen(ticket: Ticket, decision: Decision) -> None:
    if decision.seen is not None and decision.seen != ticket.digest:
        raise StaleDecision(
            f"ticket {ticket.id} for {ticket.tool} isn't what the author of the decision saw: its digest was "
            f"{decision.seen:.80}, and is {ticket.digest}; nothing was changed: look at the ticket again"
        )


def _check_grant(ticket: Ticket, decision: Decision, remember: Remember, author: Author | None) -> None:
    """Refuse a grant that the ticket doesn't offer, or not to this author."""
    offer, about = ticket.offer, f"ticket {ticket.id} for {ticket.tool}"
    if offer is None:
        raise InvalidDecision(
            f"{about} offers no grant, so its approval can't be remembered; leave `remember` out"
        )
    if decision.verdict != "approve" or (decision.mode or ticket.accepts[0]) != "proceed":
        raise InvalidDecision(f"{about}: only an approval of the call as it is can be remembered")
    if remember.scope not in offer.scopes or (remember.scope == "user" and ticket.requester is None):
        raise InvalidDecision(
            f"{about} offers no grant for the {remember.scope!r:.20}; it offers {', '.join(offer.scopes)}"
        )
    if remember.pattern and remember.pattern not in offer.patterns:
        raise InvalidDecision(
            f"{about} doesn't offer the pattern {remember.pattern!r:.120}; it offers {' | '.join(offer.patterns)}"
        )
    if remember.seconds is not None and not 0 < remember.seconds <= offer.seconds:
        raise InvalidDecision(f"{about}: a grant lasts 1 to {offer.seconds} seconds, not {remember.seconds}")
    grantors = offer.scopes[remember.scope]
    if author is None or not grantors:
        return
    who = author.principal
    is_own = "requester" in grantors and ticket.requester == who.id and remember.scope == "user"
    if not is_own and not any(is_named(each, who) for each in grantors if each != "requester"):
        raise NotAllowed(
            f"principal {who.id!r:.80} may not give a grant for the {remember.scope} by {about}: that is for "
            f"{' or '.join(grantors)}; nothing was changed: approve the call without it"
        )


def check_withdrawal(ticket: Ticket, left: Decision, author: Author | None) -> None:
    """Raise `NotAllowed` unless a left answer is the author's own, or the author may answer the ticket."""
    if author is None or left.principal_id == author.principal.id or is_candidate(ticket, author.principal):
        return
    if "tickets:override" not in author.rights:
        raise _refusal(ticket, author, "answer", _why_not(ticket, author.principal), "tickets:override")


def _action_of(ticket: Ticket, decision: Decision) -> Action:
    if decision.verdict == "reassign" or decision.verdict == "comment":
        return decision.verdict
    mode = decision.mode or ticket.accepts[0]
    if decision.verdict == "deny" or mode == "proceed":
        return "answer"
    return "edit" if mode == "arguments" else "supply"


def _why_not(ticket: Ticket, principal: Principal) -> str:
    if asks_consent(ticket) and ticket.requester == principal.id:
        if ticket.by_requester:
            return "it is the requester of the call, who may approve or deny it, no more"
        return "it is the requester of the call; somebody else has to decide (Approval(requester=True) admits it)"
    named = [] if ticket.assignee is None else [ticket.assignee]
    if asks_consent(ticket):
        named += [f"group:{group}" for group in ticket.groups]
    elif not named and ticket.requester is not None:
        named = [f"{ticket.requester}, the requester"]
    return f"the ticket is for {' or '.join(named)}"


def _refusal(ticket: Ticket, author: Author, action: Action, why: str, missing: str) -> NotAllowed:
    return NotAllowed(
        f"principal {author.principal.id!r:.80} may not {_WHAT[action]} ticket {ticket.id} for {ticket.tool}: "
        f"{why}; nothing was changed",
        missing,
    )


# -- votes ---------------------------------------------------------------------------------------------------


def add_vote(ticket: Ticket, decision: Decision, now: int) -> Ticket | None:
    """The ticket with a vote that leaves it open; None if the decision resolves it.

    One principal has one vote, which it may repeat. Edited arguments start the count again. A denial, a decision
    by override, a deadline's and one of trusted code resolve the ticket at once.
    """
    who = decision.principal_id
    if ticket.quorum <= 1 or decision.verdict == "deny" or decision.override or who is None or who == SYSTEM:
        return None
    vote, arguments = Vote(who, decision.at or now), ticket.arguments
    if (decision.mode or ticket.accepts[0]) == "arguments":
        votes, arguments = (vote,), decision.value
    elif any(before.principal_id == who for before in ticket.approvals):
        return ticket
    else:
        votes = (*ticket.approvals, vote)
    if len(votes) >= ticket.quorum:
        return None
    return replace(ticket, approvals=votes, arguments=arguments)
