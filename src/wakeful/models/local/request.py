"""Building the request of the local model: text only, with tools described in the system text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict, cast

from ...types.content import Content, Text, ToolCall, ToolReply
from ...types.requests import ToolSpec
from ..protocol import ModelRequest
from ..shared.history import Media, build_entries
from ..shared.support import Support, check_server_tools, check_settings, tool_choice_of
from ..shared.vendor import parse_extra, unsupported
from .choice import choice_schema, choice_text

__all__ = ["SUPPORT", "LocalSettings", "build_request"]

SUPPORT = Support(
    {
        "temperature": "temperature",
        "top_p": "top_p",
        "max_tokens": "max_tokens",
        "stop": "stop",
        "seed": "seed",
        "tool_choice": "by grammar",
    },
    outputs=("schema",),
)

# Recommended by the model's authors.
TEMPERATURE = 0.2
TOP_P = 0.9
# Prevents endless repetition.
REPEAT_PENALTY = 1.1
# A small model may never stop by itself.
MAX_TOKENS = 1024


class LocalSettings(TypedDict, total=False):
    """The keys of `ModelSettings.extra`."""

    top_k: int
    min_p: float
    repeat_penalty: float


def build_request(name: str, request: ModelRequest) -> tuple[dict[str, Any], bool]:
    """Build the library's request, and whether the answer is a choice."""
    settings = request.settings
    check_settings(name, settings, SUPPORT)
    check_server_tools(name, request.server_tools, SUPPORT)
    extra = parse_extra("local", settings.extra, LocalSettings)
    choice = tool_choice_of(name, request) or "auto"
    tools = request.tools if choice != "none" else ()
    # Cached prompts are computed in other batches and round differently.
    exact = settings.temperature == 0 or settings.seed is not None
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
    if settings.seed is not None:
        body["seed"] = settings.seed
    if settings.stop:
        body["stop"] = list(settings.stop)
    if (schema := choice_schema(tools, request.output, choice)) is not None:
        body["json_schema"] = schema
    return body, bool(tools)


def _refuse(part: object) -> bool:
    return False


def _messages(name: str, request: ModelRequest, tools: Sequence[ToolSpec]) -> list[dict[str, str]]:
    system = "\n\n".join(part for part in (request.system, _describe_tools(tools)) if part)
    found: list[dict[str, str]] = [{"role": "system", "content": system}] if system else []
    for entry in build_entries(request.messages, _refuse, _refuse, _refuse):
        if entry.role == "tool":
            texts = [_result(name, reply) for reply in entry.replies]
            found.append({"role": "user", "content": "\n".join(texts)})
        elif entry.role == "assistant":
            texts = [_answer_text(name, part, bool(tools)) for part in entry.content]
            found.append({"role": "assistant", "content": "\n".join(texts)})
        else:
            content = "\n".join(_text(name, cast(Text | Media, part), "a message") for part in entry.content)
            found.append({"role": entry.role, "content": content})
    return found


def _describe_tools(tools: Sequence[ToolSpec]) -> str:
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


def _answer_text(name: str, part: Content, choosing: bool) -> str:
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
