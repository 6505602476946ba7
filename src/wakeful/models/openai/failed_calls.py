"""Answers that Groq refuses: a call that its model wrote wrongly, or a text where a call was forced.

A call reaches the model again as a malformed one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

import msgspec

__all__ = ["FAILED_CALL", "is_failed_call", "repaired_call"]

FAILED_CALL = "tool_use_failed"
"""Groq's code of such an error."""

# `<function=look>{"at": "sky"}</function>`, as Llama writes calls.
_TAGGED = re.compile(
    r"<function[=(](?P<name>[^>{(]+?)[>)]?\s*(?P<arguments>\{.*?\})?\s*(?:</function>|\Z)", re.DOTALL
)
# Signs of a call in a text.
_MARKS = ("{", "<function", "<tool_call")


def is_failed_call(event: Mapping[str, Any]) -> bool:
    """Whether an error is such a call."""
    error: Any = event.get("error")
    return isinstance(error, dict) and cast(dict[str, Any], error).get("code") == FAILED_CALL


def repaired_call(event: Mapping[str, Any], *, has_text: bool) -> dict[str, Any] | None:
    """The completion that the model wanted to give; None if the error doesn't show it.

    With `has_text` its text was streamed before.
    """
    written = event["error"].get("failed_generation")
    if not isinstance(written, str) or not written.strip():
        return None
    call = _parse(written)
    if call is None and not any(mark in written for mark in _MARKS):
        text = {} if has_text else {"content": written}
        return {"choices": [{"index": 0, "delta": text, "finish_reason": "stop"}]}
    if call is None:
        return None
    name, arguments = call
    message = {"tool_calls": [{"index": 0, "function": {"name": name, "arguments": arguments}}]}
    return {"choices": [{"index": 0, "delta": message, "finish_reason": "tool_calls"}]}


def _parse(written: str) -> tuple[str, str] | None:
    """The name and the arguments of a call as it was written."""
    text = re.sub(r"</?tool_call>", "", written).strip()
    try:
        found: Any = msgspec.json.decode(text)
    except msgspec.DecodeError:
        tagged = _TAGGED.search(text)
        return None if tagged is None else (tagged["name"].strip(), tagged["arguments"] or text)
    if isinstance(found, list) and found:
        found = cast(list[Any], found)[0]
    if not isinstance(found, dict) or not isinstance(name := cast(dict[str, Any], found).get("name"), str):
        return None
    call = cast(dict[str, Any], found)
    arguments: Any = call.get("arguments", call.get("parameters", {}))
    return name, arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
