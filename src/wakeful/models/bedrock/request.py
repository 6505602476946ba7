"""Building the arguments of Bedrock's `converse_stream`."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from ...errors import InvalidRequest
from ...types.content import (
    Audio,
    Base64,
    Content,
    Document,
    Image,
    ServerTool,
    Text,
    Thinking,
    ToolCall,
    ToolReply,
    Url,
    Video,
)
from ..protocol import ModelRequest
from ..shared.history import Entry, Media, build_entries, call_ids, mark_system, output_prompt, take_system_text
from ..shared.support import check_server_tools, check_settings, tool_choice_of
from ..shared.vendor import media_type_of, unsupported
from .settings import SUPPORT, parse_settings, reasoning_fields, supports_cache, supports_schemas
from .system_tools import VENDOR, system_tools

__all__ = ["build_request"]

_IDS = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_CACHE_POINT = {"cachePoint": {"type": "default"}}

_DOCUMENTS = {
    "application/pdf": "pdf",
    "application/msword": "doc",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "text/csv": "csv",
    "text/html": "html",
    "text/plain": "txt",
    "text/markdown": "md",
}
_FORMATS: dict[type, dict[str, str]] = {
    Image: {f"image/{kind}": kind for kind in ("png", "jpeg", "gif", "webp")} | {"image/jpg": "jpeg"},
    Audio: {f"audio/{kind}": kind for kind in ("mp3", "opus", "wav", "aac", "flac", "ogg", "m4a", "mp4", "webm")}
    | {"audio/mpeg": "mp3", "audio/x-wav": "wav", "audio/wave": "wav"},
    Video: {f"video/{kind}": kind for kind in ("mp4", "webm", "mpeg")}
    | {
        "video/x-matroska": "mkv",
        "video/quicktime": "mov",
        "video/x-flv": "flv",
        "video/x-ms-wmv": "wmv",
        "video/3gpp": "three_gp",
    },
    Document: _DOCUMENTS,
}
_NAMES: dict[type, str] = {Image: "image", Audio: "audio", Video: "video", Document: "document"}
# The format of a file by its extension, if they differ.
_EXTENSIONS = {"jpg": "jpeg", "markdown": "md", "text": "txt", "3gp": "three_gp", "htm": "html"}


def build_request(model: str, name: str, request: ModelRequest) -> dict[str, Any]:
    """Build the arguments of `converse_stream`."""
    chosen, extra = request.settings, parse_settings(request.settings.extra)
    check_settings(name, chosen, SUPPORT)
    check_server_tools(name, request.server_tools, SUPPORT)
    found = build_entries(request.messages, _is_own, _accepts, _in_results, vendor=VENDOR)
    cached = extra.get("cache", supports_cache(model))
    head = take_system_text(request.system, found)
    system = [head] if head else []
    fields, output = dict(extra.get("fields", {})), dict[str, Any]()
    if chosen.reasoning is not None:
        own, effort = reasoning_fields(name, model, chosen.reasoning)
        fields = {**own, **fields}
        if effort is not None:
            output["effort"] = effort
    if request.output is not None:
        if supports_schemas(model) and request.output.schema.get("type") == "object":
            schema = msgspec.json.encode(_close_schema(request.output.schema)).decode()
            structure = {"jsonSchema": {"schema": schema, "name": request.output.name}}
            output["textFormat"] = {"type": "json_schema", "structure": structure}
        else:
            system.append(output_prompt(request.output))
    inference = {
        "maxTokens": chosen.max_tokens,
        "temperature": chosen.temperature,
        "topP": chosen.top_p,
        "stopSequences": list(chosen.stop) or None,
    }
    body: dict[str, Any] = {
        "modelId": model,
        "messages": _messages(name, found, cached),
        "system": [*[{"text": text} for text in system], *([_CACHE_POINT] if cached and system else [])],
        "inferenceConfig": {key: value for key, value in inference.items() if value is not None},
        "toolConfig": _tools(name, model, request, found),
        "additionalModelRequestFields": fields,
        "outputConfig": output,
        "guardrailConfig": extra.get("guardrail"),
        "performanceConfig": {"latency": extra["latency"]} if "latency" in extra else None,
        "serviceTier": {"type": chosen.service_tier} if chosen.service_tier else None,
        "requestMetadata": extra.get("metadata"),
        **chosen.body,
    }
    return {key: value for key, value in body.items() if value}


def _is_own(thinking: Thinking) -> bool:
    return thinking.vendor == VENDOR


def _accepts(part: Media) -> bool:
    if isinstance(part.source, Url):
        return part.source.url.startswith("s3://")
    return media_type_of(part) in _FORMATS[type(part)]


def _in_results(part: Media) -> bool:
    return _accepts(part) and not isinstance(part, Audio)


def _close_schema(schema: Any) -> Any:
    """Forbid additional properties in a schema, as vendors require."""
    if isinstance(schema, list):
        return [_close_schema(each) for each in cast(list[Any], schema)]
    if not isinstance(schema, dict):
        return schema
    found = {key: _close_schema(value) for key, value in cast(dict[str, Any], schema).items()}
    return {"additionalProperties": False, **found} if found.get("type") == "object" else found


def _tools(shown: str, model: str, request: ModelRequest, found: Sequence[Entry]) -> dict[str, Any] | None:
    choice = tool_choice_of(shown, request)
    if choice == "none":
        raise InvalidRequest(f"{shown}: Converse has no tool_choice 'none'; leave the tools out of the request")
    tools: list[dict[str, Any]] = [
        {
            "toolSpec": {
                "name": tool.name,
                **({"description": tool.description} if tool.description else {}),
                "inputSchema": {"json": tool.parameters},
            }
        }
        for tool in request.tools
    ]
    tools += system_tools(shown, model, request.server_tools)
    if not tools:
        # Bedrock refuses a conversation with calls if no tool is declared.
        names = dict.fromkeys(call.name for entry in found for call in entry.calls)
        tools = [{"toolSpec": {"name": name, "inputSchema": {"json": {"type": "object"}}}} for name in names]
    if not tools:
        return None
    if choice is None:
        return {"tools": tools}
    kind = {"auto": "auto", "required": "any"}.get(choice)
    return {"tools": tools, "toolChoice": {"tool": {"name": choice}} if kind is None else {kind: {}}}


def _messages(name: str, found: Sequence[Entry], cached: bool) -> list[dict[str, Any]]:
    ids, used_names = call_ids(found, _IDS), set[str]()
    messages: list[dict[str, Any]] = []
    for entry in found:
        role = "assistant" if entry.role == "assistant" else "user"
        blocks: list[dict[str, Any]] = []
        for part in entry.content:
            if isinstance(part, ServerTool):
                blocks += part.raw
            elif entry.role == "system":
                blocks += [{"text": mark_system(part.text)}] if isinstance(part, Text) else []
            else:
                blocks.append(_block(name, part, ids, used_names))
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += blocks
        else:
            messages.append({"role": role, "content": blocks})
    if messages and messages[0]["role"] == "assistant":
        # The API refuses a conversation that doesn't start with the user.
        messages.insert(0, {"role": "user", "content": [{"text": "The conversation begins."}]})
    for message in messages:
        # A document needs a text beside it.
        if any("document" in block for block in message["content"]) and not _has_text(message["content"]):
            message["content"].insert(0, {"text": "See the document."})
    if cached and messages and messages[-1]["role"] == "user":
        messages[-1]["content"].append(_CACHE_POINT)
    return messages


def _has_text(blocks: list[dict[str, Any]]) -> bool:
    return any("text" in block for block in blocks)


def _block(name: str, part: Content, ids: dict[str, str], used_names: set[str]) -> dict[str, Any]:
    if isinstance(part, ToolCall):
        return {"toolUse": {"toolUseId": ids[part.id], "name": part.name, "input": part.arguments}}
    if isinstance(part, ToolReply):
        return {"toolResult": _result(name, part, ids[part.call_id], used_names)}
    if isinstance(part, Thinking):
        if part.encrypted is not None:
            return {"reasoningContent": {"redactedContent": base64.b64decode(part.encrypted)}}
        signed = {} if part.signature is None else {"signature": part.signature}
        return {"reasoningContent": {"reasoningText": {"text": part.text, **signed}}}
    return _part(name, cast(Text | Media, part), "a message", used_names)


def _result(name: str, reply: ToolReply, call_id: str, used_names: set[str]) -> dict[str, Any]:
    shown = [part for part in reply.content if not (isinstance(part, Text) and not part.text)]
    content = [_part(name, cast(Text | Media, part), "a result", used_names) for part in shown] or [
        {"text": "There is no output."}
    ]
    return {"toolUseId": call_id, "content": content, **({"status": "error"} if reply.error is not None else {})}


def _part(name: str, part: Text | Media, where: str, used_names: set[str]) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"text": part.text}
    if not _accepts(part):
        known = ", ".join(sorted(set(_FORMATS[type(part)].values())))
        raise unsupported(name, part, where, f"it takes {known}, and URLs that begin with s3://")
    source = part.source
    if isinstance(source, Base64):
        kind = _FORMATS[type(part)][media_type_of(part)]
        block: dict[str, Any] = {"format": kind, "source": {"bytes": base64.b64decode(source.data)}}
    else:
        at = cast(Url, source)
        extension = at.url.rpartition(".")[2].lower()
        kind = _FORMATS[type(part)].get(at.media_type or "") or _EXTENSIONS.get(extension, extension)
        block = {"format": kind, "source": {"s3Location": {"uri": at.url}}}
    if isinstance(part, Document):
        block["name"] = _name(part.title or "document", used_names)
    return {_NAMES[type(part)]: block}


def _name(title: str, used_names: set[str]) -> str:
    """Make a unique document name of the characters that Bedrock accepts."""
    plain = " ".join(re.sub(r"[^A-Za-z0-9()\[\]-]", " ", title).split())[:180] or "document"
    name, count = plain, 1
    while name in used_names:
        count += 1
        name = f"{plain} {count}"
    used_names.add(name)
    return name
