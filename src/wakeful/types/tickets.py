"""Tickets (questions that a suspended run waits for) and the decisions that answer them."""

from __future__ import annotations

import json
from datetime import timedelta
from hashlib import sha256
from typing import Any, Literal, cast

from msgspec import field
from msgspec.structs import force_setattr

from ..errors import ConfigurationError
from ..errors.arguments import Checked
from .base import Data
from .ids import new_id
from .messages import Message

__all__ = [
    "ANYBODY",
    "ASKERS",
    "SYSTEM",
    "Answer",
    "Approval",
    "Decision",
    "Escalation",
    "GrantOffer",
    "GrantScope",
    "NotTaken",
    "OnDeadline",
    "Remember",
    "ResumeMode",
    "Seconds",
    "Ticket",
    "TicketStatus",
    "Verdict",
    "Vote",
    "is_assignee",
    "plain_assignee",
]

ResumeMode = Literal["proceed", "result", "arguments"]
TicketStatus = Literal["open", "answered", "settled", "superseded", "cancelled"]
Verdict = Literal["approve", "deny", "reassign", "comment"]
Seconds = int | float | timedelta
GrantScope = Literal["run", "thread", "agent", "user"]

# The principal of decisions made by a deadline. Reserved: no caller's principal may have this id.
SYSTEM = "wakeful"

# Values of `asked_by` that aren't plugin names. Reserved: no plugin may have one of these names.
ASKERS = frozenset({"approval", "client", "guardrail", "remote", "tool", "unknown"})


class Answer(Data, metaclass=Checked, omit_defaults=True):
    """The answer that a ticket gets at its deadline."""

    value: Any = None


OnDeadline = Literal["approve", "deny"] | Answer


class Escalation(Data, metaclass=Checked, omit_defaults=True):
    """The next assignee of a ticket whose deadline passed, and their deadline in seconds from then on.

    Without a deadline the ticket waits indefinitely.
    """

    to: str
    deadline: float | timedelta | None = None


_KINDS = ("user:", "group:", "role:")


def is_assignee(value: Any) -> bool:
    """Whether a value can be an assignee."""
    if not _is_text(value):
        return False
    return _is_text(value.partition(":")[2]) if value.startswith(_KINDS) else True


def plain_assignee(assignee: str) -> str:
    """An assignee in one spelling: a user without the prefix, unless the rest would read as another kind."""
    bare = assignee.removeprefix("user:")
    return assignee if bare.startswith(_KINDS) else bare


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


class Approval(Data, metaclass=Checked, omit_defaults=True):
    """The people who may approve a call: the assignee, members of the `groups`, or anybody if none is named.

    An assignee is `user:<id>`, `group:<name>` or `role:<name>`; a plain text is a user's id. The requester, the
    principal at the root of the run's tree, may not approve, unless `requester` is set: then it may approve or
    deny, but not edit the arguments or set the result.

    The call runs once `quorum` different principals approved; the first denial denies it. If one of them edits
    the arguments, the count starts again. With a quorum nobody may set the result.
    """

    assignee: str | None = None
    quorum: int = 1
    groups: tuple[str, ...] = ()
    requester: bool = False

    def __post_init__(self) -> None:
        if problems := _approval_problems(self):
            raise ConfigurationError(problems)
        force_setattr(self, "groups", tuple(self.groups))


def _approval_problems(approval: Approval) -> list[str]:
    assignee: Any = approval.assignee
    quorum: Any = approval.quorum
    groups: Any = approval.groups
    found: list[str] = []
    if assignee is not None and not is_assignee(assignee):
        found.append(
            f"assignee is a text: user:<id>, group:<name>, role:<name> or a user's id, not {assignee!r:.80}"
        )
    if not isinstance(groups, tuple | list) or not all(map(_is_text, cast(Any, groups))):
        found.append(f"Approval.groups is a tuple of groups' names, not {groups!r:.80}")
    if not isinstance(cast(Any, approval.requester), bool):
        found.append(f"Approval.requester is True or False, not {approval.requester!r:.80}")
    if type(quorum) is not int or quorum < 1:
        return [*found, f"Approval.quorum is a count of principals, 1 or more, not {quorum!r:.80}"]
    is_one = assignee is not None and not groups and not str(assignee).startswith(_KINDS[1:])
    if is_one and quorum > 1 + approval.requester:
        found.append(
            f"Approval.quorum={quorum} can't be reached by {assignee!r:.80} alone: name a group or a role"
        )
    return found


ANYBODY = Approval()


class Vote(Data):
    """An approval that counts towards a ticket's quorum."""

    principal_id: str
    at: int


class GrantOffer(Data, omit_defaults=True):
    """The grants that an approval of a ticket may give: each lifts `rule` for the calls of a pattern.

    `patterns` are the suggestions, the narrowest first. `scopes` are the admitted scopes with the assignees who
    may give a grant of that scope; an empty list stands for everybody who may answer the ticket, and the assignee
    `requester` for the ticket's requester about itself. A grant lasts `seconds` at most.
    """

    rule: str
    patterns: tuple[str, ...]
    scopes: dict[GrantScope, tuple[str, ...]]
    seconds: int


class Remember(Data, metaclass=Checked, omit_defaults=True):
    """The part of an approval that makes it a grant: later calls of the pattern run without a question.

    `scope` is the rest of the `run`, the `thread`, the `user` that the run acts for, or all runs of the `agent`.
    `pattern` is one of the ticket's suggestions, by default the first. It lasts `seconds`, by default as long as
    the ticket's offer admits.
    """

    scope: GrantScope
    pattern: str = ""
    seconds: int | None = None


