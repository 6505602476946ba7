"""State keys: named, typed values with a reducer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Generic, Literal, TypeVar, cast, get_args

import msgspec

from ..errors import ConfigurationError, StateError, StateTooLarge, UnknownStateKey

__all__ = ["MAX_VALUE_BYTES", "RESERVED_PREFIXES", "AnyKey", "KeyRegistry", "StateKey", "json_problem"]

V = TypeVar("V")
U = TypeVar("U")

MAX_VALUE_BYTES = 256 * 1024

# Name prefixes of wakeful's own keys, which are hidden from observers.
RESERVED_PREFIXES = ("wakeful.", "__runtime_")


class StateKey(Generic[V, U]):
    """A typed value of a run or a thread. Subclass it; the class itself is the key.

    `apply` is the reducer: it returns the new value and doesn't modify the old one. If several hooks of a phase
    update a `commutative` key, all updates are applied in order. If two update an `exclusive` key, the second hook
    runs again on the value that the first one wrote. Child runs start with their parent's value of an `inherited`
    key.
    """

    name: ClassVar[str]
    scope: ClassVar[Literal["run", "thread"]] = "run"
    merge: ClassVar[Literal["exclusive", "commutative"]] = "exclusive"
    persistent: ClassVar[bool] = True
    inherited: ClassVar[bool] = False
    default: ClassVar[Any] = None

    _decoder: ClassVar[msgspec.json.Decoder[Any]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if isinstance(cls.default, list | dict | set):
            cls._shared_default = True

    _shared_default: ClassVar[bool] = False

    def apply(self, value: V, update: U) -> V:
        """Reduce an update to the new value; by default the update replaces the old value."""
        return update  # pyright: ignore[reportReturnType]

    @classmethod
    def initial(cls) -> Any:
        """The value before the first update."""
        if not cls._shared_default:
            return cls.default
        from copy import deepcopy  # Slow to import, and few keys need it.

        return deepcopy(cls.default)

    @classmethod
    def encode(cls, value: Any) -> bytes:
        """Encode a value as JSON; raises `StateError` if it doesn't fit the key's type or is too large."""
        try:
            data = msgspec.json.encode(value)
        except (TypeError, UnicodeEncodeError, RecursionError, msgspec.MsgspecError) as error:
            hint = "use a JSON-encodable type or set persistent = False"
            if not cls.persistent:
                hint = "the initial state of a run must be: let a hook set it in run_start"
            raise StateError(
                f"state key {cls.name!r}: {type(value).__name__} can't be stored as JSON ({error}); {hint}"
            ) from error
        try:
            cls._decoder.decode(data)
        except msgspec.MsgspecError as error:
            raise StateError(f"state key {cls.name!r}: the value doesn't fit the key's type ({error})") from error
        if len(data) > MAX_VALUE_BYTES:
            raise StateTooLarge(
                f"state key {cls.name!r}: {len(data):,} bytes encoded, the limit is {MAX_VALUE_BYTES:,}; "
                "keep large data elsewhere and a reference to it in state"
            )
        return data

    @classmethod
    def decode(cls, data: bytes) -> Any:
        """Decode a value from JSON."""
        try:
            return cls._decoder.decode(data)
        except msgspec.MsgspecError as error:
            raise StateError(f"state key {cls.name!r}: the stored value can't be read ({error})") from error


AnyKey = type[StateKey[Any, Any]]


class KeyRegistry:
    """The state keys of a runtime, by name."""

    def __init__(self, keys: Iterable[AnyKey] = ()) -> None:
        self._keys: dict[str, AnyKey] = {}
        self._inherited: list[AnyKey] = []
        for key in keys:
            self.add(key)

    def add(self, key: AnyKey) -> None:
        """Register a key; raises `ConfigurationError` if it is invalid or its name is taken."""
        name = _check_definition(key)
        if self._keys.setdefault(name, key) is not key:
            raise ConfigurationError(
                f"state key {name!r} has two definitions: {self._keys[name].__qualname__} and {key.__qualname__}"
            )
        if key.inherited and key not in self._inherited:
            self._inherited.append(key)
        kind = _value_type(key)
        try:
            key._decoder = msgspec.json.Decoder(kind)  # pyright: ignore[reportPrivateUsage]
            if key.persistent and not name.startswith(RESERVED_PREFIXES):
                if problem := json_problem(kind):
                    raise ConfigurationError(f"state key {name!r}: {problem}, or set persistent = False")
                if key.default is not None:
                    key.encode(key.default)
        except TypeError as error:
            raise ConfigurationError(f"state key {name!r}: {error}") from error
        except StateError as error:
            raise ConfigurationError(f"{error}, and that is its default: {key.default!r:.80}") from error

    def __contains__(self, key: AnyKey) -> bool:
        return self._keys.get(getattr(key, "name", "")) is key

    @property
    def inherited(self) -> Sequence[AnyKey]:
        """The keys whose values child runs inherit."""
        return self._inherited

    def find(self, name: str) -> AnyKey | None:
        """Find a registered key by name."""
        return self._keys.get(name)

    def check(self, key: AnyKey) -> None:
        """Raise `UnknownStateKey` if the key isn't registered."""
        if key not in self:
            if not isinstance(cast(Any, key), type):
                raise UnknownStateKey(f"a state key is given by its class, such as Calls, not as {key!r:.80}")
            name = getattr(key, "name", key)
            known = ", ".join(sorted(n for n in self._keys if not n.startswith(RESERVED_PREFIXES))) or "none"
            raise UnknownStateKey(
                f"state key {name!r} isn't registered; list it in a plugin's `keys` or in Runtime(keys=[...]) "
                f"(registered: {known})"
            )


def _check_definition(key: AnyKey) -> str:
    """Validate a key's class and return its name."""
    name: Any = getattr(key, "name", "")
    if not (isinstance(cast(Any, key), type) and issubclass(cast(Any, key), StateKey)):
        raise ConfigurationError(
            f"a state key is a class, such as `class Calls(StateKey[int, int])`, not {key!r:.80}"
        )
    if not name or not isinstance(name, str):
        raise ConfigurationError(f"state key {key.__qualname__}: it needs a name, such as name = 'calls'")
    reserved = next((prefix for prefix in RESERVED_PREFIXES if name.startswith(prefix)), None)
    if reserved is not None and not key.__module__.startswith("wakeful."):
        raise ConfigurationError(f"state key {name!r}: names that begin with {reserved!r} are wakeful's own")
    if key.scope not in ("run", "thread") or key.merge not in ("exclusive", "commutative"):
        raise ConfigurationError(
            f"state key {name!r}: scope is 'run' or 'thread' and merge is 'exclusive' or 'commutative', "
            f"not {key.scope!r} and {key.merge!r}"
        )
    return name


def json_problem(kind: Any) -> str:
    """Explain why a type has no JSON form; empty if it has one."""
    unsupported: list[Any] = []

    def hook(part: Any) -> dict[str, Any]:
        unsupported.append(part)
        return {"type": "object"}

    msgspec.json.schema(kind, schema_hook=hook)
    names = [getattr(part, "__qualname__", str(part)) for part in unsupported if part is not object]
    hint = "use builtin types, a dataclass, a TypedDict or a msgspec Struct"
    return f"{names[0]} can't be stored as JSON; {hint}" if names else ""


def _value_type(key: AnyKey) -> Any:
    for base in getattr(key, "__orig_bases__", ()):
        args = get_args(base)
        if args and not isinstance(args[0], TypeVar):
            return args[0]
    return Any
