"""What the SDKs of OpenAI and Anthropic have in common: one generator made both, on one HTTP client."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Unpack

from ..errors import ConfigurationError, ModelError, explain
from ._base import Client, Options, VendorModel
from ._faults import beginning_of, broken, error_of, fault_of, no_stream, unreachable
from ._protocol import Chunk
from ._reader import Reader
from ._secrets import Key

__all__ = ["OwnModel", "SdkModel", "SdkOptions"]


_LONG = ("messages", "input", "tools")


class SdkOptions(Options, total=False):
    """What these models take besides: `http_client` is an `AsyncClient` of httpx2, its owner's to close."""

    http_client: Any


class SdkModel(VendorModel):
    """A model that an SDK of this kind talks to."""

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
        self._client = Client[Any](self._made, self._closed)

    async def close(self) -> None:
        """Close its connections."""
        await self._client.close()

    def _made(self) -> Any:
        """The SDK's client."""
        raise NotImplementedError

    def _options(self, module: Any) -> dict[str, Any]:
        """What all of these SDKs' clients take."""
        http_client = self._http_client
        if http_client is None and self._proxy is not None:
            http_client = module.DefaultAsyncHttpxClient(proxy=self._proxy)
        return {
            "default_headers": self._headers,
            "max_retries": 0,  # Whoever asks knows best whether, when and whom to ask again.
            "http_client": http_client,
            **({} if self._timeout is None else {"timeout": self._timeout}),
        }

    async def _closed(self, client: Any) -> None:
        if self._http_client is None:  # One that was given is its owner's to close.
            await client.close()

    def _streamed(
        self, method: Callable[[Any], Any], body: Mapping[str, Any], reader: Reader
    ) -> AsyncIterator[Chunk]:
        """The chunks of the answer to a request, made by this method of the client."""
        return self._answered(self._opened(method, body, reader), reader, body.get("extra_headers"))

    @asynccontextmanager
    async def _opened(
        self, method: Callable[[Any], Any], body: Mapping[str, Any], reader: Reader
    ) -> AsyncGenerator[Any, None]:
        stream = await method(self._client.get())(**_as_it_is(self._sent(body)))
        try:
            response, reader.begun = stream.response, True
            headers = response.headers
            reader.request_id = headers.get("x-request-id") or headers.get("request-id")
            kind = headers.get("content-type", "text/event-stream")
            if "event-stream" not in kind:
                raise no_stream(self.name, str(response.url), kind, await beginning_of(response))
            yield stream
        finally:
            await stream.close()

    def _sent(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """The request as it is sent, made once the SDK is there."""
        return body

    def _explained(self, error: Exception, reader: Reader) -> ModelError:
        import httpx2 as http  # It came with the SDK, whichever it is.

        kind = type(error).__name__
        if kind == "APITimeoutError" or isinstance(error, http.TimeoutException):
            return unreachable(self.name, error, timeout=True)
        if kind == "APIConnectionError" or isinstance(error, http.TransportError):
            if reader.begun:
                return broken(self.name, str(error.__cause__ or error))
            return unreachable(self.name, error, timeout=False)
        response = getattr(error, "response", None)
        headers: Mapping[str, str] = {} if response is None else response.headers
        if hasattr(error, "body") and hasattr(error, "message"):
            status: int | None = getattr(error, "status_code", None)
            body: Any = error.body or getattr(error, "message")  # noqa: B009 # pyright: ignore
            return error_of(self.name, fault_of(status, body, dict(headers)))
        if reader.begun:
            return broken(self.name, f"a piece of it makes no sense ({explain(error):.200})")
        return ModelError(f"{self.name} could not be asked: {explain(error)}")


def _as_it_is(body: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments for the SDK. It compares every value that it is given with the type's hints, for which a long
    conversation takes it ten times as long as for all else; what comes in the extra body is sent as it is."""
    long = {name: body[name] for name in _LONG if name in body}
    return {**body, **dict.fromkeys(long, ()), "extra_body": {**long, **body.get("extra_body", {})}}


class OwnModel(SdkModel):
    """A model of the vendor that made the SDK. `vendor` is what stands before the colon in its name, `variable`
    where its key is."""

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
