"""Every example runs by itself, and shows what it promises."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("[!_]*.py"))


def run(name: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", f"examples.{name}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=240,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def in_order(text: str, *parts: str) -> None:
    """Check that the parts follow each other in the text."""
    place = 0
    for part in parts:
        assert part in text[place:], f"{part!r} is not where it should be in:\n{text}"
        place = text.index(part, place) + len(part)


def test_hello_calls_its_tool_and_answers() -> None:
    assert run("hello") == "That is 6 words.\n"


def test_approval_waits_for_one_of_two_calls() -> None:
    assert run("approval").splitlines() == [
        "waiting ['Ann: 20.00']",
        "May pay run? {'payee': 'Bob', 'amount': 500}",
        "done ['Ann: 20.00', 'Bob: 450.00']",
        "Ann and Bob are paid.",
    ]


def test_mcp_question_waits_for_its_answer() -> None:
    assert run("mcp_tools").splitlines() == [
        "waiting travel asks: When to Oslo?",
        "done Your trip is booked.",
    ]


def test_plugin_refuses_third_call() -> None:
    assert run("plugin") == "Two rolls were all I had.\n"


def test_memory_is_shared_by_agents_and_erased() -> None:
    assert run("memory").splitlines() == [
        "I'll remember that.",
        "Then no peanut sauce.",
        "diet: Vegan, and allergic to peanuts.",
        "erased: 1",
    ]


def test_tracing_ends_a_span_at_each_wait() -> None:
    assert run("tracing").splitlines() == [
        "chat scripted - 0",
        "invoke_agent clerk waiting 0",
        "execute_tool pay - 0",
        "chat scripted - 0",
        "invoke_agent clerk done 1",
    ]


async def test_plugin_allows_two_calls() -> None:
    runtime = runpy.run_path(str(ROOT / "examples" / "plugin.py"))["runtime"]
    result = await runtime.run("player", "Roll three times.")
    assert [call.outcome for call in await runtime.runs.calls(result.run_id)] == ["ok", "ok", "blocked"]
    await runtime.close()


def test_demo_shows_each_part_in_order() -> None:
    text = run("demo")
    in_order(text, "1  A tool call", "→ count_words", "← 6", "That is 6 words.")
    in_order(text, "2  Parallel tools", "s together")
    in_order(text, "3  A handoff", "desk ⇒ poet", "poet: ")
    in_order(
        text,
        "4  A killed process",
        "asks for charge, send_letter, look_up_stock",
        "charge: done",
        "kill -9",
        "is started in its place",
        "the run resumes where it stopped",
        "send_letter: outcome unknown",
        "look_up_stock: done",
        "ship waits for a person",
        "the run is waiting",
        "the bank's own book has 1 charge",
    )
    in_order(
        text,
        "5  An approval",
        "ticket ",
        "parcels so far: 0",
        "answers: yes",
        "the run is done",
        "parcels now: 1",
        "charge         finished; it was started once",
        "send_letter    unknown; it was started once",
    )
    in_order(text, "6  The events", "misses nothing", "charge: done", "the run is done")


def test_demo_uses_three_processes() -> None:
    processes = re.findall(r"^  process (\d+)", run("demo"), re.MULTILINE)
    assert len(processes) == len(set(processes)) == 3


def test_demo_tools_run_in_parallel() -> None:
    progress = re.findall(r"^  (tea|eggs|toast) +●", run("demo"), re.MULTILINE)
    assert sorted(progress) == sorted(["tea", "eggs", "toast"] * 3)
    assert progress != sorted(progress)
    assert progress[-1] == "tea"


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_is_short_enough_to_copy(name) -> None:
    assert len((ROOT / "examples" / f"{name}.py").read_text().splitlines()) < 40


def test_caching_measures_ten_turns() -> None:
    shown = run("caching")
    in_order(shown, "turn  1", "0% from the cache", "turn  2", "100% from the cache", "turn 10", "in all: 90%")


def test_permissions_refuse_ask_and_remember() -> None:
    in_order(
        run("permissions"),
        "May archive run?\nThe conversation has untrusted text, from read_mail.\n",
        'archive(folder = "2026")',
        "archive allow by managed allow *",
        "archive ask by managed ask effect:once when tainted",
        'archive allow by grant archive(folder = "2026")',
        "delete deny by managed deny hint:destructive when tainted",
    )


def test_tool_search_shows_the_tool_that_was_found() -> None:
    shown = run("tool_search")
    in_order(shown, "2 tools: read_order, tool_search\n", "3 tools: read_order, tool_search, create_refund\n")
    assert shown.endswith("The lamp is refunded.\n")


def test_skills_are_loaded_with_a_file() -> None:
    in_order(
        run("skills"),
        "<name>refunds</name>",
        "-> Read references/rules.md",
        "-> Orders under 50 are refunded at once.",
        "Your order is refunded at once.",
    )


def test_guardrails_redact_and_reminder_is_shown() -> None:
    assert run("guardrails").splitlines() == [
        "Publish it. My card is [card].",
        "Say where the page is.",
        "Done: [url], ask [email].",
    ]
