"""Models on Bedrock, through Amazon's SDK. The SDK blocks, so a thread reads each answer."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from re import Pattern
from typing import Any, Unpack, cast

from ...errors import BadCredentials, ConfigurationError, InvalidRequest, ModelError, quote
from ..protocol import Chunk, ModelRequest
from ..shared.base import Options, VendorModel
from ..shared.faults import PAGE, parse_fault, stream_broken, to_error, unreachable
from ..shared.reader import Reader
from ..shared.secrets import Key, secret_patterns
from ..shared.threads import ReaderThreads, ThreadStream, stream_in_thread
from ..shared.vendor import sdk
from .connection import Call, WholeAnswer, call_headers, open_session
from .request import build_request
from .settings import SUPPORT
from .stream import EventReader

__all__ = ["BedrockModel"]

CONNECT_SECONDS = 60.0
READ_SECONDS = 600.0
CONNECTIONS = 64
STREAM = "application/vnd.amazon.eventstream"

_AWS_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")

# The HTTP status of an exception inside a stream.
_STREAM_STATUS = {
    "throttlingException": 429,
    "serviceUnavailableException": 503,
    "internalServerException": 500,
    "modelStreamErrorException": 424,
    "modelTimeoutException": 408,
    "validationException": 400,
}


class BedrockModel(VendorModel):
    """A model on Bedrock: `BedrockModel("us.anthropic.claude-sonnet-4-5-20250929-v1:0", region="us-east-1")`.

    The credentials are found as by AWS's own tools, of `profile` if given. A Bedrock API key is `api_key` or
    AWS_BEARER_TOKEN_BEDROCK.
    """

    support = SUPPORT
    modules = ("boto3", "botocore.config", "botocore.httpsession")

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        region: str | None = None,
        profile: str | None = None,
        session: Any = None,
        base_url: str | None = None,
        **options: Unpack[Options],
    ) -> None:
        key = Key(api_key, "AWS_BEARER_TOKEN_BEDROCK")
        super().__init__("bedrock", model, key, base_url=base_url, address=base_url or region, **options)
        self._region = region
        self._profile = profile
        self._session = session
        self._readers = ReaderThreads()
        self._client_lock = threading.Lock()
        self._connected: tuple[Any, Any] | None = None

    def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Answer the request."""
        body = build_request(self.model, self.name, request)
        reader, call = EventReader(self.name), Call(request.settings.headers)

        def read(stream: ThreadStream[dict[str, Any]]) -> None:
            call.bind_thread()
            try:
                self._read(body, stream, reader)
            finally:
                call.release_socket()

        return self._stream_answer(
            aclosing(stream_in_thread(read, self._readers, "wakeful-bedrock", call.end)),
            reader,
            request.settings.headers,
        )

    def _read(self, body: dict[str, Any], stream: ThreadStream[dict[str, Any]], reader: EventReader) -> None:
        """Send the request and pass every event to the stream; runs in a thread."""
        client, _ = self._client()
        if stream.is_abandoned:
            return
        try:
            answer = client.converse_stream(**body)
        except WholeAnswer as whole:
            reader.has_started = True
            stream.put(whole.decode(reader))
            return
        reader.has_started, reader.request_id = True, answer["ResponseMetadata"].get("RequestId")
        events = answer["stream"]
        try:
            for event in events:
                if stream.put(event):
                    break
        finally:
            events.close()

    def _client(self) -> tuple[Any, Any]:
        with self._client_lock:
            if self._connected is None:
                self._connected = self._make()
            return self._connected

    def _make(self) -> tuple[Any, Any]:
        boto3, core, key = sdk("boto3", "bedrock"), sdk("botocore", "bedrock"), self._key.check(self.name)
        if key is None and self._session is None and self._profile is None:
            self._check_environment()
        config = sdk("botocore.config", "bedrock").Config(
            # The loop retries.
            retries={"total_max_attempts": 1, "mode": "standard"},
            **({"signature_version": core.UNSIGNED} if key else {}),
        )
        try:
            session = self._session or boto3.session.Session(profile_name=self._profile)
            client = session.client(
                "bedrock-runtime",
                region_name=self._region or session.region_name or os.environ.get("AWS_REGION"),
                endpoint_url=self._base_url,
                config=config,
            )
        except core.exceptions.NoRegionError:
            raise ConfigurationError(
                f"{self.name}: there is no region; set AWS_REGION in the environment, or pass region=..."
            ) from None
        except core.exceptions.ProfileNotFound as error:
            raise ConfigurationError(f"{self.name}: {error}") from None
        read = READ_SECONDS if self._timeout is None else self._timeout
        url, connect = client.meta.endpoint_url, min(read, CONNECT_SECONDS)
        connections = open_session(url, proxy=self._proxy, connect=connect, read=read, size=CONNECTIONS)

        def send(request: Any, **_: Any) -> Any:
            request.headers.update({**self._headers, **call_headers()})
            if (key := self._key.found) is not None:
                request.headers["Authorization"] = f"Bearer {key}"
            response = connections.send(request)
            kind = response.headers.get("content-type", STREAM)
            if response.status_code == 200 and STREAM not in kind:
                pieces = response.raw.stream(PAGE)
                body = b"".join(pieces) if "json" in kind else next(pieces, b"")
                response.raw.close()  # The rest of a page isn't read.
                raise WholeAnswer(request.url, kind, body)
            return response

        client.meta.events.register("before-send.bedrock-runtime", send)
        return client, connections

    def _to_model_error(self, error: Exception, reader: Reader) -> ModelError:
        known = sdk("botocore.exceptions", "bedrock")
        if isinstance(error, known.ClientError):
            response = cast(Any, error).response
            reported, meta = response.get("Error", {}), response.get("ResponseMetadata", {})
            code = reported.get("Code", "")
            status = _STREAM_STATUS.get(code) or meta.get("HTTPStatusCode")
            body = {"code": code, "message": reported.get("Message", ""), "request_id": reader.request_id}
            headers = {name.lower(): value for name, value in meta.get("HTTPHeaders", {}).items()}
            return to_error(self.name, parse_fault(status, body, headers))
        if isinstance(error, known.NoCredentialsError | known.PartialCredentialsError | known.TokenRetrievalError):
            return BadCredentials(
                f"{self.name}: there are no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
                "AWS_BEARER_TOKEN_BEDROCK in the environment, or pass profile=... or api_key=..."
            )
        if isinstance(error, known.ParamValidationError):
            return InvalidRequest(f"{self.name}: the SDK refuses the request: {error}")
        if type(error).__name__ in ("ReadTimeoutError", "ConnectTimeoutError"):
            return unreachable(self.name, error, timeout=True)
        if reader.has_started:
            return stream_broken(self.name, str(error) or type(error).__name__)
        if isinstance(error, known.HTTPClientError | known.ConnectionError):
            return unreachable(self.name, error, timeout=False)
        return quote(ModelError, f"{self.name} could not be called", error)

    def _secrets(self, headers: Mapping[str, Any]) -> tuple[Pattern[str], ...]:
        return (*super()._secrets(headers), *secret_patterns(*[os.environ.get(name) for name in _AWS_KEYS]))

    def _check_environment(self) -> None:
        """Refuse invalid credentials in the environment: the SDK would show them in its error."""
        for name in _AWS_KEYS:
            value = os.environ.get(name, "")
            if value != value.strip() or not value.isascii() or not (value.isprintable() or not value):
                raise BadCredentials(
                    f"{self.name}: {name} in the environment has a space, a line break or another character that "
                    "no key has; set it again, alone"
                )

    async def close(self) -> None:
        """Close the connections."""
        await self._readers.join()
        connected, self._connected = self._connected, None
        if connected is not None:
            client, connections = connected

            def close() -> None:
                client.close()
                connections.close()

            await asyncio.to_thread(close)
