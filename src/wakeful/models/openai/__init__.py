"""OpenAI's models: the Responses API, and Chat Completions."""

from .model import OpenAIChatModel as OpenAIChatModel
from .model import OpenAIModel as OpenAIModel
from .settings import OpenAIChatSettings as OpenAIChatSettings
from .settings import OpenAISettings as OpenAISettings
