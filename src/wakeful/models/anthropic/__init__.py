"""Anthropic's models, through the Messages API."""

from .model import AnthropicModel as AnthropicModel
from .platforms import AnthropicBedrockModel as AnthropicBedrockModel
from .platforms import AnthropicVertexModel as AnthropicVertexModel
from .settings import AnthropicSettings as AnthropicSettings
