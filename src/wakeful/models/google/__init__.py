"""Google's Gemini models, by an API key or by Vertex."""

from ._model import GoogleModel as GoogleModel
from ._request import GoogleSettings as GoogleSettings
