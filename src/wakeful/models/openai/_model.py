"""OpenAI's models, by either of its APIs."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from functools import cache
from typing import Any, get_type_hints

from .._protocol import Chunk, ModelRequest
from .._secrets import Key, checked_url, forms_of, headers_of, named
from .._stainless import http_client, streamed
from .._vendor import Client, sdk, settings_of
from ._chat_request import OPENAI, Dialect, chat_request
from ._chat_stream import ChatReader
from ._responses_request import responses_request
from ._responses_stream import ResponsesReader
from ._settings import OpenAIChatSettings

__all__ = ["ChatModel", "OpenAIChatModel", "OpenAIModel", "OptionalKey", "SdkModel"]


class OptionalKey(Key):
    """A key that may be missing: servers of one's own need none, and the SDK wants a word in its place."""

    __slots__ = ()

    def need(self, model: str) -> str:
        """The key, or a word in its place, which isn't sent."""
        return self.checked(model) or "none"


class SdkModel:
    """A model that the OpenAI SDK talks to. It is usable from one event loop at a time; `close` ends its
    connections, and the next call opens new ones."""

    live = True

    def __init__(
        self,
        vendor: str,
        model: str,
        key: Key,
        *,
        base_url: str | None,
        address: str | None,
        headers: Mapping[str, str] | None,
        timeout: float | None,
        proxy: str | None,
        http_client: Any,
    ) -> None:
        self.model = model
        self.name = named(vendor, model, address)
        self._key = key
        self._base_url = None if base_url is None else checked_url(f"{vendor}:{model}", base_url)
        self._headers = headers_of(self.name, headers)
        self._timeout = timeout
        self._proxy = proxy
        self._http_client = http_client
        self._client = Client[Any](self._made, self._closed)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r})"

    async def close(self) -> None:
        """Close its connections."""
        await self._client.close()

    def _made(self) -> Any:
        openai = sdk("openai", "openai")
        return openai.AsyncOpenAI(
            api_key=self._key.need(self.name), base_url=self._base_url, **self._options(openai)
        )

    def _secrets(self, more: Mapping[str, str] | None = None) -> tuple[str, ...]:
        urls = (self._base_url, os.environ.get("OPENAI_BASE_URL"), self._proxy)
        headers = (*self._headers.values(), *(more or {}).values())
        return forms_of(self._key.found, urls=urls, headers=headers)

    def _options(self, openai: Any) -> dict[str, Any]:
        return {
            "default_headers": self._headers,
            "max_retries": 0,  # Whoever asks knows best whether, when and whom to ask again.
            "http_client": http_client(openai, self._proxy, self._http_client),
            **({} if self._timeout is None else {"timeout": self._timeout}),
        }

    async def _closed(self, client: Any) -> None:
        if self._http_client is None:  # One that was given is its owner's to close.
            await client.close()


class OpenAIModel(SdkModel):
    """A model by the Responses API: `OpenAIModel("gpt-5-mini")`. The key is `api_key`, or OPENAI_API_KEY."""

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        proxy: str | None = None,
        http_client: Any = None,
    ) -> None:
        super().__init__(
            "openai",
            model,
            Key(api_key, "OPENAI_API_KEY"),
            base_url=base_url,
            address=base_url,
            headers=headers,
            timeout=timeout,
            proxy=proxy,
            http_client=http_client,
        )

    def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Answer the request."""
        body = responses_request(self.model, self.name, request)
        reader = ResponsesReader(self.name, request.output is not None)
        return streamed(self.name, lambda: self._client.get().responses.create(**body), reader, self._secrets)


class ChatModel(SdkModel):
    """A model by Chat Completions, in a dialect."""

    settings: type[Any] = OpenAIChatSettings
    dialect: Dialect = OPENAI

    def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Answer the request."""
        own = settings_of(self.name, request.settings.extra, self.settings)
        body = chat_request(self.model, self.name, request, own, self.dialect, _known())
        reader = ChatReader(self.name, request.output is not None)
        return streamed(
            self.name,
            lambda: self._client.get().chat.completions.create(**self._unsigned(body)),
            reader,
            lambda: self._secrets(own.get("headers")),
        )

    def _unsigned(self, body: dict[str, Any]) -> dict[str, Any]:
        """The request, without a key where there is none to send."""
        more: dict[str, Any] = body.get("extra_headers") or {}
        given = any(name.lower() == "authorization" for name in (*self._headers, *more))
        if given or self._key.found is not None or not isinstance(self._key, OptionalKey):
            return body
        return {**body, "extra_headers": {**more, "Authorization": sdk("openai", "openai").Omit()}}


@cache
def _known() -> frozenset[str]:
    """The settings that the SDK has an argument for; others go into the body beside those."""
    return frozenset(get_type_hints(OpenAIChatSettings)) - {"body", "headers"}


class OpenAIChatModel(ChatModel):
    """A model by Chat Completions: `OpenAIChatModel("gpt-4.1")`. The key is `api_key`, or OPENAI_API_KEY."""

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        proxy: str | None = None,
        http_client: Any = None,
    ) -> None:
        super().__init__(
            "openai-chat",
            model,
            Key(api_key, "OPENAI_API_KEY"),
            base_url=base_url,
            address=base_url,
            headers=headers,
            timeout=timeout,
            proxy=proxy,
            http_client=http_client,
        )
