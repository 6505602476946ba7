"""One frame of `wakeful top`, as text of a given size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from ..stores import DeadSeen, QueueSeen, RunSeen, Tally, TaskSeen, TicketSeen, WorkerSeen
from .text import one_line, time_text
from .top_view import SECTIONS, Asking, View, chosen, matching, rows

__all__ = ["frame"]

_COLUMNS: dict[str, tuple[str, ...]] = {
    "workers": ("id", "state", "claims", "up", "lease"),
    "queues": ("tenant", "agent", "waiting", "oldest", "later"),
    "runs": ("id", "agent", "status", "steps", "idle", "worker", "thread"),
    "tasks": ("id", "agent", "kind", "age", "owner", "name"),
    "tickets": ("id", "tool", "age", "with", "question"),
    "dead": ("id", "run", "agent", "attempts", "age", "why"),
}
_TITLES = {"dead": "dead letters"}
# Ids differ at the end: they begin with their time.
_IDS = {"id", "run", "thread"}
# Columns that shrink on narrow screens, in this order, and their least widths.
_GIVING = (
    ("thread", 13),
    ("run", 13),
    ("id", 13),
    ("why", 10),
    ("question", 10),
    ("name", 8),
    ("with", 8),
    ("tenant", 8),
    ("agent", 14),
    ("tool", 14),
    ("thread", 8),
    ("owner", 1),
    ("later", 1),
    ("worker", 1),
    ("thread", 1),
    ("agent", 8),
    ("tool", 8),
    ("status", 8),
)
_GAP = 2
_KEYS = "↑↓ move  tab section  c cancel  a approve  d deny  t text  / filter  q quit"
_HEAD = 4  # Lines above and below the sections.


def frame(view: View, place: str, height: int | None = None) -> Group:
    """The whole screen; with a height, as many rows of each section as fit."""
    found: dict[str, Sequence[Any]] = {
        "workers": matching(view, view.seen.workers),
        "queues": matching(view, view.seen.queues),
        **{section: rows(view, section) for section in SECTIONS},
    }
    shown = {name: some for name, some in found.items() if some or name in ("workers", view.section)}
    lines = () if view.asking is None else view.asking.lines
    room = _room(shown, view.section, None if height is None else height - len(lines))
    parts: list[RenderableType] = [_header(view, place)]
    parts += [_section(view, name, some, room[name]) for name, some in shown.items()]
    return Group(*parts, _footer(view))


def _room(shown: dict[str, Sequence[Any]], section: str, height: int | None) -> dict[str, int]:
    """The number of rows of each section: one of each in turn while there is room."""
    if height is None:
        return {name: len(some) for name, some in shown.items()}
    left = height - _HEAD - 2 * len(shown)
    room = dict.fromkeys(shown, 0)
    while left > 0 and any(room[name] < len(some) for name, some in shown.items()):
        for name in sorted(shown, key=lambda name: name != section):
            if left > 0 and room[name] < len(shown[name]):
                room[name] += 1
                left -= 1
    return room


def _header(view: View, place: str) -> RenderableType:
    seen = view.seen
    alive = sum(worker.state == "alive" for worker in seen.workers)
    queued = Tally(sum(queue.waiting for queue in seen.queues), any(queue.more for queue in seen.queues))
    counts = [
        (f"{alive} worker{'' if alive == 1 else 's'}", alive == 0),
        (f"{_tally(queued)} queued", False),
        (f"{_tally(seen.running)} running", False),
        (f"{_tally(seen.waiting)} waiting", False),
        (f"{_tally(seen.tickets_open)} tickets", False),
        (f"{_tally(seen.dead_letters)} dead", seen.dead_letters.count > 0),
    ]
    first = Text(f"wakeful top  {one_line(place)}  tenant {one_line(seen.tenant)}  {time_text(seen.at)}", "bold")
    second = Text("  ").join([Text(text, "bold red" if bad else "") for text, bad in counts])
    if view.filter:
        second.append(f"  filter: {one_line(view.filter)}", "yellow")
    for line in (first, second):
        line.no_wrap, line.overflow = True, "ellipsis"
    return Group(first, second)


def _section(view: View, name: str, found: Sequence[Any], room: int) -> RenderableType:
    title = Text(f"\n{_TITLES.get(name, name).upper()} {len(found)}", "bold cyan")
    if not found:
        title.append("  none", "dim")
        return title
    picked = chosen(view) if name == view.section else None
    at = next((n for n, one in enumerate(found) if one is picked), 0)
    first = max(0, min(at - room + 1, len(found) - room)) if at >= room else 0
    lines = [(one, _CELLS[type(one)](one, view.seen.at)) for one in found[first : first + room]]
    styles = ["reverse" if one is picked else _style(one) for one, _ in lines]
    table = _Rows(_COLUMNS[name], [cells for _, cells in lines], styles)
    if room < len(found):
        title.append(f"  {first + 1} to {first + room} shown" if room else "  no room", "dim")
    return Group(title, table) if room else title


class _Rows:
    """Rows in columns that fit the width."""

    def __init__(self, columns: Sequence[str], lines: Sequence[Sequence[str]], styles: Sequence[str]) -> None:
        kept = [at for at in range(len(columns)) if any(cells[at] for cells in lines)]
        self._columns = [columns[at] for at in kept]
        self._lines = [[cells[at] for at in kept] for cells in lines]
        self._styles = styles

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widths = self._widths(options.max_width)
        table = Table(box=None, pad_edge=False, show_header=False)
        for column in self._columns:
            table.add_column(column, no_wrap=True, overflow="ellipsis", width=widths[column])
        for cells, style in zip(self._lines, self._styles, strict=True):
            shown = [
                _end_of(cell, widths[column]) if column in _IDS else cell
                for column, cell in zip(self._columns, cells, strict=True)
            ]
            table.add_row(*[Text(cell) for cell in shown], style=style)
        yield table

    def _widths(self, room: int) -> dict[str, int]:
        cells = zip(*self._lines, strict=True)
        widths = {column: max(map(cell_len, some)) for column, some in zip(self._columns, cells, strict=True)}
        over = sum(widths.values()) + _GAP * (len(widths) - 1) - room
        for column, least in _GIVING:
            given = max(0, min(over, widths.get(column, 0) - least))
            if given:
                widths[column] -= given
                over -= given
        return widths


def _end_of(text: str, width: int) -> str:
    return text if cell_len(text) <= width else f"…{text[len(text) - width + 1 :]}"


def _style(row: Any) -> str:
    lost = isinstance(row, WorkerSeen) and row.state == "lost"
    return "red" if lost or isinstance(row, DeadSeen) else ""


def _worker_cells(row: WorkerSeen, now: int) -> list[str]:
    lease = f"{max(0, row.until - now) // 1000}s left" if row.state == "alive" else "over"
    state = "idle" if row.state == "alive" and not row.claims else row.state
    return [row.id, state, f"{row.claims} claims", f"up {_age(row.started_at, now)}", lease]


def _queue_cells(row: QueueSeen, now: int) -> list[str]:
    more = "+" if row.more else ""
    oldest = "" if row.oldest_at is None else f"for {_age(row.oldest_at, now)}"
    later = f"{row.later:,}{more} later" if row.later else ""
    return [_name(row.tenant), _name(row.agent_id), f"{row.waiting:,}{more} waiting", oldest, later]


def _run_cells(row: RunSeen, now: int) -> list[str]:
    status = "cancelling" if row.cancelling else row.status if row.reason is None else row.reason
    free = "no worker" if row.status == "running" else ""
    worker = free if row.worker_id is None else f"on …{row.worker_id[-8:]}"
    idle = _age(max(row.updated_at, row.created_at), now)
    thread = "" if row.thread_id == row.id else _name(row.thread_id)
    return [row.id, _name(row.agent_id), status, f"step {row.steps}", idle, worker, thread]


def _task_cells(row: TaskSeen, now: int) -> list[str]:
    kind = "remote" if row.remote else "background" if row.background else "awaited"
    owner = "" if row.run_id is None else f"for …{row.run_id[-8:]}"
    return [row.id, _name(row.agent_id), kind, _age(row.created_at, now), owner, _name(row.name or "")]


def _ticket_cells(row: TicketSeen, now: int) -> list[str]:
    whose = "" if row.assignee is None else f"with {_name(row.assignee)}"
    question = one_line(row.message)
    if row.left is not None:
        by = f" by {_name(row.left_by)}" if row.left_by else ""
        problem = f", can't be taken: {one_line(row.problem)}" if row.problem else ""
        question = f"(left: {row.left}{by}{problem})  {question}"
    return [row.id, _name(row.tool), _age(row.created_at, now), whose, question]


def _dead_cells(row: DeadSeen, now: int) -> list[str]:
    tries, age = f"{row.attempts} attempts", _age(row.dead_at, now)
    return [_name(row.thread_id), row.run_id or "", _name(row.agent_id), tries, age, one_line(row.error)]


_CELLS: dict[type[Any], Callable[[Any, int], list[str]]] = {
    WorkerSeen: _worker_cells,
    QueueSeen: _queue_cells,
    RunSeen: _run_cells,
    TaskSeen: _task_cells,
    TicketSeen: _ticket_cells,
    DeadSeen: _dead_cells,
}


def _footer(view: View) -> RenderableType:
    line = Text(no_wrap=True, overflow="ellipsis")
    if view.asking is not None:
        above = [Text(text, no_wrap=True, overflow="ellipsis") for text in view.asking.lines]
        line.append(_question(view.asking), "bold yellow")
        return Group(Text(), *above, line)
    if view.trouble:
        line.append(one_line(view.trouble), "bold red")
    elif view.note:
        line.append(one_line(view.note), "bold")
    else:
        line.append(_KEYS, "dim")
    return Group(Text(), line)


def _question(asking: Asking) -> str:
    match asking.what:
        case "run" | "task":
            return f"cancel {asking.what} {asking.about} with all it does? y/n "
        case "approve":
            return "approve this call? y/n "
        case "filter":
            return f"filter> {asking.typed}"
        case "deny":
            return f"deny, because> {asking.typed}"
        case "answer":
            return f"answer> {asking.typed}"


def _tally(tally: Tally) -> str:
    return f"{tally.count:,}{'+' if tally.more else ''}"


def _name(text: str) -> str:
    return one_line(text, 60)


def _age(since: int, now: int) -> str:
    seconds = max(0, now - since) // 1000
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
