"""The vendors of the suite. A supported vendor must be listed here."""

from __future__ import annotations

from wire_anthropic import Anthropic
from wire_bedrock import Bedrock
from wire_google import Google
from wire_openai import Chat, Responses, Vllm
from wire_script import Codec

VENDORS: list[Codec] = [Responses(), Chat(), Vllm(), Anthropic(), Google(), Bedrock()]
