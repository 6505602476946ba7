"""Models on Amazon Bedrock, by its Converse API."""

from ._model import BedrockModel as BedrockModel
from ._settings import BedrockSettings as BedrockSettings
