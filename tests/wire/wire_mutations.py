"""Mutations of a JSON value, for fuzzing the readers."""

from __future__ import annotations

import random
from typing import Any


def mutate(value: Any, chance: random.Random) -> None:
    """Drop, repeat, swap or replace something in a JSON value."""
    for _ in range(chance.randint(1, 3)):
        at = value
        while isinstance(at, dict | list) and at:
            key: Any = chance.choice([*at]) if isinstance(at, dict) else chance.randrange(len(at))  # pyright: ignore
            if isinstance(at[key], dict | list) and chance.random() < 0.7:
                at = at[key]  # pyright: ignore
                continue
            match chance.randrange(4):
                case 0:
                    del at[key]
                case 1:
                    at[key] = chance.choice([None, 7, "x", [], {}, True, -1.5])
                case 2 if isinstance(at, list):
                    at.insert(chance.randrange(len(at) + 1), at[key])  # pyright: ignore
                case _:
                    other: Any = chance.choice([*at]) if isinstance(at, dict) else chance.randrange(len(at))  # pyright: ignore
                    at[key], at[other] = at[other], at[key]
            break
