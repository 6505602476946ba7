"""The progress of a remote task, gathered from snapshots and updates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ...outbound import TooLarge
from ...types.content import Artifact
from ..contract import Question
from .objects import (
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
from .parts import artifacts_in, data_in, text_in
from .questions import questions_in

__all__ = ["Progress"]

_MAX_ARTIFACTS = 1_000
_MAX_PARTS = 100_000
_MAX_CHARACTERS = 16 * 1024 * 1024
_MAX_HISTORY = 100
_SEPARATOR = "\n\n"  # Between the texts of two artifacts.


class Progress:
    """The known part of a task.

    Text of artifacts is streamed as it arrives, as the answer starts with it. A status message is streamed only
    when the task is over: until then an artifact may replace it as the answer.
    """

    def __init__(self, emit: Callable[[str], None], answered: str = "") -> None:
        self._emit = emit
        # The mark of the question just answered: a task that still has it hasn't processed the answer yet.
        self._answered = answered
        self._streamed: list[str] = []
        self._is_current = True  # All known text was streamed.
        self._has_diverged = False  # The remote withdrew streamed text: the rest comes with the whole answer.
        self._artifacts: dict[str, tuple[RemoteArtifact, list[RemotePart]]] = {}
        self._history: tuple[RemoteMessage, ...] = ()
        self._metadata: dict[str, Any] = {}
        self._parts = self._characters = 0
        self.status = TaskStatus()
        self.reply: RemoteMessage | None = None

    @property
    def is_settled(self) -> bool:
        """Whether the task is over or waits for an answer, so that nothing follows by itself."""
        return self.is_over or self.is_waiting

    @property
    def is_waiting(self) -> bool:
        """Whether the task waits with a question that wasn't answered yet."""
        return self.status.state in INTERRUPTED and not (self._answered and self.status.mark == self._answered)

    @property
    def is_over(self) -> bool:
        """Whether the task is over."""
        return self.reply is not None or self.status.state in TERMINAL

    @property
    def has_failed(self) -> bool:
        """Whether the task failed or was rejected."""
        return self.reply is None and self.status.state in ("TASK_STATE_FAILED", "TASK_STATE_REJECTED")

    @property
    def has_artifacts(self) -> bool:
        """Whether any artifact is known."""
        return bool(self._artifacts)

    @property
    def artifact_text(self) -> str:
        """The text of all artifacts."""
        texts = [text_in(parts) for _, parts in self._artifacts.values()]
        return _SEPARATOR.join([text for text in texts if text])

    @property
    def status_text(self) -> str:
        """The text of the status message, or of the agent's newest message."""
        if self.status.message is not None and (text := text_in(self.status.message.parts)):
            return text
        own = (text_in(m.parts) for m in reversed(self._history) if m.role == "ROLE_AGENT")
        return next((text for text in own if text), "")

    @property
    def answer(self) -> str:
        """The text of a finished task."""
        return text_in(self.reply.parts) if self.reply is not None else self.artifact_text or self.status_text

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        """The non-text content."""
        message = self.reply or self.status.message
        found = [RemoteArtifact(a.artifact_id, a.name, tuple(parts)) for a, parts in self._artifacts.values()]
        if message is not None and self.is_over:
            found.append(RemoteArtifact(parts=message.parts))
        return tuple([artifact for each in found for artifact in artifacts_in(each)])

    @property
    def questions(self) -> tuple[Question, ...]:
        """The questions of a waiting task, if the remote lists them."""
        return questions_in(self.status.message)

    @property
    def question_data(self) -> dict[str, Any]:
        """The data and metadata of a question, besides its text."""
        message = self.status.message
        data = [] if message is None else data_in(message.parts)
        metadata = {**self._metadata, **({} if message is None else message.metadata)}
        return {**({"data": data} if data else {}), **({"metadata": metadata} if metadata else {})}

    def apply(self, event: Event) -> None:
        """Apply an event and stream its text."""
        match event:
            case RemoteMessage():
                self.reply = event
            case RemoteTask():
                self._replace(event)
            case StatusUpdate(status=status):
                if self.status.message is not None:
                    self._history = (*self._history[1 - _MAX_HISTORY :], self.status.message)
                self.status = status
            case ArtifactUpdate():
                self._update(event)
        if self.is_over and not self.has_failed:  # The message of a failure is no answer.
            self._stream(self.answer)

    def set_artifacts(self, artifacts: Iterable[RemoteArtifact]) -> None:
        """Replace the artifacts by those of a snapshot, without streaming their text."""
        self._artifacts.clear()
        self._parts = self._characters = 0
        for index, artifact in enumerate(artifacts):
            self._set(artifact, artifact.artifact_id or str(index))

    def _replace(self, task: RemoteTask) -> None:
        self.set_artifacts(task.artifacts)
        self.status, self._history, self._metadata = task.status, task.history[-_MAX_HISTORY:], task.metadata
        self._stream(self.artifact_text)

    def _update(self, update: ArtifactUpdate) -> None:
        artifact = update.artifact
        known = self._artifacts.get(artifact.artifact_id)
        if not update.append or known is None:
            self._set(artifact, artifact.artifact_id)
            self._stream(self.artifact_text)
            return
        self._count(artifact.parts)
        # Appending to the newest artifact is the frequent case; it avoids joining the whole text.
        is_newest = known is next(reversed(self._artifacts.values())) and any(part.text for part in known[1])
        known[1].extend(artifact.parts)
        if is_newest and self._is_current:
            self._emit_text(text_in(artifact.parts))
        else:
            self._stream(self.artifact_text)

    def _set(self, artifact: RemoteArtifact, key: str) -> None:
        self._count(artifact.parts)
        self._artifacts[key] = (artifact, list(artifact.parts))
        if len(self._artifacts) > _MAX_ARTIFACTS:
            raise TooLarge(f"the task has more than {_MAX_ARTIFACTS:,} artifacts, the limit")

    def _count(self, parts: Iterable[RemotePart]) -> None:
        for size in _sizes(parts):
            self._parts += 1
            self._characters += size
        if self._parts > _MAX_PARTS or self._characters > _MAX_CHARACTERS:
            raise TooLarge(
                f"the task's artifacts have more than {_MAX_PARTS:,} parts or {_MAX_CHARACTERS:,} characters, the "
                "limits"
            )

    def _stream(self, text: str) -> None:
        """Emit the part of a text that wasn't streamed yet, unless it contradicts the streamed text."""
        streamed = "".join(self._streamed)
        self._is_current = not self._has_diverged and text.startswith(streamed)
        if self._is_current:
            self._emit_text(text[len(streamed) :])
        elif not streamed.startswith(text):  # A snapshot may be older than the stream.
            self._has_diverged = True

    def _emit_text(self, text: str) -> None:
        if text:
            self._streamed.append(text)
            self._emit(text)


def _sizes(parts: Iterable[RemotePart]) -> Iterator[int]:
    for part in parts:
        yield len(part.text or "") + len(part.raw or "") + len(part.url or "")
