"""Keys of a terminal, by name."""

from __future__ import annotations

import asyncio
import codecs
import os
import re
import sys
import termios
import tty
from typing import Any

__all__ = ["Keys", "names_of"]

_NAMES = {
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1b[C": "right",
    "\x1b[D": "left",
    "\x1bOA": "up",
    "\x1bOB": "down",
    "\x1bOC": "right",
    "\x1bOD": "left",
    "\x1b": "escape",
    "\t": "tab",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x03": "ctrl-c",
    "\x04": "ctrl-d",
}
# One key: an escape sequence or one character.
_KEY = re.compile(r"\x1b[\[O][0-9;]*[A-Za-z~]|.", re.DOTALL)


def names_of(text: str) -> list[str]:
    """The keys in terminal input: letters as they are, others by name; unknown sequences are dropped."""
    pressed: list[str] = _KEY.findall(text)
    found = [_NAMES.get(key, key) for key in pressed]
    return [key for key in found if not key.startswith("\x1b")]


class Keys:
    """Yields every key while it is entered, without echo and without waiting for the end of a line."""

    def __init__(self) -> None:
        self._terminal = sys.stdin.fileno()
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="ignore")
        self._pressed: asyncio.Queue[str | None] = asyncio.Queue()
        self._before: list[Any] = []

    def __enter__(self) -> Keys:
        self._before = termios.tcgetattr(self._terminal)
        tty.setcbreak(self._terminal)
        settings = termios.tcgetattr(self._terminal)
        settings[3] &= ~termios.ISIG  # Ctrl-C is a key: it ends a typed line, or else the program.
        termios.tcsetattr(self._terminal, termios.TCSADRAIN, settings)
        asyncio.get_running_loop().add_reader(self._terminal, self._read)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._terminal)
        termios.tcsetattr(self._terminal, termios.TCSADRAIN, self._before)

    def __aiter__(self) -> Keys:
        return self

    async def __anext__(self) -> str:
        key = await self._pressed.get()
        if key is None:
            raise StopAsyncIteration
        return key

    def _read(self) -> None:
        try:
            data = os.read(self._terminal, 1024)
        except OSError:
            data = b""
        if not data:  # The terminal is gone.
            asyncio.get_running_loop().remove_reader(self._terminal)
            self._pressed.put_nowait(None)
            return
        for key in names_of(self._decoder.decode(data)):
            self._pressed.put_nowait(key)
