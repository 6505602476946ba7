"""Anthropic's models on Vertex and Bedrock, with the credentials of these platforms."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import Any, Unpack

from ...errors import BadCredentials, ConfigurationError, ModelError
from ..shared.reader import Reader
from ..shared.secrets import Key
from ..shared.sse import decode_json
from ..shared.stainless import SdkOptions
from ..shared.vendor import sdk
from .model import MessagesModel

__all__ = ["AnthropicBedrockModel", "AnthropicVertexModel"]

_AWS_STREAM = "amazon.eventstream"


class AnthropicVertexModel(MessagesModel):
    """A Claude model on Vertex: `AnthropicVertexModel("claude-sonnet-5", region="global")`.

    The region is `region` or CLOUD_ML_REGION, the project `project` or ANTHROPIC_VERTEX_PROJECT_ID. The
    credentials are `credentials` of google-auth, an `access_token`, or found as by Google's own tools.
    """

    url_variables = ("ANTHROPIC_VERTEX_BASE_URL",)
    takes_system_messages = False

    def __init__(
        self,
        model: str,
        *,
        region: str | None = None,
        project: str | None = None,
        access_token: str | None = None,
        credentials: Any = None,
        base_url: str | None = None,
        **options: Unpack[SdkOptions],
    ) -> None:
        key = Key(access_token)
        super().__init__("anthropic-vertex", model, key, base_url=base_url, address=base_url or region, **options)
        self._region = region
        self._project = project
        self._credentials = credentials

    def check_credentials(self) -> None:
        """Leave the check to the first request: Google's credentials are found in many places."""

    def _make_client(self) -> Any:
        anthropic = sdk("anthropic", "anthropic")
        region = self._region or os.environ.get("CLOUD_ML_REGION")
        if not region:
            raise ConfigurationError(
                f"{self.name}: there is no region; set CLOUD_ML_REGION in the environment, or pass region=..."
            )
        return anthropic.AsyncAnthropicVertex(
            region=region,
            access_token=self._key.check(self.name),
            credentials=self._credentials,
            base_url=self._base_url,
            **({} if self._project is None else {"project_id": self._project}),
            **self._options(anthropic),
        )

    def _to_model_error(self, error: Exception, reader: Reader) -> ModelError:
        if not reader.has_started and type(error).__module__.startswith("google.auth"):
            return BadCredentials(
                f"{self.name}: Google's credentials aren't usable: {error}; run gcloud auth application-default "
                "login, set GOOGLE_APPLICATION_CREDENTIALS, or pass credentials=..."
            )
        return super()._to_model_error(error, reader)


class AnthropicBedrockModel(MessagesModel):
    """A Claude model on Bedrock's own form of the Messages API.

    `AnthropicBedrockModel("us.anthropic.claude-sonnet-4-5-20250929-v1:0", region="us-east-1")`. The credentials
    are found as by AWS's own tools, of `profile` if given. A Bedrock API key is `api_key` or
    AWS_BEARER_TOKEN_BEDROCK.
    """

    url_variables = ("ANTHROPIC_BEDROCK_BASE_URL",)

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        region: str | None = None,
        profile: str | None = None,
        base_url: str | None = None,
        **options: Unpack[SdkOptions],
    ) -> None:
        key = Key(api_key, "AWS_BEARER_TOKEN_BEDROCK")
        super().__init__("anthropic-bedrock", model, key, base_url=base_url, address=base_url or region, **options)
        self._region = region
        self._profile = profile

    def check_credentials(self) -> None:
        """Leave the check to the first request: AWS's credentials are found in many places."""

    def _make_client(self) -> Any:
        anthropic = sdk("anthropic", "anthropic")
        sdk("botocore", "bedrock")
        return anthropic.AsyncAnthropicBedrock(
            api_key=self._key.check(self.name),
            aws_region=self._region,
            aws_profile=self._profile,
            base_url=self._base_url,
            **self._options(anthropic),
        )

    async def _events(self, stream: Any, kind: str, reader: Reader) -> AsyncIterator[Any]:
        return _decode(stream) if _AWS_STREAM in kind else await super()._events(stream, kind, reader)

    def _to_model_error(self, error: Exception, reader: Reader) -> ModelError:
        if not reader.has_started and "credentials" in str(error).lower() and not hasattr(error, "response"):
            return BadCredentials(
                f"{self.name}: AWS's credentials aren't usable: {error}; set AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY, or AWS_BEARER_TOKEN_BEDROCK, or pass profile=... or api_key=..."
            )
        return super()._to_model_error(error, reader)


async def _decode(stream: Any) -> AsyncIterator[Any]:
    """Decode the events of AWS's binary frames, which the SDK unpacks."""
    async for event in stream._iter_events():
        if event.data:
            yield decode_json(event.data.encode())
