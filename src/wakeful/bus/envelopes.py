"""Envelopes: encoded messages with their destination."""

from __future__ import annotations

from ..types.base import Data

__all__ = ["AllMembers", "Destination", "Envelope", "Member", "Watchers", "WorkQueue"]


class AllMembers(Data):
    """Every member of the bus."""


class Member(Data):
    """One member of the bus."""

    id: str


class Watchers(Data):
    """The members that watch a thread."""

    tenant: str
    thread_id: str


class WorkQueue(Data):
    """One of the serving members. Pending wake-ups of the same thread may be merged."""

    tenant: str
    thread_id: str


Destination = AllMembers | Member | Watchers | WorkQueue


class Envelope(Data):
    """An encoded message and its destination."""

    to: Destination
    body: bytes
