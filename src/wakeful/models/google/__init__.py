"""Google's Gemini models, with an API key or on Vertex."""

from .model import GoogleModel as GoogleModel
from .model import GoogleVertexModel as GoogleVertexModel
from .settings import GoogleSettings as GoogleSettings
