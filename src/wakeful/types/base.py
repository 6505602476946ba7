"""The base of plain data."""

from __future__ import annotations

from typing import dataclass_transform

from msgspec import Struct, field

__all__ = ["Data"]


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Data(Struct, frozen=True, gc=False):
    """Base of the immutable structs, which inherit `frozen` and `gc=False` from it.

    The fields of a frozen struct are older than the struct, so it can't close a reference cycle and the garbage
    collector need not track it. That keeps collections short in a process that holds long histories. Mutable
    structs derive from `msgspec.Struct` and stay tracked.
    """
