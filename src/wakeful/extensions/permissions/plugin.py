"""The plugin that applies permission rules to tool calls."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, cast

import msgspec

from ...errors import ConfigurationError
from ...errors.arguments import Checked, checked
from ...plugins import AfterTool, BeforeInference, Block, GateAnswer, GateTool, Plugin
from ...state import AnyKey
from ...tools import Tool
from ...types.base import Data
from ...types.calls import Ruling
from ...types.tickets import GrantOffer, GrantScope, is_assignee
from .evaluation import (
    DEFAULT_RULE,
    CallFacts,
    CompiledPolicy,
    LiveGrant,
    Verdict,
    compile_policy,
    evaluate,
    lift,
)
from .facts import asks_itself, facts_of, run_values, trusted_agents
from .lint import lint
from .matches import Facts, ToolFacts
from .policy import Policy, Rule, load_policy, policy_problems
from .state import RunGrants, Taint
from .suggestions import suggest

__all__ = ["GrantPolicy", "Permissions"]

_log = logging.getLogger(__name__)

_DAYS_30 = 30 * 24 * 3600
_ONE_CENTURY = 100 * 365 * 24 * 3600


class GrantPolicy(Data, metaclass=Checked, repr_omit_defaults=True):
    """The rules for remembering approvals: by whom, and for how long.

    Everybody who may answer a ticket may remember the approval for the rest of the `run` or the `thread`, if these
    are set. A grant for a `user` or for every run of an `agent` is for the assignees named here: `user:<id>`,
    `group:<name>`, `role:<name>`; `requester` stands for the user about itself. A grant lasts `seconds` at most.
    """

    run: bool = True
    thread: bool = True
    user: Sequence[str] = ("requester",)
    agent: Sequence[str] = ()
    seconds: int | timedelta = _DAYS_30

    @property
    def lifetime(self) -> int:
        """The longest life of a grant, in whole seconds."""
        return int(self.seconds.total_seconds() if isinstance(self.seconds, timedelta) else self.seconds)

    @property
    def scopes(self) -> dict[GrantScope, tuple[str, ...]]:
        """The scopes that may be granted, with their assignees."""
        found: dict[GrantScope, tuple[str, ...]] = {}
        if self.run:
            found["run"] = ()
        if self.thread:
            found["thread"] = ()
        if self.user:
            found["user"] = tuple(self.user)
        if self.agent:
            found["agent"] = tuple(self.agent)
        return found


def _grant_problems(policy: Any) -> list[str]:
    if not isinstance(policy, GrantPolicy):
        return [f"grants is a GrantPolicy(...), not {policy!r:.80}"]
    found: list[str] = []
    for name in ("user", "agent"):
        names: Any = getattr(policy, name)
        if (
            isinstance(names, str)
            or not isinstance(names, Sequence)
            or not all(map(is_assignee, cast(Any, names)))
        ):
            found.append(f"GrantPolicy.{name} is a list of assignees, not {names!r:.80}")
    seconds: Any = policy.seconds
    if isinstance(seconds, bool) or not isinstance(seconds, int | timedelta):
        found.append(f"GrantPolicy.seconds is a number of seconds or a timedelta, not {seconds!r:.80}")
    elif not 0 < policy.lifetime <= _ONE_CENTURY:
        found.append(f"GrantPolicy.seconds is positive and at most a century, not {seconds!r:.80}")
    return found


class Permissions(Plugin):
    """Decides on every tool call by rules: `deny` beats `ask`, and `ask` beats `allow`.

    `rules` are the managed layer, a `Policy` or the path of a TOML file; an agent adds its own layer as
    `config={"permissions": Policy(...)}`. `grants` says who may remember approvals. `shadow` is a proposed policy
    in place of `rules`: it decides nothing, and calls that it would treat differently are logged, with its
    decision in the call's `ruling`. With `strict=False` rules that fit no tool are logged instead of refused.
    """

    name: ClassVar[str] = "permissions"
    keys: ClassVar[Sequence[AnyKey]] = (Taint, RunGrants)
    config: ClassVar[type[Any] | None] = Policy

    @checked
    def __init__(
        self,
        rules: Policy | str | Path | None = None,
        *,
        grants: GrantPolicy | None = None,
        shadow: Policy | str | Path | None = None,
        strict: bool = True,
    ) -> None:
        self._problems: list[str] = []
        self._rules = self._read(rules, "rules")
        self._shadow = None if shadow is None else self._read(shadow, "shadow")
        self._grants = grants or GrantPolicy()
        self._problems += _grant_problems(self._grants)
        self._strict = strict
        # Compiled policies with their shadows, by the identity of the agent's section, which they keep alive.
        self._compiled: dict[int, tuple[Policy, CompiledPolicy, CompiledPolicy | None]] = {}
        # The tools of the agents, and the agents that may read untrusted text.
        self._tools: dict[str, Mapping[str, Tool]] = {}
        self._trusted: frozenset[str] = frozenset()

    def _read(self, given: Any, what: str) -> Policy:
        if given is None or isinstance(given, Policy):
            policy = given or Policy()
            self._problems += [f"{what}: {problem}" for problem in policy_problems(policy)]
            return policy
        if not isinstance(given, str | Path):
            self._problems.append(f"{what} is a Policy(...) or the path of a TOML file, not {given!r:.80}")
            return Policy()
        try:
            return load_policy(given)
        except ConfigurationError as error:
            self._problems += error.problems
            return Policy()

    # -- when the runtime is made ----------------------------------------------------------------------------

    def problems(self, agents: Mapping[str, Mapping[str, Tool]], configs: Mapping[str, Any]) -> Sequence[str]:
        """List the problems of the rules of all layers, and of rules that fit no tool."""
        found = [*self._problems]
        for agent, section in configs.items():
            if section is not None:
                found += [f"agent {agent!r}: {problem}" for problem in policy_problems(section)]
        if found:
            return found
        self._tools = {**self._tools, **agents}
        self._trusted = trusted_agents(self._tools)
        if self._strict:
            return list(self._lint(agents, configs))
        for problem in self._lint(agents, configs):
            _log.warning("%s", problem)
        return []

    def _lint(self, agents: Mapping[str, Mapping[str, Tool]], configs: Mapping[str, Any]) -> Iterator[str]:
        every = {name: tool for tools in agents.values() for name, tool in tools.items()}
        yield from lint(compile_policy(self._rules), every, "managed")
        for agent, tools in agents.items():
            if configs[agent] is not None:
                policy = compile_policy(self._rules, configs[agent])
                yield from [f"agent {agent!r}: {problem}" for problem in lint(policy, tools, "agent")]

    def _policies(self, section: Policy) -> tuple[CompiledPolicy, CompiledPolicy | None]:
        found = self._compiled.get(id(section))
        if found is None:
            shadow = None if self._shadow is None else compile_policy(self._shadow, section)
            found = self._compiled[id(section)] = (section, compile_policy(self._rules, section), shadow)
        return found[1], found[2]

    # -- hooks -----------------------------------------------------------------------------------------------

    async def before_inference(self, ctx: BeforeInference) -> None:
        """Hide the tools whose calls are all denied."""
        policy, _ = self._policies(ctx.config)
        tools = self._tools.get(ctx.run.agent_id, {})
        for name in ctx.tools:
            tool = tools.get(name)
            if policy.hides(ToolFacts(name) if tool is None else facts_of(tool)):
                ctx.plan.exclude_tools(name)

    async def gate_tool(self, ctx: GateTool) -> GateAnswer:
        """Decide on a call; asked again after a ticket was answered, so that a new deny counts."""
        policy, shadow = self._policies(ctx.config)
        sources = ctx.state[Taint]
        call = _call_facts(ctx, is_tainted=bool(sources))
        verdict, proposed = evaluate(policy, call), None if shadow is None else evaluate(shadow, call)
        is_lifted = _may_lift(verdict) and not self._is_approved(ctx, verdict)
        if is_lifted or (proposed is not None and _may_lift(proposed)):
            grants = await _live_grants(ctx)
            verdict = lift(verdict, call, grants) if is_lifted else verdict
            proposed = None if proposed is None else lift(proposed, call, grants)
        difference = _difference(ctx, verdict, proposed)
        ctx.ruling = Ruling(
            verdict.decision,
            verdict.rule,
            verdict.layer,
            policy.digest,
            verdict.grant_id,
            call.facts.tainted,
            difference,
        )
        if verdict.decision == "deny":
            return Block(verdict.reason or "a permission rule denies this call")
        if verdict.decision == "allow" or self._is_approved(ctx, verdict):
            return None
        rule = verdict.asks[0].rule if verdict.asks else Rule(DEFAULT_RULE)
        return ctx.suspend(
            _question(ctx, verdict, sources),
            approval=rule.approval,
            deadline=rule.deadline,
            on_deadline=rule.on_deadline,
            escalate=rule.escalate,
            again=True,  # An approval counts for the rule that it was asked for.
            offer=self._offer(ctx, verdict, rule, call),
        )

    async def after_tool(self, ctx: AfterTool) -> None:
        """Mark the conversation once it has the result of an untrusted tool."""
        tool = ctx.tool
        if tool is None or not ctx.call.attempt or not self._is_untrusted(tool):
            return
        if tool.spec.name not in ctx.state[Taint]:
            ctx.update(Taint, tool.spec.name)

    def preview(self, call: CallFacts, section: Policy) -> tuple[Verdict, Verdict | None]:
        """The decision on a call without grants, and that of the shadow policy; `section` is the agent's layer."""
        policy, shadow = self._policies(section)
        return evaluate(policy, call), None if shadow is None else evaluate(shadow, call)

    def _is_approved(self, ctx: GateTool, verdict: Verdict) -> bool:
        """Whether a person approved the call when this rule asked."""
        before = ctx.call.ruling
        if before is None or before.decision != "ask" or before.rule != verdict.rule:
            return False
        return any(made.asked_by == self.label and made.verdict == "approve" for made in ctx.call.decisions)

    def _is_untrusted(self, tool: Tool) -> bool:
        return tool.untrusted or (tool.is_delegation and getattr(tool, "agent_id", "") not in self._trusted)

    def _offer(self, ctx: GateTool, verdict: Verdict, rule: Rule, call: CallFacts) -> GrantOffer | None:
        """The grants that the ticket offers; None if the rule admits none."""
        scopes = self._grants.scopes
        if rule.always or rule.approval.quorum > 1 or not scopes:
            return None
        patterns = suggest(ctx.tool, call.arguments, widest=not call.facts.tainted)
        if not patterns:
            return None
        return GrantOffer(verdict.rule, patterns, scopes, self._grants.lifetime)


