"""State keys: named, typed values with a reducer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Generic, Literal, TypeVar, cast, get_args

import msgspec

from ..errors import ConfigurationError, StateError, StateTooLarge, UnknownStateKey

__all__ = ["MAX_VALUE_BYTES", "OWN_NAMES", "AnyKey", "KeyRegistry", "StateKey", "unkept"]

V = TypeVar("V")
U = TypeVar("U")

MAX_VALUE_BYTES = 256 * 1024

# Keys whose names begin with these are wakeful's own, and no observer is shown them.
OWN_NAMES = ("wakeful.", "__runtime_")


class StateKey(Generic[V, U]):
    """A typed value of a run or a thread. Subclass it; the class itself is the key.

    `apply` is the reducer: it returns the new value and leaves the old one as it was. Updates of a
    `commutative` key from hooks that ran side by side are all applied, in order; of an `exclusive` key's
    two writers, the later runs again on what the first one wrote.
    """

    name: ClassVar[str]
    scope: ClassVar[Literal["run", "thread"]] = "run"
    merge: ClassVar[Literal["exclusive", "commutative"]] = "exclusive"
    persistent: ClassVar[bool] = True
    default: ClassVar[Any] = None

    _decoder: ClassVar[msgspec.json.Decoder[Any]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if isinstance(cls.default, list | dict | set):
            cls._shared_default = True

    _shared_default: ClassVar[bool] = False

    def apply(self, value: V, update: U) -> V:
        """The value after the update; by default the update replaces it."""
        return update  # pyright: ignore[reportReturnType]

    @classmethod
    def initial(cls) -> Any:
        """The value before the first update."""
        if not cls._shared_default:
            return cls.default
        from copy import deepcopy  # Few keys need it.

        return deepcopy(cls.default)

    @classmethod
    def encode(cls, value: Any) -> bytes:
        """The value as JSON, refused if it is too large to keep."""
        try:
            data = msgspec.json.encode(value)
        except (TypeError, UnicodeEncodeError, RecursionError, msgspec.MsgspecError) as error:
            use = "use a JSON-encodable type or set persistent = False"
            if not cls.persistent:
                use = "what a run's state begins with must be: let a hook set it in run_start"
            raise StateError(
                f"state key {cls.name!r}: {type(value).__name__} can't be stored as JSON ({error}); {use}"
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
        """The value from its JSON."""
        try:
            return cls._decoder.decode(data)
        except msgspec.MsgspecError as error:
            raise StateError(f"state key {cls.name!r}: the stored value can't be read ({error})") from error


AnyKey = type[StateKey[Any, Any]]


class KeyRegistry:
    """The state keys of a runtime, by name."""

    def __init__(self, keys: Iterable[AnyKey] = ()) -> None:
        self._keys: dict[str, AnyKey] = {}
        for key in keys:
            self.add(key)

    def add(self, key: AnyKey) -> None:
        """Register a key; one name with two definitions is an error."""
        name = getattr(key, "name", "")
        if not (isinstance(cast(Any, key), type) and issubclass(cast(Any, key), StateKey)):
            raise ConfigurationError(
                f"a state key is a class, such as `class Calls(StateKey[int, int])`, not {key!r:.80}"
            )
        if not name or not isinstance(name, str):
            raise ConfigurationError(f"state key {key.__qualname__}: it needs a name, such as name = 'calls'")
        own = next((start for start in OWN_NAMES if name.startswith(start)), None)
        if own is not None and not key.__module__.startswith("wakeful."):
            raise ConfigurationError(f"state key {name!r}: names that begin with {own!r} are wakeful's own")
        if key.scope not in ("run", "thread") or key.merge not in ("exclusive", "commutative"):
            raise ConfigurationError(
                f"state key {name!r}: scope is 'run' or 'thread' and merge is 'exclusive' or 'commutative', "
                f"not {key.scope!r} and {key.merge!r}"
            )
        if self._keys.setdefault(name, key) is not key:
            raise ConfigurationError(
                f"state key {name!r} has two definitions: {self._keys[name].__qualname__} and {key.__qualname__}"
            )
        kind = _value_type(key)
        try:
            key._decoder = msgspec.json.Decoder(kind)  # pyright: ignore[reportPrivateUsage]
            if key.persistent and own is None:
                if problem := unkept(kind):
                    raise ConfigurationError(f"state key {name!r}: {problem}, or set persistent = False")
                if key.default is not None:
                    key.encode(key.default)
        except TypeError as error:
            raise ConfigurationError(f"state key {name!r}: {error}") from error
        except StateError as error:
            raise ConfigurationError(f"{error}, and that is its default: {key.default!r:.80}") from error

    def __contains__(self, key: AnyKey) -> bool:
        return self._keys.get(getattr(key, "name", "")) is key

    def find(self, name: str) -> AnyKey | None:
        """The key of that name, if it is registered."""
        return self._keys.get(name)

    def check(self, key: AnyKey) -> None:
        """Refuse a key that isn't registered."""
        if key not in self:
            if not isinstance(cast(Any, key), type):
                raise UnknownStateKey(f"a state key is given by its class, such as Calls, not as {key!r:.80}")
            name = getattr(key, "name", key)
            # The runtime's own are nobody's business.
            known = ", ".join(sorted(n for n in self._keys if not n.startswith(OWN_NAMES))) or "none"
            raise UnknownStateKey(
                f"state key {name!r} isn't registered; list it in a plugin's `keys` or in Runtime(keys=[...]) "
                f"(registered: {known})"
            )


def unkept(kind: Any) -> str:
    """Why no value of a type could be kept as JSON and read again; empty if it could."""
    strange: list[Any] = []

    def hook(part: Any) -> dict[str, Any]:
        strange.append(part)
        return {"type": "object"}

    msgspec.json.schema(kind, schema_hook=hook)
    names = [getattr(part, "__qualname__", str(part)) for part in strange if part is not object]
    use = "use builtin types, a dataclass, a TypedDict or a msgspec Struct"
    return f"{names[0]} can't be stored as JSON; {use}" if names else ""


def _value_type(key: AnyKey) -> Any:
    for base in getattr(key, "__orig_bases__", ()):
        args = get_args(base)
        if args and not isinstance(args[0], TypeVar):
            return args[0]
    return Any
