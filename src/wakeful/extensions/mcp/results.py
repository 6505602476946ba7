"""Results of servers as results of tools."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from ...errors import ToolError
from ...tools import ToolResult
from ...types.content import Artifact, Audio, Base64, Document, Image, Part, Text, part_problem

__all__ = ["parts_of", "result_of"]

MAX_METADATA_BYTES = 64 * 1024
MAX_PARTS = 200


def result_of(result: Mapping[str, Any], declined: list[str]) -> ToolResult:
    """Convert a result, given as JSON data; raises `ToolError` if it is an error.

    `declined` are questions of the server that nobody was asked.
    """
    content: list[Mapping[str, Any]] = result.get("content") or []
    parts = list(parts_of(content[:MAX_PARTS]))
    if len(content) > MAX_PARTS:
        parts.append(Text(f"[{len(content) - MAX_PARTS:,} more parts left out]"))
    parts += [Text(_note(question)) for question in declined]
    if result.get("isError"):
        text = "\n".join([part.text for part in parts if isinstance(part, Text)])
        raise ToolError(text or "the server reported an error and said nothing about it")
    data = result.get("structuredContent")
    if data is not None and not any(isinstance(part, Text) for part in parts):
        parts.insert(0, Text(msgspec.json.encode(data).decode()))
    artifacts = [
        Artifact(block["uri"], name=block.get("name"), media_type=block.get("mimeType"))
        for block in content[:MAX_PARTS]
        if block.get("type") == "resource_link"
    ]
    return ToolResult(data=data, content=parts or [Text("")], metadata=_metadata(result), artifacts=artifacts)


def _note(question: str) -> str:
    return (
        f"\n[the server asked a question, which was declined: {question!r}. The effect of this tool is 'once', so "
        "it can't wait for a person and run again; MCP(effects={...}) can say otherwise]"
    )


def _metadata(result: Mapping[str, Any]) -> dict[str, Any]:
    given: dict[str, Any] = result.get("_meta") or {}
    meta = {name: value for name, value in given.items() if not name.startswith("io.modelcontextprotocol/")}
    return meta if len(msgspec.json.encode(meta)) <= MAX_METADATA_BYTES else {}


def parts_of(content: list[Mapping[str, Any]]) -> Iterator[Part]:
    """Yield content blocks as parts; a block that can't be shown becomes a note."""
    for block in content:
        part = _part(block)
        problem = part_problem(part)
        yield Text(f"[{block.get('type')} left out: {problem}]") if problem else part


def _part(block: Mapping[str, Any]) -> Part:
    kind, mime = block.get("type"), block.get("mimeType") or "application/octet-stream"
    match kind:
        case "text":
            return Text(block["text"])
        case "image" | "audio" if not _is_base64(block["data"]):
            return Text(f"[{kind} left out: its data isn't Base64]")
        case "image":
            return Image(Base64(mime, block["data"]))
        case "audio":
            return Audio(Base64(mime, block["data"]))
        case "resource_link":
            about = block.get("description") or block.get("title") or ""
            return Text(f"[resource {block.get('name') or ''}: {block['uri']}{f' ({about})' if about else ''}]")
        case "resource":
            return _resource(block["resource"])
        case _:
            return Text(f"[content of the type {kind!r:.40} left out]")


def _is_base64(data: str) -> bool:
    try:
        b64decode(data, validate=True)
    except ValueError:
        return False
    return True


def _resource(resource: Mapping[str, Any]) -> Part:
    if "text" in resource:
        return Text(resource["text"])
    mime = resource.get("mimeType") or "application/octet-stream"
    if not _is_base64(resource.get("blob", "")):
        return Text(f"[resource {resource.get('uri')} left out: its data isn't Base64]")
    source = Base64(mime, resource.get("blob", ""))
    return Image(source) if mime.startswith("image/") else Document(source, resource.get("uri"))
