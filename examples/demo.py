"""A tour of a few seconds: a tool call, parallel tools, an approval, a handoff, and the events behind them.

The model is scripted, so its words are fixed. Everything else is the runtime at work: the tools run, the times are
measured, the ticket is answered and the file is gone at the end.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from wakeful import Agent, Runtime, ScriptedModel, ToolContext, Turn, call, tool
from wakeful.events import (
    AnyEvent,
    Handoff,
    InferenceComplete,
    MessageAdded,
    RunFinish,
    StepStart,
    TextDelta,
    ToolCallDone,
    ToolCallReady,
    ToolCallStart,
    ToolProgress,
)
from wakeful.types.content import text_of
from wakeful.types.runs import Call

console = Console(highlight=False, markup=False, soft_wrap=True)


# -- the agents ----------------------------------------------------------------------------------------------


@tool(effect="pure")
async def count_words(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())


@tool(effect="pure")
async def timer(name: str, seconds: float, ctx: ToolContext) -> str:
    """Wait for so long."""
    for done in range(1, 4):
        await asyncio.sleep(seconds / 3)
        ctx.progress(done=done, total=3, message=name)
    return f"{name} is ready"


class Folder:
    """Files that an agent may delete if a person lets it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @tool(effect="once", approval=True)
    async def delete(self, name: str) -> str:
        """Delete a file."""
        (self.path / name).unlink()
        return f"{name} is deleted"


def make_runtime(folder: Folder) -> Runtime:
    """All agents of the tour, each with its script."""
    counter = ScriptedModel([call("count_words", text="to be or not to be"), "That is 6 words."])
    timers = [call("timer", name="tea", seconds=0.9), call("timer", name="eggs", seconds=0.6)]
    cook = ScriptedModel([[*timers, call("timer", name="toast", seconds=0.3)], "Breakfast is ready."])
    cleaner = ScriptedModel([call("delete", name="draft.txt"), "The draft is gone."])
    desk = ScriptedModel([call("handoff_to_poet", reason="verse is wanted")])
    poet = ScriptedModel(["You asked for verse, and verse is what I do."])
    narrator = ScriptedModel([call("timer", name="coffee", seconds=0.9), Turn(text=["Coffee ", "is ", "ready."])])
    return Runtime(
        [
            Agent("counter", model=counter, tools=[count_words]),
            Agent("cook", model=cook, tools=[timer]),
            Agent("cleaner", model=cleaner, tools=[folder.delete]),
            Agent("desk", model=desk, handoffs=["poet"]),
            Agent("poet", model=poet, description="Writes verse."),
            Agent("narrator", model=narrator, tools=[timer]),
        ]
    )


# -- the tour ------------------------------------------------------------------------------------------------


async def a_tool_call(runtime: Runtime) -> None:
    """The model asks for a function, reads what it returned, and answers."""
    async for event in runtime.stream("counter", "How many words has 'to be or not to be'?"):
        match event:
            case ToolCallReady():
                say(f"→ {event.name}({event.arguments})", "cyan")
            case MessageAdded(message=message) if message.role == "tool" and message.reply is not None:
                say(f"← {text_of(message.reply.content)}", "green")
            case MessageAdded(message=message) if message.role == "assistant" and message.text:
                say(message.text, "bold")
            case _:
                pass


async def parallel_tools(runtime: Runtime) -> None:
    """Three timers at once: their progress interleaves, and the ledger has the times they really took."""
    run_id = ""
    async for event in runtime.stream("cook", "Tea, eggs and toast, please."):
        run_id = event.run_id
        match event:
            case ToolProgress(message=name, done=done, total=total):
                say(f"{name:<6} {'●' * (done or 0):<{total}}", COLOURS[name])
            case _:
                pass
    calls = await runtime.calls(run_id)
    begin = min(c.started_at or 0 for c in calls)
    for each in calls:
        say(bar(each, begin), COLOURS[each.arguments["name"]])
    took = (max(c.finished_at or 0 for c in calls) - begin) / 1000
    say(f"{took:.1f} s together; one after another they would take {sum(map(seconds, calls)):.1f} s", "bold")


