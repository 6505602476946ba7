"""How many stored calls a policy is evaluated on in a second. Run it with `python -m benchmarks.policies`."""

import random
from statistics import median
from time import perf_counter

from wakeful.extensions.permissions import Policy
from wakeful.extensions.permissions.evaluation import CallFacts
from wakeful.extensions.permissions.matches import Facts, ToolFacts
from wakeful.extensions.permissions.past_calls import PastCall, Policies, compare_calls

TOOLS = 40


def policy_of(rules: int) -> Policy:
    """A policy with rules on names, globs, numbers, texts, lists, effects and taint."""
    kinds = [
        ("deny", "tool_{}(path =~ '/etc/.*')"),
        ("deny", "mcp__server{}__delete_*"),
        ("ask", "tool_{}(amount > 100)"),
        ("ask", "tool_{}(to[*] !~ '*@example.com')"),
        ("ask", "tool_{} when tainted"),
        ("allow", "tool_{}(currency = 'EUR') unless (amount > 50)"),
        ("allow", "tool_{} when principal.roles[*] = 'clerk'"),
        ("allow", "tool_{}*"),
    ]
    found: dict[str, list[str]] = {"deny": [], "ask": ["effect:once when tainted"], "allow": ["effect:pure"]}
    for number in range(rules - 2):
        tier, text = kinds[number % len(kinds)]
        found[tier].append(text.format(number % TOOLS))
    return Policy(found["deny"], found["ask"], found["allow"], default="ask")


def calls_of(count: int) -> list[PastCall]:
    """Calls of many tools, runs and users."""
    chance = random.Random(7)
    made: list[PastCall] = []
    for number in range(count):
        effect = "pure" if number % 3 else "once"
        arguments = {
            "to": [f"p{chance.randrange(9)}@example.com", "x@elsewhere.org"][: chance.randrange(1, 3)],
            "amount": chance.randrange(200),
            "currency": "EUR",
            "path": f"/home/{number}/file",
            "text": "words " * 30,
        }
        principal = {"id": "ada", "kind": "user", "claims": {}, "groups": [], "roles": ["clerk"][: number % 2]}
        run = {"agent": "clerk", "depth": 0, "origin": "user", "principal": principal}
        tool = ToolFacts(f"tool_{chance.randrange(TOOLS)}", effect)
        facts = CallFacts(tool, arguments, Facts(run, number % 5 == 0))
        made.append(PastCall("clerk", str(number), str(number), facts, "allow", "no rules"))
    return made


def measure(policy: Policy, calls: int = 50_000, rounds: int = 5) -> float:
    """The median number of calls a second that a policy is compared on."""
    made, policies = calls_of(calls), Policies(policy, {})
    times: list[float] = []
    for _ in range(rounds):
        start = perf_counter()
        for _ in compare_calls(made, policies):
            pass
        times.append(perf_counter() - start)
    return calls / median(times)


if __name__ == "__main__":
    for rules in (10, 30, 100, 300):
        print(f"{rules:4} rules: {measure(policy_of(rules)):>9,.0f} calls/s")