class NotTaken(Data, omit_defaults=True):
    """Why no run took a decision, by whom and when.

    It was `withdrawn` or `replaced` before a run took it, `refused` by the remote agent that had asked,
    `forbidden` because its author lost the right to it, or `stale` because the ticket changed.
    """

    cause: Literal["withdrawn", "replaced", "refused", "forbidden", "stale"]
    principal_id: str | None = None
    reason: str = ""
    at: int = 0


class Decision(Data, metaclass=Checked, omit_defaults=True):
    """An answer to a ticket.

    The meaning of `value` depends on the mode: the value of `ctx.decision` in the tool (`proceed`), the tool's
    result (`result`), or its new arguments (`arguments`). With the verdict `reassign` the ticket stays open, and
    `value` is the new assignee; with `comment` it stays as it is, and `reason` is the text. A decision without
    effect is kept with the reason in `not_taken`. `message` is the message in which the answer came, if it came in
    one; the model isn't shown it.

    - `seen`: the digest of the ticket that its author saw; the decision is refused if the ticket changed.
    - `auth`: how its author was authenticated, such as `key:ab12`.
    - `override`: its author had no part in the ticket, but the right to override.
    - `request_digest`: the digest of the request that its id is derived from.
    - `remember`: makes a grant of an approval, so that later calls aren't asked about.
    """

    ticket_id: str
    verdict: Verdict = "approve"
    mode: ResumeMode | None = None
    value: Any = None
    reason: str = ""
    principal_id: str | None = None
    asked_by: str = ""
    at: int = 0
    id: str = field(default_factory=new_id)
    not_taken: NotTaken | None = None
    message: Message | None = None
    seen: str | None = None
    auth: str = ""
    override: bool = False
    request_digest: str = ""
    remember: Remember | None = None


class Ticket(Data, omit_defaults=True, kw_only=True):
    """A question that a run waits for.

    `accepts` lists the modes of an approving decision; the first is the default, and `schema` is the JSON schema
    of its value. `asked_by` is `approval`, `client`, `guardrail`, `tool`, `remote` (an agent's backend), `unknown`
    (an interrupted call of unknown outcome), or the name of the plugin whose gate suspended the call.

    At its `deadline` the ticket goes to the first entry of `escalate`. If none is left, `on_deadline` decides. The
    deadline of a `remote` ticket is the remote agent's, which decides itself: the ticket is `settled` once that
    agent continued without an answer from here.

    - `agent_id`: the agent whose call it is.
    - `requester`: the principal at the root of the run's tree. It may decide on an approval if `by_requester`.
    - `groups`: whose members may decide besides the assignee.
    - `quorum`, `approvals`: how many principals must approve, and who has.
    - `digest`: a hash of what a person decides on: the call, its arguments, the message and the answers accepted.
    - `offer`: the grants that an approval may give.
    """

    id: str
    run_id: str
    thread_id: str
    call_id: str
    tool: str
    arguments: dict[str, Any]
    message: str = ""
    asked_by: str
    accepts: tuple[ResumeMode, ...] = ("proceed",)
    schema: dict[str, Any] | None = None
    status: TicketStatus = "open"
    assignee: str | None = None
    deadline: int | None = None
    created_at: int = 0
    on_deadline: OnDeadline = "deny"
    escalate: tuple[Escalation, ...] = ()
    requester: str | None = None
    by_requester: bool = False
    groups: tuple[str, ...] = ()
    quorum: int = 1
    approvals: tuple[Vote, ...] = ()
    digest: str = ""
    agent_id: str = ""
    offer: GrantOffer | None = None

    def __post_init__(self) -> None:
        # Python's encoder: it takes text that UTF-8 can't hold.
        shown = json.dumps(
            [self.tool, self.arguments, self.message, self.accepts, self.schema], sort_keys=True, default=repr
        )
        force_setattr(self, "digest", sha256(shown.encode()).hexdigest()[:32])

    @property
    def missing(self) -> int:
        """How many approvals are missing."""
        return max(0, self.quorum - len(self.approvals)) if self.status == "open" else 0

    @property
    def asks_value(self) -> bool:
        """Whether the ticket asks for a value, rather than for an approval or a call's outcome."""
        if self.asked_by == "unknown":
            return False
        return self.asked_by in ("tool", "client") or self.accepts[0] != "proceed" or self.schema is not None

    def approve(self, value: Any = None, *, reason: str = "", remember: Remember | None = None) -> Decision:
        """Run the call; the tool sees `value` as `ctx.decision`. Repeats a call of unknown outcome.

        `remember` grants later calls, as the ticket's `offer` admits.
        """
        return Decision(self.id, mode="proceed", value=value, reason=reason, remember=remember)

    def deny(self, reason: str = "") -> Decision:
        """Refuse the call: it doesn't run, and the model sees the reason."""
        return Decision(self.id, "deny", reason=reason)

    def answer(self, value: Any, *, reason: str = "") -> Decision:
        """Answer in the ticket's default mode."""
        return Decision(self.id, value=value, reason=reason)

    def edit(self, arguments: dict[str, Any], *, reason: str = "") -> Decision:
        """Run the call with these arguments."""
        return Decision(self.id, mode="arguments", value=arguments, reason=reason)

    def result(self, value: Any, *, reason: str = "") -> Decision:
        """Set the call's result without running the tool. A call of unknown outcome counts as done."""
        return Decision(self.id, mode="result", value=value, reason=reason)
