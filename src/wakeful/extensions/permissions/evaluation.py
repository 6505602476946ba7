"""The decision on a call: a pure function of the policy, the call, the facts about its run, and the grants."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec

from ...types.base import Data
from ...types.ids import digest_of
from .matches import Facts, Matcher, ToolFacts, compile_pattern, selects
from .patterns import PatternError, parse_pattern
from .policy import CompiledRule, Layer, Policy, Tier, compile_rules

__all__ = [
    "DEFAULT_RULE",
    "CallFacts",
    "CompiledPolicy",
    "LiveGrant",
    "Verdict",
    "compile_policy",
    "evaluate",
    "lift",
]

DEFAULT_RULE = "default"
MAX_CACHED_TOOLS = 10_000


class CallFacts(Data):
    """A call: its tool, its arguments as JSON data, and the run's facts; `asks_itself` if the tool asks anyway."""

    tool: ToolFacts
    arguments: dict[str, Any]
    facts: Facts
    asks_itself: bool = False


class Verdict(Data):
    """A decision with what made it: a rule, a grant, the default or an error in the evaluation.

    `asks` are the rules that ask, the strictest first.
    """

    decision: Tier
    rule: str
    layer: Literal["managed", "agent", "run", "grant", "default", "error"]
    reason: str = ""
    asks: tuple[CompiledRule, ...] = ()
    grant_id: str | None = None


class LiveGrant(Data):
    """A grant that counts for the run: it lifts the rule `lifts` for the calls of its pattern.

    Without `lifts` it is the run's own, and lifts any rule that isn't `always`.
    """

    id: str
    pattern: str
    lifts: str = ""

    def lifts_rule(self, rule: str) -> bool:
        """Whether it lifts a rule, by the rule's text."""
        return self.lifts in ("", rule)


class CompiledPolicy:
    """The compiled rules of all layers, found by tool. `digest` identifies the rules."""

    __slots__ = ("_by_tool", "default", "digest", "rules")

    def __init__(self, layers: Sequence[tuple[Layer, Policy]]) -> None:
        rules = [rule for layer, policy in layers for rule in compile_rules(policy, layer)]
        self.rules = tuple(rules)
        self.default: Tier | None = next(
            (policy.default for _, policy in layers if policy.default is not None), None
        )
        texts = sorted(msgspec.json.encode([r.layer, r.text, r.rule]) for r in rules)
        self.digest = digest_of(b"\n".join([*texts, str(self.default).encode()]))
        self._by_tool: dict[ToolFacts, tuple[CompiledRule, ...]] = {}

    def for_tool(self, tool: ToolFacts) -> tuple[CompiledRule, ...]:
        """The rules whose selector admits the tool, by tier."""
        found = self._by_tool.get(tool)
        if found is None:
            if len(self._by_tool) >= MAX_CACHED_TOOLS:
                self._by_tool.clear()
            order: dict[Tier, int] = {"deny": 0, "ask": 1, "allow": 2}
            selected = [rule for rule in self.rules if selects(rule.pattern, tool)]
            selected.sort(key=lambda rule: (order[rule.tier], not rule.rule.always, rule.layer != "managed"))
            found = self._by_tool[tool] = tuple(selected)
        return found

    def hides(self, tool: ToolFacts) -> bool:
        """Whether every call of the tool is denied."""
        return any(rule.tier == "deny" and rule.holds is None for rule in self.for_tool(tool))


def compile_policy(managed: Policy | None, agent: Policy | None = None) -> CompiledPolicy:
    """Compile valid policies, the managed one first."""
    layers: list[tuple[Layer, Policy]] = []
    if managed is not None:
        layers.append(("managed", managed))
    if agent is not None:
        layers.append(("agent", agent))
    return CompiledPolicy(layers)


def evaluate(policy: CompiledPolicy, call: CallFacts) -> Verdict:
    """Decide on a call without grants. An error in a rule denies the call."""
    asks: list[CompiledRule] = []
    allowed: CompiledRule | None = None
    try:
        for rule in policy.for_tool(call.tool):
            if rule.holds is not None and not rule.holds(call.arguments, call.facts):
                continue
            if rule.tier == "deny":
                return Verdict("deny", rule.text, rule.layer, rule.rule.reason)
            if rule.tier == "ask":
                asks.append(rule)
            elif not asks:
                allowed = rule
                break
            else:
                break
    except Exception as error:
        return Verdict(
            "deny", f"error: {type(error).__name__}", "error", "the permission rules could not be evaluated"
        )
    if asks:
        first = asks[0]
        return Verdict("ask", first.text, first.layer, first.rule.reason, tuple(asks))
    if allowed is not None:
        return Verdict("allow", allowed.text, allowed.layer, allowed.rule.reason)
    return Verdict(_default(policy, call), DEFAULT_RULE, "default")


def _default(policy: CompiledPolicy, call: CallFacts) -> Tier:
    if (given := policy.default) is not None:
        return given
    return "allow" if call.asks_itself or call.tool.effect == "pure" else "ask"


def lift(verdict: Verdict, call: CallFacts, grants: Iterable[LiveGrant]) -> Verdict:
    """The verdict with grants: an ask rule is lifted by a grant that was given for it; `always` rules stay."""
    if verdict.decision != "ask":
        return verdict
    used: LiveGrant | None = None
    covering = [grant for grant in grants if _covers(grant.pattern, call)]
    for rule in verdict.asks:
        found = None if rule.rule.always else next((g for g in covering if g.lifts_rule(rule.text)), None)
        if found is None:
            return Verdict("ask", rule.text, rule.layer, rule.rule.reason, (rule,))
        used = used or found
    if not verdict.asks:
        used = next((grant for grant in covering if grant.lifts_rule(verdict.rule)), None)
    if used is None:
        return verdict
    return Verdict("allow", used.pattern, "grant" if used.id else "run", grant_id=used.id or None)


_admitting: dict[str, tuple[Any, Matcher | None] | None] = {}


def _covers(text: str, call: CallFacts) -> bool:
    """Whether a grant's pattern covers a call; a pattern that can't be read covers none."""
    if text not in _admitting:
        if len(_admitting) >= MAX_CACHED_TOOLS:
            _admitting.clear()
        try:
            pattern = parse_pattern(text)
            _admitting[text] = (pattern, compile_pattern(pattern, admits=True))
        except PatternError:
            _admitting[text] = None
    compiled = _admitting[text]
    if compiled is None or not selects(compiled[0], call.tool):
        return False
    return compiled[1] is None or compiled[1](call.arguments, call.facts)
