"""One answer, over all requests that it takes: how it breaks off, what is kept of it, and how another request or
another process goes on with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from ..stores import Chunk as Kept
from ..types.codec import encode
from ..types.content import Content, Text, Thinking, ToolCall
from ..types.events import StreamReset
from ._pieces import OpenCall
from ._taking import FINE, NO_USAGE, Taking

__all__ = ["Answer"]


class Answer(Taking, eq=False, gc=False):
    """One answer in the making."""

    def restore(
        self, message_id: str, attempt: int, text: str, parts: Sequence[tuple[int, Content, str | None]]
    ) -> None:
        """Be what another process kept of this answer: its text, and the parts in it with the place where each
        stands. A call whose arguments were streamed comes with their text."""
        self.message_id, self.attempt = message_id, attempt
        self._size = len(text)
        place = 0
        for at, part, streamed in parts:
            if at > place:
                self._parts.append(Text(text[place:at]))
                place = at
            if streamed is not None and type(part) is ToolCall:
                self._parts.append(OpenCall(part.name, part.vendor_id, part.id, [streamed], len(streamed)))
            else:
                self._parts.append(part)
        self._text = [text[place:]] if place < len(text) else None

    def whole(self) -> bool:
        """Whether what came is an answer, though it broke off: the model had stopped, or a call is complete."""
        return self.stop != "unknown" or self.has_calls()

    def has_calls(self) -> bool:
        """Whether a call is complete."""
        for part in self._parts:
            if type(part) is ToolCall or (type(part) is OpenCall and part.arguments() is not None):
                return True
        return False

    def end_here(self, reason: str) -> list[str]:
        """Be done with what came. Returns the names of the calls that are dropped, being incomplete."""
        if self.stop != "unknown":
            return []
        self.stop = "tool_use"
        self._reasoning, self._reasoning_half = None, ""
        return self._drop_calls(reason)

    def break_off(self, reason: str, *, anew: bool = False, reshow: bool = False) -> None:
        """Keep what another request can go on from: the text, and the reasoning that was closed before it. Without
        text the answer begins anew, and so it does with `anew`; with `reshow` readers begin with what is kept."""
        self.spent, self.usage, self.stop = self.total, NO_USAGE, "unknown"
        lost, self._reasoning = bool(self._reasoning), None
        # Nobody saw it, and no other request goes on with half a character.
        self._half = self._reasoning_half = ""
        shown = bool(self._size or self._reasoning_size or self._calls or self._parts)
        self._drop_calls(reason)
        kept = not anew and bool(self._so_far().strip())
        if kept and not self._text and type(last := self._parts[-1]) is Text:
            self._parts.pop()
            self._text = [last.text]  # What had closed it is gone.
        if kept and not lost and not reshow:
            self._broke_at, self._saved = self._size, len(self._parts)
            return
        if shown:
            self._reset(reason)
            self.attempt += 1
        if not kept:
            self._parts, self._text = [], None
            self.problems = FINE
        self._size, self._reasoning_size, self._broke_at = 0, 0, -1
        self._saved = self._saved_text = self._saved_reasoning = 0
        self._unshown = kept

    def go_on(self, seq: int) -> None:
        """Another request is made for it: readers who were told to forget what they saw are shown what was
        kept."""
        self._seq = seq
        if not self._unshown:
            return
        self._unshown = False
        for part in self._parts:
            if type(part) is Text:
                self._show_text(part.text)
            elif type(part) is Thinking:
                self._show_reasoning(part.text)
        self._show_text("".join(self._text or ()))
        self._broke_at = self._size

    def prefix(self) -> tuple[Content, ...]:
        """What the next request goes on from."""
        text = "".join(self._text or ())
        return (*cast(list[Content], self._parts), *([Text(text)] if text else []))

    @property
    def seq(self) -> int:
        """The place in the log behind which it is streamed."""
        return self._seq

    def shown(self) -> list[Kept]:
        """What readers were shown of it so far, or would have been."""
        return [] if self._unshown else self._pieces(0, 0, 0, anew=True)

    def unsaved(self) -> list[Kept]:
        """What the checkpoints don't have yet; from now on they do."""
        kept = self._pieces(self._saved, self._saved_text, self._saved_reasoning)
        self._saved, self._saved_text = len(self._parts), len(self._so_far())
        self._saved_reasoning = len(self._thought_so_far())
        for part in self._parts:
            if type(part) is OpenCall:
                part.saved = part.size
        return kept

    def _pieces(self, parts: int, text_from: int, thought_from: int, *, anew: bool = False) -> list[Kept]:
        """What it has besides its first so many parts, so much text and so much reasoning."""
        kept: list[Kept] = []
        place, text, thought = (self.message_id, self.attempt), self._so_far(), self._thought_so_far()
        if len(thought) > thought_from:
            kept.append(Kept(*place, thought_from, "reasoning", thought[thought_from:]))
        if len(text) > text_from:
            kept.append(Kept(*place, text_from, "text", text[text_from:]))
        at = 0
        for number, part in enumerate(self._parts):
            if type(part) is Text:
                at += len(part.text)
                continue
            if number >= parts and (whole := self._kept_part(part)) is not None:
                streamed = part.id if type(part) is OpenCall else None
                kept.append(Kept(*place, at, "part", encode(whole).decode(), streamed))
            if type(part) is OpenCall and part.size > (start := 0 if anew else part.saved):
                kept.append(Kept(*place, start, "call", "".join(part.pieces)[start:], part.id))
        return kept

    def _kept_part(self, part: Content | OpenCall) -> Content | None:
        """A part as the checkpoints have it: of a call whose arguments are streamed, all but these; nothing of one
        that is wrong."""
        if type(part) is OpenCall:
            return ToolCall(part.id, part.name, {}, part.vendor_id)
        return None if getattr(part, "id", None) in self.problems else cast(Content, part)

    def _thought_so_far(self) -> str:
        return "".join([*[part.text for part in self._parts if type(part) is Thinking], *(self._reasoning or ())])

    def _so_far(self) -> str:
        return "".join([*[part.text for part in self._parts if type(part) is Text], *(self._text or ())])

    def _drop_calls(self, reason: str) -> list[str]:
        """Withdraw the calls that the model hadn't written to their end."""
        dropped = [part for part in self._parts if type(part) is OpenCall and part.arguments() is None]
        for call in dropped:
            self._cancel(call, reason)
        self._parts = [part for part in self._parts if all(part is not call for call in dropped)]
        self._calls = {}
        return [call.name for call in dropped]

    def withdraw(self, reason: str) -> None:
        """Tell readers that what they saw of this answer doesn't count."""
        if self._size or self._reasoning_size or self._calls or self._parts:
            self._reset(reason)

    def _reset(self, reason: str) -> None:
        if self._channel.watched():
            at = self._clock.now()
            self._channel.publish(StreamReset(self.run, self._seq, at, self.message_id, self.attempt, reason))
