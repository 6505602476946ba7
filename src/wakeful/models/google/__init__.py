"""Google's Gemini models, with an API key or on Vertex."""

from .model import GoogleModel as GoogleModel
from .request import GoogleSettings as GoogleSettings
