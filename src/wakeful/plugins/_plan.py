"""What goes into one model call besides the conversation: the plan, and the context messages that join it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Literal, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..errors import UsageError
from ..errors._arguments import Checked
from ..state import StateKey
from ..types.content import clean_text, given_text
from ..types.ids import digest_of
from ..types.messages import Message
from ..types.requests import ModelSettings

__all__ = ["ContextBook", "ContextMessage", "InferencePlan", "PlanEdits", "checked_context", "select_context"]

# How many bytes a book has for what was sent and cools down, and for what was sent and is due again. It is written
# with every step that sends something, and a state value may have 256 KiB.
_COOLING, _DUE = 128 * 1024, 4 * 1024

# About what an entry has besides its key.
_ENTRY = 64


class ContextMessage(Struct, metaclass=Checked, frozen=True, omit_defaults=True):
    """Text that joins the model's request and never the thread.

    `target` is where: after the `system` text, at the head of the conversation (`session`), before the newest
    user message (`conversation`), or at the very `end`. A message of the same key replaces the one before. With
    a `cooldown` it is sent again only after so many steps, or when its text changed; a run remembers that of the
    1,500 or so keys that were sent last. `keep` says how long it stays: for the `next` model call only, until it
    was `sent` once, or `always`.
    """

    key: str
    text: str
    target: Literal["system", "session", "conversation", "end"] = "system"
    priority: int = 0
    cooldown: int = 0
    keep: Literal["next", "sent", "always"] = "next"


def checked_context(message: Any) -> ContextMessage:
    """A context message as it can be sent; what is none, or one whose fields don't fit, is refused."""
    if not isinstance(message, ContextMessage):
        raise UsageError(f"add_context takes a ContextMessage(key, text), not {message!r:.80}")
    try:
        msgspec.convert(msgspec.to_builtins(message), ContextMessage)
    except msgspec.ValidationError as error:
        raise UsageError(f"context message {message.key!r}: {error}") from error
    return replace(message, key=clean_text(message.key), text=clean_text(message.text))


class Sent(Struct, frozen=True, omit_defaults=True):
    """When a context message was last sent, what it said, and for how many steps that keeps it from being sent."""

    step: int
    digest: str
    cooldown: int = 0


class Book(Struct, frozen=True, omit_defaults=True):
    """The context messages of a run that are still to be sent, and what was sent before."""

    messages: dict[str, ContextMessage] = {}
    sent: dict[str, Sent] = {}


class ContextBook(StateKey[Book, Any]):
    """Where context messages wait. An update is a message to put, a key to remove, or a whole new book."""

    name: ClassVar[str] = "wakeful.context"
    merge = "commutative"
    default: ClassVar[Any] = Book()

    def apply(self, value: Book, update: ContextMessage | str | Book) -> Book:
        """Put, remove or replace."""
        if isinstance(update, Book):
            return update
        if isinstance(update, ContextMessage):
            return replace(value, messages={**value.messages, update.key: update})
        return replace(value, messages={k: m for k, m in value.messages.items() if k != update})


def select_context(book: Book, step: int) -> tuple[list[ContextMessage], Book]:
    """The messages to send in this step, in order, and the book as it is afterwards."""
    chosen: list[ContextMessage] = []
    sent = dict(book.sent)
    kept: dict[str, ContextMessage] = {}
    for key, message in book.messages.items():
        digest = digest_of(message.text.encode())
        last = sent.get(key)
        due = message.cooldown == 0 or last is None or last.digest != digest
        if due or (last is not None and step - last.step >= message.cooldown):
            chosen.append(message)
            sent[key] = Sent(step, digest, message.cooldown)
            if message.keep == "always":
                kept[key] = message
        elif message.keep != "next":
            kept[key] = message
    chosen.sort(key=lambda m: (m.priority, m.key))
    return chosen, Book(kept, _remembered(sent, kept, step))


def _remembered(sent: dict[str, Sent], kept: dict[str, ContextMessage], step: int) -> dict[str, Sent]:
    """What has to be known of what was sent, the newest first where there is no room for all. What is due again
    matters only if a message of its key comes with a longer cooldown: of that a little is enough."""
    room = {True: _COOLING, False: _DUE}
    found: set[str] = set(kept)
    for key, last in sorted(sent.items(), key=lambda entry: entry[1].step, reverse=True):
        if key not in kept:
            cools = step - last.step < last.cooldown
            room[cools] -= len(key.encode()) + _ENTRY
            if room[cools] >= 0:
                found.add(key)
    return sent if len(found) == len(sent) else {key: last for key, last in sent.items() if key in found}


class PlanEdits:
    """What one hook changes about the next model call. Edits of several hooks add up in their order."""

    __slots__ = ("_model", "_settings", "excluded", "included", "shown", "system")

    def __init__(self) -> None:
        self.shown: list[Message] | None = None
        self.system: list[str] = []
        self.excluded: set[str] = set()
        self.included: set[str] | None = None
        self._model: str | None = None
        self._settings: ModelSettings | None = None

    def add_system(self, text: str) -> None:
        """Add a paragraph to the system text of this call."""
        self.system.append(given_text(text, "what is added to the system text"))

    @property
    def model(self) -> str | None:
        """The name of the model that is asked in this call; None leaves it the agent's."""
        return self._model

    @model.setter
    def model(self, name: str | None) -> None:
        self._model = None if name is None else given_text(name, "the model of a plan, by its name,")

    def show(self, messages: Iterable[Message]) -> None:
        """Show the model these messages in this call, in place of the conversation, which stays as it is; of two
        hooks the later wins. Calls keep their results, and what is too long is still cut."""
        found = list(messages)
        for message in found:
            if not isinstance(cast(Any, message), Message):
                raise UsageError(f"plan.show takes messages, such as some of ctx.messages, not {message!r:.80}")
        self.shown = found

    def exclude_tools(self, *names: str) -> None:
        """Don't offer these tools in this call; this beats `include_only`."""
        self.excluded.update([given_text(name, "a tool's name") for name in names])

    def include_only(self, *names: str) -> None:
        """Offer only these tools, and those that other hooks name this way."""
        self.included = (self.included or set()) | {given_text(name, "a tool's name") for name in names}

    def settings(self, **settings: Any) -> None:
        """Override model settings for this call; of two hooks the later wins, field by field."""
        new = ModelSettings(**settings)
        self._settings = new if self._settings is None else new.over(self._settings)

    @property
    def overrides(self) -> ModelSettings | None:
        """The settings that this hook overrides."""
        return self._settings


class InferencePlan:
    """The plan for one model call, after all hooks had their say."""

    __slots__ = ("context", "excluded", "included", "model", "settings", "shown", "system")

    def __init__(self, settings: ModelSettings) -> None:
        self.system: list[str] = []
        self.excluded: set[str] = set()
        self.included: set[str] | None = None
        self.model: str | None = None
        self.settings = settings
        self.context: list[ContextMessage] = []
        self.shown: list[Message] | None = None

    def add(self, edits: PlanEdits) -> None:
        """Apply one hook's edits."""
        self.system.extend(edits.system)
        self.excluded |= edits.excluded
        if edits.included is not None:
            self.included = (self.included or set()) | edits.included
        if edits.model is not None:
            self.model = edits.model
        if edits.shown is not None:
            self.shown = edits.shown
        if edits.overrides is not None:
            self.settings = edits.overrides.over(self.settings)

    def offers(self, name: str) -> bool:
        """Whether the model is offered the tool in this call."""
        return name not in self.excluded and (self.included is None or name in self.included)
