"""Anthropic's models, through the Messages API."""

from .model import AnthropicModel as AnthropicModel
from .settings import AnthropicSettings as AnthropicSettings
