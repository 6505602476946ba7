"""Docstrings, split into the description of a function and those of its parameters."""

from __future__ import annotations

import re
from inspect import cleandoc

__all__ = ["split_docstring"]

_PARAMETERS = frozenset(
    {
        "args",
        "arguments",
        "keyword args",
        "keyword arguments",
        "other parameters",
        "parameters",
        "params",
    }
)
_DROPPED = frozenset({"return", "returns", "yield", "yields", "raise", "raises"})

# Compiled on first use: at import they would multiply its time.
_UNDERLINE = r"-{3,}\s*$"
_GOOGLE_ENTRY = r"\*{0,2}(\w+)\s*(?:\(.*?\))?\s*:(?:\s+(.*)|$)"
_NUMPY_ENTRY = r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$"
_SPHINX_FIELD = (
    r"\s*:(param|parameter|arg|argument|key|keyword|type|returns?|rtype|raises?|except|exception|yields?)"
    r"(?:\s+([^:]+))?:(?:\s+(.*)|$)"
)
_SPHINX_PARAMETERS = frozenset({"param", "parameter", "arg", "argument", "key", "keyword"})


def split_docstring(text: str | None) -> tuple[str, dict[str, str]]:
    """Split a Google, NumPy or Sphinx docstring into a description and those of its parameters."""
    lines = cleandoc(text or "").splitlines()
    kept: list[str] = []
    parameters: dict[str, str] = {}
    at = 0
    while at < len(lines):
        title = lines[at].rstrip().removesuffix(":").lower()
        known = title in _PARAMETERS or title in _DROPPED
        if known and _is_numpy_header(lines, at):
            end = _numpy_end(lines, at + 2, entries=title in _PARAMETERS)
            found = _numpy_entries(lines[at + 2 : end])
        elif known and lines[at].rstrip().endswith(":") and (end := _indented_end(lines, at + 1)) > at + 1:
            found = _google_entries(lines[at + 1 : end])
        elif match := re.match(_SPHINX_FIELD, lines[at]):
            end = _field_end(lines, at + 1, _indent(lines[at]))
            found, title = _sphinx_entry(match, lines[at + 1 : end])
        else:
            kept.append(lines[at])
            at += 1
            continue
        if title in _PARAMETERS:
            parameters.update(found)
        at = end
    return re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip(), parameters


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _joined(lines: list[str]) -> str:
    return " ".join(line.strip() for line in lines if line.strip())


def _is_numpy_header(lines: list[str], at: int) -> bool:
    return (
        at + 1 < len(lines)
        and bool(lines[at].strip())
        and not lines[at].startswith(" ")
        and re.match(_UNDERLINE, lines[at + 1]) is not None
    )


def _numpy_end(lines: list[str], start: int, *, entries: bool) -> int:
    at = start
    while at < len(lines) and not _is_numpy_header(lines, at):
        stray = lines[at].strip() and not lines[at].startswith(" ") and not re.match(_NUMPY_ENTRY, lines[at])
        if entries and stray:
            break
        at += 1
    return at


def _numpy_entries(lines: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    names: list[str] = []
    body: list[str] = []
    for line in [*lines, "_"]:
        if not line.strip() or line.startswith(" "):
            body.append(line)
            continue
        found.update(dict.fromkeys(names, _joined(body)))
        match = re.match(_NUMPY_ENTRY, line)
        names = [name.strip().lstrip("*") for name in match[1].split(",")] if match else []
        body = []
    return {name: text for name, text in found.items() if text}


def _indented_end(lines: list[str], start: int) -> int:
    end = at = start
    while at < len(lines) and (not lines[at].strip() or lines[at].startswith((" ", "\t"))):
        at += 1
        if lines[at - 1].strip():
            end = at
    return end


def _google_entries(lines: list[str]) -> dict[str, str]:
    margin = next(_indent(line) for line in lines if line.strip())
    found: dict[str, list[str]] = {}
    body: list[str] = []
    for line in lines:
        match = re.match(_GOOGLE_ENTRY, line.strip()) if _indent(line) == margin else None
        if match:
            body = found.setdefault(match[1], [])
            body.append(match[2] or "")
        else:
            body.append(line)
    return {name: text for name, body in found.items() if (text := _joined(body))}


def _field_end(lines: list[str], start: int, margin: int) -> int:
    end = start
    while end < len(lines) and lines[end].strip() and _indent(lines[end]) > margin:
        end += 1
    return end


def _sphinx_entry(match: re.Match[str], more: list[str]) -> tuple[dict[str, str], str]:
    kind, subject, first = match[1], match[2], match[3]
    text = _joined([first or "", *more])
    if kind not in _SPHINX_PARAMETERS or not subject or not text:
        return {}, "returns"
    return {subject.split()[-1].lstrip("*"): text}, "params"
