"""OpenAI's models on Azure."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Unpack

from ...errors import BadCredentials, ConfigurationError
from ..openai.model import ChatModel, ResponsesModel
from ..shared.secrets import Key
from ..shared.stainless import SdkModel, SdkOptions
from ..shared.vendor import sdk

__all__ = ["AzureModel", "AzureResponsesModel"]


class _Azure(SdkModel):
    vendor: ClassVar[str]
    url_variables = ("AZURE_OPENAI_ENDPOINT",)

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
        super().__init__(self.vendor, deployment, key, base_url=endpoint or None, address=endpoint, **options)
        self._api_version = api_version or os.environ.get("OPENAI_API_VERSION")
        self._token_provider = token_provider
        for value, name, variable in (
            (self._base_url, "endpoint", "AZURE_OPENAI_ENDPOINT"),
            (self._api_version, "api_version", "OPENAI_API_VERSION"),
        ):
            if not value:
                raise ConfigurationError(f"{self.name} needs its {name}: set {variable}, or pass {name}=...")

    def _make_client(self) -> Any:
        openai = sdk("openai", "openai")
        key = self._key.check(self.name)
        if self._token_provider is None and key is None:
            raise BadCredentials(
                f"{self.name}: there is no key; set AZURE_OPENAI_API_KEY in the environment, or pass api_key=... "
                "or token_provider=..."
            )
        credentials = (
            {"api_key": key} if self._token_provider is None else {"azure_ad_token_provider": self._token_provider}
        )
        return openai.AsyncAzureOpenAI(
            azure_endpoint=self._base_url,
            azure_deployment=self.model,
            api_version=self._api_version,
            **credentials,
            **self._options(openai),
        )


class AzureModel(_Azure, ChatModel):
    """A deployment, through Chat Completions: `AzureModel("my-deployment")`.

    `endpoint` and `api_version` default to AZURE_OPENAI_ENDPOINT and OPENAI_API_VERSION. The key is `api_key`, or
    AZURE_OPENAI_API_KEY; `token_provider` returns tokens of Entra ID instead.
    """

    vendor = "azure"


class AzureResponsesModel(_Azure, ResponsesModel):
    """A deployment, through the Responses API, with the arguments of `AzureModel`."""

    vendor = "azure-responses"
