"""Other servers of Chat Completions: local servers, gateways, vendors and Azure."""

from .azure import AzureModel as AzureModel
from .model import CompatibleModel as CompatibleModel
from .model import CompatibleSettings as CompatibleSettings
from .model import deepseek as deepseek
from .model import groq as groq
from .model import lmstudio as lmstudio
from .model import ollama as ollama
from .model import openrouter as openrouter
from .model import together as together
from .model import vllm as vllm
