"""The model `local:smollm2`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from ...errors import InvalidRequest, UnknownModel, WakefulError, explain
from ...types.events import StopReason
from ...types.runs import Usage
from ..protocol import Chunk, ModelRequest, StopChunk, TextChunk, UsageChunk
from ..shared.faults import parse_fault, stream_broken, to_error
from .choice import ChoiceReader
from .engine import Engine
from .request import SUPPORT, LocalSettings, build_request

__all__ = ["LocalModel", "LocalSettings"]

_STOPS: dict[str, StopReason] = {"stop": "end_turn", "length": "max_tokens"}


class LocalModel:
    """SmolLM2, with 135 million parameters, in this process.

    The first answer loads it, and all users share one copy; `close` releases it.
    """

    live = False
    support = SUPPORT

    def __init__(self, name: str = "smollm2") -> None:
        if name != "smollm2":
            raise UnknownModel(f"there is no local model {name!r}; there is 'local:smollm2'")
        self.name = f"local:{name}"
        self._engine = Engine()

    def __repr__(self) -> str:
        return f"LocalModel({self.name!r}, {'loaded' if self._engine.is_open else 'not loaded'})"

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Answer the request."""
        body, choosing = build_request(self.name, request)
        reader = ChoiceReader(request.output) if choosing else None
        stop: StopReason | None = None
        async with aclosing(self._responses(body)) as responses:
            async for response in responses:
                if (usage := response.get("usage")) is not None:
                    yield UsageChunk(_usage(usage))
                for choice in response.get("choices", ()):
                    if text := choice["delta"].get("content"):
                        if reader is None:
                            yield TextChunk(text)
                        else:
                            for chunk in reader.read(text):
                                yield chunk
                    if (reason := choice.get("finish_reason")) is not None:
                        stop = _STOPS.get(reason, "unknown")
        if stop is None:
            raise stream_broken(self.name, "it ended without a reason")
        if stop == "end_turn" and reader is not None and reader.called:
            stop = "tool_use"
        yield StopChunk(stop)

    async def _responses(self, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        try:
            async with aclosing(self._engine.generate(body)) as responses:
                async for response in responses:
                    if (error := response.get("error")) is not None:
                        raise to_error(self.name, parse_fault(error.get("code"), response))
                    yield response
        except WakefulError:
            raise
        except (ValueError, RuntimeError) as error:
            raise InvalidRequest(f"{self.name} rejects the request: {explain(error)}") from None

    async def close(self) -> None:
        """Release the model."""
        await self._engine.close()


def _usage(usage: dict[str, Any]) -> Usage:
    details: dict[str, int] = usage.get("prompt_tokens_details") or {}
    return Usage(usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0), details.get("cached_tokens", 0))
