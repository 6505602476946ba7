"""Known servers of OpenAI's APIs: URL, key and dialect of each, as data.

Sources: the vendors' pages on their OpenAI-compatible APIs.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from ...types.base import Data
from ..openai.dialect import Dialect, ResponsesDialect

__all__ = ["PLAIN", "SERVERS", "Server"]


class Server(Data):
    """A server: its name, its dialect, base URL and the environment variables of its key.

    `urls` are variables of the base URL; a base URL may have a variable in braces. Without `keys`, or without
    `needs_key`, it is asked without a key.
    `models` are dialects of models by the start of their names. `responses` is set if it has the Responses API.
    """

    name: str
    base_url: str | None = None
    keys: tuple[str, ...] = ()
    dialect: Dialect = Dialect()
    urls: tuple[str, ...] = ()
    models: Mapping[str, Dialect] = {}
    responses: ResponsesDialect | None = None
    needs_key: bool = True


PLAIN = Server(
    "openai-compatible",
    None,
    ("OPENAI_COMPATIBLE_API_KEY",),
    Dialect(signatures=True),
    ("OPENAI_COMPATIBLE_BASE_URL",),
    responses=ResponsesDialect(),
    needs_key=False,
)


# Guides "JSON Output" (json_object only) and "Thinking Mode" (an answer with calls needs its reasoning).
_DEEPSEEK = Dialect(
    output="json_object",
    effort="thinking",
    thoughts="reasoning_content",
    needs_thoughts=True,
    refuses=("seed", "parallel_tool_calls", "service_tier", "user"),
)
# Guide "Reasoning": gpt-oss takes its reasoning back in a field, GLM in tags.
_CEREBRAS = Dialect(
    "max_completion_tokens",
    strict=True,
    thoughts="reasoning",
    refuses=("parallel_tool_calls", "service_tier"),
)
# Guide "Use Kimi K2 Thinking": an answer with calls needs its reasoning. There is no forced call.
_KIMI = Dialect(
    thoughts="reasoning_content",
    needs_thoughts=True,
    effort="thinking",
    required=None,
    refuses=("parallel_tool_calls", "service_tier", "user"),
)
_WITHOUT_ENCRYPTION = ResponsesDialect(encrypted=False)
_QWEN = Dialect(
    output="json_object",
    effort="enable_thinking",
    required=None,
    refuses=("service_tier", "user"),
    server_tools={"WebSearch": {"enable_search": True}},
)
_QWEN_SCHEMA = replace(_QWEN, output="json_schema")

_TABLE = (
    Server(
        "alibaba",
        "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        ("ALIBABA_API_KEY", "DASHSCOPE_API_KEY"),
        _QWEN,
        ("DASHSCOPE_BASE_URL",),
        # Guide "Structured output": these models take a schema.
        models={"qwen3.7-": _QWEN_SCHEMA, "qwen3.8-": _QWEN_SCHEMA},
    ),
    Server(
        "cerebras",
        "https://api.cerebras.ai/v1",
        ("CEREBRAS_API_KEY",),
        _CEREBRAS,
        models={"zai-": replace(_CEREBRAS, thoughts="tags")},
    ),
    Server(
        "deepseek",
        "https://api.deepseek.com",
        ("DEEPSEEK_API_KEY",),
        _DEEPSEEK,
        models={"deepseek-chat": replace(_DEEPSEEK, needs_thoughts=False)},
        responses=ResponsesDialect(encrypted=False, server_tools={"WebSearch": {"type": "web_search"}}),
    ),
    Server(
        "fireworks",
        "https://api.fireworks.ai/inference/v1",
        ("FIREWORKS_API_KEY",),
        Dialect(thoughts="reasoning_content"),
        responses=_WITHOUT_ENCRYPTION,
    ),
    Server(
        "github",
        "https://models.github.ai/inference",
        ("GITHUB_API_KEY", "GITHUB_TOKEN"),
        Dialect(refuses=("service_tier",)),
    ),
    Server(
        "groq",
        "https://api.groq.com/openai/v1",
        ("GROQ_API_KEY",),
        # Guides "Built-in tools" and "Structured outputs" (not with tools). It refuses calls that its models write
        # wrongly, see `failed_calls`.
        Dialect(
            "max_completion_tokens",
            output_with_tools=False,
            strict=True,
            server_tools={
                "WebSearch": {"tools": [{"type": "browser_search"}]},
                "CodeExecution": {"tools": [{"type": "code_interpreter"}]},
            },
        ),
        responses=_WITHOUT_ENCRYPTION,
    ),
    Server(
        "huggingface",
        "https://router.huggingface.co/v1",
        ("HF_TOKEN", "HUGGINGFACE_API_KEY"),
        responses=_WITHOUT_ENCRYPTION,
    ),
    Server(
        "litellm",
        "http://localhost:4000",
        ("LITELLM_API_KEY",),
        # Gemini's signatures are part of its call ids.
        Dialect(signatures=True),
        ("LITELLM_BASE_URL", "LITELLM_API_BASE"),
        responses=ResponsesDialect(),
        needs_key=False,
    ),
    Server(
        "lmstudio",
        "http://localhost:1234/v1",
        ("LMSTUDIO_API_KEY",),
        urls=("LMSTUDIO_BASE_URL",),
        responses=_WITHOUT_ENCRYPTION,
        needs_key=False,
    ),
    Server(
        "mistral",
        "https://api.mistral.ai/v1",
        ("MISTRAL_API_KEY",),
        # References "Chat Completion" (random_seed, any, ids of nine characters) and "Reasoning" (chunks).
        # A message of the user can't follow a result.
        Dialect(
            usage=False,
            strict=True,
            thoughts="chunks",
            call_id=r"[a-zA-Z0-9]{9}",
            required="any",
            after_tools="OK.",
            seed="random_seed",
            refuses=("service_tier", "user", "logprobs"),
        ),
    ),
    Server(
        "moonshot",
        "https://api.moonshot.ai/v1",
        ("MOONSHOT_API_KEY", "MOONSHOTAI_API_KEY"),
        replace(_KIMI, needs_thoughts=False),
        ("MOONSHOT_BASE_URL",),
        models={"kimi-k2.": _KIMI, "kimi-k2-thinking": _KIMI, "kimi-k3": _KIMI},
    ),
    Server("nebius", "https://api.studio.nebius.com/v1", ("NEBIUS_API_KEY",)),
    Server(
        "ollama",
        "http://localhost:11434/v1",
        ("OLLAMA_API_KEY",),
        urls=("OLLAMA_BASE_URL",),
        responses=_WITHOUT_ENCRYPTION,
        needs_key=False,
    ),
    Server(
        "openrouter",
        "https://openrouter.ai/api/v1",
        ("OPENROUTER_API_KEY",),
        # Guides "Reasoning Tokens" (an object in place of reasoning_effort) and "Web Search".
        Dialect(
            strict=True,
            effort="reasoning",
            server_tools={"WebSearch": {"tools": [{"type": "openrouter:web_search"}]}},
        ),
        responses=ResponsesDialect(),
    ),
    Server(
        "perplexity",
        "https://api.perplexity.ai",
        ("PERPLEXITY_API_KEY", "PPLX_API_KEY"),
        # The search is always on.
        Dialect(server_tools={"WebSearch": {}}, refuses=("seed", "parallel_tool_calls", "service_tier", "user")),
    ),
    Server(
        "sambanova",
        "https://api.sambanova.ai/v1",
        ("SAMBANOVA_API_KEY",),
        Dialect(refuses=("service_tier", "user")),
        ("SAMBANOVA_BASE_URL",),
    ),
    Server(
        "snowflake",
        "https://{SNOWFLAKE_ACCOUNT}.snowflakecomputing.com/api/v2/cortex/v1",
        ("SNOWFLAKE_TOKEN",),
        # "Cortex REST API": typed answers of Claude and OpenAI's models only; Claude's reasoning has signatures.
        Dialect("max_completion_tokens", output="words", effort="none"),
        ("SNOWFLAKE_BASE_URL",),
        models={
            "claude": Dialect("max_completion_tokens", effort="reasoning"),
            "openai-": Dialect("max_completion_tokens"),
        },
    ),
    Server("together", "https://api.together.xyz/v1", ("TOGETHER_API_KEY",)),
    Server(
        "vercel",
        "https://ai-gateway.vercel.sh/v1",
        ("AI_GATEWAY_API_KEY", "VERCEL_AI_GATEWAY_API_KEY", "VERCEL_OIDC_TOKEN"),
        Dialect(effort="reasoning", signatures=True),
        responses=ResponsesDialect(),
    ),
    Server(
        "vllm",
        "http://localhost:8000/v1",
        ("VLLM_API_KEY",),
        urls=("VLLM_BASE_URL",),
        responses=_WITHOUT_ENCRYPTION,
        needs_key=False,
    ),
    Server(
        "xai",
        "https://api.x.ai/v1",
        ("XAI_API_KEY",),
        Dialect("max_completion_tokens", strict=True),
        # Guide "Tools": calls of custom tools in an answer are xAI's searches.
        responses=ResponsesDialect(
            runs_custom_tools=True,
            blocked_domains="excluded_domains",
            refuses=("service_tier",),
            server_tools={
                "WebSearch": {"type": "web_search"},
                "CodeExecution": {"type": "code_interpreter"},
                "FileSearch": {"type": "file_search"},
            },
        ),
    ),
    Server(
        "zai",
        "https://api.z.ai/api/paas/v4",
        ("ZAI_API_KEY",),
        # Guides "Thinking Mode" (preserved thinking) and "Web Search".
        Dialect(
            output="json_object",
            effort="thinking",
            thoughts="reasoning_content",
            thinking={"clear_thinking": False},
            required=None,
            refuses=("seed", "parallel_tool_calls", "service_tier", "user", "logprobs"),
            server_tools={
                "WebSearch": {
                    "tools": [{"type": "web_search", "web_search": {"enable": True, "search_result": True}}]
                }
            },
        ),
    ),
)
SERVERS: Mapping[str, Server] = {server.name: server for server in _TABLE}
