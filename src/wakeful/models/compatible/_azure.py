"""OpenAI's models as Azure serves them."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Any, Unpack

from ...errors import BadCredentials, ConfigurationError
from .._secrets import Key
from .._stainless import SdkOptions
from .._vendor import sdk
from ..openai._model import ChatModel

__all__ = ["AzureModel"]


class AzureModel(ChatModel):
    """A deployment by Chat Completions: `AzureModel("my-deployment")`.

    `endpoint` and `api_version` are by default AZURE_OPENAI_ENDPOINT and OPENAI_API_VERSION. The key is `api_key`,
    or AZURE_OPENAI_API_KEY; in its place `token_provider` may give tokens of Entra ID.
    """

    places = ("AZURE_OPENAI_ENDPOINT",)

    def __init__(
        self,
        deployment: str,
        *,
        endpoint: str | None = None,
        api_version: str | None = None,
        api_key: str | None = None,
        token_provider: Callable[[], str | Awaitable[str]] | None = None,
        **options: Unpack[SdkOptions],
    ) -> None:
        key = Key(api_key, "AZURE_OPENAI_API_KEY")
        super().__init__("azure", deployment, key, base_url=endpoint or None, address=endpoint, **options)
        self._api_version = api_version or os.environ.get("OPENAI_API_VERSION")
        self._token_provider = token_provider
        for value, name, variable in (
            (self._base_url, "endpoint", "AZURE_OPENAI_ENDPOINT"),
            (self._api_version, "api_version", "OPENAI_API_VERSION"),
        ):
            if not value:
                raise ConfigurationError(f"{self.name} needs its {name}: set {variable}, or pass {name}=...")

    def _made(self) -> Any:
        openai = sdk("openai", "openai")
        key = self._key.checked(self.name)
        if self._token_provider is None and key is None:
            raise BadCredentials(
                f"{self.name}: there is no key; set AZURE_OPENAI_API_KEY in the environment, or pass api_key=... "
                "or token_provider=..."
            )
        who = (
            {"api_key": key} if self._token_provider is None else {"azure_ad_token_provider": self._token_provider}
        )
        return openai.AsyncAzureOpenAI(
            azure_endpoint=self._base_url,
            azure_deployment=self.model,
            api_version=self._api_version,
            **who,
            **self._options(openai),
        )
