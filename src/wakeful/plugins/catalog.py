"""The catalog of a runtime: state keys, actions, notices and agent ids by name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, ClassVar, cast, get_type_hints

import msgspec
from msgspec import Raw

from ..errors import ConfigurationError, UnknownAction, UnknownAgent
from ..state import AnyKey, Command, KeyRegistry, ScheduledAction, SentNotice, StateKey
from ..types.base import Data
from ..types.ids import new_id

__all__ = ["PHASES", "ActionQueue", "Catalog", "Handler", "Queue", "action", "notice"]

PHASES = (
    "run_start",
    "step_start",
    "before_inference",
    "after_inference",
    "gate_tool",
    "before_tool",
    "after_tool",
    "step_end",
    "run_end",
)

# Size limit of the failed actions that are kept, so that pending ones fit into the state value.
MAX_FAILED_BYTES = 64 * 1024


class Queue(Data, omit_defaults=True):
    """Pending actions, and the newest failed ones."""

    pending: tuple[ScheduledAction, ...] = ()
    failed: tuple[ScheduledAction, ...] = ()


class ActionQueue(StateKey[Queue, Any]):
    """The state key of scheduled actions. An update is an action to add, or the outcome of one that ran."""

    name: ClassVar[str] = "wakeful.actions"
    merge = "commutative"
    default: ClassVar[Any] = Queue()

    def apply(self, value: Queue, update: ScheduledAction | tuple[str, ScheduledAction]) -> Queue:
        """Add an action, or settle one that ran."""
        if isinstance(update, ScheduledAction):
            return Queue((*value.pending, update), value.failed)
        _, ran = update
        failed = _drop_oldest((*value.failed, ran)) if ran.error else value.failed
        return Queue(tuple([a for a in value.pending if a.id != ran.id]), failed)


def _drop_oldest(failed: tuple[ScheduledAction, ...]) -> tuple[ScheduledAction, ...]:
    """Drop the oldest failed actions beyond the size limit."""
    while sum(len(msgspec.json.encode(action)) for action in failed) > MAX_FAILED_BYTES:
        failed = failed[1:]
    return failed


class Handler(Data):
    """A plugin's method that handles an action or a notice."""

    name: str
    plugin: str
    function: Callable[..., Awaitable[None]]
    payload: msgspec.json.Decoder[Any]


def action(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Mark a plugin's async method `(self, payload, ctx)` as the handler of an action."""
    return _marker("_wakeful_action", name)


def notice(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Mark a plugin's async method `(self, payload)` as the handler of a notice."""
    return _marker("_wakeful_notice", name)


def _marker(attribute: str, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    if not isinstance(cast(Any, name), str):
        kind = attribute.rpartition("_")[2]
        raise ConfigurationError(f"@{kind} takes the {kind}'s name, as in @{kind}('archive'), not {name!r:.80}")

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        setattr(function, attribute, name)
        return function

    return decorate


class Catalog:
    """State keys, action and notice handlers and agent ids of one runtime."""

    def __init__(self, keys: Iterable[AnyKey], agents: Iterable[str]) -> None:
        self.keys = KeyRegistry(keys)
        self.actions: dict[str, Handler] = {}
        self.notices: dict[str, Handler] = {}
        self.agents = frozenset(agents)

    def add_handlers(self, plugin: object, label: str) -> None:
        """Register a plugin's methods marked `@action` or `@notice`."""
        kind = type(plugin)
        for attribute, table in (("_wakeful_action", self.actions), ("_wakeful_notice", self.notices)):
            for member in dir(kind):
                function = getattr(kind, member, None)
                name = getattr(function, attribute, None)
                if name is None:
                    continue
                if name in table:
                    raise ConfigurationError(
                        f"{attribute.rpartition('_')[2]} {name!r} has two handlers: plugins "
                        f"{table[name].plugin!r} and {label!r}; give agents that share a plugin the same object"
                    )
                table[name] = Handler(name, label, getattr(plugin, member), _payload_decoder(function))

    def check_key(self, key: AnyKey) -> None:
        """Raise `UnknownStateKey` if the key isn't registered."""
        self.keys.check(key)

    def check_agent(self, agent_id: str) -> None:
        """Raise `UnknownAgent` if the agent isn't registered."""
        if agent_id not in self.agents:
            known = ", ".join(sorted(self.agents))
            raise UnknownAgent(f"unknown agent {agent_id!r} (known: {known})")

    def schedule(self, command: Command, name: str, payload: Any, phase: str) -> None:
        """Add an action to a command; raises `UnknownAction` for an unknown name or phase."""
        if name not in self.actions:
            raise UnknownAction(f"no plugin handles the action {name!r} ({_list_names(self.actions)})")
        if phase not in PHASES or phase == "gate_tool":
            raise UnknownAction(f"the action {name!r} can't be scheduled for {phase!r}: not a phase that acts")
        command.updates.append(
            (ActionQueue, ScheduledAction(new_id(), name, phase, _encode_payload(name, payload)))
        )

    def notify(self, command: Command, name: str, payload: Any) -> None:
        """Add a notice to a command; raises `UnknownAction` for an unknown name."""
        if name not in self.notices:
            raise UnknownAction(f"no plugin handles the notice {name!r} ({_list_names(self.notices)})")
        command.notices.append(SentNotice(name, _encode_payload(name, payload)))


def _encode_payload(name: str, payload: Any) -> Raw:
    try:
        return Raw(msgspec.json.encode(payload))
    except (TypeError, UnicodeEncodeError) as error:
        raise UnknownAction(f"the payload for {name!r} can't be encoded as JSON: {error}") from error


def _list_names(table: dict[str, Handler]) -> str:
    return f"known: {', '.join(sorted(table))}" if table else "none is registered"


def _payload_decoder(function: Any) -> msgspec.json.Decoder[Any]:
    names = function.__code__.co_varnames[1 : function.__code__.co_argcount]
    hints = get_type_hints(function)
    return msgspec.json.Decoder(hints.get(names[0], Any) if names else Any)
