"""A small language model in this process, without key and network."""

from .model import LocalModel as LocalModel
from .model import LocalSettings as LocalSettings
