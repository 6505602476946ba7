"""Output items of the Responses API: server tools, calls that the client makes, and citations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast

import msgspec

from ...types.content import Base64, Citation, Image, ServerTool, ToolCall

__all__ = [
    "APPROVAL",
    "CLIENT_CALLS",
    "call_item",
    "call_signature",
    "citation",
    "client_call",
    "images_of",
    "is_search",
    "result_item",
    "server_tool",
    "tool_id",
]

APPROVAL = "mcp_approval_request"
"""The type of the question whether a tool of an MCP server may be called."""

# Names of server tools; other items keep their own name.
_NAMES = {
    "web_search_call": "web_search",
    "x_search_call": "x_search",
    "file_search_call": "file_search",
    "code_interpreter_call": "code_execution",
    "image_generation_call": "image_generation",
    "mcp_call": "mcp",
    "mcp_list_tools": "mcp",
    "search_results": "web_search",  # Perplexity's.
}
# Where the output of a shell command goes.
_STREAMS = ("stdout", "stderr")
# What a tool was given, and what it returned, by the names of fields.
_INPUTS = ("action", "queries", "code", "arguments", "input", "server_label", "name", "operation")
_RESULTS = ("results", "outputs", "output", "tools", "error", "result", "revised_prompt")
_STATES: Mapping[str, Literal["running", "done", "failed"]] = {
    "in_progress": "running",
    "searching": "running",
    "interpreting": "running",
    "generating": "running",
    "calling": "running",
    "incomplete": "failed",
    "failed": "failed",
}

# Calls that the client carries out, with our name of the tool and the fields of its arguments. Calls of functions
# and custom tools have a name of their own.
CLIENT_CALLS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "custom_tool_call": ("", ("input",)),
    "computer_call": ("computer", ("action", "actions", "pending_safety_checks")),
    "local_shell_call": ("local_shell", ("action",)),
    "shell_call": ("shell", ("action",)),
    "apply_patch_call": ("apply_patch", ("operation",)),
    "tool_search_call": ("tool_search", ("arguments",)),
    APPROVAL: (APPROVAL, ("server_label", "name", "arguments")),
}


def client_call(item: Mapping[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """The name and the arguments of a call that the client carries out; None for other items."""
    kind = str(item.get("type"))
    if kind not in CLIENT_CALLS or item.get("execution") == "server" or _has_container(item):
        return None
    name, fields = CLIENT_CALLS[kind]
    return name or str(item["name"]), {field: item[field] for field in fields if item.get(field) is not None}


def _has_container(item: Mapping[str, Any]) -> bool:
    """Whether a shell runs at the vendor."""
    environment: Any = item.get("environment")
    kind: Any = cast(dict[str, Any], environment).get("type") if isinstance(environment, dict) else "local"
    return kind != "local"


def tool_id(item: Mapping[str, Any], index: int) -> str:
    """The id of a server tool; `index` is its place, for an item without an id."""
    return str(item.get("id") or item.get("call_id") or f"{item.get('type')}/{index}")


def server_tool(item: dict[str, Any], index: int, vendor: str, *, is_over: bool) -> ServerTool:
    """A tool that the vendor ran, or runs."""
    kind = str(item.get("type"))
    given = {name: _decoded(item[name]) for name in _INPUTS if item.get(name) is not None}
    found = {name: _decoded(item[name]) for name in _RESULTS if item.get(name) is not None}
    if kind == "image_generation_call":
        found.pop("result", None)  # The image is a part of its own.
    status: Any = _STATES.get(str(item.get("status")), "done")
    if is_over and (item.get("error") or status == "running"):
        status = "failed" if item.get("error") else "done"
    name = _NAMES.get(kind, kind.removesuffix("_call"))
    raw = () if kind == "image_generation_call" or not is_over else (_sent(item),)
    return ServerTool(
        tool_id(item, index),
        name,
        _only(given),
        _only(found),
        status if is_over else "running",
        vendor,
        raw,
    )


def is_search(tool: ServerTool) -> bool:
    """Whether a tool searched the web, which OpenAI bills; to open a page is free."""
    action: Any = tool.input
    kind: Any = cast(dict[str, Any], action).get("type") if isinstance(action, dict) else None
    return tool.name == "web_search" and kind in (None, "search")


def _only(fields: dict[str, Any]) -> Any:
    """The value of a single field by itself; None for none."""
    return next(iter(fields.values())) if len(fields) == 1 else fields or None


def _decoded(value: Any) -> Any:
    """A value that the API sends as JSON text."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return msgspec.json.decode(value)
        except msgspec.DecodeError:
            return value
    return value


def _sent(item: dict[str, Any]) -> dict[str, Any]:
    """An item as it is sent back: without the field that only answers have."""
    return {name: value for name, value in item.items() if name != "created_by"}


