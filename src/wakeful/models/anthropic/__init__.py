"""Anthropic's models, by the Messages API."""

from ._model import AnthropicModel as AnthropicModel
from ._settings import AnthropicSettings as AnthropicSettings
