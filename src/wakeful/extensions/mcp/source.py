"""MCP servers as tool sources."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from ...errors import ToolError
from ...errors.arguments import checked
from ...tools import MAX_RESULT_BYTES, Offer, SourceScope
from ...types.calls import Effect
from ...types.content import Part, Text
from ...types.ids import digest_of
from ...types.runs import Principal
from ..skills import Prompt, PromptSource
from .connection import Connection
from .library import (
    McpPrompt,
    McpResource,
    PromptMessage,
    list_prompts,
    list_resources,
    read_prompt,
    read_resource,
)
from .names import prefix_of
from .questions import Desk
from .settings import Headers, Protocol, Settings, Trust, settings_problems
from .snapshot import decode_snapshot, encode_snapshot
from .tool import McpTool

__all__ = ["MCP"]

# Connections and offers that are kept: one for each credential, and snapshot.
MAX_KEPT = 256


class MCP:
    """A server of the Model Context Protocol, as a source of tools. It is contacted when a run needs it.

    - `url` of a server behind HTTP, `command` that starts one which talks over stdin and stdout, or `server`, an
      object of the SDK in this process. `env` and `cwd` are for a command; its processes end with the runtime.
    - `headers` are sent with each request: a dict, or a function of the run's principal. Principals with
      different headers never share a connection.
    - `tools` and `exclude` are patterns of the names that the server gives its tools.
    - `effects` maps such patterns to effects. Other tools are `once`, unless `trust="hints"` believes the server.
    - `approval` is True, or maps patterns to whether a call needs an approval.
    - `elicitation`: questions of the server become tickets, or are declined with `"deny"`.
    - `timeout` limits a call, and the time to read lists, in seconds; `connect_timeout` a connection's start.
    - `protocol`: the version to speak, by default the newest that both know.
    - `required`: a run fails if the server is unavailable. Otherwise it goes without the tools.
    """

    untrusted = True

    @checked
    def __init__(
        self,
        name: str,
        *,
        url: str | None = None,
        command: Sequence[str] | None = None,
        server: Any = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        headers: Headers | None = None,
        timeout: float = 60.0,
        connect_timeout: float = 10.0,
        tools: Sequence[str] = ("*",),
        exclude: Sequence[str] = (),
        effects: Mapping[str, Effect] | None = None,
        trust: Trust = "none",
        approval: bool | Mapping[str, bool] = False,
        elicitation: Literal["ask", "deny"] = "ask",
        protocol: Protocol = "auto",
        required: bool = False,
        max_result_bytes: int = MAX_RESULT_BYTES,
    ) -> None:
        self._settings = Settings(
            name,
            url,
            command,
            server,
            env or {},
            cwd,
            headers,
            timeout,
            connect_timeout,
            tools,
            exclude,
            effects or {},
            trust,
            approval,
            elicitation,
            required,
            max_result_bytes,
            protocol,
        )
        self.name = name
        self.prefix = prefix_of(name) if isinstance(name, str) else ""  # pyright: ignore[reportUnnecessaryIsInstance]
        self.required = required
        self._lines: dict[str, _Line] = {}

    def __repr__(self) -> str:
        return f"MCP({self.name!r})"

    def problems(self) -> Sequence[str]:
        """List what is wrong with the settings."""
        return [f"MCP server {self.name!r:.80}: {problem}" for problem in settings_problems(self._settings)]

    async def tools(self, scope: SourceScope) -> Offer:
        """The tools for a run: those that it pinned, or the ones that the server lists now."""
        line = self._line(scope.principal)
        snapshot = scope.snapshot
        if snapshot is None:
            snapshot = encode_snapshot(await line.connection.entries())
        return line.offer(self._settings, snapshot)

    # -- prompts and resources -------------------------------------------------------------------------------

    async def prompts(self, *, principal: Principal | None = None) -> Sequence[McpPrompt]:
        """The prompts that the server lists now; raises `ToolError` if it can't be reached."""
        return await list_prompts(self._line(principal).connection)

    async def prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, *, principal: Principal | None = None
    ) -> Sequence[PromptMessage]:
        """The messages of a prompt."""
        return await read_prompt(self._line(principal).connection, name, arguments or {})

    def skills(self, *, principal: Principal | None = None) -> PromptSource:
        """The prompts as a source of `Skills`: each is the skill `name:prompt`, and the model may load it."""
        return _PromptSkills(self, principal)

    async def resources(self, *, principal: Principal | None = None) -> Sequence[McpResource]:
        """The resources that the server lists now."""
        return await list_resources(self._line(principal).connection)

    async def resource(self, uri: str, *, principal: Principal | None = None) -> Sequence[Part]:
        """The contents of a resource."""
        return await read_resource(self._line(principal).connection, uri)

    def _line(self, principal: Principal | None) -> _Line:
        """The connection for a principal, on this event loop."""
        headers = self._headers(principal)
        loop = asyncio.get_running_loop()
        key = digest_of(repr(sorted(headers.items())).encode())
        found = self._lines.get(key)
        if found is None or found.loop is not loop:
            found = self._lines[key] = _Line(self._settings, headers, loop)
        return found

    def _headers(self, principal: Principal | None) -> Mapping[str, str]:
        given: Any = self._settings.headers
        if given is None or isinstance(given, Mapping):
            return cast(Mapping[str, str], given or {})
        try:
            made: Mapping[str, str] = given(principal)
            return {str(name): str(value) for name, value in made.items()}
        except Exception as error:
            # Its text may quote a credential.
            raise ToolError(
                f"the headers function of MCP server {self.name!r} failed with {type(error).__name__}"
            ) from None

    async def close(self) -> None:
        """Close all connections, and end the processes of commands."""
        lines, self._lines = list(self._lines.values()), {}
        loop = asyncio.get_running_loop()
        await asyncio.gather(*[line.connection.close() for line in lines if line.loop is loop])


class _PromptSkills:
    """The prompts of a server, as skills."""

    def __init__(self, server: MCP, principal: Principal | None) -> None:
        self._server = server
        self._principal = principal

    @property
    def name(self) -> str:
        """The server's name."""
        return self._server.name

    async def prompts(self) -> Sequence[Prompt]:
        """The prompts that the server has now."""
        found = await self._server.prompts(principal=self._principal)
        return [
            Prompt(
                prompt.name,
                prompt.description,
                tuple([argument.name for argument in prompt.arguments]),
                tuple([argument.name for argument in prompt.arguments if argument.required]),
            )
            for prompt in found
        ]

    async def render(self, prompt: str, arguments: Mapping[str, str]) -> str:
        """The text of a prompt's messages; other content is left out."""
        messages = await self._server.prompt(prompt, arguments, principal=self._principal)
        return "\n\n".join([message.part.text for message in messages if isinstance(message.part, Text)])


class _Line:
    """The connection of one credential, and the tools that were made for it, by snapshot."""

    def __init__(self, settings: Settings, headers: Mapping[str, str], loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._desk = Desk()
        self.connection = Connection(settings, headers, self._desk.elicit)
        self._offers: dict[str, Offer] = {}

    def offer(self, settings: Settings, snapshot: bytes) -> Offer:
        """The offer of a snapshot: the same object each time, as long as it is kept."""
        digest = digest_of(snapshot)
        found = self._offers.get(digest)
        if found is None:
            if len(self._offers) >= MAX_KEPT:
                self._offers.clear()
            tools = [McpTool(settings, entry, self.connection, self._desk) for entry in decode_snapshot(snapshot)]
            found = self._offers[digest] = Offer(tools, snapshot)
        return found
