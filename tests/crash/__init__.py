"""Processes that are killed, and what is left of them."""
