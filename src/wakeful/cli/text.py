"""Text for a terminal: short, on one line, without control characters and secrets."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec

from ..errors import UsageError
from ..types.content import ToolReply, text_of

__all__ = ["arguments_text", "call_text", "one_line", "parse_seconds", "plain", "reply_text", "time_text"]

MAX_LINE = 160

# Control characters and bidirectional marks, except tabs and line ends.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_SECRET = re.compile(
    r"(^|[_-])(password|passwd|passphrase|secret|token|api_?key|private_?key|authorization|credentials?)$", re.I
)
_HIDDEN = "•••"
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}


def plain(text: str) -> str:
    """The text without control characters, so that models and tools can't control the terminal."""
    return _CONTROL.sub("", text)


def one_line(text: str, limit: int = MAX_LINE) -> str:
    """The text on one line, cut to a length."""
    line = plain(" ".join(text.split()))
    return line if len(line) <= limit else line[: limit - 1] + "…"


def time_text(at: int) -> str:
    """A time in milliseconds as UTC text."""
    return f"{datetime.fromtimestamp(at / 1000, UTC):%Y-%m-%d %H:%M:%SZ}"


def parse_seconds(text: str) -> int:
    """The seconds of a time from now on, such as `90d`, `12h` or `30m`."""
    found = re.fullmatch(r"(\d{1,6})([mhd])", text.strip())
    if found is None:
        raise UsageError(f"{text!r:.80} is no time from now on; write 90d, 12h or 30m")
    return round(timedelta(**{_UNITS[found[2]]: int(found[1])}).total_seconds())


def call_text(name: str, arguments: dict[str, Any]) -> str:
    """A tool call on one line: `weather(city="Paris")`."""
    values = ", ".join(f"{key}={_json(value)}" for key, value in _masked(arguments).items())
    return one_line(f"{name}({values})")


def arguments_text(arguments: dict[str, Any], indent: int = 0) -> str:
    """A tool call's arguments in full, for a decider."""
    short = plain(_json(_masked(arguments)))
    if len(short) <= MAX_LINE // 2:
        return short
    lines = msgspec.json.format(short, indent=2).splitlines()
    return f"\n{' ' * indent}".join(lines)


def reply_text(reply: ToolReply | None) -> str:
    """A tool's result on one line."""
    if reply is None:
        return ""
    # The note about edited arguments is for the model, and would show hidden values.
    content = reply.content[:-1] if "edited" in reply.metadata else reply.content
    others = [part.__struct_config__.tag for part in content if not hasattr(part, "text")]
    return one_line(" ".join([text_of(content), *[f"[{kind}]" for kind in others]]))


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _masked(value: Any) -> Any:
    """The value with secrets hidden, by the names of fields."""
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return {k: _HIDDEN if _SECRET.search(k) and isinstance(v, str) else _masked(v) for k, v in items}
    if isinstance(value, list):
        return [_masked(v) for v in cast("list[Any]", value)]
    return value
