"""Models of the OpenAI and Anthropic SDKs, which share a generator (Stainless) and an HTTP client."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Unpack

from ...errors import ConfigurationError, ModelError, explain, quote
from ..protocol import Chunk
from .base import Client, Options, VendorModel
from .bodies import events_of
from .faults import parse_fault, stream_broken, to_error, unreachable
from .reader import Reader
from .secrets import Key

__all__ = ["FirstPartyModel", "SdkModel", "SdkOptions"]

# The long fields of a request.
_LONG = ("messages", "input", "tools")


class SdkOptions(Options, total=False):
    """Options of these models. `http_client` is an `AsyncClient` of httpx2, which the caller closes."""

    http_client: Any


class SdkModel(VendorModel):
    """A model behind one of these SDKs."""

    def __init__(
        self,
        vendor: str,
        model: str,
        key: Key,
        /,
        *,
        base_url: str | None,
        address: str | None,
        http_client: Any = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(vendor, model, key, base_url=base_url, address=address, **options)
        if http_client is not None and not (hasattr(http_client, "send") and hasattr(http_client, "aclose")):
            raise ConfigurationError(
                f"{self.name}: http_client is an AsyncClient of httpx2, not {http_client!r:.80}"
            )
        self._http_client = http_client
        self._client = Client[Any](self._make_client, self._close_client)

    def check_credentials(self) -> None:
        """Raise `BadCredentials` if a key is needed and there is none."""
        self._key.require(self.name)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    def _make_client(self) -> Any:
        """Create the SDK's client."""
        raise NotImplementedError

    def _options(self, module: Any) -> dict[str, Any]:
        """The common options of the SDKs' clients."""
        http_client = self._http_client
        if http_client is None and self._proxy is not None:
            http_client = module.DefaultAsyncHttpxClient(proxy=self._proxy)
        return {
            "default_headers": self._headers,
            "max_retries": 0,  # The loop retries.
            "http_client": http_client,
            **({} if self._timeout is None else {"timeout": self._timeout}),
        }

    async def _close_client(self, client: Any) -> None:
        if self._http_client is None:  # The caller closes a client of its own.
            await client.close()

    def _stream_request(
        self, method: Callable[[Any], Any], body: Mapping[str, Any], reader: Reader
    ) -> AsyncIterator[Chunk]:
        """Stream the answer to a request made with a method of the client."""
        return self._stream_answer(self._open_stream(method, body, reader), reader, body.get("extra_headers"))

    @asynccontextmanager
    async def _open_stream(
        self, method: Callable[[Any], Any], body: Mapping[str, Any], reader: Reader
    ) -> AsyncGenerator[Any, None]:
        stream = await method(self._client.get())(**_bypass_checks(self._adapt_body(body)))
        try:
            response, reader.has_started = stream.response, True
            headers = response.headers
            reader.request_id = headers.get("x-request-id") or headers.get("request-id")
            kind = headers.get("content-type", "text/event-stream")
            yield await self._events(stream, kind, reader)
        finally:
            await stream.close()

    async def _events(self, stream: Any, kind: str, reader: Reader) -> AsyncIterator[Any]:
        """Decode the events of a response of this media type."""
        return await events_of(stream.response, reader, self.name)

    def _adapt_body(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Adapt the request body once the SDK is imported."""
        return body

    def _to_model_error(self, error: Exception, reader: Reader) -> ModelError:
        import httpx2 as http  # A dependency of both SDKs.

        kind = type(error).__name__
        if kind == "APITimeoutError" or isinstance(error, http.TimeoutException):
            return unreachable(self.name, error, timeout=True)
        if kind == "APIConnectionError" or isinstance(error, http.TransportError):
            if reader.has_started:
                return stream_broken(self.name, str(error.__cause__ or error))
            return unreachable(self.name, error, timeout=False)
        response = getattr(error, "response", None)
        headers: Mapping[str, str] = {} if response is None else response.headers
        if hasattr(error, "body") and hasattr(error, "message"):
            status: int | None = getattr(error, "status_code", None)
            body: Any = error.body or getattr(error, "message")  # noqa: B009 # pyright: ignore
            return to_error(self.name, parse_fault(status, body, dict(headers)))
        if reader.has_started:
            return stream_broken(self.name, f"a chunk is malformed ({explain(error):.200})")
        return quote(ModelError, f"{self.name} could not be called", error)


def _bypass_checks(body: Mapping[str, Any]) -> dict[str, Any]:
    """Move the long fields to `extra_body`, which the SDK sends unchecked.

    It compares other values with its type hints, which for a long conversation takes ten times as long as all
    else.
    """
    long = {name: body[name] for name in _LONG if name in body}
    return {**body, **dict.fromkeys(long, ()), "extra_body": {**long, **body.get("extra_body", {})}}


class FirstPartyModel(SdkModel):
    """A model of the SDK's own vendor. `variable` is the environment variable of its key."""

    vendor: ClassVar[str]
    variable: ClassVar[str]

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        **options: Unpack[SdkOptions],
    ) -> None:
        key = Key(api_key, self.variable)
        super().__init__(self.vendor, model, key, base_url=base_url, address=base_url, **options)
