"""Anthropic's models."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from typing import Any

from .._protocol import Chunk, ModelRequest
from .._secrets import Key, checked_url, forms_of, headers_of, named
from .._stainless import http_client, streamed
from .._vendor import Client, sdk
from ._request import messages_request
from ._stream import MessagesReader

__all__ = ["AnthropicModel"]


class AnthropicModel:
    """A model by the Messages API: `AnthropicModel("claude-sonnet-5")`.

    The key is `api_key`, or ANTHROPIC_API_KEY. It is usable from one event loop at a time; `close` ends its
    connections, and the next call opens new ones.
    """

    live = True

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
        self.model = model
        self.name = named("anthropic", model, base_url)
        self._key = Key(api_key, "ANTHROPIC_API_KEY")
        self._base_url = None if base_url is None else checked_url(f"anthropic:{model}", base_url)
        self._headers = headers_of(self.name, headers)
        self._timeout = timeout
        self._proxy = proxy
        self._http_client = http_client
        self._client = Client[Any](self._made, self._closed)

    def __repr__(self) -> str:
        return f"AnthropicModel({self.model!r})"

    def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Answer the request."""
        body, answers = messages_request(self.model, self.name, request, self._headers)
        reader = MessagesReader(self.name, answers)
        return streamed(self.name, lambda: self._client.get().messages.create(**body), reader, self._secrets)

    def _secrets(self) -> tuple[str, ...]:
        urls = (self._base_url, os.environ.get("ANTHROPIC_BASE_URL"), self._proxy)
        return forms_of(self._key.found, urls=urls, headers=self._headers.values())

    async def close(self) -> None:
        """Close its connections."""
        await self._client.close()

    def _made(self) -> Any:
        anthropic = sdk("anthropic", "anthropic")
        return anthropic.AsyncAnthropic(
            api_key=self._key.need(self.name),
            base_url=self._base_url,
            default_headers=self._headers,
            max_retries=0,  # Whoever asks knows best whether, when and whom to ask again.
            http_client=http_client(anthropic, self._proxy, self._http_client),
            **({} if self._timeout is None else {"timeout": self._timeout}),
        )

    async def _closed(self, client: Any) -> None:
        if self._http_client is None:  # One that was given is its owner's to close.
            await client.close()
