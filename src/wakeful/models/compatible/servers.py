"""Known servers of Chat Completions: URL, key and dialect, as data."""

from __future__ import annotations

from collections.abc import Mapping

from ...types.base import Data
from ..openai.chat_request import Dialect

__all__ = ["PLAIN", "SERVERS", "Server"]


class Server(Data):
    """A server. `keys` and `urls` are environment variables; without `keys` it needs no key."""

    dialect: Dialect
    base_url: str | None = None
    keys: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()


PLAIN = Server(Dialect(), None, ("OPENAI_COMPATIBLE_API_KEY",), ("OPENAI_COMPATIBLE_BASE_URL",))

# Sources: the vendors' pages on their OpenAI-compatible APIs.
SERVERS: Mapping[str, Server] = {
    "deepseek": Server(
        # Guides "JSON Output" (json_object only) and "Thinking Mode" (reasoning_content of tool turns is sent
        # back).
        Dialect(output="json_object", effort="none", thoughts=True),
        "https://api.deepseek.com",
        ("DEEPSEEK_API_KEY",),
    ),
    "groq": Server(
        Dialect("max_completion_tokens", strict=True),
        "https://api.groq.com/openai/v1",
        ("GROQ_API_KEY",),
    ),
    "lmstudio": Server(Dialect(), "http://localhost:1234/v1", urls=("LMSTUDIO_BASE_URL",)),
    "ollama": Server(Dialect(), "http://localhost:11434/v1", urls=("OLLAMA_BASE_URL",)),
    "openrouter": Server(
        # Guide "Reasoning Tokens": an object in place of reasoning_effort.
        Dialect(strict=True, effort="reasoning"),
        "https://openrouter.ai/api/v1",
        ("OPENROUTER_API_KEY",),
    ),
    "together": Server(Dialect(), "https://api.together.xyz/v1", ("TOGETHER_API_KEY",)),
    "vllm": Server(Dialect(), "http://localhost:8000/v1", urls=("VLLM_BASE_URL",)),
}
