"""Policies as data: rules in three tiers, from Python, from TOML or from an agent's config, and their checks."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, cast

import msgspec
from msgspec.structs import force_setattr

from ...errors import ConfigurationError
from ...errors.arguments import Checked
from ...tools import terms_problems
from ...types.base import Data
from ...types.tickets import ANYBODY, Approval, Escalation, OnDeadline
from .matches import Facts, Matcher, ToolFacts, compile_pattern, selects
from .patterns import Pattern, PatternError, parse_pattern

__all__ = ["CompiledRule", "Layer", "Policy", "Rule", "Tier", "compile_rules", "load_policy", "policy_problems"]

Tier = Literal["deny", "ask", "allow"]
Layer = Literal["managed", "agent"]
TIERS: tuple[Tier, ...] = ("deny", "ask", "allow")

MAX_RULES = 1000
MAX_FILE = 1024 * 1024


class Rule(Data, metaclass=Checked, omit_defaults=True, forbid_unknown_fields=True):
    """A rule with more than its call pattern; a plain text stands for a rule with nothing else.

    - `reason`: the model and the people are shown it.
    - `approval`, `deadline`, `on_deadline`, `escalate`: the terms of the ticket of an `ask` rule.
    - `always`: no grant lifts this `ask` rule, and its tickets offer none.
    - `examples`, `counterexamples`: calls that the rule matches, and calls that it doesn't, as the tool's name
      and the arguments as JSON: `'transfer {"amount": 500}'`. They are checked with the policy. The conditions on
      the run (`when ...`) are taken to hold.
    """

    call: str
    reason: str = ""
    approval: Approval = ANYBODY
    deadline: float | None = None
    on_deadline: OnDeadline = "deny"
    escalate: tuple[Escalation, ...] = ()
    always: bool = False
    examples: tuple[str, ...] = ()
    counterexamples: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("escalate", "examples", "counterexamples"):
            if isinstance(given := getattr(self, name), list):
                force_setattr(self, name, tuple(cast(list[Any], given)))


class Policy(Data, metaclass=Checked, omit_defaults=True, forbid_unknown_fields=True):
    """Rules over tool calls: `deny` beats `ask`, `ask` beats `allow`; the order within a tier has no effect.

    `default` decides on calls that no rule matches. Without one, calls of `pure` tools run and others are asked
    about, except calls that the tool itself asks about.
    """

    deny: Sequence[str | Rule] = ()
    ask: Sequence[str | Rule] = ()
    allow: Sequence[str | Rule] = ()
    default: Tier | None = None

    def __post_init__(self) -> None:
        for tier in TIERS:
            if isinstance(given := getattr(self, tier), list):
                force_setattr(self, tier, tuple(cast(list[Any], given)))


class CompiledRule(Data):
    """A rule ready to match calls. `text` is its canonical form with the tier, which identifies it."""

    tier: Tier
    layer: Layer
    text: str
    pattern: Pattern
    rule: Rule
    holds: Matcher | None

    def matches(self, arguments: dict[str, Any], facts: Facts) -> bool:
        """Whether a call of a selected tool matches."""
        return self.holds is None or self.holds(arguments, facts)


def load_policy(path: str | Path) -> Policy:
    """Read a policy from a TOML file; raises `ConfigurationError` with all its problems."""
    where = f"policy {path}"
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_FILE + 1)
        if len(data) > MAX_FILE:
            raise ConfigurationError(f"{where}: it has more than {MAX_FILE:,} bytes")
        content = tomllib.loads(data.decode())
    except OSError as error:
        raise ConfigurationError(f"{where}: it can't be read: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigurationError(f"{where}: it is not TOML: {error}") from error
    problems = list[str]()
    policy = _policy_of(content, problems)
    problems += policy_problems(policy)
    if problems:
        raise ConfigurationError([f"{where}: {problem}" for problem in problems])
    return policy


def _policy_of(content: dict[str, Any], problems: list[str]) -> Policy:
    """Convert the content of a file. An entry with a mistake is left out, so that it hides no others."""
    found: dict[str, Any] = {}
    for name, value in content.items():
        if name not in (*TIERS, "default"):
            problems.append(f"it has no {name!r}; a policy has {', '.join(TIERS)} and default")
        elif name == "default":
            found[name] = value
        elif not isinstance(value, list):
            problems.append(f"{name} is a list of call patterns and tables, not {value!r:.80}")
        else:
            made = [_entry(name, number, entry, problems) for number, entry in enumerate(cast(list[Any], value))]
            found[name] = tuple([entry for entry in made if entry is not None])
    return Policy(**found)


def _entry(tier: str, number: int, value: Any, problems: list[str]) -> str | Rule | None:
    try:
        return msgspec.convert(value, str | Rule)
    except (msgspec.ValidationError, ConfigurationError) as error:
        problems.append(f"{tier}[{number}]: {error}")
        return None


# -- checks --------------------------------------------------------------------------------------------------


def policy_problems(policy: Policy) -> list[str]:
    """List the problems of a policy's rules: patterns, options and examples."""
    problems: list[str] = []
    if policy.default not in (*TIERS, None):
        problems.append(f"default is deny, ask, allow or None, not {policy.default!r:.80}")
    count, seen = 0, dict[str, str]()
    for tier, where, rule, found in _entries(policy):
        problems += found
        count += 1
        if rule is None:
            continue
        about = f"{where} {rule.call!r:.120}"
        try:
            pattern = parse_pattern(rule.call)
        except PatternError as error:
            problems.append(f"{about}: {error}")
            continue
        text = f"{tier} {pattern}"
        if text in seen:
            problems.append(f"{about}: {seen[text]} is the same rule; remove one of them")
        seen.setdefault(text, where)
        problems += [f"{about}: {problem}" for problem in _rule_problems(tier, pattern, rule)]
    if count > MAX_RULES:
        problems.append(f"it has {count:,} rules; the limit is {MAX_RULES:,}")
    return problems