def images_of(item: Mapping[str, Any]) -> list[Image]:
    """The images that a tool made."""
    if item.get("type") == "image_generation_call" and item.get("result"):
        return [Image(Base64(f"image/{item.get('output_format') or 'png'}", str(item["result"])))]
    found: list[Image] = []
    for output in cast(list[Any], item.get("outputs") or ()):
        url: Any = cast(dict[str, Any], output).get("url") if isinstance(output, dict) else None
        if isinstance(url, str) and url.startswith("data:"):
            head, _, data = url[5:].partition(",")
            found.append(Image(Base64(head.partition(";")[0], data)))
    return found


def citation(raw: dict[str, Any], at: int, vendor: str) -> Citation:
    """An annotation of a text that begins at the character `at` of the answer."""
    start, end = raw.get("start_index"), raw.get("end_index")
    is_span = isinstance(start, int) and isinstance(end, int)
    common: dict[str, Any] = {
        "start": at + cast(int, start) if is_span else None,
        "end": at + cast(int, end) if is_span else None,
        "vendor": vendor,
        "raw": raw,
    }
    if raw.get("type") == "url_citation":
        return Citation("url", url=raw.get("url"), title=raw.get("title"), **common)
    location = {name: raw[name] for name in ("index", "container_id") if raw.get(name) is not None}
    return Citation("document", title=raw.get("filename"), source=raw.get("file_id"), location=location, **common)

    # -- what is sent back ---------------------------------------------------------------------------------------


def call_signature(item: Mapping[str, Any]) -> str | None:
    """The fields that go back with a call of a function, as JSON: a caller that is a program, and a namespace."""
    caller: Any = item.get("caller")
    is_direct = not isinstance(caller, dict) or cast(dict[str, Any], caller).get("type") == "direct"
    kept: dict[str, Any] = {} if is_direct else {"caller": caller}
    kept |= {"namespace": item["namespace"]} if item.get("namespace") else {}
    return msgspec.json.encode({"type": "function_call", **kept}).decode() if kept else None


def call_item(call: ToolCall, ident: str) -> dict[str, Any]:
    """The item of a call in a request. `ident` is the call's id there."""
    arguments = msgspec.json.encode(call.arguments).decode()
    raw = _origin(call)
    if raw is not None and raw["type"] != "function_call":
        return raw
    made = {"type": "function_call", "call_id": ident, "name": call.name, "arguments": arguments}
    return {**made, **(raw or {})}


def result_item(call: ToolCall | None, ident: str, output: Any, is_error: bool) -> dict[str, Any]:
    """The item of a result in a request, for the kind of its call. `output` is a text, or a list of parts."""
    raw = None if call is None else _origin(call)
    kind = "function_call" if raw is None else str(raw["type"])
    parts: list[dict[str, Any]] = [] if isinstance(output, str) else output
    text: str = output if isinstance(output, str) else "".join([str(part.get("text", "")) for part in parts])
    if raw is not None and kind == APPROVAL:
        answer = {"approval_request_id": raw["id"], "approve": not is_error}
        return {"type": "mcp_approval_response", **answer, **({"reason": text} if is_error and text else {})}
    if kind == "local_shell_call":
        return {"type": "local_shell_call_output", "id": ident, "output": text}
    if kind == "tool_search_call":
        return {"type": "tool_search_output", "call_id": ident, "tools": _decoded(text)}
    caller = {"caller": raw["caller"]} if raw is not None and raw.get("caller") else {}
    fields = _shell_output(text, is_error) if kind == "shell_call" else {"output": output}
    if kind == "apply_patch_call":
        fields = {"status": "failed" if is_error else "completed", "output": text}
    elif raw is not None and kind == "computer_call":
        fields = _screenshot(raw, parts)
    return {"type": f"{kind}_output", "call_id": ident, **caller, **fields}


def _shell_output(text: str, is_error: bool) -> dict[str, Any]:
    outcome = {"type": "exit", "exit_code": int(is_error)}
    return {"output": [{"stdout": "", "stderr": "", "outcome": outcome, _STREAMS[is_error]: text}]}


def _screenshot(raw: Mapping[str, Any], parts: list[dict[str, Any]]) -> dict[str, Any]:
    image = next((part["image_url"] for part in parts if "image_url" in part), "")
    checks = raw.get("pending_safety_checks")
    acknowledged = {"acknowledged_safety_checks": checks} if checks else {}
    return {"output": {"type": "computer_screenshot", "image_url": image}, **acknowledged}


def _origin(call: ToolCall) -> dict[str, Any] | None:
    """The vendor's own item of a call, or the fields of a function's; None for another vendor's."""
    if call.signature is None or not call.signature.startswith("{"):
        return None
    try:
        raw = msgspec.json.decode(call.signature, type=dict[str, Any])
    except msgspec.DecodeError:
        return None
    return raw if raw.get("type") in ("function_call", *CLIENT_CALLS) else None
