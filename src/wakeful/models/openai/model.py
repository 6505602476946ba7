"""OpenAI's models, through either of its APIs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from functools import cache
from typing import Any, get_type_hints

from ..protocol import Chunk, ModelRequest
from ..shared.secrets import Key
from ..shared.stainless import FirstPartyModel, SdkModel
from ..shared.vendor import parse_extra, sdk
from .chat_request import OPENAI, Dialect, chat_request
from .chat_stream import ChatReader
from .responses_request import responses_request
from .responses_stream import ResponsesReader
from .settings import OpenAIChatSettings

__all__ = ["ChatModel", "OpenAIChatModel", "OpenAIModel", "OptionalKey"]


class OptionalKey(Key):
    """A key that may be missing, for self-hosted servers. The SDK requires a placeholder then."""

    __slots__ = ()

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


class OpenAIModel(FirstPartyModel, _OpenAI):
    """A model of the Responses API: `OpenAIModel("gpt-5-mini")`. The key is `api_key`, or OPENAI_API_KEY."""

    vendor, variable = "openai", "OPENAI_API_KEY"
    url_variables = ("OPENAI_BASE_URL",)

    def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Answer the request."""
        body = responses_request(self.model, self.name, request)
        reader = ResponsesReader(self.name, request.output is not None)
        return self._stream_request(lambda client: client.responses.create, body, reader)


class ChatModel(_OpenAI):
    """A model of Chat Completions, in a dialect."""

    settings: type[Any] = OpenAIChatSettings
    dialect: Dialect = OPENAI

    def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Answer the request."""
        own = parse_extra(self.name, request.settings.extra, self.settings)
        body = chat_request(self.model, self.name, request, own, self.dialect, _sdk_settings())
        reader = ChatReader(self.name, request.output is not None)
        return self._stream_request(lambda client: client.chat.completions.create, body, reader)

    def _adapt_body(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Omit the Authorization header if there is no key."""
        if not isinstance(self._key, OptionalKey) or self._key.found is not None:
            return body
        more: dict[str, Any] = body.get("extra_headers") or {}
        if any(name.lower() == "authorization" for name in (*self._headers, *more)):
            return body
        return {**body, "extra_headers": {**more, "Authorization": sdk("openai", "openai").Omit()}}


@cache
def _sdk_settings() -> frozenset[str]:
    """The settings with an argument of the SDK; others go into the extra body."""
    return frozenset(get_type_hints(OpenAIChatSettings)) - {"body", "headers"}


class OpenAIChatModel(FirstPartyModel, ChatModel):
    """A model of Chat Completions: `OpenAIChatModel("gpt-4.1")`. The key is `api_key`, or OPENAI_API_KEY."""

    vendor, variable = "openai-chat", "OPENAI_API_KEY"
    url_variables = ("OPENAI_BASE_URL",)
