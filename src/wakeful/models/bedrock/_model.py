"""Models on Bedrock, by Amazon's own SDK, which blocks: each answer is read in a thread."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from re import Pattern
from typing import Any, Unpack, cast

from ...errors import BadCredentials, ConfigurationError, InvalidRequest, ModelError, explain
from .._base import Options, VendorModel
from .._faults import PAGE, broken, error_of, fault_of, no_stream, unreachable
from .._protocol import Chunk, ModelRequest
from .._reader import Reader
from .._secrets import Key, forms_of
from .._threads import Readers, Reading, pieces_of
from .._vendor import sdk
from ._connection import Call, session_of
from ._request import request_of
from ._stream import EventReader

__all__ = ["BedrockModel"]

CONNECT_SECONDS = 60.0
READ_SECONDS = 600.0
CONNECTIONS = 64
STREAM = "application/vnd.amazon.eventstream"

_AWS_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")

# What an exception in the middle of a stream would have been as an answer.
_IN_STREAM = {
    "throttlingException": 429,
    "serviceUnavailableException": 503,
    "internalServerException": 500,
    "modelStreamErrorException": 424,
    "modelTimeoutException": 408,
    "validationException": 400,
}


class BedrockModel(VendorModel):
    """A model on Bedrock: `BedrockModel("us.anthropic.claude-sonnet-4-5-20250929-v1:0", region="us-east-1")`.

    The credentials are those that AWS's own tools find, of `profile` if there is one; or a Bedrock API key, which
    is `api_key` or AWS_BEARER_TOKEN_BEDROCK.
    """

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
        self._readers = Readers()
        self._making = threading.Lock()
        self._made: tuple[Any, Any] | None = None

    def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Answer the request."""
        body = request_of(self.model, self.name, request)
        reader, call = EventReader(self.name), Call()

        def read(reading: Reading[dict[str, Any]]) -> None:
            call.here()
            try:
                self._read(body, reading, reader)
            finally:
                call.over()

        return self._answered(aclosing(pieces_of(read, self._readers, "wakeful-bedrock", call.end)), reader)

    def _read(self, body: dict[str, Any], reading: Reading[dict[str, Any]], reader: EventReader) -> None:
        """Ask, and tell of every event: in a thread."""
        client, _ = self._client()
        if reading.left:
            return
        answer = client.converse_stream(**body)
        reader.begun, reader.request_id = True, answer["ResponseMetadata"].get("RequestId")
        events = answer["stream"]
        try:
            for event in events:
                if reading.tell(event):
                    break
        finally:
            events.close()

    def _client(self) -> tuple[Any, Any]:
        with self._making:
            if self._made is None:
                self._made = self._make()
            return self._made

    def _make(self) -> tuple[Any, Any]:
        boto3, core, key = sdk("boto3", "bedrock"), sdk("botocore", "bedrock"), self._key.checked(self.name)
        if key is None and self._session is None and self._profile is None:
            self._check_environment()
        config = sdk("botocore.config", "bedrock").Config(
            # Whoever asks knows best whether, when and whom to ask again.
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
        connections = session_of(url, proxy=self._proxy, connect=connect, read=read, size=CONNECTIONS)

        def send(request: Any, **_: Any) -> Any:
            request.headers.update(self._headers)
            if (key := self._key.found) is not None:
                request.headers["Authorization"] = f"Bearer {key}"
            response = connections.send(request)
            kind = response.headers.get("content-type", STREAM)
            if response.status_code == 200 and STREAM not in kind:
                raise no_stream(self.name, request.url, kind, next(response.raw.stream(PAGE), b""))
            return response

        client.meta.events.register("before-send.bedrock-runtime", send)
        return client, connections

    def _explained(self, error: Exception, reader: Reader) -> ModelError:
        known = sdk("botocore.exceptions", "bedrock")
        if isinstance(error, known.ClientError):
            response = cast(Any, error).response
            said, meta = response.get("Error", {}), response.get("ResponseMetadata", {})
            code = said.get("Code", "")
            status = _IN_STREAM.get(code) or meta.get("HTTPStatusCode")
            body = {"code": code, "message": said.get("Message", ""), "request_id": reader.request_id}
            headers = {name.lower(): value for name, value in meta.get("HTTPHeaders", {}).items()}
            return error_of(self.name, fault_of(status, body, headers))
        if isinstance(error, known.NoCredentialsError | known.PartialCredentialsError | known.TokenRetrievalError):
            return BadCredentials(
                f"{self.name}: there are no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
                "AWS_BEARER_TOKEN_BEDROCK in the environment, or pass profile=... or api_key=..."
            )
        if isinstance(error, known.ParamValidationError):
            return InvalidRequest(f"{self.name}: the SDK refuses the request: {error}")
        if type(error).__name__ in ("ReadTimeoutError", "ConnectTimeoutError"):
            return unreachable(self.name, error, timeout=True)
        if reader.begun:
            return broken(self.name, str(error) or type(error).__name__)
        if isinstance(error, known.HTTPClientError | known.ConnectionError):
            return unreachable(self.name, error, timeout=False)
        return ModelError(f"{self.name} could not be asked: {explain(error)}")

    def _secrets(self, headers: Mapping[str, Any]) -> tuple[Pattern[str], ...]:
        return (*super()._secrets(headers), *forms_of(*[os.environ.get(name) for name in _AWS_KEYS]))

    def _check_environment(self) -> None:
        """Refuse what can't be sent: AWS's own tools would show it in their error."""
        for name in _AWS_KEYS:
            value = os.environ.get(name, "")
            if value != value.strip() or not value.isascii() or not (value.isprintable() or not value):
                raise BadCredentials(
                    f"{self.name}: {name} in the environment has a space, a line break or another character that "
                    "no key has; set it again, alone"
                )

    async def close(self) -> None:
        """Close its connections."""
        await self._readers.join()
        made, self._made = self._made, None
        if made is not None:
            client, connections = made

            def closed() -> None:
                client.close()
                connections.close()

            await asyncio.to_thread(closed)
