"""The terminal's rendering of events: complete for a person, and without control characters."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from wakeful import Agent, FunctionModel, Limits, ModelError, RetryPolicy, Runtime, Text, ToolContext, call, tool
from wakeful.cli.prompts import read_value
from wakeful.cli.render import Renderer, _console
from wakeful.cli.text import arguments_text, call_text, one_line, plain, reply_text
from wakeful.errors import BadCredentials, StreamBroken
from wakeful.models import PartChunk, ReasoningChunk, StopChunk, TextChunk, Turn
from wakeful.types.content import Image, ServerTool, ToolReply, Url


class Screen:
    """A renderer, and what it printed."""

    def __init__(self, **options: object) -> None:
        settings = {"markup": False, "highlight": False, "soft_wrap": True, "width": 40, **options}
        self.out, self.err = io.StringIO(), io.StringIO()
        self.renderer = Renderer(Console(file=self.out, **settings), Console(file=self.err, **settings))

    async def watch(self, agent: Agent) -> list[str]:
        async with Runtime([agent]) as runtime:
            async for event in runtime.stream(agent, "Go", check=False):
                self.renderer.show(event)
        return self.out.getvalue().splitlines()


@tool
async def copy(ctx: ToolContext) -> str:
    """Report progress in small steps, and some output."""
    for done in range(100):
        ctx.progress(done=done, total=100)
    ctx.progress(message="nearly")
    ctx.stream("copied\n")
    return "two\nlines"


async def test_progress_is_shown_in_tens_and_output_in_lines(scripted) -> None:
    lines = await Screen().watch(Agent("a", model=scripted(call("copy"), "Done."), tools=[copy]))
    assert lines[:3] == ["→ copy()", "  copy 0%", "  copy 10%"]
    assert lines[-5:] == ["  copy 90%", "  copy … nearly", "  copy │ copied", "← copy: two lines", "Done."]


async def test_tools_of_vendor_or_backend_are_shown(scripted) -> None:
    parts = [
        ServerTool("1", "search", status="running"),
        ServerTool("1", "search"),
        ServerTool("2", "buy", status="failed"),
    ]
    turn = Turn(chunks=[*[PartChunk(part) for part in parts], TextChunk("Done."), StopChunk("end_turn")])
    lines = await Screen().watch(Agent("a", model=scripted(turn)))
    assert lines == ["→ search", "← search", "← buy failed", "Done."]


async def test_call_number_counts_open_calls_only(scripted) -> None:
    @tool(approval=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    screen, agent = Screen(), Agent("a", model=scripted([call("pay"), call("pay")], call("pay")), tools=[pay])
    async with Runtime([agent]) as runtime:
        for prompt in ("Both", "No, one"):
            async for event in runtime.stream(agent, prompt, thread="t"):
                screen.renderer.show(event)
    assert screen.out.getvalue().splitlines() == ["→ pay()", "→ pay#2()", "→ pay()"]


async def test_tool_line_fits_terminal(scripted) -> None:
    agent = Agent("a", model=scripted(call("nothing", text="x" * 200), "y" * 100))
    lines = await Screen(force_terminal=True, no_color=True).watch(agent)
    assert lines[0] == '→ nothing(text="' + "x" * 23 + "…"
    assert lines[-1] == "y" * 100


async def test_no_color_is_respected(scripted, monkeypatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    lines = await Screen(force_terminal=True).watch(
        Agent("a", model=scripted(call("copy"), "Done."), tools=[copy])
    )
    assert "\x1b[3" not in "".join(lines)


def test_no_color_disables_bold_and_dim(monkeypatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert _console(stderr=False).color_system is not None
    monkeypatch.setenv("NO_COLOR", "1")
    assert _console(stderr=False).color_system is None


async def test_truncated_answer_is_warned_about(scripted) -> None:
    model, screen = scripted(Turn(text="Once upon", stop="max_tokens")), Screen(width=400)
    lines = await screen.watch(Agent("a", model=model, limits=Limits(continuations=0)))
    assert lines == ["Once upon"]
    assert screen.err.getvalue().startswith("warning: the answer was cut off at the output limit; raise ")


async def test_failure_is_shown_once(scripted) -> None:
    screen = Screen(width=400)
    await screen.watch(Agent("a", model=scripted(BadCredentials("no key"))))
    assert screen.err.getvalue() == "error: BadCredentials: no key\n"


async def test_unstreamed_answer_is_shown_whole() -> None:
    screen = Screen()

    async def without_deltas() -> None:
        async with Runtime([Agent("a", model=FunctionModel(lambda _: "Hello there."))]) as runtime:
            await runtime.run("a", "Go", thread="t")
            async for event in runtime.events("t", follow=False):
                screen.renderer.show(event)

    await without_deltas()
    assert screen.out.getvalue() == "Hello there.\n"


async def test_restarted_answer_is_shown_again() -> None:
    attempts = iter([True, False])

    async def flaky(_):
        yield ReasoningChunk("Let me see. ")
        if next(attempts):
            raise ModelError("connection lost", transient=True)
        yield TextChunk("Hello there.")
        yield StopChunk("end_turn")

    screen = Screen()
    lines = await screen.watch(Agent("a", model=FunctionModel(flaky), retry=RetryPolicy(backoff=0)))
    assert lines[0] == "Let me see. "
    assert lines[1].startswith("the answer begins again: ")
    assert lines[2] == "Let me see. Hello there."
    assert screen.err.getvalue() == "warning: model: ModelError: connection lost; the run goes on\n"


async def test_terminal_control_characters_are_removed(scripted) -> None:
    answer = "\x1b]0;title\x07\x1b[31mred\r\x9b2J\u202etxt.exe\n\tend"
    lines = await Screen(no_color=True).watch(Agent("a", model=scripted(call("\x1b[2J", text="\x1b[2J"), answer)))
    assert lines[:2] == ['→ [2J(text="\\u001b[2J")', "← [2J error: no tool '\\x1b[2J' (available: none)"]
    assert lines[2:] == ["]0;title[31mred2Jtxt.exe", "\tend"]


# -- text ----------------------------------------------------------------------------------------------------


def test_line_ends_and_tabs_are_kept() -> None:
    assert plain("a\tb\nc") == "a\tb\nc"


def test_long_text_is_cut_off_on_one_line() -> None:
    assert one_line("a\n  b\tc") == "a b c"
    assert one_line("x" * 200, 10) == "x" * 9 + "…"


@pytest.mark.parametrize(
    "name", ["password", "api_key", "apikey", "db_password", "access-token", "Authorization", "client_secret"]
)
def test_secret_named_arguments_are_hidden(name) -> None:
    assert "hunter2" not in call_text("login", {"options": [{name: "hunter2"}]})
    assert "hunter2" not in arguments_text({name: "hunter2"})


@pytest.mark.parametrize("name", ["max_tokens", "tokenizer", "key", "secretary"])
def test_arguments_resembling_secrets_are_shown(name) -> None:
    assert "shown" in call_text("ask", {name: "shown"})


def test_arguments_awaiting_decision_are_shown_in_full() -> None:
    text = arguments_text({"body": "x" * 500, "to": ["ann"]}, indent=2)
    assert "x" * 500 in text
    assert text.splitlines()[-1] == "  }"


def test_non_text_content_is_named() -> None:
    picture = Image(Url("https://example.com/cat.png"))
    assert reply_text(ToolReply("c", "draw", (Text("A cat:"), picture))) == "A cat: [image]"
    assert reply_text(None) == ""


# -- answers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "schema", "value"),
    [
        ("42", None, "42"),
        ("true", None, "true"),
        ('{"a": 1}', None, {"a": 1}),
        ("[1, 2]", None, [1, 2]),
        ("[sic] as it was", None, "[sic] as it was"),
        ("42", {"type": "integer"}, 42),
        ("42", {"type": "string"}, "42"),
        ("42", {"enum": ["42"]}, "42"),
        ("true", {"type": "boolean"}, True),
    ],
)
def test_answer_is_text_unless_question_asks_for_more(said, schema, value) -> None:
    assert read_value(said, schema) == value


def test_json_answer_is_required_by_schema() -> None:
    with pytest.raises(ValueError, match="this ticket takes JSON of type boolean"):
        read_value("perhaps", {"type": "boolean"})


@pytest.mark.parametrize("terminal", [True, False])
async def test_continued_answer_is_one_line_with_separate_warning(terminal: bool) -> None:
    async def flaky(request):
        if len(request.messages) == 1:
            yield TextChunk("The cat sat ")
            raise StreamBroken("connection lost")
        yield TextChunk("on the mat.")
        yield StopChunk("end_turn")

    screen = Screen(force_terminal=terminal, no_color=True)
    await screen.watch(Agent("a", model=FunctionModel(flaky), retry=RetryPolicy(backoff=0)))
    assert screen.out.getvalue() == "The cat sat on the mat.\n"
    assert screen.err.getvalue().count("\n") == (2 if terminal else 1)
