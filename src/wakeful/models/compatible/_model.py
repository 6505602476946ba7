"""A model behind any server that speaks Chat Completions."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import partial
from typing import Any, Unpack

from ...errors import ConfigurationError
from .._base import check_name
from .._secrets import Key, checked_url
from .._stainless import SdkOptions
from ..openai._model import ChatModel, OptionalKey
from ..openai._settings import OpenAIChatSettings
from ._servers import PLAIN, SERVERS

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


# The base URL that may stand in a name: `qwen3@http://gpu:8000/v1`.
_ADDRESS = re.compile(r"@([a-zA-Z][a-zA-Z0-9+.-]*://.*)\Z")


class CompatibleSettings(OpenAIChatSettings, total=False):
    """The settings of Chat Completions, and those that many servers have besides; others go into `body`."""

    top_k: int
    min_p: float
    repetition_penalty: float
    chat_template_kwargs: dict[str, Any]
    keep_alive: str | int
    provider: dict[str, Any]
    models: list[str]
    reasoning_format: str


class CompatibleModel(ChatModel):
    """A model by Chat Completions of any server: `CompatibleModel("qwen3", base_url="http://gpu:8000/v1")`.

    The base URL may also stand in the name, `qwen3@http://gpu:8000/v1`, or in OPENAI_COMPATIBLE_BASE_URL. The key
    is `api_key`, or in the variable `key_env`; a server that wants none needs none. `server` is one of those whose
    ways are known: deepseek, groq, lmstudio, ollama, openrouter, together, vllm.
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
        self.places = known.urls
        told = any(os.environ.get(name, "").strip() for name in known.urls)
        base_url = base_url or (None if told else known.base_url)
        name, at, place = model.rpartition("@")
        if base_url is None and not told and at:
            checked_url(f"openai-compatible:{name.partition('@')[0]}", place)
        if base_url is None and not told:
            raise ConfigurationError(
                f"openai-compatible:{model} needs a base URL: write openai-compatible:{model}@http://host/v1, "
                "set OPENAI_COMPATIBLE_BASE_URL, or pass base_url=..."
            )
        self.dialect = known.dialect
        names = (key_env,) if key_env is not None else known.keys
        # A server of one's own may want no key.
        needed = key_env is not None or (server is not None and bool(known.keys))
        key = Key(api_key, *names) if needed else OptionalKey(api_key, *names)
        vendor = server or "openai-compatible"
        super().__init__(vendor, model, key, base_url=base_url, address=address, **options)


def _of(server: str) -> Callable[[str], CompatibleModel]:
    return partial(CompatibleModel, server=server)


deepseek = _of("deepseek")
groq = _of("groq")
lmstudio = _of("lmstudio")
ollama = _of("ollama")
openrouter = _of("openrouter")
together = _of("together")
vllm = _of("vllm")
