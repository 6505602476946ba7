"""From a request to what Bedrock's `converse_stream` takes."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from ...types.content import (
    Audio,
    Base64,
    Content,
    Document,
    Image,
    Text,
    Thinking,
    ToolCall,
    ToolReply,
    Url,
    Video,
)
from .._history import Entry, Media, call_ids, entries, output_prompt
from .._protocol import ModelRequest
from .._vendor import media_type_of, unsupported
from ._settings import caches, holds_to_schemas, reasoning_fields, settings

__all__ = ["VENDOR", "request_of"]

VENDOR = "bedrock"

_IDS = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MARK = {"cachePoint": {"type": "default"}}

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
# What a file at an address is, by the end of its name.
_ENDINGS = {"jpg": "jpeg", "markdown": "md", "text": "txt", "3gp": "three_gp", "htm": "html"}


def request_of(model: str, name: str, request: ModelRequest) -> dict[str, Any]:
    """The arguments of `converse_stream`."""
    chosen, extra = request.settings, settings(request.settings.extra)
    found = entries(request.messages, _ours, _takes, _in_results)
    cached = extra.get("cache", caches(model))
    system = [request.system] if request.system else []
    fields, output = dict(extra.get("fields", {})), dict[str, Any]()
    if chosen.reasoning is not None:
        own, effort = reasoning_fields(name, model, chosen.reasoning)
        fields = {**own, **fields}
        if effort is not None:
            output["effort"] = effort
    if request.output is not None:
        if holds_to_schemas(model) and request.output.schema.get("type") == "object":
            schema = msgspec.json.encode(_closed(request.output.schema)).decode()
            held = {"jsonSchema": {"schema": schema, "name": request.output.name}}
            output["textFormat"] = {"type": "json_schema", "structure": held}
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
        "system": [*[{"text": text} for text in system], *([_MARK] if cached and system else [])],
        "inferenceConfig": {key: value for key, value in inference.items() if value is not None},
        "toolConfig": _tools(request, found, extra.get("tool_choice")),
        "additionalModelRequestFields": fields,
        "outputConfig": output,
        "guardrailConfig": extra.get("guardrail"),
        "performanceConfig": {"latency": extra["latency"]} if "latency" in extra else None,
        "serviceTier": {"type": extra["service_tier"]} if "service_tier" in extra else None,
        "requestMetadata": extra.get("metadata"),
    }
    return {key: value for key, value in body.items() if value}


def _ours(thinking: Thinking) -> bool:
    return thinking.vendor == VENDOR


def _takes(part: Media) -> bool:
    if isinstance(part.source, Url):
        return part.source.url.startswith("s3://")
    return media_type_of(part) in _FORMATS[type(part)]


def _in_results(part: Media) -> bool:
    return _takes(part) and not isinstance(part, Audio)


def _closed(schema: Any) -> Any:
    """The schema with no room for fields that it doesn't name, which is what vendors hold an answer to."""
    if isinstance(schema, list):
        return [_closed(each) for each in cast(list[Any], schema)]
    if not isinstance(schema, dict):
        return schema
    found = {key: _closed(value) for key, value in cast(dict[str, Any], schema).items()}
    return {"additionalProperties": False, **found} if found.get("type") == "object" else found


def _tools(request: ModelRequest, found: Sequence[Entry], choice: str | None) -> dict[str, Any] | None:
    tools = [
        {
            "toolSpec": {
                "name": tool.name,
                **({"description": tool.description} if tool.description else {}),
                "inputSchema": {"json": tool.parameters},
            }
        }
        for tool in request.tools
    ]
    if not tools:
        # A conversation with calls in it is refused where no tool is declared, even if none is offered.
        names = dict.fromkeys(call.name for entry in found for call in entry.calls)
        tools = [{"toolSpec": {"name": name, "inputSchema": {"json": {"type": "object"}}}} for name in names]
        choice = None
    if not tools:
        return None
    if choice is None:
        return {"tools": tools}
    return {
        "tools": tools,
        "toolChoice": {choice: {}} if choice in ("auto", "any") else {"tool": {"name": choice}},
    }


def _messages(name: str, found: Sequence[Entry], cached: bool) -> list[dict[str, Any]]:
    ids, named = call_ids(found, _IDS), set[str]()
    messages: list[dict[str, Any]] = []
    for entry in found:
        role = "assistant" if entry.role == "assistant" else "user"
        blocks = [_block(name, part, ids, named) for part in entry.content]
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += blocks
        else:
            messages.append({"role": role, "content": blocks})
    for message in messages:
        # A document must not stand alone.
        if any("document" in block for block in message["content"]) and not _has_text(message["content"]):
            message["content"].insert(0, {"text": "See the document."})
    if cached and messages and messages[-1]["role"] == "user":
        messages[-1]["content"].append(_MARK)
    return messages


def _has_text(blocks: list[dict[str, Any]]) -> bool:
    return any("text" in block for block in blocks)


def _block(name: str, part: Content, ids: dict[str, str], named: set[str]) -> dict[str, Any]:
    if isinstance(part, ToolCall):
        return {"toolUse": {"toolUseId": ids[part.id], "name": part.name, "input": part.arguments}}
    if isinstance(part, ToolReply):
        return {"toolResult": _result(name, part, ids[part.call_id], named)}
    if isinstance(part, Thinking):
        if part.encrypted is not None:
            return {"reasoningContent": {"redactedContent": base64.b64decode(part.encrypted)}}
        signed = {} if part.signature is None else {"signature": part.signature}
        return {"reasoningContent": {"reasoningText": {"text": part.text, **signed}}}
    return _part(name, cast(Text | Media, part), "a message", named)


def _result(name: str, reply: ToolReply, call_id: str, named: set[str]) -> dict[str, Any]:
    shown = [part for part in reply.content if not (isinstance(part, Text) and not part.text)]
    content = [_part(name, cast(Text | Media, part), "a result", named) for part in shown] or [
        {"text": "There is no output."}
    ]
    return {"toolUseId": call_id, "content": content, **({"status": "error"} if reply.error is not None else {})}


def _part(name: str, part: Text | Media, where: str, named: set[str]) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"text": part.text}
    if not _takes(part):
        known = ", ".join(sorted(set(_FORMATS[type(part)].values())))
        raise unsupported(name, part, where, f"it takes {known}, and addresses that begin with s3://")
    source = part.source
    if isinstance(source, Base64):
        kind = _FORMATS[type(part)][media_type_of(part)]
        block: dict[str, Any] = {"format": kind, "source": {"bytes": base64.b64decode(source.data)}}
    else:
        url = cast(Url, source).url
        ending = url.rpartition(".")[2].lower()
        block = {"format": _ENDINGS.get(ending, ending), "source": {"s3Location": {"uri": url}}}
    if isinstance(part, Document):
        block["name"] = _name(part.title or "document", named)
    return {_NAMES[type(part)]: block}


def _name(title: str, named: set[str]) -> str:
    """A document's name in the letters that Bedrock takes, and one that no other document has."""
    plain = " ".join(re.sub(r"[^A-Za-z0-9()\[\]-]", " ", title).split())[:180] or "document"
    name, count = plain, 1
    while name in named:
        count += 1
        name = f"{plain} {count}"
    named.add(name)
    return name
