"""The state of `wakeful top` and the effects of its keys: a frozen view and functions over it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import asdict, replace

from ..stores import DeadSeen, Overview, RunSeen, TaskSeen, TicketSeen

__all__ = [
    "SECTIONS",
    "Act",
    "Answer",
    "Asking",
    "Cancel",
    "Quit",
    "Review",
    "Row",
    "Section",
    "View",
    "chosen",
    "matching",
    "press",
    "refreshed",
    "reviewed",
    "row_id",
    "rows",
]

Section = Literal["runs", "tasks", "tickets", "dead"]
SECTIONS: tuple[Section, ...] = ("runs", "tasks", "tickets", "dead")

Row = RunSeen | TaskSeen | TicketSeen | DeadSeen


class Asking(Struct, frozen=True):
    """A line that is being typed: its purpose, its row, its text so far, and the lines to read before."""

    what: Literal["filter", "run", "task", "approve", "deny", "answer"]
    about: str = ""
    typed: str = ""
    lines: tuple[str, ...] = ()


class View(Struct, frozen=True):
    """The content of the screen. The chosen row is kept by id while others come and go."""

    seen: Overview
    section: Section = "runs"
    chosen: str = ""
    filter: str = ""
    asking: Asking | None = None
    note: str = ""
    trouble: str = ""


class Cancel(Struct, frozen=True):
    """Cancel a run or a task."""

    kind: Literal["run", "task"]
    id: str


class Answer(Struct, frozen=True):
    """Answer a ticket: approve, deny with a reason, or give a text."""

    ticket_id: str
    how: Literal["approve", "deny", "answer"]
    text: str = ""


class Quit(Struct, frozen=True):
    """Leave."""


class Review(Struct, frozen=True):
    """Show the call of a ticket, and ask whether to approve it."""

    ticket_id: str


Act = Cancel | Answer | Review | Quit


def row_id(row: Row) -> str:
    """The id of a row."""
    return row.thread_id if isinstance(row, DeadSeen) else row.id


def matching(view: View, found: tuple[Any, ...]) -> tuple[Any, ...]:
    """The rows that contain every word of the filter."""
    words = view.filter.lower().split()
    if not words:
        return found
    texts = [(one, " ".join([str(value) for value in asdict(one).values()]).lower()) for one in found]
    return tuple([one for one, text in texts if all(word in text for word in words)])


def rows(view: View, section: Section) -> tuple[Row, ...]:
    """The rows of a section."""
    return matching(view, getattr(view.seen, section))


def chosen(view: View) -> Row | None:
    """The chosen row, or the first if that is gone."""
    found = rows(view, view.section)
    return next((row for row in found if row_id(row) == view.chosen), found[0] if found else None)


def refreshed(view: View, seen: Overview) -> View:
    """The view with a new overview."""
    return replace(view, seen=seen, trouble="")


def reviewed(view: View, ticket_id: str, lines: Sequence[str]) -> View:
    """The view that asks whether to approve a call, below the lines that describe it.

    Unchanged if another row was chosen meanwhile, or a line is being typed.
    """
    row = chosen(view)
    if view.asking is not None or row is None or row_id(row) != ticket_id:
        return view
    return replace(view, asking=Asking("approve", ticket_id, lines=tuple(lines)))


def press(view: View, key: str) -> tuple[View, Act | None]:
    """A key's effect on the view, and the action to take."""
    if view.asking is not None:
        return _type(view, view.asking, key)
    view = replace(view, note="")
    match key:
        case "q" | "ctrl-c" | "ctrl-d":
            return view, Quit()
        case "up" | "k":
            return _move(view, -1), None
        case "down" | "j":
            return _move(view, 1), None
        case "tab" | "right" | "l":
            return _turn(view, 1), None
        case "left" | "h":
            return _turn(view, -1), None
        case "/":
            return replace(view, asking=Asking("filter", typed=view.filter)), None
        case "escape":
            return replace(view, filter=""), None
        case "c":
            return _ask_cancel(view), None
        case "a" | "d" | "t":
            return _on_ticket(view, key)
        case _:
            return view, None


def _move(view: View, by: int) -> View:
    found = rows(view, view.section)
    if not found:
        return view
    ids = [row_id(row) for row in found]
    at = ids.index(view.chosen) if view.chosen in ids else 0
    return replace(view, chosen=ids[max(0, min(at + by, len(ids) - 1))])


def _turn(view: View, by: int) -> View:
    """Go to the next section with rows."""
    at = SECTIONS.index(view.section)
    for step in range(1, len(SECTIONS)):
        section = SECTIONS[(at + by * step) % len(SECTIONS)]
        if rows(view, section):
            return replace(view, section=section, chosen="")
    return view


def _ask_cancel(view: View) -> View:
    match chosen(view):
        case RunSeen(id=run_id) | DeadSeen(run_id=str(run_id)):
            return replace(view, asking=Asking("run", run_id))
        case TaskSeen(id=task_id):
            return replace(view, asking=Asking("task", task_id))
        case _:
            return replace(view, note="choose a run or a task to cancel")


def _on_ticket(view: View, key: str) -> tuple[View, Act | None]:
    row = chosen(view)
    if not isinstance(row, TicketSeen):
        return replace(view, note="choose a ticket to answer (tab goes there)"), None
    if key == "a":
        return view, Review(row.id)
    return replace(view, asking=Asking("deny" if key == "d" else "answer", row.id)), None


def _type(view: View, asking: Asking, key: str) -> tuple[View, Act | None]:
    match key:
        case "ctrl-c" | "ctrl-d" | "escape":
            return replace(view, asking=None), None
        case "backspace":
            return replace(view, asking=replace(asking, typed=asking.typed[:-1])), None
        case "enter":
            return _typed(replace(view, asking=None), asking)
        case _ if asking.what == "approve":
            if key == "y":
                return replace(view, asking=None), Answer(asking.about, "approve")
            return replace(view, asking=None, note="nothing was approved"), None
        case _ if asking.what == "run" or asking.what == "task":
            if key == "y":
                return replace(view, asking=None), Cancel(asking.what, asking.about)
            return replace(view, asking=None, note="nothing was cancelled"), None
        case _ if len(key) == 1 and key.isprintable():
            return replace(view, asking=replace(asking, typed=asking.typed + key)), None
        case _:
            return view, None


def _typed(view: View, asking: Asking) -> tuple[View, Act | None]:
    match asking.what:
        case "filter":
            return replace(view, filter=asking.typed.strip()), None
        case "deny":
            return view, Answer(asking.about, "deny", asking.typed.strip())
        case "answer" if asking.typed.strip():
            return view, Answer(asking.about, "answer", asking.typed.strip())
        case "answer":
            return replace(view, note="an answer has some text; nothing was sent"), None
        case "approve":
            return replace(view, note="nothing was approved"), None
        case "run" | "task":
            return replace(view, note="nothing was cancelled"), None
