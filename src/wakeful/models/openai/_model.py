"""OpenAI's models, by either of its APIs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from functools import cache
from typing import Any, get_type_hints

from .._protocol import Chunk, ModelRequest
from .._secrets import Key
from .._stainless import OwnModel, SdkModel
from .._vendor import sdk, settings_of
from ._chat_request import OPENAI, Dialect, chat_request
from ._chat_stream import ChatReader
from ._responses_request import responses_request
from ._responses_stream import ResponsesReader
from ._settings import OpenAIChatSettings

__all__ = ["ChatModel", "OpenAIChatModel", "OpenAIModel", "OptionalKey"]


class OptionalKey(Key):
    """A key that may be missing: servers of one's own need none, and the SDK wants a word in its place."""

    __slots__ = ()

    def need(self, model: str) -> str:
        """The key, or a word in its place, which isn't sent."""
        return self.checked(model) or "none"


class _OpenAI(SdkModel):
    modules = (
        "openai",
        "openai.resources.chat.chat",
        "openai.resources.chat.completions.completions",
        "openai.resources.responses.responses",
        "httpcore2",
    )

    def _made(self) -> Any:
        openai = sdk("openai", "openai")
        return openai.AsyncOpenAI(
            api_key=self._key.need(self.name), base_url=self._base_url, **self._options(openai)
        )


class OpenAIModel(OwnModel, _OpenAI):
    """A model by the Responses API: `OpenAIModel("gpt-5-mini")`. The key is `api_key`, or OPENAI_API_KEY."""

    vendor, variable = "openai", "OPENAI_API_KEY"
    places = ("OPENAI_BASE_URL",)

    def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Answer the request."""
        body = responses_request(self.model, self.name, request)
        reader = ResponsesReader(self.name, request.output is not None)
        return self._streamed(lambda client: client.responses.create, body, reader)


class ChatModel(_OpenAI):
    """A model by Chat Completions, in a dialect."""

    settings: type[Any] = OpenAIChatSettings
    dialect: Dialect = OPENAI

    def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Answer the request."""
        own = settings_of(self.name, request.settings.extra, self.settings)
        body = chat_request(self.model, self.name, request, own, self.dialect, _known())
        reader = ChatReader(self.name, request.output is not None)
        return self._streamed(lambda client: client.chat.completions.create, body, reader)

    def _sent(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """The request, without a key where there is none to send."""
        if not isinstance(self._key, OptionalKey) or self._key.found is not None:
            return body
        more: dict[str, Any] = body.get("extra_headers") or {}
        if any(name.lower() == "authorization" for name in (*self._headers, *more)):
            return body
        return {**body, "extra_headers": {**more, "Authorization": sdk("openai", "openai").Omit()}}


@cache
def _known() -> frozenset[str]:
    """The settings that the SDK has an argument for; others go into the body beside those."""
    return frozenset(get_type_hints(OpenAIChatSettings)) - {"body", "headers"}


class OpenAIChatModel(OwnModel, ChatModel):
    """A model by Chat Completions: `OpenAIChatModel("gpt-4.1")`. The key is `api_key`, or OPENAI_API_KEY."""

    vendor, variable = "openai-chat", "OPENAI_API_KEY"
    places = ("OPENAI_BASE_URL",)
