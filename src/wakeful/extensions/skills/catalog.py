"""The catalogue of skills in the system text, within a budget."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

__all__ = ["write_catalogue"]

_HEAD = (
    "Skills are instructions for kinds of tasks. If a task fits the description of one, load it with the tool "
    "`skill` before you begin."
)
_SHORTEST = 40


def write_catalogue(skills: Mapping[str, str], characters: int) -> str:
    """The catalogue of skills by name and description, in at most so many characters; sorted, and always the same.

    Descriptions are shortened first, all to one length. Then the last skills are left out, with a note.
    """
    names = sorted(skills)
    if not names:
        return ""
    longest = max(len(skills[name]) for name in names)
    while (text := _write(skills, names, longest)) and len(text) > characters and longest > _SHORTEST:
        longest = max(_SHORTEST, longest * 3 // 4)
    shown = len(names)
    while len(text) > characters and shown > 1:
        shown -= max(1, shown // 20)
        text = _write(skills, names[:shown], longest, len(names) - shown)
    return text if len(text) <= characters else ""


def _write(skills: Mapping[str, str], names: list[str], longest: int, left_out: int = 0) -> str:
    entries = [
        f"<skill><name>{escape(name)}</name><description>{text}</description></skill>"
        for name in names
        for text in [escape(_cut(skills[name], longest))]
    ]
    note = f"\n{left_out} more skills aren't listed; `skill` loads them by name." if left_out else ""
    return "\n".join([_HEAD, "<available_skills>", *entries, f"</available_skills>{note}"])


def _cut(text: str, longest: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= longest else line[: longest - 1] + "…"
