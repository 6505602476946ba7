"""Policies: precedence of the tiers, files with mistakes, and checks against tools when the runtime is made."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful import Agent, ConfigurationError, Runtime, ScriptedModel, tool
from wakeful.extensions.permissions import GrantPolicy, Permissions, Policy, Rule, load_policy
from wakeful.extensions.permissions.evaluation import CallFacts, LiveGrant, compile_policy, evaluate, lift
from wakeful.extensions.permissions.matches import Facts, ToolFacts
from wakeful.types import Approval

RANK = {"allow": 0, "ask": 1, "deny": 2}


def facts(
    name: str = "pay", arguments: dict[str, Any] | None = None, *, effect: Any = "once", tainted: bool = False
):
    return CallFacts(ToolFacts(name, effect), arguments or {}, Facts({"agent": "clerk"}, tainted))


def decide(policy: Policy, *args: Any, **options: Any) -> str:
    return evaluate(compile_policy(policy), facts(*args, **options)).decision


# -- precedence ----------------------------------------------------------------------------------------------

CALLS = st.builds(
    lambda name, amount, tainted: facts(name, {"amount": amount}, tainted=tainted),
    st.sampled_from(["pay", "payout", "read"]),
    st.integers(0, 3),
    st.booleans(),
)
TEXTS = st.sampled_from(
    [
        "pay",
        "pay*",
        "*",
        "read",
        "effect:once",
        "pay(amount > 1)",
        "pay(amount = 2)",
        "* when tainted",
        "pay(x != 1)",
    ]
)
LISTS = st.lists(TEXTS, max_size=3, unique=True)
POLICIES = st.builds(Policy, LISTS, LISTS, LISTS, st.sampled_from([None, "allow", "ask", "deny"]))


@given(POLICIES, CALLS, TEXTS)
def test_another_deny_never_loosens_a_decision(policy, call, text):
    stricter = Policy([*policy.deny, text], policy.ask, policy.allow, policy.default)
    before, after = (evaluate(compile_policy(each), call).decision for each in (policy, stricter))
    assert RANK[after] >= RANK[before]


@given(POLICIES, CALLS, TEXTS)
def test_another_allow_decides_only_where_no_rule_matched(policy, call, text):
    looser = Policy(policy.deny, policy.ask, [*policy.allow, text], policy.default)
    before, after = (evaluate(compile_policy(each), call) for each in (policy, looser))
    assert after.decision == before.decision or before.layer == "default"


@given(POLICIES, CALLS, st.randoms())
def test_order_of_rules_has_no_effect_on_the_decision(policy, call, chance: random.Random):
    def shuffled(rules: Any) -> list[Any]:
        return chance.sample(list(rules), len(rules))

    other = Policy(shuffled(policy.deny), shuffled(policy.ask), shuffled(policy.allow), policy.default)
    assert evaluate(compile_policy(policy), call).decision == evaluate(compile_policy(other), call).decision


@given(POLICIES, POLICIES, CALLS)
def test_agent_layer_never_lifts_a_managed_deny_or_ask(managed, agent, call):
    alone = evaluate(compile_policy(managed), call)
    both = evaluate(compile_policy(managed, agent), call)
    if alone.layer != "default":
        assert RANK[both.decision] >= RANK[alone.decision] or alone.decision == "allow"


@given(
    POLICIES, CALLS, st.lists(st.builds(LiveGrant, st.just("g"), TEXTS, TEXTS.map("ask {}".format)), max_size=3)
)
def test_grant_never_lifts_a_deny_or_another_rule(policy, call, grants):
    before = evaluate(compile_policy(policy), call)
    after = lift(before, call, grants)
    if before.decision != "ask":
        assert after == before
    elif after.decision == "allow":
        assert {rule.text for rule in before.asks} <= {grant.lifts for grant in grants}


def test_deny_beats_ask_and_ask_beats_allow():
    policy = Policy(["pay(amount > 100)"], ["pay(amount > 10)"], ["pay"])
    assert [decide(policy, "pay", {"amount": n}) for n in (5, 50, 500)] == ["allow", "ask", "deny"]


def test_default_asks_about_effects_and_allows_pure_tools():
    assert decide(Policy(), effect="pure") == "allow"
    assert [decide(Policy(), effect=effect) for effect in ("once", "idempotent", "reconcile")] == ["ask"] * 3
    assert decide(Policy(default="deny"), effect="pure") == "deny"


def test_always_rule_is_not_lifted_by_its_grant():
    policy = compile_policy(Policy(ask=[Rule("pay", always=True)]))
    verdict = evaluate(policy, facts())
    assert lift(verdict, facts(), [LiveGrant("g", "pay", "ask pay")]).decision == "ask"


def test_grant_lifts_only_its_own_rule_and_pattern():
    policy = compile_policy(Policy(ask=["pay", "effect:once when tainted"]))
    given = [LiveGrant("g", "pay(amount = 5)", "ask pay")]

    def lifted(amount: int, *, tainted: bool) -> str:
        call = facts("pay", {"amount": amount}, tainted=tainted)
        return lift(evaluate(policy, call), call, given).rule

    assert lifted(5, tainted=False) == "pay(amount = 5)"
    assert lifted(6, tainted=False) == "ask pay"
    assert lifted(5, tainted=True) == "ask effect:once when tainted"


def test_error_in_a_rule_denies_the_call():
    policy = compile_policy(Policy(allow=["pay(amount = 1)"]))

    class Broken(dict):
        def get(self, *_: Any) -> Any:
            raise RuntimeError("broken")

    verdict = evaluate(policy, facts("pay", Broken(amount=1)))
    assert (verdict.decision, verdict.layer) == ("deny", "error")


# -- files ---------------------------------------------------------------------------------------------------


def test_policy_file_is_read_with_all_options(tmp_path):
    path = tmp_path / "rules.toml"
    path.write_text(
        """
        default = "ask"
        deny = ["delete_*"]
        allow = ['transfer(currency = "EUR")']
        [[ask]]
        call = "transfer(amount > 100)"
        reason = "Large transfers need finance."
        approval = { assignee = "group:finance" }
        deadline = 3600
        always = true
        examples = ['transfer {"amount": 500}']
        counterexamples = ['transfer {"amount": 5}', 'refund {"amount": 500}']
        """
    )
    policy = load_policy(path)
    assert policy.ask[0].approval == Approval("group:finance")
    assert decide(policy, "transfer", {"amount": 5, "currency": "EUR"}) == "allow"
    assert decide(policy, "delete_all") == "deny"


MISTAKES = """
default = "maybe"
denied = ["x"]
deny = ["rm(", 5, "ls", "ls", { call = "a", reson = "b" }]
allow = [{ call = "b", always = true }, { call = "c(n > 1)", examples = ['c {"n": 1}', 'c {n}'] }]
ask = [
  { call = "d", deadline = -1 }, { call = "e", approval = { quorum = 0 } }, { call = "g", deadline = "soon" },
  { call = "h(n > 1)", counterexamples = ['h {"n": 2}'] },
]
"""


def test_policy_file_with_mistakes_names_all_of_them(tmp_path):
    path = tmp_path / "rules.toml"
    path.write_text(MISTAKES)
    with pytest.raises(ConfigurationError) as refused:
        load_policy(path)
    text = str(refused.value)
    for expected in (
        "'denied'",
        "deny[1]",
        "deny[4]",
        "reson",
        "ask[1]",
        "ask[2]",
        "default is",
        "'rm('",
        "only ask rules",
        "is not matched",
        "a JSON object",
        "'d': ",
        "is matched",
        "the same rule",
    ):
        assert expected in text, expected
    assert all(str(path) in problem for problem in refused.value.problems)


@pytest.mark.parametrize("content", [b"deny = [", b"\xff\xfe", b"deny = 5", b'deny = "rm"', b"x" * 2_000_000])
def test_policy_file_that_is_no_policy_is_refused(tmp_path, content):
    path = tmp_path / "rules.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"rules\.toml"):
        load_policy(path)


def test_policy_file_that_is_missing_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="can't be read"):
        load_policy(tmp_path / "none.toml")


# -- the runtime ---------------------------------------------------------------------------------------------


@tool
async def transfer(to: str, amount: int, tags: list[str] | None = None) -> str:
    """Send money."""
    return "sent"


@tool(effect="pure")
async def look() -> str:
    """Look."""
    return "seen"


def make(*plugins: Any, config: Any = None) -> Runtime:
    section = {} if config is None else {"permissions": config}
    agents = [Agent("clerk", model=ScriptedModel(["ok"]), tools=[transfer, look], config=section)]
    return Runtime(agents, plugins=plugins)


def problems_of(*plugins: Any, config: Any = None) -> list[str]:
    with pytest.raises(ConfigurationError) as refused:
        make(*plugins, config=config)
    return list(refused.value.problems)


def test_runtime_lists_the_problems_of_all_layers_at_once(tmp_path):
    path = tmp_path / "shadow.toml"
    path.write_text(MISTAKES)
    rules = Policy(deny=["rm(", 5], allow=[Rule("look", deadline=5.0)], default="no")  # type: ignore[list-item, arg-type]
    found = problems_of(
        Permissions(rules, shadow=path, grants=GrantPolicy(seconds=0, agent="ann")),
        config={"deny": ["f("], "ask": ["look"]},
    )
    text = "\n".join(found)
    for expected in (
        "deny[0] 'rm('",
        "deny[1]: 5",
        "only ask rules",
        "default is",
        "shadow.toml",
        "seconds",
        "GrantPolicy.agent",
        "agent 'clerk': deny[0] 'f('",
    ):
        assert expected in text, expected


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (Policy(deny=["tranfser"]), "did you mean 'transfer'"),
        (Policy(ask=["transfer(amonut > 5)"]), "did you mean 'amount'"),
        (Policy(ask=["transfer(amount = '5')"]), "never has a clear answer: the field is of type integer"),
        (Policy(ask=["transfer(to > 5)"]), "of type string"),
        (Policy(ask=["transfer(tags[*].x = 'a')"]), "no argument 'tags[*].x'"),
        (Policy(deny=["transfer"], allow=["transfer(amount < 5)"]), "never decides"),
        (Policy(deny=["*"], ask=["look"]), "never decides"),
    ],
)
def test_rule_that_fits_no_tool_is_refused(policy, message):
    assert message in "\n".join(problems_of(Permissions(policy)))
    assert message in "\n".join(problems_of(Permissions(), config=policy))
    make(Permissions(policy, strict=False))


def test_rules_about_servers_and_optional_fields_are_accepted():
    make(
        Permissions(
            Policy(
                deny=["mcp__github__delete_*", "server:github", "transfer(tags[*] = 'x')"],
                ask=["* when tainted", "effect:reconcile", "transfer(tags = null)"],
            )
        )
    )


def test_arguments_of_a_wrong_type_are_refused():
    found = problems_of(Permissions(7, grants=5, shadow=[]))  # type: ignore[arg-type]
    assert len(found) == 3
