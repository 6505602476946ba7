"""Gemini models, by Google's own SDK."""

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
from .._base import Client, Options, VendorModel
from .._faults import beginning_of, broken, error_of, fault_of, no_stream, unreachable
from .._protocol import Chunk, ModelRequest
from .._reader import Reader
from .._secrets import Key
from .._vendor import sdk
from ._request import request_of
from ._stream import ResponseReader

__all__ = ["GoogleModel"]


class _Call:
    """One call: who reads its answer, and what the HTTP client opened for it. The SDK reads through four
    generators within each other; to leave the outermost closes nothing at once, so the responses are closed."""

    __slots__ = ("reader", "responses")

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.responses: list[Any] = []


_call: ContextVar[_Call] = ContextVar("call")


async def _note(response: Any) -> None:
    call, kind = _call.get(), response.headers.get("content-type", "text/event-stream")
    call.responses.append(response)
    if response.status_code == 200:
        call.reader.begun = True
        if "event-stream" not in kind:
            raise no_stream(call.reader.model, str(response.url), kind, await beginning_of(response))


async def _unwound(responses: Any) -> None:
    """Have the SDK's generators come to their end now, and not in tasks of their own when they are collected."""
    try:
        async for _ in responses:
            pass
    except Exception:  # noqa: S110 - what they read from is closed
        pass


@cache
def _trust() -> ssl.SSLContext:
    """Whom to trust, as the SDK itself would; it takes long to find out, and the SDK would do so three times."""
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    if file or folder:
        return ssl.create_default_context(cafile=file, capath=folder)
    return sdk("httpx2", "google").create_ssl_context()


def _ours_to_close() -> None:
    raise NotImplementedError


class GoogleModel(VendorModel):
    """A Gemini model: `GoogleModel("gemini-3.8-flash")`. The key is `api_key`, GEMINI_API_KEY or GOOGLE_API_KEY.

    With `vertex`, `project` or `credentials` it is asked by Vertex; what isn't given is found the way Google's own
    tools find it.
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
        asked = os.environ.get("GOOGLE_GENAI_USE_VERTEXAI", "").lower() in ("1", "true")
        self._vertex = vertex if vertex is not None else bool(project or credentials or asked)
        self.places = ("GOOGLE_VERTEX_BASE_URL" if self._vertex else "GOOGLE_GEMINI_BASE_URL",)
        super().__init__("google", model, key, base_url=base_url, address=base_url or location, **options)
        self._by_key = api_key is not None
        self._project = project or os.environ.get("GOOGLE_CLOUD_PROJECT")
        self._location = location or os.environ.get("GOOGLE_CLOUD_LOCATION")
        self._credentials = credentials
        self._client = Client[tuple[Any, Any]](self._made, self._closed)

    def __repr__(self) -> str:
        return f"GoogleModel({self.model!r}{', vertex=True' if self._vertex else ''})"

    def _load(self) -> None:
        super()._load()
        with suppress(Exception):
            _trust()

    def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Answer the request."""
        contents, config = request_of(self.model, self.name, request)
        reader = ResponseReader(self.name)
        return self._answered(self._opened(contents, config, reader), reader)

    @asynccontextmanager
    async def _opened(self, contents: Any, config: Any, reader: Reader) -> AsyncGenerator[Any, None]:
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
                await _unwound(responses)

    def _explained(self, error: Exception, reader: Reader) -> ModelError:
        errors, http = sdk("google.genai.errors", "google"), sdk("httpx2", "google")
        if isinstance(error, errors.APIError):
            found = cast(Any, error)
            headers = {k.lower(): v for k, v in getattr(found.response, "headers", {}).items()}
            fault = fault_of(found.code, found.details, headers)
            made = error_of(self.name, fault)
            if isinstance(made, RateLimited) and fault.status == 429:
                # Google says `quota` of every limit; which one it was is in the details.
                made.transient = b"PerDay" not in msgspec.json.encode(found.details, enc_hook=str)
            return made
        if isinstance(error, http.TimeoutException):
            return unreachable(self.name, error, timeout=True)
        if isinstance(error, http.HTTPError) and not reader.begun:
            return unreachable(self.name, error, timeout=False)
        return broken(self.name, str(error) or type(error).__name__)

    async def close(self) -> None:
        """Close its connections."""
        await self._client.close()

    def _made(self) -> tuple[Any, Any]:
        genai, http, trust = sdk("google.genai", "google"), sdk("httpx2", "google"), _trust()
        # A client of our own: the SDK would take another where aiohttp is installed, which asks again by itself.
        connections = http.AsyncClient(
            verify=trust, proxy=self._proxy, follow_redirects=True, event_hooks={"response": [_note]}
        )
        options: dict[str, Any] = {
            "headers": self._headers,
            "httpx_async_client": connections,
            "client_args": {"verify": trust},
            "async_client_args": {"ssl": trust},
        }
        if self._base_url is not None:
            options["base_url"] = self._base_url
        if self._timeout is not None:
            options["timeout"] = max(1, round(self._timeout * 1000))
        client = genai.Client(**self._access(), http_options=options)
        # When they are collected, these would start tasks on whatever loop runs, to close what is ours to close.
        client.aio.aclose = client._api_client.aclose = _ours_to_close
        return client, connections

    def _access(self) -> dict[str, Any]:
        if not self._vertex:
            return {"vertexai": False, "api_key": self._key.need(self.name)}
        if self._by_key and not (self._project or self._credentials):
            return {"vertexai": True, "api_key": self._key.need(self.name)}
        return {
            "vertexai": True,
            "project": self._project,
            "location": self._location,
            "credentials": self._credentials,
        }

    async def _closed(self, made: tuple[Any, Any]) -> None:
        client, connections = made
        await connections.aclose()
        client.close()
