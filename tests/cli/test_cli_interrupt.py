"""Ctrl-C: it cancels the run, waits until the run is quiet, and says so."""

from __future__ import annotations

from wakeful.types.codec import decode_event
from wakeful.types.events import RunFinish
from wakeful.types.runs import Cancelled


def test_ctrl_c_cancels_run_and_waits_for_it(start) -> None:
    process = start("run", "sample:runtime", "blocking", "Go")
    process.read_until("→ block()\n")
    process.interrupt()
    output = process.read_until("cancelled: cancelled from the terminal\n")
    assert output.index("cancelling the run") < output.index("tidied up") < output.index("← block unknown")
    assert process.exit_code() == 130
    assert "Traceback" not in process.output


def test_ctrl_c_with_json_ends_with_run_finish(start) -> None:
    process = start("run", "sample:runtime", "blocking", "Go", "--json")
    process.read_until('"tool_call_ready"')
    process.interrupt()
    assert process.exit_code() == 130
    last = decode_event(process.output.splitlines()[-1])
    assert isinstance(last, RunFinish)
    assert last.termination == Cancelled("cancelled from the terminal")


def test_second_ctrl_c_leaves_at_once(start) -> None:
    process = start("run", "sample:runtime", "stubborn", "Go")
    process.read_until("→ stubborn()\n")
    process.interrupt()
    process.read_until("ctrl-C again leaves at once\n")
    process.interrupt()
    assert process.exit_code() == 130


def test_ctrl_c_in_chat_cancels_run_and_keeps_chat(start) -> None:
    process = start("chat", "sample:runtime", "blocking")
    process.type("Go")
    process.read_until("→ block()\n")
    process.interrupt()
    process.read_until("cancelled: cancelled from the terminal\n> ")
    process.type("Again")
    process.read_until("Where were we?\n> ")
    process.end_input()
    assert process.exit_code() == 0


def test_ctrl_c_at_prompt_says_how_to_leave(start) -> None:
    process = start("chat", "sample:single")
    process.read_until("> ")
    process.interrupt()
    process.read_until("/exit or ctrl-D leaves\n> ")
    process.type("/exit")
    assert process.exit_code() == 0


def test_ctrl_c_at_question_leaves_it_for_later(start) -> None:
    process = start("chat", "sample:runtime", "support")
    process.type("Refund A7")
    process.read_until("decision> ")
    process.interrupt()
    process.read_until("left for later\nthe run goes on waiting; a new prompt takes its place\n> ")
    process.end_input()
    assert process.exit_code() == 0
