"""Building the arguments of Gemini's `generateContent`."""

from __future__ import annotations

import base64
import re
from mimetypes import guess_type
from typing import Any, cast

from ...errors import InvalidRequest
from ...types.content import (
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
    text_of,
)
from ...types.requests import ModelSettings
from ..protocol import ModelRequest
from ..shared.history import Entry, Media, build_entries, call_ids, mark_system, output_prompt, take_system_text
from ..shared.support import check_server_tools, check_settings, tool_choice_of
from ..shared.vendor import media_type_of, parse_extra, unsupported
from .settings import SUPPORT, GoogleSettings
from .tools import VENDOR, sent_parts, server_tools

__all__ = ["build_request"]

_IDS = re.compile(r"[A-Za-z0-9_-]{1,64}")
# Google's placeholder for the signature of a call that another vendor's model made.
_NO_SIGNATURE = b"skip_thought_signature_validator"
# Google's token budgets of efforts, for models without thinking levels.
_BUDGETS = {"none": 0, "minimal": 1024, "low": 1024, "medium": 8192, "high": 24576}
_LEVELS = ("minimal", "low", "medium", "high")


def build_request(model: str, name: str, request: ModelRequest) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Build the SDK's contents and config."""
    check_settings(name, request.settings, SUPPORT)
    check_server_tools(name, request.server_tools, SUPPORT)
    is_old = re.match(r"gemini-[12]\.", model.rpartition("/")[2]) is not None
    # A signature may follow the text that it signs.
    found = build_entries(
        request.messages,
        _is_own,
        _accepts,
        lambda part: _in_results(part, is_old),
        signs_behind=True,
        vendor=VENDOR,
    )
    system = take_system_text(request.system, found)
    ids = call_ids(found, _IDS)
    contents = [_content(name, entry, ids, is_old) for entry in found]
    return contents, _config(name, request, is_old, system)


def _is_own(thinking: Thinking) -> bool:
    return thinking.vendor == VENDOR


def _accepts(part: Media) -> bool:
    return isinstance(part.source, Base64 | Url)


def _in_results(part: Media, is_old: bool) -> bool:
    """Whether the part may be in a result: newer models accept images and documents there."""
    return not is_old and isinstance(part, Image | Document) and isinstance(part.source, Base64)


def _config(name: str, request: ModelRequest, is_old: bool, head: str) -> dict[str, Any]:
    settings = request.settings
    extra = dict(parse_extra("google", settings.extra, GoogleSettings))
    include = extra.pop("include_thoughts", None)
    system = [head] if head else []
    config: dict[str, Any] = {
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "max_output_tokens": settings.max_tokens,
        "stop_sequences": list(settings.stop) or None,
        "seed": settings.seed,
        "response_logprobs": None if settings.logprobs is None else True,
        "logprobs": settings.logprobs,
        "service_tier": settings.service_tier,
        "http_options": _http_options(settings),
        # The loop calls the tools and continues.
        "automatic_function_calling": {"disable": True},
        "automatic_continuation": False,
        **extra,
    }
    if (thinking := _thinking(name, settings, is_old, cast("bool | None", include))) is not None:
        config["thinking_config"] = thinking
    if request.tools:
        declared = [
            {"name": t.name, "description": t.description, "parameters_json_schema": t.parameters}
            for t in request.tools
        ]
        config["tools"] = [{"function_declarations": declared}]
    if request.server_tools:
        config["tools"] = [*server_tools(name, request.server_tools), *config.get("tools", ())]
        if request.tools and not is_old:  # Newer models run both kinds in one answer, and show the calls.
            config["tool_config"] = {"include_server_side_tool_invocations": True}
    if (choice := tool_choice_of(name, request)) is not None:
        mode = {"auto": "AUTO", "required": "ANY", "none": "NONE"}.get(choice)
        calling = {"mode": "ANY", "allowed_function_names": [choice]} if mode is None else {"mode": mode}
        config["tool_config"] = {**config.get("tool_config", {}), "function_calling_config": calling}
    if request.output is not None:
        if is_old and request.tools:  # Older models can't combine a schema with tools.
            system.append(output_prompt(request.output))
        else:
            config |= {"response_mime_type": "application/json", "response_json_schema": request.output.schema}
    if system:
        config["system_instruction"] = "\n\n".join(system)
    return {key: value for key, value in config.items() if value is not None}


