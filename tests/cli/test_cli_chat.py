"""`wakeful chat`: a conversation through stdin, with decisions in place."""

from __future__ import annotations

import os
import pty
import re

import pytest

TICKET = re.compile(r"ticket \S+,")


def talk(wakeful, target: str, *lines: str, options: tuple[str, ...] = ()):
    return wakeful("chat", target, *options, input="".join(f"{line}\n" for line in lines))


def after(output: str, prompt: str) -> list[str]:
    """The lines that follow a prompt, without the ids of tickets."""
    return TICKET.sub("ticket ID,", output.partition(f"{prompt}\n")[2]).splitlines()


def test_prompts_and_answers_alternate_until_input_ends(wakeful) -> None:
    result = talk(wakeful, "sample:single", "Hello", "", "Are you there?", options=("--thread", "t1"))
    lines = result.stdout.splitlines()
    assert lines[0] == "only on thread t1"
    assert lines[2:] == ["> Hello", "Here I am.", "> ", "> Are you there?", "Still here.", "> "]
    assert (result.exit_code, result.stderr) == (0, "")


@pytest.mark.parametrize("word", ["/exit", "/quit"])
def test_chat_exit_words_leave(wakeful, word) -> None:
    result = talk(wakeful, "sample:single", word, "Hello")
    assert "Here I am." not in result.stdout
    assert result.exit_code == 0


def test_missing_key_is_told_before_first_prompt(wakeful, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    result = wakeful("chat", "--model", "anthropic:claude-sonnet-4-5", input="Hello\n")
    assert result.exit_code == 1
    assert "there is no key; set ANTHROPIC_API_KEY in the environment" in result.stderr
    assert "> " not in result.stdout


def test_unknown_command_shows_help_and_asks_nobody(wakeful) -> None:
    assert after(talk(wakeful, "sample:single", "/dance").stdout, "> /dance")[0].startswith("/exit or ctrl-D")


def test_tools_and_results_are_shown(wakeful) -> None:
    result = talk(wakeful, "sample:make", "Weather?", options=("assistant",))
    assert after(result.stdout, "> Weather?")[:3] == [
        '→ weather(city="Paris")',
        "← weather: Sunny in Paris",
        "It is sunny.",
    ]


def test_failed_run_is_shown_and_chat_continues(wakeful) -> None:
    result = talk(wakeful, "sample:make", "Hello", "Again", options=("failed",))
    assert result.stderr == "error: ModelError: the vendor is down\n"
    assert "Back again." in result.stdout
    assert result.exit_code == 0


def test_error_before_run_is_shown_and_chat_continues(wakeful) -> None:
    result = talk(wakeful, "sample:broken", "Hello", options=("poet",))
    assert result.stderr == "error: the disk is full\n"
    assert result.exit_code == 0


# -- which agent ---------------------------------------------------------------------------------------------


def test_with_several_agents_one_must_be_named(wakeful) -> None:
    result = talk(wakeful, "sample:make", "Hello")
    assert result.exit_code == 2
    assert "this runtime has 19 agents; say which one to talk to: assistant, " in result.stderr


def test_unknown_agent_is_wrong_usage(wakeful) -> None:
    result = talk(wakeful, "sample:single", options=("nobody",))
    assert (result.exit_code, result.stderr) == (2, "error: unknown agent 'nobody' (known: only)\n")


def test_prompt_after_handoff_goes_to_new_agent(wakeful) -> None:
    result = talk(wakeful, "sample:make", "Verse!", "More!", options=("desk",))
    assert after(result.stdout, "> More!")[0] == "Another verse."


def test_known_thread_continues_with_last_agent(wakeful) -> None:
    wakeful("run", "sample:kept", "desk", "Verse!", "--thread", "handed over")
    result = talk(wakeful, "sample:kept", "More!", options=("--thread", "handed over"))
    assert result.stdout.startswith("poet on thread handed over\n")


# -- decisions -----------------------------------------------------------------------------------------------


def test_approval_is_asked_in_chat(wakeful) -> None:
    result = talk(wakeful, "sample:make", "Refund A7", "a", options=("support",))
    assert after(result.stdout, "> Refund A7") == [
        '→ refund(order="A7", amount=20.0)',
        "? May refund run?",
        "  ticket ID, asked by approval",
        '  refund {"order":"A7","amount":20.0}',
        "  [a]pprove  [e]dit  [r]esult  [d]eny  [l]ater",
        "decision> a",
        "  approved",
        "← refund: Refunded 20.00 for A7",
        "That is settled.",
        "> ",
    ]


def test_question_of_delegate_is_asked_in_chat(wakeful) -> None:
    result = talk(wakeful, "sample:make", "See to A7", "a", options=("boss",))
    lines = after(result.stdout, "> See to A7")
    assert "? May refund run?" in lines
    assert lines[-3:] == ["← agent_run_support: That is settled.", "It is seen to.", "> "]


def test_denial_has_reason(wakeful) -> None:
    result = talk(wakeful, "sample:make", "Refund A7", "deny", "too much", options=("support",))
    assert after(result.stdout, "reason> too much")[:2] == [
        "  denied: too much",
        "← refund blocked: refund was denied: too much. It did not run.",
    ]


def test_arguments_can_be_edited_as_json(wakeful) -> None:
    result = talk(wakeful, "sample:make", "Refund A7", "edit", '{"order":"A7","amount":5}', options=("support",))
    lines = after(result.stdout, 'arguments> {"order":"A7","amount":5}')
    assert lines[:2] == ["  approved with new arguments", "← refund: Refunded 5.00 for A7"]


def test_result_can_replace_tool_call(wakeful) -> None:
    result = talk(wakeful, "sample:make", "Refund A7", "r", "done by hand", options=("support",))
    lines = after(result.stdout, "result> done by hand")
    assert lines[:2] == ["  answered with a result", "← refund: done by hand"]


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (["what?"], "'what?' is not one of approve, edit, result, deny, later"),
        ([""], "'' is not one of"),
        (["e", "not json"], "the new arguments are a JSON object"),
        (["e", '{"order": "A7"}'], "missing required argument 'amount'"),
    ],
)
def test_wrong_answer_is_explained_and_asked_again(wakeful, wrong, error) -> None:
    right = ['{"order":"A7","amount":20}'] if error.startswith("the new") else ["a"]
    result = talk(wakeful, "sample:make", "Refund A7", *wrong, *right, options=("support",))
    assert error in result.stderr
    assert "← refund: Refunded 20.00 for A7" in result.stdout


