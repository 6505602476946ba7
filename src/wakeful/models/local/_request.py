"""A request in the words of a small chat model: text, and tools told in the system text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict, cast

from ...errors import InvalidRequest
from ...types.content import Content, Text, ToolCall, ToolReply
from ...types.requests import ToolSpec
from .._history import Media, entries
from .._protocol import ModelRequest
from .._vendor import settings_of, unsupported
from ._choice import ToolChoice, choice_schema, choice_text

__all__ = ["LocalSettings", "asked"]

# What the model's makers recommend.
TEMPERATURE = 0.2
TOP_P = 0.9
# Else it says the same again and again.
REPEAT_PENALTY = 1.1
# A small model that has lost its way doesn't come to an end by itself.
MAX_TOKENS = 1024


class LocalSettings(TypedDict, total=False):
    """What `ModelSettings(extra=...)` may hold."""

    seed: int
    top_k: int
    min_p: float
    repeat_penalty: float
    tool_choice: ToolChoice


def asked(name: str, request: ModelRequest) -> tuple[dict[str, Any], bool]:
    """The request as the library takes it, and whether the answer is a choice."""
    settings = request.settings
    extra = settings_of("local", settings.extra, LocalSettings)
    if settings.reasoning is not None:
        raise InvalidRequest(f"{name} doesn't reason; leave ModelSettings(reasoning=...) out")
    choice = extra.pop("tool_choice", "auto")
    tools = request.tools if choice != "none" else ()
    # What a cache held is computed in other batches, and rounds otherwise.
    exact = settings.temperature == 0 or "seed" in extra
    body: dict[str, Any] = {
        "messages": _messages(name, request, tools),
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": TEMPERATURE if settings.temperature is None else settings.temperature,
        "top_p": TOP_P if settings.top_p is None else settings.top_p,
        "max_tokens": settings.max_tokens or MAX_TOKENS,
        "repeat_penalty": REPEAT_PENALTY,
        "cache_prompt": not exact,
        **extra,
    }
    if settings.stop:
        body["stop"] = list(settings.stop)
    if (schema := choice_schema(tools, request.output, choice)) is not None:
        body["json_schema"] = schema
    return body, bool(tools)


def _none(part: object) -> bool:
    return False


def _messages(name: str, request: ModelRequest, tools: Sequence[ToolSpec]) -> list[dict[str, str]]:
    system = "\n\n".join(part for part in (request.system, _told(tools)) if part)
    found: list[dict[str, str]] = [{"role": "system", "content": system}] if system else []
    for entry in entries(request.messages, _none, _none, _none):
        if entry.role == "tool":
            texts = [_result(name, reply) for reply in entry.replies]
            found.append({"role": "user", "content": "\n".join(texts)})
        elif entry.role == "assistant":
            texts = [_said(name, part, bool(tools)) for part in entry.content]
            found.append({"role": "assistant", "content": "\n".join(texts)})
        else:
            content = "\n".join(_text(name, cast(Text | Media, part), "a message") for part in entry.content)
            found.append({"role": entry.role, "content": content})
    return found


def _told(tools: Sequence[ToolSpec]) -> str:
    if not tools:
        return ""
    lines = [
        f"- {tool.name}({', '.join(tool.parameters.get('properties', {}))}): {tool.description}".rstrip(": ")
        for tool in tools
    ]
    example = tools[0]
    arguments = dict.fromkeys(example.parameters.get("properties", {}), "...")
    return "\n".join(
        [
            "You have these tools:",
            *lines,
            f"To use a tool write {choice_text(call=example.name, arguments=arguments)}",
            f"To answer the user write {choice_text(answer='...')}",
            "Use a tool whenever one can help. Once you have its result, answer.",
        ]
    )


def _said(name: str, part: Content, choosing: bool) -> str:
    if isinstance(part, ToolCall):
        return choice_text(call=part.name, arguments=part.arguments)
    text = _text(name, cast(Text | Media, part), "an answer")
    return choice_text(answer=text) if choosing else text


def _result(name: str, reply: ToolReply) -> str:
    text = "\n".join(_text(name, cast(Text | Media, part), "a result") for part in reply.content)
    return f"{reply.name} failed: {text}" if reply.error is not None else f"Result of {reply.name}: {text}"


def _text(name: str, part: Text | Media, where: str) -> str:
    if isinstance(part, Text):
        return part.text
    raise unsupported(name, part, where, "it reads text only")