async def an_approval(runtime: Runtime, folder: Folder) -> None:
    """The run waits for a person, and nothing runs meanwhile."""
    draft = folder.path / "draft.txt"
    result = await runtime.run("cleaner", "Delete the draft.")
    (ticket,) = result.tickets
    say(f"the run is {result.status}; draft.txt exists: {draft.exists()}", "yellow")
    say(f"ticket {ticket.id}: {ticket.message} {ticket.arguments}", "yellow")
    await asyncio.sleep(0.8)
    say("… answered later: ticket.approve()", "dim")
    result = await runtime.resume(result.run_id, ticket.approve())
    say(f"the run is {result.status}; draft.txt exists: {draft.exists()}", "green")
    say(result.text, "bold")


async def a_handoff(runtime: Runtime) -> None:
    """Another agent takes over the run, with its own model, instructions and tools."""
    async for event in runtime.stream("desk", "Say something in verse."):
        match event:
            case Handoff():
                say(f"{event.from_agent} ⇒ {event.to_agent}", "magenta")
            case MessageAdded(message=message) if message.role == "assistant" and message.text:
                say(f"{event.run.agent_id}: {message.text}", "bold")
            case _:
                pass


async def the_events(runtime: Runtime) -> None:
    """All of it came from events like these: cursor, type, time, as they happen; dim ones are not in the log."""
    begin, middle = 0, ""
    async for event in runtime.stream("narrator", "Coffee, please.", thread="tour"):
        begin = begin or event.at
        middle = event.cursor if isinstance(event, StepStart) else middle
        show(event, begin)
    say(f"a reader who left behind cursor {middle} comes back, and misses nothing:", "bold")
    async for event in runtime.events("tour", after=middle, follow=False):
        show(event, begin)


# -- showing -------------------------------------------------------------------------------------------------

COLOURS = {"tea": "green", "eggs": "yellow", "toast": "blue"}


def say(text: str, style: str = "") -> None:
    """Print a line."""
    console.print(Text(f"  {text}", style))


def show(event: AnyEvent, begin: int) -> None:
    """Print an event."""
    line = f"{event.cursor:>8}  {event.type:<18} {(event.at - begin) / 1000:>4.1f} s  {detail(event)}"
    say(line, "" if event.durable else "dim")


def caption(title: str, about: str | None) -> None:
    """Print a heading with what there is to see."""
    console.print()
    console.print(Rule(Text(title, "bold"), align="left"))
    console.print(Text((about or "").strip(), "italic dim"))


def seconds(each: Call) -> float:
    """How long a call took."""
    return ((each.finished_at or 0) - (each.started_at or 0)) / 1000


def bar(each: Call, begin: int) -> str:
    """A call on a scale of 20 marks for a second."""
    before = " " * round(((each.started_at or 0) - begin) / 50)
    return f"{each.arguments['name']:<6} {before}{'█' * round(seconds(each) * 20)} {seconds(each):.1f} s"


def detail(event: AnyEvent) -> str:
    """A few words about an event."""
    match event:
        case MessageAdded(message=message):
            return f"{message.role}: {message.text or type(message.content[0]).__name__}"
        case TextDelta():
            return repr(event.delta)
        case ToolCallStart() | ToolCallReady() | ToolCallDone():
            return event.name
        case ToolProgress():
            return f"{event.done} of {event.total}"
        case StepStart():
            return f"step {event.step}"
        case InferenceComplete():
            return f"{event.model}: {event.stop}"
        case RunFinish():
            return event.status
        case _:
            return ""


async def main() -> None:
    """Take the tour."""
    console.print(Text("wakeful: a scripted model, and a real runtime", "bold"))
    with TemporaryDirectory() as directory:
        folder = Folder(Path(directory))
        (folder.path / "draft.txt").write_text("a draft\n")
        async with make_runtime(folder) as runtime:
            caption("1  A tool call", a_tool_call.__doc__)
            await a_tool_call(runtime)
            caption("2  Parallel tools", parallel_tools.__doc__)
            await parallel_tools(runtime)
            caption("3  An approval", an_approval.__doc__)
            await an_approval(runtime, folder)
            caption("4  A handoff", a_handoff.__doc__)
            await a_handoff(runtime)
            caption("5  The events", the_events.__doc__)
            await the_events(runtime)


if __name__ == "__main__":
    asyncio.run(main())
