"""Stores that messages are tried on, as trees of runs are."""

from delegation.conftest import place as place
