"""Fleets of workers: how many runs they do in a second, how soon they begin, and what they cost while idle."""