# -- facts ---------------------------------------------------------------------------------------------------


async def _live_grants(ctx: GateTool) -> list[LiveGrant]:
    """The remembered grants and the run's own."""
    remembered = [LiveGrant(row.id, row.pattern, row.rule) for row in await ctx.grants()]
    return remembered + [LiveGrant("", pattern) for pattern in ctx.state[RunGrants]]


def _call_facts(ctx: GateTool, *, is_tainted: bool) -> CallFacts:
    facts = Facts(run_values(ctx.run, ctx.principal), is_tainted)
    return CallFacts(facts_of(ctx.tool), _arguments(ctx), facts, asks_itself(ctx.tool, ctx.arguments))


def _arguments(ctx: GateTool) -> dict[str, Any]:
    """The arguments as JSON data with their defaults; those that have no JSON form as the model gave them."""
    try:
        return ctx.tool.arguments_seen(ctx.arguments)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return ctx.call.effective_arguments


def _may_lift(verdict: Verdict) -> bool:
    return verdict.decision == "ask" and not (verdict.asks and verdict.asks[0].rule.always)


def _difference(ctx: GateTool, verdict: Verdict, proposed: Verdict | None) -> str:
    """The decision of the shadow policy if it differs, which is logged; else an empty text."""
    if proposed is None or proposed.decision == verdict.decision:
        return ""
    _log.info(
        "shadow policy: %s instead of %s for call %s of %s in run %s, by %r",
        proposed.decision,
        verdict.decision,
        ctx.call.id,
        ctx.call.name,
        ctx.run.run_id,
        proposed.rule,
    )
    return f"{proposed.decision} by {proposed.rule}"


def _question(ctx: GateTool, verdict: Verdict, sources: Sequence[str]) -> str:
    """The question for the person, with the reason of the rule and the untrusted sources."""
    text = f"May {ctx.call.name} run?"
    if verdict.reason:
        text += f" {verdict.reason}"
    if sources:
        text += f"\nThe conversation has untrusted text, from {', '.join(sources)}."
    return text
