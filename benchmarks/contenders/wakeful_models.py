"""wakeful's models and the SDKs that they use, with the same request."""

from collections.abc import AsyncIterator
from typing import Any

from benchmarks.models import Streams
from wakeful import ModelRequest
from wakeful.models import TextChunk
from wakeful.types.messages import user_message

PACKAGES = ("wakeful", "msgspec", "openai", "anthropic")
KEY = "no-key"


def _streams(client: Any, bare: Any, model: Any, prompt: str) -> Streams:
    request = ModelRequest("", [user_message(prompt)])

    async def ours() -> AsyncIterator[str]:
        stream = model.stream(request)
        try:
            async for chunk in stream:
                if type(chunk) is TextChunk:
                    yield chunk.text
        finally:
            await stream.aclose()

    async def close() -> None:
        await client.close()
        await model.close()

    return Streams(bare, ours, close)


def models_openai(url: str, prompt: str) -> Streams:
    from openai import AsyncOpenAI

    from wakeful.models.openai import OpenAIModel

    client = AsyncOpenAI(api_key=KEY, base_url=url, max_retries=0)

    async def bare() -> AsyncIterator[str]:
        content = [{"type": "input_text", "text": prompt}]
        message: Any = {"type": "message", "role": "user", "content": content}
        async with await client.responses.create(
            model="gpt-5-mini", input=[message], stream=True, store=False, include=["reasoning.encrypted_content"]
        ) as stream:
            async for event in stream:
                if event.type == "response.output_text.delta":
                    yield event.delta

    return _streams(client, bare, OpenAIModel("gpt-5-mini", api_key=KEY, base_url=url), prompt)


def models_openai_chat(url: str, prompt: str) -> Streams:
    from openai import AsyncOpenAI

    from wakeful.models.openai import OpenAIChatModel

    client = AsyncOpenAI(api_key=KEY, base_url=url, max_retries=0)

    async def bare() -> AsyncIterator[str]:
        async with await client.chat.completions.create(
            model="gpt-5-mini",
            messages=[{"role": "user", "content": prompt}],
            stream=True,
            stream_options={"include_usage": True},
        ) as stream:
            async for chunk in stream:
                if chunk.choices and chunk.choices[0].delta.content:
                    yield chunk.choices[0].delta.content

    return _streams(client, bare, OpenAIChatModel("gpt-5-mini", api_key=KEY, base_url=url), prompt)


def models_anthropic(url: str, prompt: str) -> Streams:
    from anthropic import AsyncAnthropic

    from wakeful.models.anthropic import AnthropicModel

    client = AsyncAnthropic(api_key=KEY, base_url=url, max_retries=0)

    async def bare() -> AsyncIterator[str]:
        async with await client.messages.create(
            model="claude-sonnet-5",
            max_tokens=64_000,
            messages=[{"role": "user", "content": [{"type": "text", "text": prompt}]}],
            stream=True,
        ) as stream:
            async for event in stream:
                if event.type == "content_block_delta" and event.delta.type == "text_delta":
                    yield event.delta.text

    return _streams(client, bare, AnthropicModel("claude-sonnet-5", api_key=KEY, base_url=url), prompt)
