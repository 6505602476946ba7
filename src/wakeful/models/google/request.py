"""Building the arguments of Gemini's `generateContent`."""

from __future__ import annotations

import base64
import re
from mimetypes import guess_type
from typing import Any, Literal, TypedDict, cast

from ...errors import InvalidRequest
from ...types.content import (
    Base64,
    Content,
    Document,
    Image,
    Text,
    Thinking,
    ToolCall,
    ToolReply,
    Url,
    text_of,
)
from ...types.requests import ModelSettings
from ..protocol import ModelRequest
from ..shared.history import Entry, Media, build_entries, call_ids, output_prompt
from ..shared.vendor import media_type_of, parse_extra, unsupported

__all__ = ["VENDOR", "GoogleSettings", "build_request"]

VENDOR = "google"

_IDS = re.compile(r"[A-Za-z0-9_-]{1,64}")
# Google's placeholder for the signature of a call that another vendor's model made.
_NO_SIGNATURE = b"skip_thought_signature_validator"
# Google's token budgets of efforts, for models without thinking levels.
_BUDGETS = {"none": 0, "minimal": 1024, "low": 1024, "medium": 8192, "high": 24576}
_LEVELS = ("minimal", "low", "medium", "high")


class GoogleSettings(TypedDict, total=False):
    """The keys of `ModelSettings.extra`; names and values are Gemini's own."""

    top_k: float
    seed: int
    presence_penalty: float
    frequency_penalty: float
    safety_settings: list[dict[str, Any]]
    cached_content: str
    labels: dict[str, str]
    media_resolution: str
    response_modalities: list[str]
    speech_config: dict[str, Any]
    image_config: dict[str, Any]
    service_tier: str
    include_thoughts: bool
    tool_choice: Literal["auto", "any", "none", "validated"]


def build_request(model: str, name: str, request: ModelRequest) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Build the SDK's contents and config."""
    is_old = re.match(r"gemini-[12]\.", model.rpartition("/")[2]) is not None
    # A signature may follow the text that it signs.
    found = build_entries(
        request.messages, _is_own, _accepts, lambda part: _in_results(part, is_old), signs_behind=True
    )
    ids = call_ids(found, _IDS)
    contents = [_content(name, entry, ids, is_old) for entry in found]
    return contents, _config(name, request, is_old)


def _is_own(thinking: Thinking) -> bool:
    return thinking.vendor == VENDOR


def _accepts(part: Media) -> bool:
    return isinstance(part.source, Base64 | Url)


def _in_results(part: Media, is_old: bool) -> bool:
    """Whether the part may be in a result: newer models accept images and documents there."""
    return not is_old and isinstance(part, Image | Document) and isinstance(part.source, Base64)


def _config(name: str, request: ModelRequest, is_old: bool) -> dict[str, Any]:
    settings = request.settings
    extra = dict(parse_extra("google", settings.extra, GoogleSettings))
    include, choice = extra.pop("include_thoughts", None), extra.pop("tool_choice", None)
    system = [request.system] if request.system else []
    config: dict[str, Any] = {
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "max_output_tokens": settings.max_tokens,
        "stop_sequences": list(settings.stop) or None,
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
        if choice is not None:
            config["tool_config"] = {"function_calling_config": {"mode": cast(str, choice).upper()}}
    if request.output is not None:
        if is_old and request.tools:  # Older models can't combine a schema with tools.
            system.append(output_prompt(request.output))
        else:
            config |= {"response_mime_type": "application/json", "response_json_schema": request.output.schema}
    if system:
        config["system_instruction"] = "\n\n".join(system)
    return {key: value for key, value in config.items() if value is not None}


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
    if entry.role != "assistant":
        return {
            "role": "user",
            "parts": [_part(name, cast(Text | Media, part), "a message") for part in entry.content],
        }
    first = next((call.id for call in entry.calls), None)
    return {"role": "model", "parts": [_answer_part(name, part, ids, first, is_old) for part in entry.content]}


def _answer_part(name: str, part: Content, ids: dict[str, str], first: str | None, is_old: bool) -> dict[str, Any]:
    if isinstance(part, Thinking):
        # A signature without text belongs to the part before it and is sent back in the same form.
        thought = {"text": part.text, "thought": True} if part.text else {"text": ""}
        return thought | _signature_field(part.signature)
    if isinstance(part, ToolCall):
        call = {"id": ids[part.id], "name": part.name, "args": part.arguments}
        if part.signature is None and part.id == first and not is_old:
            return {"function_call": call, "thought_signature": _NO_SIGNATURE}
        return {"function_call": call} | _signature_field(part.signature)
    return _part(name, cast(Text | Media, part), "an answer")


def _signature_field(signature: str | None) -> dict[str, Any]:
    return {} if signature is None else {"thought_signature": base64.b64decode(signature)}


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
        kind = guess_type(source.url.partition("?")[0])[0]
        return {"file_data": {"file_uri": source.url} | ({"mime_type": kind} if kind else {})}
    raise unsupported(name, part, where)
