"""Anthropic's models."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from ..protocol import Chunk, ModelRequest
from ..shared.stainless import FirstPartyModel
from ..shared.vendor import sdk
from .request import messages_request
from .stream import MessagesReader

__all__ = ["AnthropicModel"]


class AnthropicModel(FirstPartyModel):
    """A model of the Messages API: `AnthropicModel("claude-sonnet-5")`.

    The key is `api_key`, or ANTHROPIC_API_KEY.
    """

    vendor, variable = "anthropic", "ANTHROPIC_API_KEY"
    url_variables = ("ANTHROPIC_BASE_URL",)
    modules = ("anthropic", "anthropic.resources.messages", "httpcore2")

    def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Answer the request."""
        body, answers = messages_request(self.model, self.name, request, self._headers)
        reader = MessagesReader(self.name, answers)
        return self._stream_request(lambda client: client.messages.create, body, reader)

    def _make_client(self) -> Any:
        anthropic = sdk("anthropic", "anthropic")
        return anthropic.AsyncAnthropic(
            api_key=self._key.require(self.name), base_url=self._base_url, **self._options(anthropic)
        )
