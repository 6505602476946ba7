"""Gemini models, through Google's SDK."""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from functools import cache
from typing import Any, Unpack, cast

import msgspec

from ...errors import ModelError, RateLimited
from ..protocol import Chunk, ModelRequest
from ..shared.base import Client, Options, VendorModel
from ..shared.faults import not_a_stream, parse_fault, read_start, stream_broken, to_error, unreachable
from ..shared.reader import Reader
from ..shared.secrets import Key
from ..shared.vendor import sdk
from .request import build_request
from .stream import ResponseReader

__all__ = ["GoogleModel"]


class _Call:
    """One call: its reader and its HTTP responses.

    The SDK nests four generators, and closing the outermost doesn't close the response, so we close it ourselves.
    """

    __slots__ = ("reader", "responses")

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.responses: list[Any] = []


_call: ContextVar[_Call] = ContextVar("call")


async def _record_response(response: Any) -> None:
    call, kind = _call.get(), response.headers.get("content-type", "text/event-stream")
    call.responses.append(response)
    if response.status_code == 200:
        call.reader.has_started = True
        if "event-stream" not in kind:
            raise not_a_stream(call.reader.model, str(response.url), kind, await read_start(response))


async def _exhaust(responses: Any) -> None:
    """Exhaust the SDK's generators now, so that they don't start tasks when they are collected."""
    try:
        async for _ in responses:
            pass
    except Exception:  # noqa: S110 - the response is closed
        pass


@cache
def _tls_context() -> ssl.SSLContext:
    """The TLS context that the SDK would use. Creating it is slow, and the SDK would do so three times."""
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    if file or folder:
        return ssl.create_default_context(cafile=file, capath=folder)
    return sdk("httpx2", "google").create_ssl_context()


def _refuse_close() -> None:
    raise NotImplementedError


class GoogleModel(VendorModel):
    """A Gemini model: `GoogleModel("gemini-3.8-flash")`. The key is `api_key`, GEMINI_API_KEY or GOOGLE_API_KEY.

    With `vertex`, `project` or `credentials` it uses Vertex; missing values are found as by Google's own tools.
    """

    modules = ("google.genai", "google.genai.errors", "httpcore2")

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        vertex: bool | None = None,
        project: str | None = None,
        location: str | None = None,
        credentials: Any = None,
        base_url: str | None = None,
        **options: Unpack[Options],
    ) -> None:
        key = Key(api_key, "GEMINI_API_KEY", "GOOGLE_API_KEY")
        use_vertex = os.environ.get("GOOGLE_GENAI_USE_VERTEXAI", "").lower() in ("1", "true")
        self._vertex = vertex if vertex is not None else bool(project or credentials or use_vertex)
        self.url_variables = ("GOOGLE_VERTEX_BASE_URL" if self._vertex else "GOOGLE_GEMINI_BASE_URL",)
        super().__init__("google", model, key, base_url=base_url, address=base_url or location, **options)
        self._has_api_key = api_key is not None
        self._project = project or os.environ.get("GOOGLE_CLOUD_PROJECT")
        self._location = location or os.environ.get("GOOGLE_CLOUD_LOCATION")
        self._credentials = credentials
        self._client = Client[tuple[Any, Any]](self._make_client, self._close_client)

    def __repr__(self) -> str:
        return f"GoogleModel({self.model!r}{', vertex=True' if self._vertex else ''})"

    def _load(self) -> None:
        super()._load()
        with suppress(Exception):
            _tls_context()

    def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Answer the request."""
        contents, config = build_request(self.model, self.name, request)
        reader = ResponseReader(self.name)
        return self._stream_answer(self._open_stream(contents, config, reader), reader)

    @asynccontextmanager
    async def _open_stream(self, contents: Any, config: Any, reader: Reader) -> AsyncGenerator[Any, None]:
        call, responses = _Call(reader), None
        _call.set(call)
        try:
            client, _ = self._client.get()
            responses = await client.aio.models.generate_content_stream(
                model=self.model, contents=contents, config=config
            )
            yield responses
        finally:
            for response in call.responses:
                await response.aclose()
            if responses is not None:
                await _exhaust(responses)

    def _to_model_error(self, error: Exception, reader: Reader) -> ModelError:
        errors, http = sdk("google.genai.errors", "google"), sdk("httpx2", "google")
        if isinstance(error, errors.APIError):
            found = cast(Any, error)
            headers = {k.lower(): v for k, v in getattr(found.response, "headers", {}).items()}
            fault = parse_fault(found.code, found.details, headers)
            made = to_error(self.name, fault)
            if isinstance(made, RateLimited) and fault.status == 429:
                # Google calls every limit a quota; the details say which one it was.
                made.transient = b"PerDay" not in msgspec.json.encode(found.details, enc_hook=str)
            return made
        if isinstance(error, http.TimeoutException):
            return unreachable(self.name, error, timeout=True)
        if isinstance(error, http.HTTPError) and not reader.has_started:
            return unreachable(self.name, error, timeout=False)
        return stream_broken(self.name, str(error) or type(error).__name__)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    def _make_client(self) -> tuple[Any, Any]:
        genai, http, tls = sdk("google.genai", "google"), sdk("httpx2", "google"), _tls_context()
        # Our own client: the SDK would prefer aiohttp if installed, which retries by itself.
        connections = http.AsyncClient(
            verify=tls, proxy=self._proxy, follow_redirects=True, event_hooks={"response": [_record_response]}
        )
        options: dict[str, Any] = {
            "headers": self._headers,
            "httpx_async_client": connections,
            "client_args": {"verify": tls},
            "async_client_args": {"ssl": tls},
        }
        if self._base_url is not None:
            options["base_url"] = self._base_url
        if self._timeout is not None:
            options["timeout"] = max(1, round(self._timeout * 1000))
        client = genai.Client(**self._access(), http_options=options)
        # When collected, these would start tasks on the running loop to close the client, which we close.
        client.aio.aclose = client._api_client.aclose = _refuse_close
        return client, connections

    def _access(self) -> dict[str, Any]:
        if not self._vertex:
            return {"vertexai": False, "api_key": self._key.require(self.name)}
        if self._has_api_key and not (self._project or self._credentials):
            return {"vertexai": True, "api_key": self._key.require(self.name)}
        return {
            "vertexai": True,
            "project": self._project,
            "location": self._location,
            "credentials": self._credentials,
        }

    async def _close_client(self, made: tuple[Any, Any]) -> None:
        client, connections = made
        await connections.aclose()
        client.close()
