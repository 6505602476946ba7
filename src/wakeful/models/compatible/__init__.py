"""Whatever serves Chat Completions besides OpenAI: local servers, gateways, other vendors, Azure."""

from ._azure import AzureModel as AzureModel
from ._model import CompatibleModel as CompatibleModel
from ._model import CompatibleSettings as CompatibleSettings
from ._model import deepseek as deepseek
from ._model import groq as groq
from ._model import lmstudio as lmstudio
from ._model import ollama as ollama
from ._model import openrouter as openrouter
from ._model import together as together
from ._model import vllm as vllm
