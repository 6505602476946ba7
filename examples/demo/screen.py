"""The demo's terminal output."""

from __future__ import annotations

from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from wakeful.events import (
    AnyEvent,
    InferenceComplete,
    MessageAdded,
    RunFinish,
    RunStart,
    StepStart,
    TextDelta,
    ToolCallDone,
    ToolCallReady,
    ToolCallResumed,
    ToolCallSuspended,
    ToolProgress,
)
from wakeful.types import Call

__all__ = ["COLOURS", "bar", "caption", "console", "say", "seconds", "show"]

console = Console(highlight=False, markup=False, soft_wrap=True)

COLOURS = {"tea": "green", "eggs": "yellow", "toast": "blue"}


def say(text: str, style: str = "") -> None:
    """Print a line."""
    console.print(Text(f"  {text}", style))


def caption(title: str, about: str | None) -> None:
    """Print a heading with a description."""
    console.print()
    console.print(Rule(Text(title, "bold"), align="left"))
    console.print(Text(" ".join((about or "").split()), "italic dim"))


def show(event: AnyEvent, begin: int) -> None:
    """Print an event: its cursor, type, time since the start, and a few words."""
    line = f"{event.cursor:>6}  {event.type:<20} {max(event.at - begin, 0) / 1000:>5.1f} s  {detail(event)}"
    say(line.rstrip(), style(event))


def style(event: AnyEvent) -> str:
    """The colour of an event."""
    match event:
        case ToolCallDone(outcome="ok"):
            return "green"
        case ToolCallDone():
            return "yellow"
        case RunStart() | RunFinish() | ToolCallSuspended():
            return "cyan"
        case _:
            return "" if event.durable else "dim"


def detail(event: AnyEvent) -> str:
    """A few words about an event."""
    match event:
        case RunStart(trigger=trigger):
            return "a new run" if trigger == "new" else "the run resumes where it stopped"
        case MessageAdded(message=message) if message.calls:
            return f"{message.role} asks for {', '.join(call.name for call in message.calls)}"
        case MessageAdded(message=message) if message.reply is not None:
            return f"{message.role}: the result of {message.reply.name}"
        case MessageAdded(message=message):
            return f"{message.role}: {message.text}"
        case TextDelta():
            return repr(event.delta)
        case ToolCallReady():
            return event.name
        case ToolCallDone(outcome="unknown"):
            return f"{event.name}: outcome unknown; the model is told so"
        case ToolCallDone(outcome="ok"):
            return f"{event.name}: done"
        case ToolCallDone():
            return f"{event.name}: {event.outcome}"
        case ToolCallSuspended():
            return f"{event.name} waits for a person: {event.ticket.message}"
        case ToolCallResumed():
            return "the ticket is answered: the call continues"
        case ToolProgress():
            return f"{event.done} of {event.total}"
        case StepStart():
            return f"step {event.step}"
        case InferenceComplete():
            return "the answer is in the store"
        case RunFinish():
            return f"the run is {event.status}"
        case _:
            return ""


def seconds(each: Call) -> float:
    """The duration of a call in seconds."""
    return ((each.finished_at or 0) - (each.started_at or 0)) / 1000


def bar(each: Call, begin: int) -> str:
    """A bar for a call, with 20 marks for a second."""
    before = " " * round(((each.started_at or 0) - begin) / 50)
    return f"{each.arguments['name']:<6} {before}{'█' * round(seconds(each) * 20)} {seconds(each):.1f} s"
