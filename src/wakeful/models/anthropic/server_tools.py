"""Server tools and citations of the Messages API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, cast

import msgspec

from ...types.content import Citation, ServerTool
from ...types.messages import Message
from ...types.requests import ServerToolSpec, WebFetch, WebSearch
from ..protocol import ModelRequest
from .settings import SUPPORT

__all__ = [
    "RESULT",
    "USES",
    "VENDOR",
    "call_signature",
    "citation",
    "decoded",
    "finished",
    "open_tools",
    "other",
    "server_tools",
    "signed_fields",
    "started",
]

VENDOR = "anthropic"
USES = ("server_tool_use", "mcp_tool_use")
RESULT = "_tool_result"
_NAMES = {"bash_code_execution": "code_execution", "text_editor_code_execution": "code_execution"}


def server_tools(specs: Iterable[ServerToolSpec]) -> list[dict[str, Any]]:
    """Build the tools that the API runs."""
    found: list[dict[str, Any]] = []
    for spec in specs:
        kind = SUPPORT.server_tools[type(spec).__name__]
        tool: dict[str, Any] = {"type": kind, "name": kind.rpartition("_")[0]}
        if isinstance(spec, WebSearch | WebFetch):
            given = {
                "max_uses": spec.max_uses,
                "allowed_domains": list(spec.allowed_domains),
                "blocked_domains": list(spec.blocked_domains),
            }
            tool |= {field: value for field, value in given.items() if value}
        found.append({**tool, **spec.extra})
    return found


def started(raw: Mapping[str, Any], text: str = "") -> ServerTool:
    """A tool that was called, while it runs. `text` is its streamed input."""
    given: Any = decoded(text) if text else raw.get("input")
    block: dict[str, Any] = {**raw, "input": given if isinstance(given, dict) else {}}
    return ServerTool(raw["id"], _name_of(raw), given, None, "running", VENDOR, (block,))


def decoded(text: str) -> Any:
    """A streamed input; the text itself if it isn't JSON."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def finished(raw: Mapping[str, Any], paused: ServerTool | None, running: ServerTool | None) -> ServerTool:
    """A tool with its result. It is `paused` if this answer has its call, and `running` if an earlier one has."""
    content: Any = raw.get("content")
    is_error = bool(raw.get("is_error"))
    if isinstance(content, dict):
        is_error = is_error or str(cast(dict[str, Any], content).get("type")).endswith("_error")
    status: Literal["done", "failed"] = "failed" if is_error else "done"
    use, block = paused or running, dict(raw)
    name = _name_of({"type": raw["type"], "name": raw["type"].removesuffix(RESULT)}) if use is None else use.name
    blocks = (block,) if paused is None else (*paused.raw, block)
    return ServerTool(
        raw["tool_use_id"], name, None if use is None else use.input, content, status, VENDOR, blocks
    )


def other(raw: Mapping[str, Any], at: str) -> ServerTool:
    """A block of another kind, such as a file in the container, a compaction or a listing of tools."""
    ident = raw.get("id") or raw.get("file_id") or at
    content = {name: value for name, value in raw.items() if name != "type"}
    return ServerTool(str(ident), raw["type"], None, content, vendor=VENDOR, raw=(dict(raw),))


def _name_of(raw: Mapping[str, Any]) -> str:
    if raw["type"] == "mcp_tool_use":
        return "mcp"
    name = str(raw["name"])
    return "tool_search" if name.startswith("tool_search_tool") else _NAMES.get(name, name)


def call_signature(raw: Mapping[str, Any]) -> str | None:
    """The fields of a call that are sent back with it, as JSON: its caller if that is code, and its toolset."""
    caller: dict[str, Any] = raw.get("caller") or {}
    kept: dict[str, Any] = {"caller": caller} if caller.get("type", "direct") != "direct" else {}
    if toolset := raw.get("toolset_name"):
        kept["toolset_name"] = toolset
    return msgspec.json.encode(kept).decode() if kept else None


def signed_fields(signature: str | None) -> dict[str, Any]:
    """The fields that `call_signature` kept; none for another vendor's signature."""
    if signature is None or not signature.startswith("{"):
        return {}
    try:
        found = msgspec.json.decode(signature, type=dict[str, Any])
    except msgspec.DecodeError:
        return {}
    return {} if "type" in found else found


def tools_of(message: Message) -> dict[str, ServerTool]:
    """The tools of a message that have no result in it."""
    tools = [part for part in message.content if isinstance(part, ServerTool) and part.vendor == VENDOR]
    return {tool.id: tool for tool in tools if not tool.is_over and tool.raw}


def open_tools(request: ModelRequest) -> tuple[dict[str, ServerTool], dict[str, ServerTool]]:
    """The tools without a result: of the paused answer that a request continues, and of earlier messages."""
    answers = [message for message in request.messages if message.role == "assistant"]
    is_paused = bool(answers) and request.messages[-1] is answers[-1]
    paused = tools_of(answers.pop()) if is_paused else {}
    running: dict[str, ServerTool] = {}
    for message in answers:
        running |= tools_of(message)
    return paused, running


def citation(raw: Mapping[str, Any], start: int, end: int) -> Citation:
    """A citation of the text from `start` to `end`."""
    kind = raw.get("type")
    common: dict[str, Any] = {
        "start": start,
        "end": end,
        "quote": raw.get("cited_text"),
        "vendor": VENDOR,
        "raw": dict(raw),
    }
    if kind == "web_search_result_location":
        return Citation("url", url=raw.get("url"), title=raw.get("title"), **common)
    names = [name for name in raw if name.startswith(("start_", "end_"))]
    location = {name: raw[name] for name in names}
    if kind == "search_result_location":
        return Citation("search", source=raw.get("source"), title=raw.get("title"), location=location, **common)
    source = next((raw[name] for name in ("file_id", "document_index") if raw.get(name) is not None), None)
    title = raw.get("document_title")
    source = None if source is None else str(source)
    return Citation("document", source=source, title=title, location=location, **common)
