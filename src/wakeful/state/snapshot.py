"""Frozen snapshots of state, and commands, which are the only way to change it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Raw, Struct

from ..errors import StateError, UnknownStateKey, quote
from ..types.base import Data
from .keys import RESERVED_PREFIXES, AnyKey, KeyRegistry, StateKey

if TYPE_CHECKING:
    from ..stores import Relay
    from ..types.inbox import InboxItem

__all__ = ["Command", "ScheduledAction", "SentNotice", "Snapshot", "State", "conflicts"]

V = TypeVar("V")


class Snapshot:
    """The state at one moment. An unwritten key has its default."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def __getitem__(self, key: type[StateKey[V, Any]]) -> V:
        try:
            return self._values[key.name]
        except KeyError:
            return key.initial()
        except AttributeError:
            raise UnknownStateKey(
                f"state is read by its key's class, such as state[Calls], not {key!r:.80}"
            ) from None

    def __contains__(self, key: AnyKey) -> bool:
        return key.name in self._values

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)


class ScheduledAction(Data, omit_defaults=True):
    """One-shot work for a phase, with its payload as JSON."""

    id: str
    name: str
    phase: str
    payload: Raw
    error: str = ""


class SentNotice(Data):
    """A notice for a handler, delivered after the commit."""

    name: str
    payload: Raw


class Command:
    """Changes by a hook or a tool, buffered until the phase merges them or the call commits."""

    __slots__ = ("ending", "handoff", "notices", "sent", "updates")

    def __init__(self) -> None:
        self.updates: list[tuple[AnyKey, Any]] = []
        # Messages: items for inboxes of this store, relays for recipients outside it.
        self.sent: list[InboxItem | Relay] = []
        self.notices: list[SentNotice] = []
        self.ending: str | None = None
        self.handoff: str | None = None

    def __bool__(self) -> bool:
        return (
            bool(self.updates or self.notices or self.sent) or self.ending is not None or self.handoff is not None
        )


def conflicts(command: Command, written: set[AnyKey]) -> bool:
    """Whether the command writes an exclusive key that an earlier command of the phase wrote."""
    return any(key in written for key, _ in command.updates if key.merge == "exclusive")


_EMPTY = Snapshot({})


class State(Struct, eq=False):
    """A run's state in memory: its `values` by name, and the `changes` for the next commit."""

    _keys: KeyRegistry
    values: dict[str, Any] = {}
    changes: dict[AnyKey, bytes | None] = {}
    _snapshot: Snapshot = _EMPTY

    @classmethod
    def load(cls, keys: KeyRegistry, stored: Mapping[str, bytes]) -> State:
        """Decode stored values. Values of unregistered keys are ignored and stay in the store."""
        known = [(keys.find(name), data) for name, data in stored.items()]
        state = cls(keys)
        state._replace({key.name: key.decode(data) for key, data in known if key is not None})
        return state

    def _replace(self, values: dict[str, Any]) -> None:
        self.values = values
        self._snapshot = Snapshot(values)

    def snapshot(self) -> Snapshot:
        """The current state, frozen."""
        return self._snapshot

    def apply(self, updates: Sequence[tuple[AnyKey, Any]]) -> None:
        """Apply all updates, or none if one fails."""
        if not updates:
            return
        for key, _ in updates:
            self._keys.check(key)
        values = dict(self.values)
        for key, update in updates:
            before = values[key.name] if key.name in values else key.initial()
            try:
                values[key.name] = key().apply(before, update)
            except Exception as error:
                raise quote(StateError, f"state key {key.name!r}: its reducer failed", error) from error
        encoded = {key: key.encode(values[key.name]) if key.persistent else None for key, _ in updates}
        self._replace(values)
        self.changes.update(encoded)

    def seed(self, values: Mapping[str, bytes]) -> None:
        """Set initial values from JSON: all of them, or none if one doesn't fit."""
        if not values:
            return
        decoded: dict[AnyKey, tuple[Any, bytes]] = {}
        for name, data in values.items():
            key = self._keys.find(name)
            if key is None:
                raise UnknownStateKey(f"state key {name!r} isn't registered with the runtime")
            decoded[key] = (key.decode(data), data)
        self._replace({**self.values, **{key.name: value for key, (value, _) in decoded.items()}})
        self.changes.update({key: data if key.persistent else None for key, (_, data) in decoded.items()})

    def export_encoded(self) -> dict[str, bytes]:
        """The persistent values as JSON, to seed another run."""
        return {name: key.encode(value) for name, value in self.export().items() if (key := self._keys.find(name))}

    def export_inherited(self) -> dict[str, bytes]:
        """The values of inherited keys as JSON, to seed a child run."""
        return {
            key.name: key.encode(self.values[key.name]) for key in self._keys.inherited if key.name in self.values
        }

    def export(self) -> dict[str, Any]:
        """The persistent values by name, without wakeful's own keys."""
        found = ((name, self._keys.find(name)) for name in self.values if not name.startswith(RESERVED_PREFIXES))
        return {name: self.values[name] for name, key in found if key is not None and key.persistent}
