"""A small language model in this process: no key, no network, and not much wit."""

from ._model import LocalModel as LocalModel
from ._model import LocalSettings as LocalSettings
