"""Call patterns: parsing, canonical text, and which calls match."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful.extensions.permissions.matches import Facts, ToolFacts, compile_pattern, selects
from wakeful.extensions.permissions.patterns import (
    Clause,
    Condition,
    Pattern,
    PatternError,
    Step,
    parse_pattern,
)

NOBODY = Facts({"agent": "clerk", "depth": 0, "origin": "user", "principal": None})


def catches(text: str, arguments: dict, facts: Facts = NOBODY) -> bool:
    holds = compile_pattern(parse_pattern(text), admits=False)
    return holds is None or holds(arguments, facts)


def admits(text: str, arguments: dict, facts: Facts = NOBODY) -> bool:
    holds = compile_pattern(parse_pattern(text), admits=True)
    return holds is None or holds(arguments, facts)


# -- the grammar ---------------------------------------------------------------------------------------------

words = st.from_regex(r"[A-Za-z0-9_-]{1,8}", fullmatch=True)
texts = st.text(st.characters(codec="utf-8"), max_size=12)
steps = st.one_of(
    st.builds(Step, words | texts),
    st.builds(lambda index: Step(None, index), st.integers(0, 999)),
    st.just(Step()),
)
numbers = st.integers(-(10**12), 10**12) | st.floats(allow_nan=False, allow_infinity=False)
paths = st.builds(lambda first, rest: (first, *rest), st.builds(Step, words | texts), st.lists(steps, max_size=3))
roots = st.sampled_from([Step("agent"), Step("depth"), Step("principal"), Step("origin")])
fact_paths = st.builds(lambda first, rest: (first, *rest), roots, st.lists(steps, max_size=2))


def conditions(path: st.SearchStrategy) -> st.SearchStrategy:
    safe = texts.filter(lambda text: not text.endswith("\\"))
    return st.one_of(
        st.builds(Condition, path, st.sampled_from(["=", "!="]), st.none() | st.booleans() | numbers | texts),
        st.builds(Condition, path, st.sampled_from(["<", "<=", ">", ">="]), numbers),
        st.builds(Condition, path, st.sampled_from(["~", "!~"]), safe.filter(_is_glob)),
        st.builds(Condition, path, st.sampled_from(["=~", "!=~"]), st.sampled_from(["a|b", r"\d+", "[x-z]*"])),
    )


def _is_glob(text: str) -> bool:
    return (len(text) - len(text.rstrip("\\"))) % 2 == 0


def clauses(*, empty: bool) -> st.SearchStrategy:
    made = st.builds(
        Clause,
        st.lists(conditions(paths), max_size=3).map(tuple),
        st.booleans(),
        st.lists(conditions(fact_paths), max_size=2).map(tuple),
        st.none() | st.booleans(),
    )
    return made if empty else made.filter(lambda clause: not clause.is_empty)


selectors = st.one_of(
    st.tuples(st.just("name"), st.from_regex(r"[a-z_*]{1,10}", fullmatch=True)),
    st.tuples(st.just("effect"), st.sampled_from(["pure", "once", "idempotent", "reconcile"])),
    st.tuples(st.sampled_from(["hint", "server"]), words),
)
patterns = st.builds(
    lambda selector, clause, exception: Pattern(*selector, clause, exception),
    selectors,
    clauses(empty=True),
    st.none() | clauses(empty=False),
)


@given(patterns)
def test_pattern_is_read_back_from_its_text(pattern):
    assert parse_pattern(str(pattern)) == pattern


@given(st.text(max_size=60) | st.text("()[]\"'.,*=~!<> abwhenunlessonly01", max_size=60))
def test_any_text_is_a_pattern_or_one_clear_error(text):
    try:
        pattern = parse_pattern(text)
    except PatternError:
        return
    assert parse_pattern(str(pattern)) == pattern


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected the name of a tool"),
        ("f(", "expected a field's name"),
        ("f()", "parentheses are empty"),
        ("f(a = 1", "expected ',' or ')'"),
        ("f(a = 1) x", "expected '(', 'when', 'unless' or the end"),
        ("f(a)", "expected an operator after a"),
        ("f(a = b)", 'write "b"'),
        ("f(a = 'b)", "expected a value"),
        (r'f(a = "\d")', "takes every character as it is"),
        ("f(a =~ '(')", "regular expression"),
        ("f(a ~ 'x\\')", "ends in a backslash"),
        ("f(a > 'x')", "takes a number"),
        ("f(a ~ 5)", "takes a string"),
        ("f(a = 1e999)", "too large"),
        ("f(only, a = 1)", "comes last"),
        ("f when", "expected a field's name"),
        ("f when amount > 1", "expected a fact of the run"),
        ("f when not agent", "'tainted' after 'not'"),
        ("f unless", "expected a field's name"),
        ("effect:twice", "no effect 'twice'"),
        ("color:red", "effect:, hint: or server:"),
        ("f(a[x] = 1)", "a position or '*' in brackets"),
        (f"f({'a.' * 20}a = 1)", "steps, over 16"),
        ("f" * 5000, "the limit is 4,096"),
    ],
)
def test_bad_pattern_is_refused_with_its_place(text, message):
    with pytest.raises(PatternError) as refused:
        parse_pattern(text)
    assert message in str(refused.value)


# -- matching ------------------------------------------------------------------------------------------------


def test_selector_matches_names_effects_hints_and_servers():
    tool = ToolFacts("mcp__github__delete_repo", "once", frozenset({"destructive"}))
    for text in (
        "*",
        "mcp__*",
        "*delete*",
        "mcp__github__delete_repo",
        "effect:once",
        "hint:destructive",
        "server:github",
    ):
        assert selects(parse_pattern(text), tool), text
    for text in ("delete", "mcp", "effect:pure", "hint:open", "server:git", "mcp__github__delete_repos"):
        assert not selects(parse_pattern(text), tool), text


def test_operators_compare_values_by_their_json_type():
    given = {"a": 5, "t": "5", "f": True, "n": None, "o": {"x": [1, 2]}}
    for text in (
        "a = 5",
        "a = 5.0",
        "a != 6",
        "a >= 5",
        "a < 6",
        "t = '5'",
        "t ~ '*'",
        "f = true",
        "n = null",
        "o.x[1] = 2",
        "o.x[*] > 0",
        "a ~ '5'",
        "t =~ '[0-9]'",
        "t !=~ '[a-z]'",
        "t != 5",
    ):
        assert catches(f"f({text})", given), text
        assert admits(f"f({text})", given), text
    for text in ("a = '5'", "t = 5", "f = 1", "a = 6", "a > 5", "t ~ '6*'", "t =~ '[0-9]x'", "a = null"):
        assert not catches(f"f({text})", given), text
        assert not admits(f"f({text})", given), text


def test_regex_has_to_match_the_whole_value():
    assert not catches("f(a =~ 'rm')", {"a": "rm -rf"})
    assert catches("f(a =~ 'rm.*')", {"a": "rm -rf\nx"})


def test_list_catches_with_one_value_and_admits_with_all():
    mixed = {"to": ["eve@x.com", "bob@acme.com"]}
    assert catches("f(to[*] ~ '*@acme.com')", mixed)
    assert not admits("f(to[*] ~ '*@acme.com')", mixed)
    assert catches("f(to[*] !~ '*@acme.com')", mixed)
    assert admits("f(to[*] ~ '*@acme.com')", {"to": ["bob@acme.com"]})
    assert not admits("f(to[*] ~ '*@acme.com')", {"to": []})
    assert not admits("f(to[*] ~ '*@acme.com')", {"to": "bob@acme.com"})


def test_missing_field_fails_but_a_negative_rule_catches_it():
    for missing in ({}, {"a": None}):
        assert not catches("f(a = 1)", missing)
        assert not catches("f(a > 1)", missing)
        assert catches("f(a != 1)", missing)
        assert catches("f(a !~ 'x')", missing)
        assert not admits("f(a != 1)", missing)
        assert not admits("f(a !~ 'x')", missing)
    assert catches("f(x[*].to != 'bob')", {"x": [{"to": "bob"}, {}]})


def test_value_without_a_clear_answer_is_caught_and_not_admitted():
    for text, value in (
        ("a > 5", "100"),
        ("a ~ 'x'", {"b": 1}),
        ("a =~ 'x*'", "x" * 20_000),
        ("a > 5", float("nan")),
    ):
        assert catches(f"f({text})", {"a": value}), text
        assert not admits(f"f({text})", {"a": value}), text


def test_exception_is_judged_the_other_way_round():
    text = "send unless (to[*] ~ '*@acme.com')"
    assert not catches(text, {"to": ["a@acme.com", "b@acme.com"]})
    assert catches(text, {"to": ["a@acme.com", "eve@x.com"]})
    assert catches(text, {"to": []})
    assert catches(text, {})


def test_only_admits_no_argument_beyond_those_named():
    assert admits("f(a = 1, only)", {"a": 1, "b": None})
    assert not admits("f(a = 1, only)", {"a": 1, "b": 2})


def test_facts_of_the_run_are_conditions():
    who = {"id": "ada", "kind": "user", "claims": {"role": "sre"}, "groups": ["ops"], "roles": []}
    facts = Facts({"agent": "clerk", "depth": 1, "origin": "user", "principal": who}, tainted=True)
    for text in (
        "tainted",
        "depth > 0",
        "agent = 'clerk'",
        "principal.claims.role = 'sre', principal.groups[*] = 'ops'",
    ):
        assert catches(f"f when {text}", {}, facts), text
    assert not catches("f when not tainted", {}, facts)
    assert not catches("f when principal.id = 'bob'", {}, facts)
    assert not catches("f when tainted unless principal.id = 'ada'", {}, facts)


def test_glob_takes_linear_time():
    began = time.process_time()
    assert not catches(f"f(a ~ '{'*a' * 50}b')", {"a": "a" * 200_000})
    assert time.process_time() - began < 5


@given(st.text("ab*\\", max_size=8), st.text("ab*", max_size=8))
def test_glob_agrees_with_a_regular_expression(glob, text):
    import re

    from wakeful.extensions.permissions.matches import matches_glob
    from wakeful.extensions.permissions.patterns import glob_pieces

    try:
        pieces = glob_pieces(glob)
    except PatternError:
        return
    regex = ".*".join(re.escape(piece) for piece in pieces)
    assert matches_glob(pieces, text) == (re.fullmatch(regex, text, re.DOTALL) is not None)
