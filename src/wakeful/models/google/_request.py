"""From a request to what Gemini's `generateContent` takes."""

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
from .._history import Entry, Media, call_ids, entries, output_prompt
from .._protocol import ModelRequest
from .._vendor import media_type_of, settings_of, unsupported

__all__ = ["VENDOR", "GoogleSettings", "request_of"]

VENDOR = "google"

_IDS = re.compile(r"[A-Za-z0-9_-]{1,64}")
# Google's own way to say that a call in the history was made by another model, which has no signature for it.
_FOREIGN = b"skip_thought_signature_validator"
# What Google's own table makes of efforts for the models that count tokens.
_BUDGETS = {"none": 0, "minimal": 1024, "low": 1024, "medium": 8192, "high": 24576}
_LEVELS = ("minimal", "low", "medium", "high")


class GoogleSettings(TypedDict, total=False):
    """What `ModelSettings(extra=...)` may hold; the names and values are Gemini's own."""

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


def request_of(model: str, name: str, request: ModelRequest) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The contents and the config, as the SDK takes them."""
    old = re.match(r"gemini-[12]\.", model.rpartition("/")[2]) is not None
    # A signature may come behind the text that it signs.
    found = entries(request.messages, _ours, _takes, lambda part: _in_results(part, old), signs_behind=True)
    ids = call_ids(found, _IDS)
    contents = [_content(name, entry, ids, old) for entry in found]
    return contents, _config(name, request, old)


def _ours(thinking: Thinking) -> bool:
    return thinking.vendor == VENDOR


def _takes(part: Media) -> bool:
    return isinstance(part.source, Base64 | Url)


def _in_results(part: Media, old: bool) -> bool:
    """Whether it may stand within a result: newer models take pictures and documents there."""
    return not old and isinstance(part, Image | Document) and isinstance(part.source, Base64)


def _config(name: str, request: ModelRequest, old: bool) -> dict[str, Any]:
    settings = request.settings
    extra = dict(settings_of("google", settings.extra, GoogleSettings))
    include, choice = extra.pop("include_thoughts", None), extra.pop("tool_choice", None)
    system = [request.system] if request.system else []
    config: dict[str, Any] = {
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "max_output_tokens": settings.max_tokens,
        "stop_sequences": list(settings.stop) or None,
        # Whoever asks calls the tools, and asks again.
        "automatic_function_calling": {"disable": True},
        "automatic_continuation": False,
        **extra,
    }
    if (thinking := _thinking(name, settings, old, cast("bool | None", include))) is not None:
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
        if old and request.tools:  # These can't be held to a schema and call tools as well.
            system.append(output_prompt(request.output))
        else:
            config |= {"response_mime_type": "application/json", "response_json_schema": request.output.schema}
    if system:
        config["system_instruction"] = "\n\n".join(system)
    return {key: value for key, value in config.items() if value is not None}


def _thinking(name: str, settings: ModelSettings, old: bool, include: bool | None) -> dict[str, Any] | None:
    effort = settings.reasoning
    if effort is None:
        return None if include is None else {"include_thoughts": include}
    thinking: dict[str, Any] = {"include_thoughts": True if include is None else include}
    if isinstance(effort, int):
        return {**thinking, "thinking_budget": effort}
    if old and effort in _BUDGETS:
        return {**thinking, "thinking_budget": _BUDGETS[effort]}
    if effort == "none":
        return {**thinking, "thinking_budget": 0}
    if effort in _LEVELS:
        return {**thinking, "thinking_level": effort.upper()}
    known = ", ".join(("none", *_LEVELS))
    raise InvalidRequest(f"{name} has no reasoning {effort!r}: say {known}, or a number of tokens")


def _content(name: str, entry: Entry, ids: dict[str, str], old: bool) -> dict[str, Any]:
    if entry.role == "tool":
        return {"role": "user", "parts": [_result(name, reply, ids[reply.call_id]) for reply in entry.replies]}
    if entry.role != "assistant":
        return {
            "role": "user",
            "parts": [_part(name, cast(Text | Media, part), "a message") for part in entry.content],
        }
    first = next((call.id for call in entry.calls), None)
    return {"role": "model", "parts": [_said(name, part, ids, first, old) for part in entry.content]}


def _said(name: str, part: Content, ids: dict[str, str], first: str | None, old: bool) -> dict[str, Any]:
    if isinstance(part, Thinking):
        # A signature that came without a text belongs to the part before it, and goes back the way it came.
        thought = {"text": part.text, "thought": True} if part.text else {"text": ""}
        return thought | _signed(part.signature)
    if isinstance(part, ToolCall):
        call = {"id": ids[part.id], "name": part.name, "args": part.arguments}
        if part.signature is None and part.id == first and not old:
            return {"function_call": call, "thought_signature": _FOREIGN}
        return {"function_call": call} | _signed(part.signature)
    return _part(name, cast(Text | Media, part), "an answer")


def _signed(signature: str | None) -> dict[str, Any]:
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
