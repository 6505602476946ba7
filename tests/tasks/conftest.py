"""Stores that tasks are tried on."""

from __future__ import annotations

from delegation.conftest import Place as Place
from delegation.conftest import place as place