def _http_options(settings: ModelSettings) -> dict[str, Any] | None:
    options: dict[str, Any] = {"headers": settings.headers, "extra_body": settings.body}
    return {name: value for name, value in options.items() if value} or None


def _thinking(name: str, settings: ModelSettings, is_old: bool, include: bool | None) -> dict[str, Any] | None:
    effort = settings.reasoning
    if effort is None:
        return None if include is None else {"include_thoughts": include}
    thinking: dict[str, Any] = {"include_thoughts": True if include is None else include}
    if isinstance(effort, int):
        return {**thinking, "thinking_budget": effort}
    if is_old and effort in _BUDGETS:
        return {**thinking, "thinking_budget": _BUDGETS[effort]}
    if effort == "none":
        return {**thinking, "thinking_budget": 0}
    if effort in _LEVELS:
        return {**thinking, "thinking_level": effort.upper()}
    known = ", ".join(("none", *_LEVELS))
    raise InvalidRequest(f"{name} has no reasoning {effort!r}: say {known}, or a number of tokens")


def _content(name: str, entry: Entry, ids: dict[str, str], is_old: bool) -> dict[str, Any]:
    if entry.role == "tool":
        return {"role": "user", "parts": [_result(name, reply, ids[reply.call_id]) for reply in entry.replies]}
    if entry.role == "system":
        texts = [part.text for part in entry.content if isinstance(part, Text)]
        return {"role": "user", "parts": [{"text": mark_system(text)} for text in texts]}
    if entry.role != "assistant":
        return {
            "role": "user",
            "parts": [_part(name, cast(Text | Media, part), "a message") for part in entry.content],
        }
    first = next((call.id for call in entry.calls), None)
    parts: list[dict[str, Any]] = []
    for part in entry.content:
        if isinstance(part, ServerTool):
            parts += sent_parts(part.raw)
        else:
            parts.append(_answer_part(name, part, ids, first, is_old))
    return {"role": "model", "parts": parts}


def _answer_part(name: str, part: Content, ids: dict[str, str], first: str | None, is_old: bool) -> dict[str, Any]:
    if isinstance(part, Thinking):
        # A signature without text belongs to the part before it and is sent back in the same form.
        thought = {"text": part.text, "thought": True} if part.text else {"text": ""}
        return thought | _signature_field(part.signature)
    if isinstance(part, ToolCall):
        call = {"id": ids[part.id], "name": part.name, "args": part.arguments}
        # OpenAI's calls are signed by their own items, as JSON.
        signature = None if part.signature is None or part.signature.startswith("{") else part.signature
        if signature is None and part.id == first and not is_old:
            return {"function_call": call, "thought_signature": _NO_SIGNATURE}
        return {"function_call": call} | _signature_field(signature)
    return _part(name, cast(Text | Media, part), "an answer")


def _signature_field(signature: str | None) -> dict[str, Any]:
    try:
        return {} if signature is None else {"thought_signature": base64.b64decode(signature, validate=True)}
    except ValueError:
        return {}  # Another vendor's.


def _result(name: str, reply: ToolReply, call_id: str) -> dict[str, Any]:
    text = text_of(cast(tuple[Content, ...], reply.content))
    media = [_part(name, cast(Media, part), "a result") for part in reply.content if not isinstance(part, Text)]
    response: dict[str, Any] = {
        "id": call_id,
        "name": reply.name,
        "response": {"result" if reply.error is None else "error": text},
    }
    return {"function_response": {**response, "parts": media} if media else response}


def _part(name: str, part: Text | Media, where: str) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"text": part.text}
    source = part.source
    if isinstance(source, Base64):
        return {"inline_data": {"mime_type": media_type_of(part), "data": base64.b64decode(source.data)}}
    if isinstance(source, Url):
        kind = _url_type(source)
        return {"file_data": {"file_uri": source.url} | ({"mime_type": kind} if kind else {})}
    raise unsupported(name, part, where)


def _url_type(source: Url) -> str | None:
    """The media type of a URL: its own if it is exact, else by the path's extension."""
    kind = source.media_type or ""
    if not kind or kind.endswith("/*") or kind == "application/octet-stream":
        return guess_type(source.url.partition("?")[0])[0]
    return kind
