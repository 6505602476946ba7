"""Anthropic's models."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from .._protocol import Chunk, ModelRequest
from .._stainless import OwnModel
from .._vendor import sdk
from ._request import messages_request
from ._stream import MessagesReader

__all__ = ["AnthropicModel"]


class AnthropicModel(OwnModel):
    """A model by the Messages API: `AnthropicModel("claude-sonnet-5")`. The key is `api_key`, or
    ANTHROPIC_API_KEY."""

    vendor, variable = "anthropic", "ANTHROPIC_API_KEY"
    places = ("ANTHROPIC_BASE_URL",)
    modules = ("anthropic", "anthropic.resources.messages", "httpcore2")

    def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Answer the request."""
        body, answers = messages_request(self.model, self.name, request, self._headers)
        reader = MessagesReader(self.name, answers)
        return self._streamed(lambda client: client.messages.create, body, reader)

    def _made(self) -> Any:
        anthropic = sdk("anthropic", "anthropic")
        return anthropic.AsyncAnthropic(
            api_key=self._key.need(self.name), base_url=self._base_url, **self._options(anthropic)
        )
