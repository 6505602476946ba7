"""System tools of Nova, which Bedrock runs, and citations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from ...errors import InvalidRequest
from ...types.content import Citation, ServerTool
from ...types.requests import ServerToolSpec, WebSearch
from .settings import SUPPORT, family_of

__all__ = ["SERVER_TOOL", "VENDOR", "SystemTools", "citation", "system_tools"]

VENDOR = "bedrock"
SERVER_TOOL = "server_tool_use"
_NAMES = {"nova_grounding": "web_search", "nova_code_interpreter": "code_execution"}


def system_tools(shown: str, model: str, specs: Iterable[ServerToolSpec]) -> list[dict[str, Any]]:
    """Build the tools that Bedrock runs. `shown` is the model's name in errors."""
    found: list[dict[str, Any]] = []
    for spec in specs:
        kind = type(spec).__name__
        if family_of(model) != "amazon":
            raise InvalidRequest(f"{shown} has no {kind}: on Bedrock only Nova's models run tools; remove it")
        if isinstance(spec, WebSearch) and (spec.max_uses or spec.allowed_domains or spec.blocked_domains):
            raise InvalidRequest(f"{shown}: WebSearch of Nova takes no max_uses and no domains; omit them")
        found.append({"systemTool": {"name": SUPPORT.server_tools[kind].partition(" ")[0], **spec.extra}})
    return found


class SystemTools:
    """The server tools of one answer."""

    def __init__(self) -> None:
        self._tools: dict[str, ServerTool] = {}

    def started(self, raw: Mapping[str, Any], text: str) -> ServerTool:
        """A tool that was called, while it runs. `text` is its input as JSON."""
        try:
            given: Any = msgspec.json.decode(text) if text else {}
        except msgspec.DecodeError:
            given = text
        call = {"toolUseId": raw["toolUseId"], "name": raw["name"], "type": SERVER_TOOL, "input": given}
        name: str = raw["name"]
        tool = ServerTool(
            raw["toolUseId"], _NAMES.get(name, name), given, None, "running", VENDOR, ({"toolUse": call},)
        )
        self._tools[tool.id] = tool
        return tool

    def finished(self, raw: Mapping[str, Any], content: list[Any]) -> ServerTool:
        """A tool with its result."""
        tool = self._tools.get(raw["toolUseId"])
        status: Literal["done", "failed"] = "failed" if raw.get("status") == "error" else "done"
        kept = {name: raw[name] for name in ("toolUseId", "type", "status") if name in raw}
        block = {"toolResult": {**kept, "content": content}}
        if tool is None:
            kind = raw.get("type") or "tool"
            name = _NAMES.get(kind.removesuffix("_result"), kind)
            return ServerTool(raw["toolUseId"], name, None, content, status, VENDOR, (block,))
        return ServerTool(tool.id, tool.name, tool.input, content, status, VENDOR, (*tool.raw, block))


def citation(raw: Mapping[str, Any], start: int, end: int) -> Citation:
    """A citation of the text from `start` to `end`."""
    location: Mapping[str, Any] = raw.get("location") or {}
    kind, where = next(iter(location.items()), ("", dict[str, Any]()))
    quote = "".join([each.get("text") or "" for each in raw.get("sourceContent") or ()]) or None
    common: dict[str, Any] = {
        "start": start,
        "end": end,
        "title": raw.get("title"),
        "quote": quote,
        "vendor": VENDOR,
        "raw": dict(raw),
    }
    if kind == "web":
        return Citation("url", url=where.get("url"), **common)
    place = next((where[name] for name in ("documentIndex", "searchResultIndex") if name in where), None)
    source = raw.get("source") or (None if place is None else str(place))
    named: Literal["search", "document"] = "search" if kind == "searchResultLocation" else "document"
    return Citation(named, source=source, location=dict(where), **common)
