"""Gemini models, through Google's SDK."""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from functools import cache
from typing import Any, Unpack, cast

from ...errors import BadCredentials, InvalidRequest, ModelError
from ..protocol import Chunk, ModelRequest
from ..shared.base import Client, Options, VendorModel
from ..shared.bodies import events_of
from ..shared.faults import not_a_stream, parse_fault, stream_broken, unreachable
from ..shared.reader import Reader
from ..shared.secrets import Key
from ..shared.vendor import sdk
from .request import build_request
from .settings import SUPPORT
from .stream import ResponseReader, error_of

__all__ = ["GoogleModel", "GoogleVertexModel"]


class _Opened(Exception):
    """Carries an answer out of the SDK, before it reads it with types that drop what they don't know."""

    def __init__(self, response: Any) -> None:
        self.response = response


@cache
def _client_class() -> Any:
    base: Any = sdk("httpx2", "google").AsyncClient

    class AnswerClient(base):
        async def send(self, *args: Any, **kwargs: Any) -> Any:
            response: Any = await base.send(self, *args, **kwargs)
            if response.status_code == 200:
                raise _Opened(response)
            return response

    return AnswerClient


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

    support = SUPPORT
    vendor = "google"
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
        super().__init__(self.vendor, model, key, base_url=base_url, address=base_url or location, **options)
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
        return self._stream_answer(self._open_stream(contents, config, reader), reader, request.settings.headers)

    @asynccontextmanager
    async def _open_stream(self, contents: Any, config: Any, reader: Reader) -> AsyncGenerator[Any, None]:
        client, _ = self._client.get()
        try:
            responses = await client.aio.models.generate_content_stream(
                model=self.model, contents=contents, config=config
            )
            async for _ in responses:
                pass
        except _Opened as opened:
            response = opened.response
        else:
            raise not_a_stream(self.name, self._base_url or "", "nothing", b"")
        reader.has_started = True
        try:
            events: Any = await events_of(response, reader, self.name)
            async with aclosing(events):  # A generator that is left open would be closed by the collector.
                yield events
        finally:
            await response.aclose()

    def _to_model_error(self, error: Exception, reader: Reader) -> ModelError:
        errors, http = sdk("google.genai.errors", "google"), sdk("httpx2", "google")
        if isinstance(error, errors.APIError):
            found = cast(Any, error)
            headers = {k.lower(): v for k, v in getattr(found.response, "headers", {}).items()}
            fault = parse_fault(found.code, found.details, headers)
            return error_of(self.name, fault, found.details)
        if isinstance(error, http.TimeoutException):
            return unreachable(self.name, error, timeout=True)
        if isinstance(error, http.HTTPError) and not reader.has_started:
            return unreachable(self.name, error, timeout=False)
        if type(error).__module__.startswith("google.auth") and not reader.has_started:
            return BadCredentials(
                f"{self.name}: Google's credentials aren't usable: {error}; run gcloud auth application-default "
                "login, set GOOGLE_APPLICATION_CREDENTIALS, or pass credentials=..."
            )
        if isinstance(error, ValueError) and not reader.has_started:
            return InvalidRequest(f"{self.name}: the SDK refuses the request: {error}")
        return stream_broken(self.name, str(error) or type(error).__name__)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    def _make_client(self) -> tuple[Any, Any]:
        genai, tls = sdk("google.genai", "google"), _tls_context()
        # Our own client: the SDK would prefer aiohttp if installed, which retries by itself.
        connections = _client_class()(verify=tls, proxy=self._proxy, follow_redirects=True)
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

    def check_credentials(self) -> None:
        """Raise `BadCredentials` if a key is needed and there is none."""
        self._access()

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


class GoogleVertexModel(GoogleModel):
    """A Gemini model on Vertex: `GoogleVertexModel("gemini-3.8-flash", project="p", location="global")`.

    Missing values are found as by Google's own tools.
    """

    vendor = "google-vertex"

    def __init__(
        self,
        model: str,
        *,
        project: str | None = None,
        location: str | None = None,
        credentials: Any = None,
        base_url: str | None = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(
            model,
            vertex=True,
            project=project,
            location=location,
            credentials=credentials,
            base_url=base_url,
            **options,
        )
