"""Dialects of OpenAI's two APIs: how a server differs, as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from msgspec.structs import replace

from ...errors import InvalidRequest
from ...types.base import Data
from ...types.requests import FileSearch, ServerToolSpec, WebSearch
from ..shared.support import Support
from .settings import CHAT, RESPONSES

__all__ = [
    "OPENAI",
    "OPENAI_RESPONSES",
    "Dialect",
    "ResponsesDialect",
    "chat_support",
    "chat_tools",
    "responses_support",
    "responses_tools",
]

Template = Mapping[str, Any]


class Dialect(Data):
    """The differences of a server of Chat Completions.

    - `max_tokens`: the name of that limit.
    - `usage`: whether a stream can include the usage.
    - `output`: how a typed answer is requested.
    - `output_with_tools`: whether a typed answer may be enforced while there are tools.
    - `strict`: whether tools may be marked as strict.
    - `effort`: how reasoning is set: a field with the effort; OpenRouter's object; an object or a field that
      only switches it on, which `none` switches off.
    - `thoughts`: the form in which text of reasoning is sent back: a field of the message, chunks of its content,
      or tags within it. Reasoning with signatures always goes back to the server that sent it.
    - `thinking`: the fields of the object `thinking` with which the server keeps reasoning that goes back.
    - `needs_thoughts`: whether an answer with calls must have that field, even if it is empty.
    - `signatures`: whether calls are sent back with Gemini's signatures.
    - `call_id`: the pattern of call ids.
    - `required`: the word for a `tool_choice` that forces a call; None if the server has none.
    - `after_tools`: the answer that must stand between a result and a message of the user, if any must.
    - `seed`: the name of that setting.
    - `refuses`: settings that the server lacks.
    - `server_tools`: what is added to the body for each server tool.
    """

    max_tokens: Literal["max_completion_tokens", "max_tokens"] = "max_tokens"
    usage: bool = True
    output: Literal["json_schema", "json_object", "words"] = "json_schema"
    output_with_tools: bool = True
    strict: bool = False
    effort: Literal["reasoning_effort", "reasoning", "thinking", "enable_thinking", "none"] = "reasoning_effort"
    thoughts: Literal["none", "reasoning_content", "reasoning", "chunks", "tags"] = "none"
    thinking: Template = {}
    needs_thoughts: bool = False
    signatures: bool = False
    call_id: str = r"\S{1,256}"
    required: str | None = "required"
    after_tools: str = ""
    seed: str = "seed"
    refuses: tuple[str, ...] = ()
    server_tools: Mapping[str, Template] = {}


class ResponsesDialect(Data):
    """The differences of a server of the Responses API.

    - `refuses`: settings that the server lacks.
    - `encrypted`: whether it returns reasoning encrypted.
    - `runs_custom_tools`: whether calls of custom tools in its answers are its own.
    - `blocked_domains`: the name of that filter of a web search.
    - `server_tools`: the tool of each server tool.
    """

    refuses: tuple[str, ...] = ()
    encrypted: bool = True
    runs_custom_tools: bool = False
    blocked_domains: str = "blocked_domains"
    server_tools: Mapping[str, Template] = {}


OPENAI = Dialect(
    "max_completion_tokens",
    strict=True,
    call_id=r"[a-zA-Z0-9_-]{1,40}",
    server_tools={"WebSearch": {"web_search_options": {}}},
)
OPENAI_RESPONSES = ResponsesDialect(
    server_tools={
        "WebSearch": {"type": "web_search"},
        "CodeExecution": {"type": "code_interpreter", "container": {"type": "auto"}},
        "FileSearch": {"type": "file_search"},
        "ImageGeneration": {"type": "image_generation"},
    }
)


def chat_support(dialect: Dialect) -> Support:
    """The support of a server of Chat Completions, as the docs show it."""
    names = {"max_tokens": dialect.max_tokens, "seed": dialect.seed}
    if dialect.effort == "none":
        names["reasoning"] = ""
    elif dialect.effort != "reasoning_effort":
        names["reasoning"] = dialect.effort
    settings = {**CHAT.settings, **names}
    settings = {name: value for name, value in settings.items() if value and name not in dialect.refuses}
    tools = {name: _name_of(template) for name, template in dialect.server_tools.items()}
    outputs = CHAT.outputs if dialect.output == "json_schema" else ("prompt",)
    return replace(CHAT, settings=settings, server_tools=tools, outputs=outputs)


def responses_support(dialect: ResponsesDialect) -> Support:
    """The support of a server of the Responses API, as the docs show it."""
    settings = {name: value for name, value in RESPONSES.settings.items() if name not in dialect.refuses}
    tools = {name: str(template["type"]) for name, template in dialect.server_tools.items()}
    return replace(RESPONSES, settings=settings, server_tools=tools)


def _name_of(template: Template) -> str:
    tools = cast(list[dict[str, Any]], template.get("tools") or [])
    return str(tools[0]["type"]) if tools else next(iter(template), "always on")


def chat_tools(shown: str, specs: Sequence[ServerToolSpec], dialect: Dialect) -> dict[str, Any]:
    """The fields that switch on server tools in Chat Completions. `shown` is the model's name in errors."""
    body: dict[str, Any] = {}
    for spec in specs:
        for name in spec.__struct_fields__:
            if name not in ("extra", "stores") and getattr(spec, name):
                raise _unknown(shown, spec, name)
        for field, given in dialect.server_tools[type(spec).__name__].items():
            if field == "tools":
                body.setdefault("tools", []).append({**given[0], **spec.extra})
            else:
                body[field] = {**given, **spec.extra} if isinstance(given, dict) else given
    return body


def responses_tools(
    shown: str, specs: Sequence[ServerToolSpec], dialect: ResponsesDialect
) -> list[dict[str, Any]]:
    """The tools that the vendor runs, for the Responses API. `shown` is the model's name in errors."""
    tools: list[dict[str, Any]] = []
    for spec in specs:
        tool = dict(dialect.server_tools[type(spec).__name__])
        if isinstance(spec, WebSearch):
            if spec.max_uses is not None:
                raise _unknown(shown, spec, "max_uses")
            domains = {"allowed_domains": spec.allowed_domains, dialect.blocked_domains: spec.blocked_domains}
            if filters := {name: list(value) for name, value in domains.items() if value}:
                tool["filters"] = filters
        if isinstance(spec, FileSearch):
            tool["vector_store_ids"] = list(spec.stores)
            tool |= {"max_num_results": spec.max_results} if spec.max_results else {}
        tools.append({**tool, **spec.extra})
    return tools


def _unknown(shown: str, spec: ServerToolSpec, name: str) -> InvalidRequest:
    kind = type(spec).__name__
    return InvalidRequest(
        f"{shown} takes no {name} in {kind} ({getattr(spec, name)!r:.80}); omit it, or put the vendor's "
        f"own fields into {kind}(extra=...)"
    )
