"""What a task has said so far, gathered from snapshots and updates alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ...errors import RemoteError
from ...types.content import Artifact
from .._contract import Question
from ._objects import (
    INTERRUPTED,
    TERMINAL,
    ArtifactUpdate,
    Event,
    RemoteArtifact,
    RemoteMessage,
    RemotePart,
    RemoteTask,
    StatusUpdate,
    TaskStatus,
)
from ._parts import artifacts_in, structured, text_in
from ._questions import questions_in

__all__ = ["Progress"]

_ARTIFACTS = 1_000
_PARTS = 100_000
_CHARACTERS = 16 * 1024 * 1024
_HISTORY = 100
# Between the texts of two artifacts.
_BETWEEN = "\n\n"


class Progress:
    """A task as far as it is known.

    Artifacts' text is shown as it comes, for the answer begins with it; a status message may yet give way to an
    artifact, so it is shown when the task is over.
    """

    def __init__(self, emit: Callable[[str], None], answered: str = "") -> None:
        self._emit = emit
        # The mark of the question that was just answered: a task that still shows it has yet to take it in.
        self._answered = answered
        self._shown: list[str] = []
        self._level = True  # All that is there was shown.
        self._astray = False  # The remote took back what was shown: the rest comes with the whole answer.
        self._artifacts: dict[str, tuple[RemoteArtifact, list[RemotePart]]] = {}
        self._history: tuple[RemoteMessage, ...] = ()
        self._metadata: dict[str, Any] = {}
        self._parts = self._characters = 0
        self.status = TaskStatus()
        self.reply: RemoteMessage | None = None

    @property
    def settled(self) -> bool:
        """Whether nothing more is to come by itself: the task is over, or it waits for us."""
        return self.over or self.waits

    @property
    def waits(self) -> bool:
        """Whether it waits for us, with a question that wasn't answered yet."""
        return self.status.state in INTERRUPTED and not (self._answered and self.status.mark == self._answered)

    @property
    def over(self) -> bool:
        """Whether nothing more is to come."""
        return self.reply is not None or self.status.state in TERMINAL

    @property
    def failed(self) -> bool:
        """Whether it came to nothing."""
        return self.reply is None and self.status.state in ("TASK_STATE_FAILED", "TASK_STATE_REJECTED")

    @property
    def made(self) -> str:
        """The artifacts' text."""
        texts = [text_in(parts) for _, parts in self._artifacts.values()]
        return _BETWEEN.join([text for text in texts if text])

    @property
    def said(self) -> str:
        """The text of the status message, or of the newest message of the agent's."""
        if self.status.message is not None and (text := text_in(self.status.message.parts)):
            return text
        mine = (text_in(m.parts) for m in reversed(self._history) if m.role == "ROLE_AGENT")
        return next((text for text in mine if text), "")

    @property
    def answer(self) -> str:
        """The text that a finished task comes to."""
        return text_in(self.reply.parts) if self.reply is not None else self.made or self.said

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        """What there is besides text."""
        message = self.reply or self.status.message
        made = [RemoteArtifact(a.artifact_id, a.name, tuple(parts)) for a, parts in self._artifacts.values()]
        if message is not None and self.over:
            made.append(RemoteArtifact(parts=message.parts))
        return tuple([artifact for each in made for artifact in artifacts_in(each)])

    @property
    def questions(self) -> tuple[Question, ...]:
        """What it waits for, one by one, where the remote says so."""
        return questions_in(self.status.message)

    @property
    def asked(self) -> dict[str, Any]:
        """What came with a question besides its text, for a person or a program to answer by."""
        message = self.status.message
        data = [] if message is None else structured(message.parts)
        metadata = {**self._metadata, **({} if message is None else message.metadata)}
        return {**({"data": data} if data else {}), **({"metadata": metadata} if metadata else {})}

    def take(self, event: Event) -> None:
        """Take in what the remote said."""
        match event:
            case RemoteMessage():
                self.reply = event
            case RemoteTask():
                self._replace(event)
            case StatusUpdate(status=status):
                if self.status.message is not None:
                    self._history = (*self._history[1 - _HISTORY :], self.status.message)
                self.status = status
            case ArtifactUpdate():
                self._update(event)
        if self.over and not self.failed:  # What a failure says is no answer.
            self._show(self.answer)

    def _replace(self, task: RemoteTask) -> None:
        self._artifacts.clear()
        self._parts = self._characters = 0
        for at, artifact in enumerate(task.artifacts):
            self._set(artifact, artifact.artifact_id or str(at))
        self.status, self._history, self._metadata = task.status, task.history[-_HISTORY:], task.metadata
        self._show(self.made)

    def _update(self, update: ArtifactUpdate) -> None:
        artifact = update.artifact
        held = self._artifacts.get(artifact.artifact_id)
        if not update.append or held is None:
            self._set(artifact, artifact.artifact_id)
            self._show(self.made)
            return
        self._count(artifact.parts)
        # The usual case by far, and the only one that comes often: more of the newest artifact.
        newest = held is next(reversed(self._artifacts.values())) and any(part.text for part in held[1])
        held[1].extend(artifact.parts)
        if newest and self._level:
            self._tell(text_in(artifact.parts))
        else:
            self._show(self.made)

    def _set(self, artifact: RemoteArtifact, key: str) -> None:
        self._count(artifact.parts)
        self._artifacts[key] = (artifact, list(artifact.parts))
        if len(self._artifacts) > _ARTIFACTS:
            raise RemoteError(f"the task has more than {_ARTIFACTS:,} artifacts, the most that is read")

    def _count(self, parts: Iterable[RemotePart]) -> None:
        for size in _sizes(parts):
            self._parts += 1
            self._characters += size
        if self._parts > _PARTS or self._characters > _CHARACTERS:
            raise RemoteError(
                f"the task's artifacts have more than {_PARTS:,} parts or {_CHARACTERS:,} characters, the most "
                "that is read"
            )

    def _show(self, text: str) -> None:
        shown = "".join(self._shown)
        self._level = not self._astray and text.startswith(shown)
        if self._level:
            self._tell(text[len(shown) :])
        elif not shown.startswith(text):  # A snapshot may lag behind what was streamed.
            self._astray = True

    def _tell(self, text: str) -> None:
        if text:
            self._shown.append(text)
            self._emit(text)


def _sizes(parts: Iterable[RemotePart]) -> Iterator[int]:
    for part in parts:
        yield len(part.text or "") + len(part.raw or "") + len(part.url or "")