def test_ticket_can_be_left_for_later(wakeful) -> None:
    options = ("support", "--thread", "left open")
    result = talk(wakeful, "sample:kept", "Refund A7", "l", options=options)
    assert "the run goes on waiting; a new prompt takes its place" in result.stdout
    assert result.exit_code == 0


def test_waiting_run_is_settled_before_first_prompt(wakeful) -> None:
    waiting = wakeful("run", "sample:kept", "support", "Refund A7", "--thread", "settled")
    result = talk(wakeful, "sample:kept", "a", options=("--thread", "settled"))
    assert waiting.exit_code == 3
    assert "decision> a\n  approved\n← refund: Refunded 20.00 for A7\n" in result.stdout


def test_questions_of_tool_are_answered_with_text_or_json(wakeful) -> None:
    result = talk(wakeful, "sample:make", "Register me", "Ann", "young", "42", options=("clerk",))
    assert "answer> Ann\n  answered\n" in result.stdout
    assert "error: this ticket takes JSON of type integer" in result.stderr
    assert "← register: 'Ann' is 42\nRegistered.\n" in result.stdout


def test_question_of_tool_can_be_denied_or_left(wakeful) -> None:
    result = talk(wakeful, "sample:make", "Register me", "Ann", "/deny none of yours", options=("clerk",))
    assert "register was denied: none of yours" in result.stdout
    result = talk(wakeful, "sample:make", "Register me", "/later", options=("clerk",))
    assert "the run goes on waiting" in result.stdout


def test_client_tool_is_given_its_result(wakeful) -> None:
    result = talk(wakeful, "sample:make", "Where?", "r", '{"lat": 48.9}', options=("client",))
    assert "  [r]esult  [d]eny  [l]ater\n" in result.stdout
    assert '← locate: {"lat":48.9}\nFound.\n' in result.stdout


@pytest.mark.parametrize(
    ("agent", "prompt", "asked"), [("clerk", "Register me", "answer> "), ("support", "Refund A7", "decision> ")]
)
def test_exit_leaves_question_open_too(wakeful, agent, prompt, asked) -> None:
    result = talk(wakeful, "sample:make", prompt, "/exit", options=(agent,))
    assert result.stdout.endswith(f"{asked}/exit\n")
    assert (result.exit_code, result.stderr) == (0, "")


def test_end_of_input_leaves_question_open(wakeful) -> None:
    result = talk(wakeful, "sample:make", "Refund A7", options=("support",))
    assert result.stdout.endswith("decision> \n")
    assert result.exit_code == 0


# -- a real terminal -----------------------------------------------------------------------------------------


def test_lines_can_be_edited_at_terminal(start) -> None:
    ours, theirs = pty.openpty()
    process = start("chat", "sample:runtime", "support", stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    try:
        process.read_until("> ", ours)
        os.write(ours, b"Refund A7\n")
        process.read_until("decision> ", ours)
        os.write(ours, b"e\n")
        process.read_until("20.0}", ours)
        os.write(ours, b'\x7f,"amount":7}\n')
        process.read_until("Refunded 7.00 for A7", ours)
        process.read_until("> ", ours)
        process.interrupt()
        os.write(ours, b"\n")  # Ctrl-C before readline listens is noticed with the next key.
        process.read_until("/exit or ctrl-D leaves", ours)
        os.write(ours, b"/exit\n")
        assert process.exit_code() == 0
    finally:
        os.close(ours)
