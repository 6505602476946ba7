"""Tool calls: the rows of the ledger."""

from __future__ import annotations

from typing import Any, Literal

from .base import Data
from .tickets import Decision

__all__ = ["GUARDRAIL_PREFIX", "Call", "CallOutcome", "CallState", "Effect", "Ruling", "UnknownPolicy"]

# Begins the name of a call that stands for a guardrail's question.
GUARDRAIL_PREFIX = "guardrail:"

Effect = Literal["pure", "idempotent", "reconcile", "once"]
UnknownPolicy = Literal["tell", "ask"]
CallState = Literal["requested", "started", "suspended", "finished"]
CallOutcome = Literal["ok", "error", "blocked", "cancelled", "superseded", "unknown"]


class Ruling(Data, omit_defaults=True):
    """The decision of the permission rules on a call, the rule or grant that made it, and the policy's digest.

    `rule` is the canonical text of the rule, the pattern of the grant `grant_id`, or `default`. `tainted` says
    that the run had read untrusted content. `shadow` is the decision and the rule of a proposed policy that
    differs.
    """

    decision: Literal["allow", "ask", "deny"]
    rule: str
    layer: str
    policy: str = ""
    grant_id: str | None = None
    tainted: bool = False
    shadow: str = ""


class Call(Data, omit_defaults=True):
    """One row of the ledger: a tool call and its state.

    `effect` and `unknown` are copied from the tool when the call starts, so that recovery doesn't depend on later
    code changes. `edited` holds a person's changed arguments; `arguments` stay the model's. A suspended call waits
    for a ticket, for the task `task_id`, or for the time `until`. `timers` are the earlier waits of the call, as
    pairs of ordinal and time. `ruling` is what the permission rules decided last. `kept` is the note of a tool for
    its next attempt.
    """

    id: str
    run_id: str
    step: int
    index: int
    name: str
    arguments: dict[str, Any]
    # Fields that change with the result come first: Postgres logs the bytes between the first and the last change.
    state: CallState = "requested"
    outcome: CallOutcome | None = None
    message_id: str | None = None
    finished_at: int | None = None
    ticket_id: str | None = None
    decisions: tuple[Decision, ...] = ()
    edited: dict[str, Any] | None = None
    problem: str | None = None
    hooks_due: bool = False
    task_id: str | None = None
    until: int | None = None
    timers: tuple[tuple[int, int], ...] = ()
    attempt: int = 0
    effect: Effect = "once"
    unknown: UnknownPolicy = "tell"
    started_at: int | None = None
    ruling: Ruling | None = None
    kept: dict[str, Any] | None = None

    @property
    def is_guardrail(self) -> bool:
        """Whether it is the question of a guardrail, which no message shows. No tool can have such a name."""
        return self.name.startswith(GUARDRAIL_PREFIX)

    @property
    def effective_arguments(self) -> dict[str, Any]:
        """The arguments to run with: a person's edit, else the model's."""
        return self.arguments if self.edited is None else self.edited
