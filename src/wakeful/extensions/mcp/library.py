"""Prompts and resources of a server, for the application and for extensions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from ...errors import ToolError
from ...types.base import Data
from ...types.content import Part
from .connection import Connection, Link, pages
from .results import parts_of
from .snapshot import MAX_DESCRIPTION, visible_text

__all__ = [
    "McpPrompt",
    "McpResource",
    "PromptArgument",
    "PromptMessage",
    "list_prompts",
    "list_resources",
    "read_prompt",
    "read_resource",
]

MAX_LISTED = 1_000
MAX_MESSAGES = 100


class PromptArgument(Data, omit_defaults=True):
    """An argument of a prompt, which is a text."""

    name: str
    description: str = ""
    required: bool = False


class McpPrompt(Data, omit_defaults=True):
    """A prompt that a server offers."""

    name: str
    description: str = ""
    arguments: tuple[PromptArgument, ...] = ()


class PromptMessage(Data):
    """A message of a prompt. It is text of the server, and as untrusted as its results."""

    role: Literal["user", "assistant"]
    part: Part


class McpResource(Data, omit_defaults=True):
    """A resource that a server offers."""

    uri: str
    name: str
    description: str = ""
    media_type: str | None = None


async def list_prompts(connection: Connection) -> tuple[McpPrompt, ...]:
    """The prompts of a server; none if it has no prompts at all."""

    async def fetch(link: Link) -> tuple[McpPrompt, ...]:
        if link.client.server_capabilities.prompts is None:
            return ()
        found: list[McpPrompt] = []
        async for page in pages(link.session.list_prompts, connection.settings):
            found += [_prompt_of(prompt) for prompt in page.prompts]
            _check(connection, len(found), "prompts")
        return tuple(found)

    return await connection.request(fetch, may_repeat=True)


def _prompt_of(prompt: Any) -> McpPrompt:
    arguments = [
        PromptArgument(each.name, visible_text(each.description or "", MAX_DESCRIPTION), bool(each.required))
        for each in prompt.arguments or ()
    ]
    return McpPrompt(prompt.name, visible_text(prompt.description or "", MAX_DESCRIPTION), tuple(arguments))


async def read_prompt(
    connection: Connection, name: str, arguments: Mapping[str, str]
) -> tuple[PromptMessage, ...]:
    """The messages of a prompt."""

    async def fetch(link: Link) -> Any:
        return await link.session.get_prompt(name, dict(arguments))

    result = await connection.request(fetch, may_repeat=True)
    if len(result.messages) > MAX_MESSAGES:
        raise ToolError(f"prompt {name!r:.80} has {len(result.messages)} messages; the limit is {MAX_MESSAGES}")
    blocks = [each.content.model_dump(mode="json", by_alias=True, exclude_none=True) for each in result.messages]
    return tuple([PromptMessage(m.role, p) for m, p in zip(result.messages, parts_of(blocks), strict=True)])


async def list_resources(connection: Connection) -> tuple[McpResource, ...]:
    """The resources of a server; none if it has no resources at all."""

    async def fetch(link: Link) -> tuple[McpResource, ...]:
        if link.client.server_capabilities.resources is None:
            return ()
        found: list[McpResource] = []
        async for page in pages(link.session.list_resources, connection.settings):
            found += [
                McpResource(
                    str(each.uri), each.name, visible_text(each.description or "", MAX_DESCRIPTION), each.mime_type
                )
                for each in page.resources
            ]
            _check(connection, len(found), "resources")
        return tuple(found)

    return await connection.request(fetch, may_repeat=True)


async def read_resource(connection: Connection, uri: str) -> tuple[Part, ...]:
    """The contents of a resource."""

    async def fetch(link: Link) -> Any:
        return await link.session.read_resource(uri)

    result = await connection.request(fetch, may_repeat=True)
    contents = [each.model_dump(mode="json", by_alias=True, exclude_none=True) for each in result.contents]
    return tuple(parts_of([{"type": "resource", "resource": each} for each in contents[:MAX_MESSAGES]]))


def _check(connection: Connection, count: int, what: str) -> None:
    if count > MAX_LISTED:
        name = connection.settings.name
        raise ToolError(f"MCP server {name!r} lists more than {MAX_LISTED:,} {what}, and was given up")
