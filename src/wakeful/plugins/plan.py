"""The plan of a model call, and context messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Literal, cast

import msgspec
from msgspec.structs import replace

from ..errors import UsageError
from ..errors.arguments import Checked
from ..models import ModelFacts
from ..state import StateKey
from ..types.base import Data
from ..types.content import clean_text, require_text
from ..types.ids import digest_of
from ..types.messages import Message
from ..types.requests import ModelSettings

__all__ = [
    "ContextMessage",
    "InferencePlan",
    "PendingContextKey",
    "PlanEdits",
    "Purpose",
    "check_context",
    "select_context",
]

Purpose = Literal["answer", "continuation", "repair", "summary", "remote"]

_NO_NAMES: frozenset[str] = frozenset()

# Size limits in bytes of the records of sent messages: those still cooling down, and those due again. They are
# written with every step that sends a message, and a state value is limited to 256 KiB.
_COOLING_BYTES, _DUE_BYTES = 128 * 1024, 4 * 1024

# Approximate size of a record beside its key.
_RECORD_BYTES = 64


class ContextMessage(Data, metaclass=Checked, omit_defaults=True):
    """Text that is added to model requests and never to the thread.

    - `target`: its position, after the `system` text, at the start of the conversation (`session`), before the
      newest user message (`conversation`), or at the `end`.
    - `key`: a message replaces an earlier one with the same key.
    - `cooldown`: it is sent again only after this many steps, or when its text changed. A run remembers about
      1,500 recently sent keys.
    - `keep`: it stays for the `next` model call, until it was `sent` once, or `always`.
    """

    key: str
    text: str
    target: Literal["system", "session", "conversation", "end"] = "system"
    priority: int = 0
    cooldown: int = 0
    keep: Literal["next", "sent", "always"] = "next"


def check_context(message: Any) -> ContextMessage:
    """Validate a context message and clean its texts; raises `UsageError`."""
    if not isinstance(message, ContextMessage):
        raise UsageError(f"add_context takes a ContextMessage(key, text), not {message!r:.80}")
    try:
        msgspec.convert(msgspec.to_builtins(message), ContextMessage)
    except msgspec.ValidationError as error:
        raise UsageError(f"context message {message.key!r}: {error}") from error
    return replace(message, key=clean_text(message.key), text=clean_text(message.text))


class SentRecord(Data, omit_defaults=True):
    """When a context message was last sent, with the digest of its text and its cooldown."""

    step: int
    digest: str
    cooldown: int = 0


class PendingContext(Data, omit_defaults=True):
    """The pending context messages of a run, and records of the sent ones."""

    messages: dict[str, ContextMessage] = {}
    sent: dict[str, SentRecord] = {}


class PendingContextKey(StateKey[PendingContext, Any]):
    """The state key of context messages. An update is a message to add, a key to remove, or a new value."""

    name: ClassVar[str] = "wakeful.context"
    merge = "commutative"
    default: ClassVar[Any] = PendingContext()

    def apply(self, value: PendingContext, update: ContextMessage | str | PendingContext) -> PendingContext:
        """Add or remove a message, or replace the value."""
        if isinstance(update, PendingContext):
            return update
        if isinstance(update, ContextMessage):
            return replace(value, messages={**value.messages, update.key: update})
        return replace(value, messages={k: m for k, m in value.messages.items() if k != update})


def select_context(pending: PendingContext, step: int) -> tuple[list[ContextMessage], PendingContext]:
    """Choose the messages to send in this step, in order. Returns them and the remaining state."""
    chosen: list[ContextMessage] = []
    sent = dict(pending.sent)
    kept: dict[str, ContextMessage] = {}
    for key, message in pending.messages.items():
        digest = digest_of(message.text.encode())
        last = sent.get(key)
        due = message.cooldown == 0 or last is None or last.digest != digest
        if due or (last is not None and step - last.step >= message.cooldown):
            chosen.append(message)
            sent[key] = SentRecord(step, digest, message.cooldown)
            if message.keep == "always":
                kept[key] = message
        elif message.keep != "next":
            kept[key] = message
    chosen.sort(key=lambda m: (m.priority, m.key))
    return chosen, PendingContext(kept, _prune_sent(sent, kept, step))


def _prune_sent(sent: dict[str, SentRecord], kept: dict[str, ContextMessage], step: int) -> dict[str, SentRecord]:
    """Drop the oldest records beyond the size limits.

    The record of a message that is due again matters only if a message of its key comes with a longer cooldown.
    """
    room = {True: _COOLING_BYTES, False: _DUE_BYTES}
    found: set[str] = set(kept)
    for key, last in sorted(sent.items(), key=lambda entry: entry[1].step, reverse=True):
        if key not in kept:
            cools = step - last.step < last.cooldown
            room[cools] -= len(key.encode()) + _RECORD_BYTES
            if room[cools] >= 0:
                found.add(key)
    return sent if len(found) == len(sent) else {key: last for key, last in sent.items() if key in found}


class PlanEdits:
    """One hook's edits of a request. Edits of several hooks are combined in order.

    `purpose` says what the request is for: the `answer` of a step, the `continuation` of a broken one, the
    `repair` of a typed output, a `summary` of the conversation, or the backend of an agent (`remote`).
    """

    __slots__ = (
        "_facts",
        "_given",
        "_model",
        "_settings",
        "deferred",
        "excluded",
        "found",
        "included",
        "messages",
        "purpose",
        "rewritten",
        "system",
    )

    def __init__(
        self,
        purpose: Purpose = "answer",
        instructions: str = "",
        facts: Callable[[], ModelFacts | None] = lambda: None,
    ) -> None:
        self.purpose: Purpose = purpose
        self.messages: list[Message] | None = None
        self.system: tuple[str, ...] = ()
        self.excluded: frozenset[str] = _NO_NAMES
        self.included: frozenset[str] | None = None
        self.deferred: frozenset[str] = _NO_NAMES
        self.found: tuple[str, ...] = ()
        self.rewritten: str | None = None
        self._given = instructions
        self._model: str | None = None
        self._settings: ModelSettings | None = None
        self._facts = facts

    @property
    def window(self) -> int | None:
        """The context window of the agent's model in tokens; None if it is unknown."""
        found = self._facts()
        return None if found is None else found.context_window

    @property
    def instructions(self) -> str:
        """The system text before additions; assign another text to replace it."""
        return self._given if self.rewritten is None else self.rewritten

    @instructions.setter
    def instructions(self, text: str) -> None:
        self.rewritten = require_text(text, "the instructions of a plan")

    def add_system(self, text: str) -> None:
        """Add a paragraph to the system text of this request."""
        self.system = (*self.system, require_text(text, "an addition to the system text"))

    @property
    def model(self) -> str | None:
        """The name of the model for this request; None for the agent's own."""
        return self._model

    @model.setter
    def model(self, name: str | None) -> None:
        self._model = None if name is None else require_text(name, "the model of a plan, by its name,")

    def replace_messages(self, messages: Iterable[Message]) -> None:
        """Send these messages in this request instead of `ctx.messages`. The conversation is not changed.

        Later hooks see them as their `ctx.messages`. Calls stay paired with their results, and long messages are
        still cut.
        """
        found = list(messages)
        for message in found:
            if not isinstance(cast(Any, message), Message):
                raise UsageError(
                    f"plan.replace_messages takes messages, such as some of ctx.messages, not {message!r:.80}"
                )
        self.messages = found

    def exclude_tools(self, *names: str) -> None:
        """Don't offer these tools in this request. Overrides `include_only`."""
        self.excluded |= {require_text(name, "a tool's name") for name in names}

    def include_only(self, *names: str) -> None:
        """Offer only these tools, plus those that other hooks include."""
        self.included = (self.included or _NO_NAMES) | {require_text(name, "a tool's name") for name in names}

    def defer_tools(self, *names: str, found: Iterable[str] = ()) -> None:
        """Don't show these tools until a search found them; those `found` come after all others, in their order.

        A model with `defers_tools` is given all of them, and its vendor keeps them out of the prompt.
        """
        self.deferred |= {require_text(name, "a tool's name") for name in names}
        self.found = tuple(dict.fromkeys([*self.found, *found]))

    def settings(self, **settings: Any) -> None:
        """Override model settings for this request. For each field the last hook wins."""
        new = ModelSettings(**settings)
        self._settings = new if self._settings is None else new.with_defaults(self._settings)

    @property
    def overrides(self) -> ModelSettings | None:
        """The settings that the hook set."""
        return self._settings


