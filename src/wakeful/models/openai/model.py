"""OpenAI's models, through either of its APIs."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from ..protocol import Chunk, ModelRequest
from ..shared.bodies import one
from ..shared.reader import Reader
from ..shared.secrets import Key
from ..shared.stainless import FirstPartyModel, SdkModel
from ..shared.vendor import parse_extra, sdk
from .chat_request import chat_request
from .chat_stream import ChatReader
from .dialect import OPENAI, OPENAI_RESPONSES, Dialect, ResponsesDialect, chat_support, responses_support
from .failed_calls import FAILED_CALL
from .responses_request import responses_request
from .responses_stream import ResponsesReader
from .settings import OpenAIChatSettings

__all__ = ["ChatModel", "OpenAIChatModel", "OpenAIModel", "OptionalKey", "ResponsesModel"]

# The first generation that searches tools.
_SEARCHES_TOOLS = (5, 4)
_GENERATION = re.compile(r"(?:ft:)?gpt-(\d+)(?:\.(\d+))?")


class OptionalKey(Key):
    """A key that may be missing, for self-hosted servers. The SDK requires a placeholder then."""

    __slots__ = ()
    is_required = False

    def require(self, model: str) -> str:
        """Return the key, or a placeholder, which isn't sent."""
        return self.check(model) or "none"


class _OpenAI(SdkModel):
    modules = (
        "openai",
        "openai.resources.chat.chat",
        "openai.resources.chat.completions.completions",
        "openai.resources.responses.responses",
        "httpcore2",
    )

    def _make_client(self) -> Any:
        openai = sdk("openai", "openai")
        return openai.AsyncOpenAI(
            api_key=self._key.require(self.name), base_url=self._base_url, **self._options(openai)
        )

    def _adapt_body(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Omit the Authorization header if there is no key."""
        if not isinstance(self._key, OptionalKey) or self._key.found is not None:
            return body
        more: dict[str, Any] = body.get("extra_headers") or {}
        if any(name.lower() == "authorization" for name in (*self._headers, *more)):
            return body
        return {**body, "extra_headers": {**more, "Authorization": sdk("openai", "openai").Omit()}}

    @asynccontextmanager
    async def _open_stream(
        self, method: Callable[[Any], Any], body: Mapping[str, Any], reader: Reader
    ) -> AsyncGenerator[Any, None]:
        try:
            async with super()._open_stream(method, body, reader) as events:
                yield events
        except sdk("openai", "openai").BadRequestError as error:
            if error.code != FAILED_CALL:
                raise
            yield one({"error": error.body})


class ResponsesModel(_OpenAI):
    """A model of the Responses API, in a dialect."""

    responses: ResponsesDialect = OPENAI_RESPONSES
    support = responses_support(OPENAI_RESPONSES)

    def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Answer the request."""
        dialect = self.responses
        body = responses_request(self.model, self.name, self._vendor, request, dialect)
        is_typed = request.output is not None
        reader = ResponsesReader(self.name, self._vendor, is_typed, runs_custom_tools=dialect.runs_custom_tools)
        given = _arguments(body, request, "input")
        return self._stream_request(lambda client: client.responses.create, given, reader)


class ChatModel(_OpenAI):
    """A model of Chat Completions, in a dialect."""

    settings: type[Any] = OpenAIChatSettings
    dialect: Dialect = OPENAI
    support = chat_support(OPENAI)

    def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Answer the request."""
        own = parse_extra(self.name, request.settings.extra, self.settings)
        body = chat_request(self.model, self.name, self._vendor, request, own, self.dialect)
        reader = ChatReader(self.name, self._vendor, request.output is not None)
        given = _arguments(body, request, "messages")
        return self._stream_request(lambda client: client.chat.completions.create, given, reader)


def _arguments(body: Mapping[str, Any], request: ModelRequest, field: str) -> dict[str, Any]:
    """The arguments of the SDK, which sends the extra body as it is."""
    given: dict[str, Any] = {"model": body["model"], "stream": True, field: (), "extra_body": body}
    if request.settings.headers:
        given["extra_headers"] = request.settings.headers
    return given


class OpenAIModel(FirstPartyModel, ResponsesModel):
    """A model of the Responses API: `OpenAIModel("gpt-5-mini")`. The key is `api_key`, or OPENAI_API_KEY."""

    vendor, variable = "openai", "OPENAI_API_KEY"
    url_variables = ("OPENAI_BASE_URL",)

    @property
    def defers_tools(self) -> bool:
        """Whether the vendor loads deferred tools from the result of a search."""
        found = _GENERATION.match(self.model)
        return found is not None and (int(found[1]), int(found[2] or 0)) >= _SEARCHES_TOOLS


class OpenAIChatModel(FirstPartyModel, ChatModel):
    """A model of Chat Completions: `OpenAIChatModel("gpt-4.1")`. The key is `api_key`, or OPENAI_API_KEY."""

    vendor, variable = "openai-chat", "OPENAI_API_KEY"
    url_variables = ("OPENAI_BASE_URL",)
