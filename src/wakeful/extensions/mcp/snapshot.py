"""Snapshots: the tools of a server as one run sees them, with limits on what a server may list."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, cast

import msgspec

from ...errors import ToolError
from ...types.base import Data
from ...types.calls import Effect
from ...types.content import clean_text
from ...types.ids import digest_of
from .names import tool_names
from .settings import Settings

__all__ = ["ToolEntry", "decode_snapshot", "effect_of", "encode_snapshot", "entries_of", "wants"]

# Limits for what a server lists.
MAX_TOOLS = 500
MAX_SCHEMA_BYTES = 64 * 1024
MAX_DESCRIPTION = 4_000
MAX_SNAPSHOT_BYTES = 2 * 1024 * 1024
MAX_DEPTH = 64

_DEFINITION = ("name", "description", "inputSchema", "outputSchema", "annotations")

# Format characters that change how a text reads without being seen: bidirectional controls and tags.
_HIDDEN = frozenset({"Cf", "Co", "Cs", "Cn"})
_KEPT = frozenset("\n\t")


class ToolEntry(Data, omit_defaults=True):
    """A tool of a server: our name, the server's name, its definition, and the digest of that definition."""

    name: str
    wire: str
    description: str
    schema: dict[str, Any]
    digest: str
    hints: dict[str, bool] = {}


class _Snapshot(Data):
    tools: tuple[ToolEntry, ...]


def encode_snapshot(entries: Iterable[ToolEntry]) -> bytes:
    """Encode entries, the same bytes for the same tools."""
    return msgspec.json.encode(_Snapshot(tuple(entries)), order="deterministic")


def decode_snapshot(data: bytes) -> tuple[ToolEntry, ...]:
    """Decode a stored snapshot."""
    return msgspec.json.decode(data, type=_Snapshot).tools


def wants(settings: Settings, wire: str) -> bool:
    """Whether a tool of the server is offered."""
    return any(fnmatchcase(wire, p) for p in settings.tools) and not any(
        fnmatchcase(wire, p) for p in settings.exclude
    )


def entries_of(settings: Settings, listed: Iterable[Mapping[str, Any]]) -> tuple[ToolEntry, ...]:
    """The entries of listed tools, sorted by name; raises `ToolError` if the list passes a limit.

    `listed` are tools as JSON data. Of several tools of one name the first counts, as calls name nothing else.
    """
    chosen: dict[str, Mapping[str, Any]] = {}
    for tool in listed:
        if wants(settings, tool["name"]):
            chosen.setdefault(tool["name"], tool)
    if len(chosen) > MAX_TOOLS:
        raise ToolError(
            f"MCP server {settings.name!r} lists {len(chosen):,} tools, and the limit is {MAX_TOOLS}: name those "
            "that the agent needs with tools=[...]"
        )
    names = tool_names(settings.name, chosen)
    entries = [_entry(settings, names[wire], tool) for wire, tool in chosen.items()]
    if (size := len(encode_snapshot(entries))) > MAX_SNAPSHOT_BYTES:
        raise ToolError(
            f"the tools of MCP server {settings.name!r} take {size:,} bytes, and the limit is "
            f"{MAX_SNAPSHOT_BYTES:,}: name those that the agent needs with tools=[...]"
        )
    return tuple(sorted(entries, key=lambda entry: entry.name))


def _entry(settings: Settings, name: str, tool: Mapping[str, Any]) -> ToolEntry:
    schema: dict[str, Any] = tool.get("inputSchema") or {}
    try:
        size = len(msgspec.json.encode(schema))
    except (RecursionError, UnicodeEncodeError, TypeError, ValueError):
        size = MAX_SCHEMA_BYTES + 1
    if size > MAX_SCHEMA_BYTES or _depth(schema) > MAX_DEPTH or schema.get("type") != "object":
        raise ToolError(
            f"the input schema of tool {tool['name']!r:.80} of MCP server {settings.name!r} isn't an object's, or "
            f"is larger than {MAX_SCHEMA_BYTES:,} bytes or {MAX_DEPTH} levels: leave it out with exclude=[...]"
        )
    described = {key: tool.get(key) for key in _DEFINITION}
    annotations: dict[str, Any] = tool.get("annotations") or {}
    return ToolEntry(
        name,
        tool["name"],
        visible_text(tool.get("description") or "", MAX_DESCRIPTION),
        schema,
        digest_of(msgspec.json.encode(described, order="deterministic")),
        {key: value for key, value in annotations.items() if isinstance(value, bool)},
    )


def _depth(value: Any, level: int = 0) -> int:
    if level > MAX_DEPTH or not isinstance(value, dict | list):
        return level
    children = cast(dict[str, Any], value).values() if isinstance(value, dict) else cast(list[Any], value)
    return max([_depth(child, level + 1) for child in children], default=level)


def visible_text(text: str, limit: int) -> str:
    """A server's text without characters that people can't see, cut at a limit."""
    seen = "".join([c for c in clean_text(text) if c in _KEPT or unicodedata.category(c) not in (*_HIDDEN, "Cc")])
    return seen if len(seen) <= limit else f"{seen[:limit]} [cut here]"


def effect_of(settings: Settings, entry: ToolEntry) -> Effect:
    """The effect of a tool: as configured, else by its hints if they are trusted, else `once`."""
    for pattern, effect in settings.effects.items():
        if fnmatchcase(entry.wire, pattern):
            return effect
    if settings.trust == "hints":
        if entry.hints.get("readOnlyHint"):
            return "pure"
        if entry.hints.get("idempotentHint"):
            return "idempotent"
    return "once"
