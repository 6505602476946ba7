"""Models of any server that implements one of OpenAI's APIs."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import partial
from typing import Any, Unpack

from ...errors import ConfigurationError
from ..openai.model import ChatModel, OptionalKey, ResponsesModel
from ..openai.settings import OpenAIChatSettings
from ..shared.base import check_name
from ..shared.secrets import Key, check_url
from ..shared.stainless import SdkOptions
from .servers import PLAIN, SERVERS, Server

__all__ = ["CompatibleModel", "CompatibleResponsesModel", "CompatibleSettings", "vendor"]

# A base URL in a name: `qwen3@http://gpu:8000/v1`.
_ADDRESS = re.compile(r"@([a-zA-Z][a-zA-Z0-9+.-]*://.*)\Z")
# A variable in a base URL.
_VARIABLE = re.compile(r"\{(\w+)\}")
_HOST = re.compile(r"[A-Za-z0-9._-]+")


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


class _Endpoint:
    """A model at a server: its name, address and key."""

    def __init__(
        self,
        model: str,
        suffix: str,
        base_url: str | None,
        api_key: str | None,
        key_env: str | None,
        server: str | Server | None,
    ) -> None:
        if isinstance(server, str) and server not in SERVERS:
            raise ConfigurationError(f"no server {server!r} is known (known: {', '.join(SERVERS)})")
        self.server = known = PLAIN if server is None else SERVERS[server] if isinstance(server, str) else server
        self.vendor = known.name + suffix
        check_name(self.vendor, model)
        if (found := _ADDRESS.search(model)) is not None:
            model, base_url = model[: found.start()], base_url or found[1]
        self.model = model
        self.address = base_url if base_url != known.base_url else None
        if base_url is None and not any(os.environ.get(name, "").strip() for name in known.urls):
            base_url = _base_url(self.vendor, model, known)
        self.base_url = base_url
        names = (key_env,) if key_env is not None else known.keys
        is_required = key_env is not None or (known.needs_key and bool(known.keys))
        self.key = Key(api_key, *names) if is_required else OptionalKey(api_key, *names)


def _base_url(vendor: str, model: str, known: Server) -> str:
    if known.base_url is None:
        raise _missing_url(vendor, model)
    url = known.base_url
    for name in _VARIABLE.findall(known.base_url):
        value = os.environ.get(name, "").strip()
        if _HOST.fullmatch(value) is None:
            what = f"not {value!r:.80}" if value else "which isn't set"
            raise ConfigurationError(f"{vendor}:{model} needs {name}, a part of its host name, {what}")
        url = url.replace(f"{{{name}}}", value)
    return url


def _missing_url(vendor: str, model: str) -> ConfigurationError:
    name, at, address = model.rpartition("@")
    if at:  # It may be an address without a scheme, which has an error of its own.
        check_url(f"{vendor}:{name.partition('@')[0]}", address)
    return ConfigurationError(
        f"{vendor}:{model} needs a base URL: write {vendor}:{model}@http://host/v1, "
        "set OPENAI_COMPATIBLE_BASE_URL, or pass base_url=..."
    )


class CompatibleModel(ChatModel):
    """A model of any server of Chat Completions: `CompatibleModel("qwen3", base_url="http://gpu:8000/v1")`.

    The base URL may also be in the name, `qwen3@http://gpu:8000/v1`, or in OPENAI_COMPATIBLE_BASE_URL. The key is
    `api_key`, or in the environment variable `key_env`; it is optional. `server` is a `Server`, or the name of a
    known one.
    """

    settings = CompatibleSettings

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        key_env: str | None = None,
        server: str | Server | None = None,
        **options: Unpack[SdkOptions],
    ) -> None:
        found = _Endpoint(model, "", base_url, api_key, key_env, server)
        known = found.server
        self.url_variables = known.urls
        start = max([start for start in known.models if found.model.startswith(start)], key=len, default=None)
        self.dialect = known.dialect if start is None else known.models[start]
        super().__init__(
            found.vendor, found.model, found.key, base_url=found.base_url, address=found.address, **options
        )


class CompatibleResponsesModel(ResponsesModel):
    """A model of any server of the Responses API, with the arguments of `CompatibleModel`."""

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        key_env: str | None = None,
        server: str | Server | None = None,
        **options: Unpack[SdkOptions],
    ) -> None:
        found = _Endpoint(model, "-responses", base_url, api_key, key_env, server)
        self.url_variables = found.server.urls
        if found.server.responses is None:
            raise ConfigurationError(f"{found.server.name} has no Responses API; use {found.server.name}:{model}")
        self.responses = found.server.responses
        super().__init__(
            found.vendor, found.model, found.key, base_url=found.base_url, address=found.address, **options
        )


def vendor(server: str | Server, *, responses: bool = False) -> Callable[[str], ChatModel | ResponsesModel]:
    """Make a vendor for `Runtime(models=...)` from a server, through Chat Completions or the Responses API."""
    return partial(CompatibleResponsesModel if responses else CompatibleModel, server=server)
