"""Models of any server that implements Chat Completions."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import partial
from typing import Any, Unpack

from ...errors import ConfigurationError
from ..openai.model import ChatModel, OptionalKey
from ..openai.settings import OpenAIChatSettings
from ..shared.base import check_name
from ..shared.secrets import Key, check_url
from ..shared.stainless import SdkOptions
from .servers import PLAIN, SERVERS, Server

__all__ = [
    "CompatibleModel",
    "CompatibleSettings",
    "deepseek",
    "groq",
    "lmstudio",
    "ollama",
    "openrouter",
    "together",
    "vllm",
]

# A base URL in a name: `qwen3@http://gpu:8000/v1`.
_ADDRESS = re.compile(r"@([a-zA-Z][a-zA-Z0-9+.-]*://.*)\Z")


class CompatibleSettings(OpenAIChatSettings, total=False):
    """The settings of Chat Completions and common extensions; others go into `body`."""

    top_k: int
    min_p: float
    repetition_penalty: float
    chat_template_kwargs: dict[str, Any]
    keep_alive: str | int
    provider: dict[str, Any]
    models: list[str]
    reasoning_format: str


class CompatibleModel(ChatModel):
    """A model of any server of Chat Completions: `CompatibleModel("qwen3", base_url="http://gpu:8000/v1")`.

    The base URL may also be in the name, `qwen3@http://gpu:8000/v1`, or in OPENAI_COMPATIBLE_BASE_URL. The key is
    `api_key`, or in the environment variable `key_env`; it is optional. `server` selects a known server: deepseek,
    groq, lmstudio, ollama, openrouter, together, vllm.
    """

    settings = CompatibleSettings

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        key_env: str | None = None,
        server: str | None = None,
        **options: Unpack[SdkOptions],
    ) -> None:
        if server is not None and server not in SERVERS:
            raise ConfigurationError(f"no server {server!r} is known (known: {', '.join(SERVERS)})")
        known = PLAIN if server is None else SERVERS[server]
        check_name(server or "openai-compatible", model)
        if (found := _ADDRESS.search(model)) is not None:
            model, base_url = model[: found.start()], base_url or found[1]
        address = base_url if base_url != known.base_url else None
        self.url_variables = known.urls
        if base_url is None and not any(os.environ.get(name, "").strip() for name in known.urls):
            if known.base_url is None:
                raise _missing_url(model)
            base_url = known.base_url
        self.dialect = known.dialect
        vendor, key = server or "openai-compatible", _key_of(known, api_key, key_env, server)
        super().__init__(vendor, model, key, base_url=base_url, address=address, **options)


def _missing_url(model: str) -> ConfigurationError:
    name, at, address = model.rpartition("@")
    if at:  # It may be an address without a scheme, which has an error of its own.
        check_url(f"openai-compatible:{name.partition('@')[0]}", address)
    return ConfigurationError(
        f"openai-compatible:{model} needs a base URL: write openai-compatible:{model}@http://host/v1, "
        "set OPENAI_COMPATIBLE_BASE_URL, or pass base_url=..."
    )


def _key_of(known: Server, api_key: str | None, key_env: str | None, server: str | None) -> Key:
    """The key of a server, optional for self-hosted ones."""
    names = (key_env,) if key_env is not None else known.keys
    is_required = key_env is not None or (server is not None and bool(known.keys))
    return Key(api_key, *names) if is_required else OptionalKey(api_key, *names)


def _factory(server: str) -> Callable[[str], CompatibleModel]:
    return partial(CompatibleModel, server=server)


deepseek = _factory("deepseek")
groq = _factory("groq")
lmstudio = _factory("lmstudio")
ollama = _factory("ollama")
openrouter = _factory("openrouter")
together = _factory("together")
vllm = _factory("vllm")
