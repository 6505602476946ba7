"""An answer over all requests for it: how it breaks, and how another request or process continues it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from ...stores import Chunk as Kept
from ...types.codec import encode
from ...types.content import Content, ServerTool, Text, Thinking, ToolCall
from ...types.events import StreamReset
from .assembler import NO_PROBLEMS, NO_USAGE, Assembler
from .pieces import OpenCall

__all__ = ["Answer"]


class Answer(Assembler, eq=False):
    """One answer in progress."""

    def restore(
        self, message_id: str, attempt: int, text: str, parts: Sequence[tuple[int, Content, str | None]]
    ) -> None:
        """Restore the answer from another process's checkpoints: its text, and parts with their offsets in it.

        A call whose arguments were streamed comes with their text.
        """
        self.message_id, self.attempt = message_id, attempt
        self._size = len(text)
        place = 0
        for at, part, streamed in parts:
            if at > place:
                self._parts.append(Text(text[place:at]))
                place = at
            if isinstance(part, ServerTool):
                self._put_server_tool(part)
            elif streamed is not None and type(part) is ToolCall:
                self._parts.append(
                    OpenCall(
                        part.name, part.vendor_id, part.id, [streamed], len(streamed), signature=part.signature
                    )
                )
            else:
                self._parts.append(part)
        self._text = [text[place:]] if place < len(text) else None

    def is_whole(self) -> bool:
        """Whether the broken answer can be used: the model had stopped, or a call is complete."""
        return self.stop != "unknown" or self.has_calls()

    def has_calls(self) -> bool:
        """Whether a call is complete."""
        for part in self._parts:
            if type(part) is ToolCall or (type(part) is OpenCall and part.arguments() is not None):
                return True
        return False

    def end_here(self, reason: str) -> list[str]:
        """End the answer here; returns the names of the incomplete calls, which are dropped."""
        if self.stop != "unknown":
            return []
        self.stop = "tool_use"
        self._reasoning, self._reasoning_half = None, ""
        return self._drop_calls(reason)

    def break_off(self, reason: str, *, restart: bool = False, reshow: bool = False) -> None:
        """Keep the parts that another request can continue: the text, and closed reasoning before it.

        Without text, or with `restart`, the answer starts over. With `reshow` readers see the kept parts again.
        """
        self.spent, self.usage, self.stop = self.total, NO_USAGE, "unknown"
        lost, self._reasoning = bool(self._reasoning), None
        # A lone high surrogate was not shown and can't be continued.
        self._half = self._reasoning_half = ""
        shown = bool(self._size or self._reasoning_size or self._calls or self._parts)
        self._drop_calls(reason)
        kept = not restart and bool(self._text_so_far().strip())
        if kept and not self._text and type(last := self._parts[-1]) is Text:
            self._parts.pop()
            self._text = [last.text]  # The part that closed it was dropped.
        if kept and not lost and not reshow:
            self._broke_at, self._saved = self._size, len(self._parts)
            return
        if shown:
            self._reset(reason)
            self.attempt += 1
        if not kept:
            self._parts, self._text = [], None
            self.problems = NO_PROBLEMS
        self._size, self._reasoning_size, self._broke_at = 0, 0, -1
        self._saved = self._saved_text = self._saved_reasoning = 0
        self._unshown = kept

    def pause(self) -> None:
        """Keep everything: the vendor paused the answer, and continues it with the next request."""
        self._close_text()
        self.spent, self.usage, self.stop = self.total, NO_USAGE, "unknown"
        self._calls, self.is_paused = {}, True

    def resume(self, seq: int) -> None:
        """Start another request: after a reset, readers are shown the kept parts again."""
        self._seq, self.is_paused = seq, False
        if not self._unshown:
            self._began_at = self._size
            return
        self._unshown = False
        for part in self._parts:
            if type(part) is Text:
                self._show_text(part.text)
            elif type(part) is Thinking:
                self._show_reasoning(part.text)
        self._show_text("".join(self._text or ()))
        self._broke_at = self._began_at = self._size

    def prefix(self) -> tuple[Content, ...]:
        """The parts that the next request continues."""
        text = "".join(self._text or ())
        return (*cast(list[Content], self._parts), *([Text(text)] if text else []))

    @property
    def seq(self) -> int:
        """The log position after which the answer is streamed."""
        return self._seq

    def shown(self) -> list[Kept]:
        """The chunks that readers were shown so far."""
        return [] if self._unshown else self._chunks_after(0, 0, 0, restart=True)

    def unsaved(self) -> list[Kept]:
        """The chunks that aren't in the checkpoints yet; marks them as saved."""
        kept = self._chunks_after(self._saved, self._saved_text, self._saved_reasoning)
        self._saved, self._saved_text = len(self._parts), len(self._text_so_far())
        self._saved_reasoning = len(self._reasoning_so_far())
        for part in self._parts:
            if type(part) is OpenCall:
                part.saved = part.size
        return kept

    def _chunks_after(self, parts: int, text_from: int, thought_from: int, *, restart: bool = False) -> list[Kept]:
        """The chunks after a number of parts, of characters of text and of characters of reasoning."""
        kept: list[Kept] = []
        place, text, thought = (self.message_id, self.attempt), self._text_so_far(), self._reasoning_so_far()
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
            if type(part) is OpenCall and part.size > (start := 0 if restart else part.saved):
                kept.append(Kept(*place, start, "call", "".join(part.pieces)[start:], part.id))
        return kept

    def _kept_part(self, part: Content | OpenCall) -> Content | None:
        """A part for the checkpoints: a streamed call without its arguments; None for a call with a problem."""
        if type(part) is OpenCall:
            return ToolCall(part.id, part.name, {}, part.vendor_id, part.signature)
        return None if getattr(part, "id", None) in self.problems else cast(Content, part)

    def _reasoning_so_far(self) -> str:
        return "".join([*[part.text for part in self._parts if type(part) is Thinking], *(self._reasoning or ())])

    def _text_so_far(self) -> str:
        return "".join([*[part.text for part in self._parts if type(part) is Text], *(self._text or ())])

    def _drop_calls(self, reason: str) -> list[str]:
        """Drop the incomplete calls; returns their names."""
        dropped = [part for part in self._parts if type(part) is OpenCall and part.arguments() is None]
        for call in dropped:
            self._cancel(call, reason)
        gone = [*dropped, *[part for part in self._parts if isinstance(part, ServerTool) and not part.is_over]]
        self._parts = [part for part in self._parts if all(part is not one for one in gone)]
        self._calls = {}
        return [call.name for call in dropped]

    def withdraw(self, reason: str) -> None:
        """Tell readers to discard what they saw of this answer."""
        if self._size or self._reasoning_size or self._calls or self._parts:
            self._reset(reason)

    def _reset(self, reason: str) -> None:
        if self._channel.is_watched():
            at = self._clock.now()
            self._channel.publish(StreamReset(self.run, self._seq, at, self.message_id, self.attempt, reason))
