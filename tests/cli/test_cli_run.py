"""`wakeful run`: one run, its output and its exit code."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
import sample
from cli_process import command

from wakeful import __version__
from wakeful.cli.exit_codes import ExitCode, exit_code
from wakeful.cli.text import time_text
from wakeful.types.codec import decode_event, encode
from wakeful.types.events import MessageAdded, RunFinish, TextDelta, ToolCallDone


def test_version_prints_version(wakeful) -> None:
    assert wakeful("--version").stdout == f"wakeful {__version__}\n"


@pytest.mark.parametrize("way", [["-m", "wakeful.cli"], [str(Path(sys.executable).parent / "wakeful")]])
def test_command_runs_as_script_and_module(way) -> None:
    done = command(*way, "run", "sample:runtime", "assistant", "Weather in Paris?")
    assert done.stdout == '→ weather(city="Paris")\n← weather: Sunny in Paris\nIt is sunny.\n'
    assert (done.returncode, done.stderr) == (0, "")


def test_help_is_shown_without_command(wakeful) -> None:
    result = wakeful()
    assert "run" in result.output
    assert "chat" in result.output


# -- streaming -----------------------------------------------------------------------------------------------


def test_text_is_shown_as_it_streams(start) -> None:
    process = start("run", "sample:runtime", "halting", "Go")
    process.read_until("first ")
    process.type("")
    process.read_until("second\n")
    assert process.exit_code() == 0


def test_parallel_calls_of_one_tool_are_told_apart(wakeful) -> None:
    lines = wakeful("run", "sample:make", "parallel", "Weather?").stdout.splitlines()
    assert lines[:2] == ['→ weather(city="Paris")', '→ weather#2(city="Rome")']
    assert sorted(lines[2:4]) == ["← weather#2: Sunny in Rome", "← weather: Sunny in Paris"]
    assert lines[4:] == ["Sunny everywhere."]


def test_child_agents_are_shown_indented(wakeful) -> None:
    assert wakeful("run", "sample:make", "lead", "Weather?").stdout.splitlines() == [
        '→ agent_run_assistant(prompt="?")',
        '  → weather(city="Paris")',
        "  ← weather: Sunny in Paris",
        "  assistant: It is sunny.",
        "← agent_run_assistant: It is sunny.",
        "Ask me.",
    ]


def test_handoff_is_shown(wakeful) -> None:
    assert "⇒ desk hands over to poet\nA verse.\n" in wakeful("run", "sample:make", "desk", "Verse!").stdout


# -- json ----------------------------------------------------------------------------------------------------


def test_json_prints_every_event_as_one_line_and_nothing_else(wakeful) -> None:
    result = wakeful("run", "sample:make", "assistant", "Weather?", "--json")
    lines = result.stdout_bytes.splitlines()
    events = [decode_event(line) for line in lines]
    assert [encode(event) for event in events] == lines
    assert [e.seq for e in events if e.durable] == list(range(1, events[-1].seq + 1))
    assert "".join(e.delta for e in events if isinstance(e, TextDelta)) == "It is sunny."
    assert [e.outcome for e in events if isinstance(e, ToolCallDone)] == ["ok"]
    assert isinstance(events[-1], RunFinish)
    assert (result.exit_code, result.stderr) == (0, "")


def test_json_of_waiting_run_is_only_events(wakeful) -> None:
    result = wakeful("run", "sample:make", "support", "Refund A7", "--json")
    last = decode_event(result.stdout.splitlines()[-1])
    assert isinstance(last, RunFinish)
    assert last.status == "waiting"
    assert (result.exit_code, result.stderr) == (3, "")


def test_errors_leave_stdout_to_json(wakeful) -> None:
    result = wakeful("run", "sample:make", "nobody", "Hello", "--json")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "unknown agent 'nobody'" in result.stderr


# -- threads -------------------------------------------------------------------------------------------------


def test_runs_on_one_thread_share_its_conversation(wakeful) -> None:
    wakeful("run", "sample:kept", "poet", "First", "--thread", "shared")
    result = wakeful("run", "sample:kept", "assistant", "Second", "--thread", "shared", "--json")
    events = [decode_event(line) for line in result.stdout.splitlines()]
    asked = next(e for e in events if isinstance(e, MessageAdded))
    assert asked.thread_id == "shared"
    assert asked.seq > 2


# -- exit codes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("agent", "code", "stdout", "stderr"),
    [
        ("assistant", 0, "It is sunny.\n", ""),
        ("ended", 0, "ended: enough\n", ""),
        ("failed", 1, "", "error: ModelError: the vendor is down\n"),
        ("support", 3, "May refund run?", ""),
        ("stopped", 4, "← weather cancelled: ", "stopped: max_steps"),
        ("blocked", 5, "← weather blocked: ", "blocked: nobody may ask for the weather\n"),
        ("nobody", 2, "", "error: unknown agent 'nobody' (known: assistant, "),
    ],
)
def test_exit_code_follows_run_outcome(wakeful, agent, code, stdout, stderr) -> None:
    result = wakeful("run", "sample:make", agent, "Hello")
    assert result.exit_code == code
    assert stdout in result.stdout
    assert stderr in result.stderr
    assert bool(stderr) == bool(result.stderr)


def test_unstarted_run_is_error_without_traceback(wakeful) -> None:
    result = wakeful("run", "sample:broken", "poet", "Verse!")
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", "error: the disk is full\n")


@pytest.mark.parametrize("arguments", [["run"], ["run", "sample:make"], ["run", "sample:make", "poet"], ["dance"]])
def test_missing_arguments_are_wrong_usage(wakeful, arguments) -> None:
    assert wakeful(*arguments).exit_code == 2


def test_run_without_prompt_shows_usage(wakeful) -> None:
    told = wakeful("run", "sample:make", "Hello").stderr
    assert 'wakeful run sample:make AGENT "Hello" (agents: assistant, ' in told


def test_invalid_input_is_wrong_usage(wakeful) -> None:
    result = wakeful("run", "sample:make", "poet", "")
    assert result.exit_code == 2
    assert "the input is empty" in result.stderr


def test_run_without_end_is_error() -> None:
    assert exit_code(None) is ExitCode.ERROR


def test_waiting_run_lists_its_tickets_and_how_to_answer(wakeful) -> None:
    result = wakeful("run", "sample:kept", "support", "Refund A7", "--thread", "it's open")
    events = wakeful("run", "sample:kept", "poet", "Never mind", "--thread", "it's open", "--json").stdout
    assert result.exit_code == 3
    assert 'refund {"order":"A7","amount":20.0}' in result.stdout
    assert "wakeful chat sample:kept --thread 'it'\"'\"'s open'" in result.stdout
    ticket = result.stdout.partition("ticket ")[2].partition(",")[0]
    assert f"wakeful tickets approve sample:kept {ticket} (or deny)\n" in result.stdout
    assert f'await runtime.tickets.answer("{ticket}", True)\n' in result.stdout
    assert "superseded" in events


@pytest.mark.parametrize(
    ("agent", "asked"), [("clerk", "What is your name?"), ("client", "locate runs in the client")]
)
def test_value_question_shows_answer_command(wakeful, agent, asked) -> None:
    shown = wakeful("run", "sample:kept", agent, "Go", "--thread", f"{agent} asks").stdout
    ticket = shown.partition("ticket ")[2].partition(",")[0]
    assert asked in shown
    assert f"or with: wakeful tickets answer sample:kept {ticket} VALUE (or deny)\n" in shown
    assert f'or from Python: await runtime.tickets.answer("{ticket}", VALUE)\n' in shown
    assert "approve" not in shown


def test_questions_of_several_kinds_are_each_explained_once(wakeful) -> None:
    shown = wakeful("run", "sample:kept", "both", "Go").stdout
    assert [shown.count(f"wakeful tickets {verb} ") for verb in ("approve", "answer")] == [1, 1]


def test_sleeping_run_shows_wake_time(wakeful) -> None:
    result = wakeful("run", "sample:kept", "sleeper", "Go", "--thread", "asleep")
    (run,) = asyncio.run(sample.Runtime(sample.agents(), store=sample.store).runs.list(thread="asleep"))
    assert result.exit_code == 3
    assert result.stdout.splitlines()[1:] == [
        f"run {run.id} is waiting: it sleeps until {time_text(run.waiting.until)}",
        "a worker continues it: wakeful worker sample:kept",
        '(its threads are in memory, and gone when this ends: give the runtime a store="app.db")',
    ]


def test_waiting_run_in_file_can_be_answered(wakeful, tmp_path, monkeypatch) -> None:
    path = tmp_path / "kept.db"
    (tmp_path / "filed.py").write_text(
        f"import sample\nfrom wakeful import Runtime\nruntime = Runtime(sample.agents(), store={str(path)!r})\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    result = wakeful("run", "filed:runtime", "sleeper", "Go")
    assert result.exit_code == 3
    assert "in memory" not in result.stdout


def test_paused_run_shows_unpause_command(wakeful) -> None:
    result = wakeful("run", "sample:kept", "halter", "Go")
    run = result.stdout.partition("run ")[2].partition(" ")[0]
    assert result.exit_code == 3
    assert f"run {run} is waiting: it is paused\n" in result.stdout
    assert f'continue it from Python: await runtime.runs.unpause("{run}")\n' in result.stdout


# -- what it imports -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_missing_cli_extra_names_install_command(missing) -> None:
    block = (
        "import sys, importlib.abc\n"
        "class Missing(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        f"        if name.partition('.')[0] == {missing!r}:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        "from wakeful.cli import main\n"
        "main()\n"
    )
    done = command("-c", block)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"wakeful: the command line needs {missing}: pip install 'wakeful[cli]'\n"


def test_importing_wakeful_imports_neither_typer_nor_rich() -> None:
    done = command("-c", "import sys, wakeful; print({'typer', 'rich', 'wakeful.cli'} & set(sys.modules))")
    assert done.stdout == "set()\n"


def test_unencodable_character_is_replaced() -> None:
    code = (
        "import sys; sys.stdout.reconfigure(encoding='ascii'); sys.argv[0] = 'wakeful';"
        "from wakeful.cli import main; main()"
    )
    done = command("-c", code, "run", "sample:runtime", "assistant", "Weather?")
    assert done.returncode == 0
    assert '? weather(city="Paris")' in done.stdout
