"""Preview of a policy: what proposed rules would have decided on the calls in a store."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from ...agents import ResolvedAgent
from ...errors import ConfigurationError, ToolError
from ...errors.arguments import checked
from ...stores import Store
from ...tools import Tool
from ...types.base import Data
from ...types.calls import Call
from ...types.records import Grant
from ...types.runs import RunRecord
from ...types.tickets import GrantScope
from .evaluation import CallFacts, CompiledPolicy, LiveGrant, compile_policy, evaluate, lift
from .facts import asks_itself, facts_of, run_values
from .matches import Facts, ToolFacts
from .policy import Policy, Tier, load_policy, policy_problems

__all__ = ["Comparison", "PastCall", "Preview", "PreviewChange", "compare_calls", "preview_policy"]

PAGE = 200
MAX_GRANTS = 10_000
NO_RULES = "no rules"


class PastCall(Data):
    """A stored call as rules see it, with the recorded decision and the grants that counted then."""

    agent_id: str
    run_id: str
    call_id: str
    facts: CallFacts
    decision: Tier
    rule: str
    grants: tuple[LiveGrant, ...] = ()


class Comparison(Data):
    """The decisions on one call before and after, with the rules that made them."""

    call: PastCall
    before: Tier
    before_rule: str
    after: Tier
    after_rule: str


class PreviewChange(Data):
    """Calls of a tool that the proposed rules treat differently. `run_id` and `call_id` are of the newest one."""

    tool: str
    before: Tier
    before_rule: str
    after: Tier
    after_rule: str
    count: int
    run_id: str
    call_id: str


class Preview(Data):
    """The decisions of proposed rules on past calls, beside those that were made.

    `decisions` counts the calls by both decisions, as in `allow -> ask`. `changes` has those that differ, by tool
    and rules, the most frequent first. `asked` and `would_ask` are the questions to people before and after.
    """

    calls: int
    asked: int
    would_ask: int
    decisions: dict[str, int]
    changes: tuple[PreviewChange, ...]


@checked
async def preview_policy(
    store: Store,
    rules: Policy | str | Path,
    *,
    last: int = 10_000,
    against: Policy | str | Path | None = None,
    agents: Mapping[str, ResolvedAgent] | None = None,
) -> Preview:
    """Evaluate proposed managed rules on the newest `last` calls of a store. Nothing is changed.

    They are compared with the recorded decisions, or with those of the policy `against`. `agents` are resolved
    agents: their sections apply, and their tools give the hints and the defaults of arguments. Raises
    `ConfigurationError` with all problems of the policies.
    """
    if last < 1:
        raise ConfigurationError(f"last is a number of calls, 1 or more, not {last}")
    known = agents or {}
    problems: list[str] = []
    proposed = _read(rules, "rules", problems)
    other = None if against is None else _read(against, "against", problems)
    if problems:
        raise ConfigurationError(problems)
    after = Policies(proposed, known)
    before = None if other is None else Policies(other, known)
    found: list[Comparison] = []
    async for calls in _past_calls(store, last, known):
        found += compare_calls(calls, after, before)
    return _summary(found)


def compare_calls(
    calls: Iterable[PastCall], proposed: Policies, against: Policies | None = None
) -> Iterator[Comparison]:
    """Evaluate policies on calls; without `against` the recorded decisions stay."""
    for call in calls:
        before, before_rule = call.decision, call.rule
        if against is not None:
            before, before_rule = _decide(against, call)
        yield Comparison(call, before, before_rule, *_decide(proposed, call))


def _decide(policies: Policies, call: PastCall) -> tuple[Tier, str]:
    verdict = evaluate(policies.of(call.agent_id), call.facts)
    if verdict.decision == "ask" and call.grants:
        verdict = lift(verdict, call.facts, call.grants)
    return verdict.decision, verdict.rule


class Policies:
    """A managed policy, compiled with the section of each agent."""

    def __init__(self, managed: Policy, agents: Mapping[str, ResolvedAgent]) -> None:
        self._managed = compile_policy(managed)
        sections = {name: agent.configs.get("permissions") for name, agent in agents.items()}
        self._own = {
            name: compile_policy(managed, section)
            for name, section in sections.items()
            if isinstance(section, Policy)
        }

    def of(self, agent: str) -> CompiledPolicy:
        return self._own.get(agent, self._managed)


def _read(given: Any, what: str, problems: list[str]) -> Policy:
    if isinstance(given, Policy):
        problems += [f"{what}: {problem}" for problem in policy_problems(given)]
        return given
    if not isinstance(given, str | Path):
        problems.append(f"{what} is a Policy(...) or the path of a TOML file, not {given!r:.80}")
        return Policy()
    try:
        return load_policy(given)
    except ConfigurationError as error:
        problems += error.problems
        return Policy()


# -- reading -------------------------------------------------------------------------------------------------


async def _past_calls(
    store: Store, last: int, agents: Mapping[str, ResolvedAgent]
) -> AsyncIterator[Sequence[PastCall]]:
    """The newest calls of a store, run by run."""
    grants = await _grants_by_owner(store)
    before: str | None = None
    while last > 0:
        runs = await store.runs(before=before, limit=PAGE)
        for run in runs:
            if not run.calls:
                continue
            calls = [call for call in reversed(await store.calls(run.id)) if not call.is_guardrail][:last]
            last -= len(calls)
            yield [_past_call(run, call, agents, grants) for call in calls]
            if last <= 0:
                return
        if len(runs) < PAGE:
            return
        before = runs[-1].id


_Owner = tuple[GrantScope, str, str]


async def _grants_by_owner(store: Store) -> dict[_Owner, list[Grant]]:
    """The grants of a store, by what they are for and their agent; the newest ones if there are very many."""
    found: dict[_Owner, list[Grant]] = {}
    before: str | None = None
    for _ in range(MAX_GRANTS // PAGE):
        page = await store.records(Grant, before=before, limit=PAGE)
        for grant in page:
            found.setdefault((grant.scope, grant.scope_id, grant.agent_id), []).append(grant)
        if len(page) < PAGE:
            break
        before = page[-1].id
    return found


def _past_call(
    run: RunRecord, call: Call, agents: Mapping[str, ResolvedAgent], grants: Mapping[_Owner, Sequence[Grant]]
) -> PastCall:
    agent_id, ruling = run.agent_id, call.ruling
    tool = agents[agent_id].tools.get(call.name) if agent_id in agents else None
    arguments = _arguments(tool, call)
    facts = CallFacts(
        ToolFacts(call.name, call.effect) if tool is None else facts_of(tool),
        arguments,
        Facts(run_values(run.identity, run.principal), ruling is not None and ruling.tainted),
        _asked_itself(call) if tool is None else asks_itself(tool, arguments),
    )
    decision, rule = ("allow", NO_RULES) if ruling is None else (ruling.decision, ruling.rule)
    at = call.started_at or run.created_at
    return PastCall(agent_id, run.id, call.id, facts, decision, rule, _counting(run, call, grants, at))


def _arguments(tool: Tool | None, call: Call) -> dict[str, Any]:
    """The arguments with the defaults of the tool, if it is known and takes them."""
    if tool is None:
        return call.effective_arguments
    try:
        return tool.arguments_seen(tool.bind(call.effective_arguments))
    except (ToolError, TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return call.effective_arguments


def _asked_itself(call: Call) -> bool:
    return any(made.asked_by in ("approval", "client") for made in call.decisions)


def _counting(
    run: RunRecord, call: Call, grants: Mapping[_Owner, Sequence[Grant]], at: int
) -> tuple[LiveGrant, ...]:
    """The grants that counted when the call started, without those that its own tickets gave."""
    if not grants:
        return ()
    owners: dict[GrantScope, str] = {"run": run.id, "thread": run.thread_id, "agent": run.agent_id}
    if run.principal is not None:
        owners["user"] = run.principal.id
    own = {made.ticket_id for made in call.decisions}
    return tuple(
        [
            LiveGrant(grant.id, grant.pattern, grant.rule)
            for scope, scope_id in owners.items()
            for grant in grants.get((scope, scope_id, run.agent_id), ())
            if grant.created_at <= at < min(grant.expires_at, grant.revoked_at or grant.expires_at)
            and grant.ticket_id not in own
        ]
    )


# -- the summary ---------------------------------------------------------------------------------------------


def _summary(found: Sequence[Comparison]) -> Preview:
    decisions = Counter(f"{each.before} -> {each.after}" for each in found)
    counts: Counter[tuple[str, str, str, str, str]] = Counter()
    newest: dict[tuple[str, str, str, str, str], PastCall] = {}
    for each in found:
        if each.before != each.after:
            key = (each.call.facts.tool.name, each.before, each.before_rule, each.after, each.after_rule)
            counts[key] += 1
            newest.setdefault(key, each.call)
    changes = [
        PreviewChange(
            tool,
            cast(Tier, before),
            before_rule,
            cast(Tier, after),
            after_rule,
            count,
            newest[tool, before, before_rule, after, after_rule].run_id,
            newest[tool, before, before_rule, after, after_rule].call_id,
        )
        for (tool, before, before_rule, after, after_rule), count in counts.most_common()
    ]
    return Preview(
        len(found),
        sum(each.before == "ask" for each in found),
        sum(each.after == "ask" for each in found),
        dict(decisions.most_common()),
        tuple(changes),
    )
