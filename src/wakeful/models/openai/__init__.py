"""OpenAI's models: the Responses API, and Chat Completions."""

from ._model import OpenAIChatModel as OpenAIChatModel
from ._model import OpenAIModel as OpenAIModel
from ._settings import OpenAIChatSettings as OpenAIChatSettings
from ._settings import OpenAISettings as OpenAISettings
