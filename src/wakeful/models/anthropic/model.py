"""Anthropic's models."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from ..protocol import Chunk, ModelRequest
from ..shared.stainless import FirstPartyModel, SdkModel
from ..shared.vendor import sdk
from .generations import can_defer_tools
from .request import messages_request
from .server_tools import open_tools
from .settings import SUPPORT
from .stream import MessagesReader

__all__ = ["AnthropicModel", "MessagesModel"]


class MessagesModel(SdkModel):
    """A model of the Messages API, on any platform."""

    support = SUPPORT
    modules = ("anthropic", "anthropic.resources.messages", "httpcore2")
    # Whether the platform takes system messages within the conversation.
    takes_system_messages = True

    def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Answer the request."""
        takes = self.takes_system_messages
        body, answers = messages_request(
            self.model, self.name, request, self._headers, takes_system_messages=takes
        )
        reader = MessagesReader(self.name, answers, *open_tools(request))
        return self._stream_request(lambda client: client.messages.create, body, reader)


class AnthropicModel(FirstPartyModel, MessagesModel):
    """A model of the Messages API: `AnthropicModel("claude-sonnet-5")`.

    The key is `api_key`, or ANTHROPIC_API_KEY.
    """

    vendor, variable = "anthropic", "ANTHROPIC_API_KEY"
    url_variables = ("ANTHROPIC_BASE_URL",)

    @property
    def defers_tools(self) -> bool:
        """Whether the vendor loads deferred tools when a result refers to them."""
        return can_defer_tools(self.model)

    def _make_client(self) -> Any:
        anthropic = sdk("anthropic", "anthropic")
        return anthropic.AsyncAnthropic(
            api_key=self._key.require(self.name), base_url=self._base_url, **self._options(anthropic)
        )