def _entries(policy: Policy) -> Iterator[tuple[Tier, str, Rule | None, list[str]]]:
    """The rules with their tier and place; None with a problem for what is no rule."""
    for tier in TIERS:
        entries: Any = getattr(policy, tier)
        if not isinstance(entries, Sequence) or isinstance(entries, str):
            yield tier, tier, None, [f"{tier} is a list of call patterns and rules, not {entries!r:.80}"]
            continue
        for number, entry in enumerate(cast(Sequence[Any], entries)):
            where = f"{tier}[{number}]"
            if isinstance(entry, str):
                yield tier, where, Rule(entry), []
            elif not isinstance(entry, Rule):
                yield tier, where, None, [f"{where}: {entry!r:.80} is no call pattern and no Rule(...)"]
            elif problems := _type_problems(entry):
                yield tier, where, None, [f"{where}: {problem}" for problem in problems]
            else:
                yield tier, where, entry, []


def _type_problems(rule: Rule) -> list[str]:
    """List the fields of a rule made in Python that have a wrong type."""
    if not isinstance(cast(Any, rule.approval), Approval):
        return [f"approval is an Approval(...), not {rule.approval!r:.80}"]
    try:
        msgspec.convert(msgspec.to_builtins(rule), Rule)
    except (msgspec.ValidationError, TypeError) as error:
        return [str(error)]
    return []


def _rule_problems(tier: Tier, pattern: Pattern, rule: Rule) -> list[str]:
    problems: list[str] = []
    asks = {
        "approval": rule.approval != ANYBODY,
        "deadline": rule.deadline is not None,
        "on_deadline": rule.on_deadline != "deny",
        "escalate": bool(rule.escalate),
        "always": rule.always,
    }
    if tier != "ask":
        names = [name for name, is_set in asks.items() if is_set]
        if names:
            problems.append(f"{' and '.join(names)}: only ask rules have tickets; remove it")
    else:
        problems += terms_problems(rule.deadline, rule.on_deadline, rule.escalate)
    admits = tier == "allow"
    for kind, wanted in (("examples", True), ("counterexamples", False)):
        for text in getattr(rule, kind):
            if (problem := _example_problem(pattern, text, wanted=wanted, admits=admits)) is not None:
                problems.append(f"{kind}: {problem}")
    return problems


def _example_problem(pattern: Pattern, text: str, *, wanted: bool, admits: bool) -> str | None:
    """The problem of an example; its call is judged by the selector and the conditions on arguments."""
    name, _, given = text.strip().partition(" ")
    try:
        arguments = msgspec.json.decode(given or "{}", type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeEncodeError) as error:
        return f"{text!r:.120} is a tool's name and its arguments as a JSON object: {error}"
    if not name:
        return f"{text!r:.120} names no tool"
    tested = _without_facts(pattern)
    holds = compile_pattern(tested, admits=admits)
    is_selected = pattern.kind in ("effect", "hint") or selects(pattern, ToolFacts(name))
    matches = is_selected and (holds is None or holds(arguments, Facts({})))
    if matches is wanted:
        return None
    return f"{text!r:.120} is {'not matched' if wanted else 'matched'}; change the pattern or the example"


def _without_facts(pattern: Pattern) -> Pattern:
    """The pattern without its conditions on the run; an exception that has any is left out."""
    clause = msgspec.structs.replace(pattern.clause, facts=(), tainted=None)
    exception = pattern.exception
    if exception is not None and (exception.facts or exception.tainted is not None):
        exception = None
    return msgspec.structs.replace(pattern, clause=clause, exception=exception)


def compile_rules(policy: Policy, layer: Layer) -> tuple[CompiledRule, ...]:
    """Compile the rules of a valid policy, the stricter tiers first."""
    found: list[CompiledRule] = []
    for tier, _, rule, _ in _entries(policy):
        if rule is not None:
            pattern = parse_pattern(rule.call)
            holds = compile_pattern(pattern, admits=tier == "allow")
            found.append(CompiledRule(tier, layer, f"{tier} {pattern}", pattern, rule, holds))
    return tuple(found)