class InferencePlan:
    """The plan of one request: its instructions, messages and settings, with the edits of all hooks so far."""

    __slots__ = (
        "context",
        "deferred",
        "excluded",
        "facts",
        "found",
        "included",
        "instructions",
        "is_replaced",
        "messages",
        "model",
        "purpose",
        "settings",
        "system",
    )

    def __init__(
        self,
        settings: ModelSettings,
        purpose: Purpose = "answer",
        instructions: str = "",
        messages: Sequence[Message] = (),
    ) -> None:
        self.purpose: Purpose = purpose
        self.instructions = instructions
        self.messages = messages
        # Whether a hook replaced the messages.
        self.is_replaced = False
        self.system: list[str] = []
        self.excluded: frozenset[str] = _NO_NAMES
        self.included: frozenset[str] | None = None
        self.deferred: frozenset[str] = _NO_NAMES
        self.found: tuple[str, ...] = ()
        self.model: str | None = None
        self.settings = settings
        self.facts: Callable[[], ModelFacts | None] = lambda: None
        self.context: list[ContextMessage] = []

    def edits(self) -> PlanEdits:
        """Make the edits of one hook."""
        return PlanEdits(self.purpose, self.instructions, self.facts)

    def rewrite(self, edits: PlanEdits) -> None:
        """Apply the messages and instructions of a hook, so that the next hook sees them."""
        if edits.rewritten is not None:
            self.instructions = edits.rewritten
        if edits.messages is not None:
            self.messages, self.is_replaced = edits.messages, True

    def add(self, edits: PlanEdits) -> None:
        """Apply one hook's other edits."""
        if edits.system:
            self.system.extend(edits.system)
        self.excluded |= edits.excluded
        if edits.included is not None:
            self.included = (self.included or _NO_NAMES) | edits.included
        if edits.deferred:
            self.deferred |= edits.deferred
            self.found = tuple(dict.fromkeys([*self.found, *edits.found]))
        if edits.model is not None:
            self.model = edits.model
        if edits.overrides is not None:
            self.settings = edits.overrides.with_defaults(self.settings)

    @property
    def system_text(self) -> str:
        """The instructions, additions and context messages of the system text, as paragraphs."""
        added = [message.text for message in self.context if message.target == "system"]
        return "\n\n".join([part for part in (self.instructions, *self.system, *added) if part])

    def offers(self, name: str) -> bool:
        """Whether the tool is offered in this request."""
        return name not in self.excluded and (self.included is None or name in self.included)
