"""Models on Amazon Bedrock, through its Converse API."""

from .model import BedrockModel as BedrockModel
from .settings import BedrockSettings as BedrockSettings
