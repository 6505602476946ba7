"""Output of runs on a terminal: answers, tools, warnings and errors."""

from __future__ import annotations

import os
from itertools import count
from math import isfinite
from typing import Literal

from rich.console import Console
from rich.text import Text

from ..types.content import ToolReply
from ..types.events import (
    AnyEvent,
    ErrorRaised,
    Handoff,
    MessageAdded,
    ReasoningDelta,
    RunFinish,
    RunStart,
    ServerToolUpdate,
    StreamReset,
    TextDelta,
    ToolCallDone,
    ToolCallReady,
    ToolCallResumed,
    ToolOutput,
    ToolProgress,
)
from ..types.messages import Message
from ..types.runs import Blocked, Cancelled, EndRequested, Failed, NaturalEnd, Stopped
from ..types.tickets import Ticket
from .text import arguments_text, call_text, one_line, plain, reply_text

__all__ = ["Renderer", "colors"]

_OUTCOMES = {"ok": "green", "error": "red", "blocked": "red"}


class Renderer:
    """Prints a run as it happens: answers and tools to stdout, warnings and errors to stderr.

    Answers are streamed. Agents below the run's own are shown by whole messages, indented.
    """

    def __init__(self, out: Console | None = None, err: Console | None = None) -> None:
        self._out = out or _console(stderr=False)
        self._err = err or _console(stderr=True)
        self._open_line = False
        self._streamed = ""
        self._replies: dict[str, ToolReply | None] = {}
        self._progress: dict[str, tuple[int | None, str]] = {}
        self._labels: dict[str, str] = {}

    def show(self, event: AnyEvent) -> None:
        """Print an event."""
        match event:
            case RunStart(trigger="new") if not event.run.depth:
                self._labels.clear()  # Calls that were open before are superseded.
            case TextDelta() if not event.run.depth:
                self._streamed += event.delta
                self._stream(event.delta)
            case ReasoningDelta() if not event.run.depth:
                self._stream(event.delta, "dim italic")
            case StreamReset() if not event.run.depth:
                self._streamed = ""
                self.note(f"the answer begins again: {event.reason}")
            case MessageAdded():
                self._message(event, event.message)
            case ToolCallReady():
                label = self._labels[event.call_id] = self._unused_label(event.name)
                self._line(event, f"→ {call_text(label, event.arguments)}", "cyan")
            case ToolCallResumed():
                self._line(event, f"  {_verdict(event)}", "dim")
            case ServerToolUpdate(tool=tool) if tool.is_over:
                failed = tool.status == "failed"
                self._line(event, f"← {tool.name}{' failed' if failed else ''}", "red" if failed else "green")
            case ServerToolUpdate(tool=tool):
                self._line(event, f"→ {tool.name}", "cyan")
            case ToolOutput():
                label = self._labels.get(event.call_id, event.name)
                self._line(event, f"  {label} │ {one_line(event.delta)}", "dim")
            case ToolProgress():
                self._show_progress(event)
            case ToolCallDone():
                self._done(event)
            case Handoff():
                self._line(event, f"⇒ {event.from_agent} hands over to {event.to_agent}", "magenta")
            case ErrorRaised(source="model", retry_at=None) if not event.run.depth:
                pass  # A final error is in the run's end; others lose nothing.
            case ErrorRaised():
                self.warn(f"{event.source}: {event.error}: {event.message}; the run goes on")
            case RunFinish() if not event.run.depth:
                self._finish(event)
            case _:
                pass

    def line(self, text: str, style: str = "") -> None:
        """Print a whole line."""
        self.end_line()
        self._out.print(plain(text), style=style or None)

    def note(self, text: str) -> None:
        """Print a remark."""
        self.line(text, "dim")

    def warn(self, text: str) -> None:
        """Print a warning to stderr."""
        self._to_err("warning", text, "yellow")

    def error(self, text: str) -> None:
        """Print an error to stderr."""
        self._to_err("error", text, "bold red")

    def status(self, label: str, text: str) -> None:
        """Print the state of a prompt to stderr."""
        self._to_err(label, text, "yellow")

    def ticket(self, ticket: Ticket) -> None:
        """Print a question in full, as its decider must see all of it."""
        self.line(f"? {ticket.message}", "bold yellow")
        self.note(f"  ticket {ticket.id}, asked by {ticket.asked_by}")
        if ticket.quorum > 1:
            self.note(f"  {len(ticket.approvals)} of {ticket.quorum} approvals")
        self.line(f"  {ticket.tool} {arguments_text(ticket.arguments, indent=2)}")

    def interrupted(self) -> None:
        """Continue below the ^C that a terminal echoed."""
        self._open_line = self._open_line or self._out.is_terminal
        self.end_line()

    def end_line(self) -> None:
        """End a line that is open."""
        if self._open_line:
            self._out.print()
            self._open_line = False

    # -- kinds of events -------------------------------------------------------------------------------------

    def _stream(self, text: str, style: str = "") -> None:
        text = plain(text)
        if not text:
            return
        if style:
            self._out.print(text, style=style, end="")
        else:
            self._out.file.write(text)  # Rich's layout would cost more than everything else here.
        self._out.file.flush()
        self._open_line = not text.endswith("\n")

    def _line(self, event: AnyEvent, text: str, style: str) -> None:
        line = Text("  " * event.run.depth + plain(text))
        if self._out.is_terminal:
            line.truncate(self._out.width, overflow="ellipsis")
        self.end_line()
        self._out.print(line, style=style)

    def _unused_label(self, name: str) -> str:
        """The tool's name, numbered if another call of it is open, so that results can be matched."""
        taken = set(self._labels.values())
        candidates = (name if n == 1 else f"{name}#{n}" for n in count(1))
        return next(label for label in candidates if label not in taken)

    def _message(self, event: AnyEvent, message: Message) -> None:
        if message.role == "tool":
            self._replies[message.id] = message.reply
        elif message.role == "assistant" and event.run.depth:
            if message.text:
                self._line(event, f"{event.run.agent_id}: {one_line(message.text)}", "dim")
        elif message.role == "assistant":
            # Without deltas, as after a gap or from some models, the whole answer is printed here.
            known, self._streamed = self._streamed, ""
            if message.text.startswith(known):
                self._stream(message.text[len(known) :])
            elif plain(message.text) != plain(known):
                self.end_line()
                self._stream(message.text)
            self.end_line()

    def _show_progress(self, event: ToolProgress) -> None:
        percent = _percent(event)
        seen = (None if percent is None else percent // 10, event.message)
        if self._progress.get(event.call_id) != seen:
            self._progress[event.call_id] = seen
            how_far = "…" if percent is None else f"{percent}%"
            label = self._labels.get(event.call_id, event.name)
            self._line(event, f"  {label} {how_far} {one_line(event.message)}".rstrip(), "dim")

    def _done(self, event: ToolCallDone) -> None:
        self._progress.pop(event.call_id, None)
        result = reply_text(self._replies.pop(event.message_id, None))
        label = self._labels.pop(event.call_id, event.name)
        label = label if event.outcome == "ok" else f"{label} {event.outcome}"
        self._line(event, f"← {label}: {result}".rstrip(": "), _OUTCOMES.get(event.outcome, "yellow"))

    def _finish(self, event: RunFinish) -> None:
        self.end_line()
        match event.termination:
            case NaturalEnd(truncated=True):
                self.warn(
                    "the answer was cut off at the output limit; raise ModelSettings(max_tokens=...), or "
                    "Limits(continuations=...)"
                )
            case EndRequested(reason) if reason:
                self.note(f"ended: {reason}")
            case Stopped(policy, detail):
                self._to_err("stopped", f"{policy}: {detail}".rstrip(": "), "yellow")
            case Blocked(reason):
                self._to_err("blocked", reason, "red")
            case Cancelled(reason):
                self._to_err("cancelled", reason, "yellow")
            case Failed() as failed:
                self.error(failed.text)
            case _:
                pass

    def _to_err(self, label: str, text: str, style: str) -> None:
        if self._streamed and self._open_line:
            # The answer may continue: a line break in its middle belongs on the terminal, not in stdout.
            if self._out.is_terminal:
                self._err.print()
        else:
            self.end_line()
        self._out.file.flush()  # Keeps the order if both streams go to one place.
        self._err.print(f"{label}: {plain(text)}", style=style)


def colors() -> Literal["auto"] | None:
    """The colour system of a console: none with NO_COLOR, which rich alone would still make bold and dim."""
    return None if os.environ.get("NO_COLOR") else "auto"


def _console(*, stderr: bool) -> Console:
    return Console(
        stderr=stderr, color_system=colors(), markup=False, highlight=False, emoji=False, soft_wrap=True
    )


def _percent(event: ToolProgress) -> int | None:
    if event.fraction is not None and isfinite(event.fraction):
        return round(event.fraction * 100)
    if event.done is not None and event.total:
        return round(event.done * 100 / event.total)
    return None


def _verdict(event: ToolCallResumed) -> str:
    decision = event.decision
    words = {"proceed": "approved", "result": "answered with a result", "arguments": "approved with new arguments"}
    verdict = "answered" if decision.asked_by == "tool" else words[event.mode]
    verdict = "denied" if decision.verdict == "deny" else verdict
    return f"{verdict}: {one_line(decision.reason)}" if decision.reason else verdict
